/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade get`, `set` and `take`. The writes bring a token, or take the lease for the moment and
 * give it back; each of their commands carries an ID, so that a lost reply is no lost or double
 * write. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/bytes.h"
#include "tools/lease.h"
#include "tools/query/query.h"

enum { TIMES = 3, WORDS_MAX = 8, DAY_MS = 24 * 3600 * 1000 };
#define OWN_LEASE_TTL "10000"

#define FIELD_ROW                                                                                  \
    {                                                                                              \
        "field", OPTION_TEXT, offsetof(struct query_settings, field), 0, 0, "FIELD",               \
            "a field of the key's hash", NULL                                                      \
    }
#define TOKEN_ROW                                                                                  \
    {                                                                                              \
        "token", OPTION_NUMBER, offsetof(struct query_settings, token), 1, INT64_MAX, "T",         \
            "of a lease that you hold; without it, one is taken", NULL                             \
    }
#define WAIT_ROW                                                                                   \
    {                                                                                              \
        "wait", OPTION_MS, offsetof(struct query_settings, wait_ms), 0, DAY_MS, "10s",             \
            "how long to wait for that lease", NULL                                                \
    }

static const struct option_row get_rows[] = {FIELD_ROW, QUERY_JSON_ROW};
static const struct option_table get_table = {
    .command = "stockade get",
    .usage = "stockade get KEY [options]",
    .about = "Prints what a key holds: a string, or a hash as \"field: value\" lines.\n\n" //
    QUERY_EXITS,
    .rows = get_rows,
    .count = sizeof get_rows / sizeof *get_rows,
    .operand = "KEY",
    .operand_offset = offsetof(struct query_settings, key),
};

static const struct option_row set_rows[] = {FIELD_ROW, TOKEN_ROW, WAIT_ROW, QUERY_JSON_ROW};
static const struct option_table set_table = {
    .command = "stockade set",
    .usage = "stockade set KEY VALUE [options]",
    .about = "Writes a value under a lease. (A value that begins with - goes behind --.)\n\n" //
    QUERY_EXITS,
    .rows = set_rows,
    .count = sizeof set_rows / sizeof *set_rows,
    .operand = "KEY",
    .operand_offset = offsetof(struct query_settings, key),
    .operand2 = "VALUE",
    .operand2_offset = offsetof(struct query_settings, value),
};

static const struct option_row take_rows[] = {
    {"min", OPTION_NUMBER, offsetof(struct query_settings, min), INT64_MIN, INT64_MAX, "0",
     "what has to be left at least", NULL},
    FIELD_ROW,
    TOKEN_ROW,
    WAIT_ROW,
    QUERY_JSON_ROW,
};
static const struct option_table take_table = {
    .command = "stockade take",
    .usage = "stockade take KEY N [options]",
    .about = "Takes N off a number under a lease and prints what is left; takes nothing where\n"
             "less than --min would be left.\n\n" //
    QUERY_EXITS,
    .rows = take_rows,
    .count = sizeof take_rows / sizeof *take_rows,
    .operand = "KEY",
    .operand_offset = offsetof(struct query_settings, key),
    .operand2 = "N",
    .operand2_offset = offsetof(struct query_settings, value),
};

static void print_key(const struct query *query)
{
    query_json_name(true, "key");
    query_json_text(query->settings.key, strlen(query->settings.key));
    if (query->settings.field != NULL) {
        query_json_name(false, "field");
        query_json_text(query->settings.field, strlen(query->settings.field));
    }
}

static void print_string(const struct query *query, const redisReply *reply)
{
    if (query->settings.json) {
        print_key(query);
        query_json_name(false, "value");
        query_json_text(reply->str, reply->len);
        printf("}\n");
    } else {
        (void)fwrite(reply->str, 1, reply->len, stdout);
        (void)putchar('\n');
    }
}

static void print_hash(const struct query *query, const redisReply *reply)
{
    if (query->settings.json) {
        print_key(query);
        query_json_name(false, "fields");
    }
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        const redisReply *field = reply->element[i], *value = reply->element[i + 1];
        if (query->settings.json) {
            printf("%s", i == 0 ? "{" : ", ");
            query_json_text(field->str, field->len);
            printf(": ");
            query_json_text(value->str, value->len);
        } else {
            (void)fwrite(field->str, 1, field->len, stdout);
            printf(": ");
            (void)fwrite(value->str, 1, value->len, stdout);
            (void)putchar('\n');
        }
    }
    if (query->settings.json) {
        printf("}}\n");
    }
}

static int get(struct query *query)
{
    const struct query_settings *settings = &query->settings;
    const char *type[] = {"TYPE", settings->key}, *string[] = {"GET", settings->key};
    const char *hash[] = {"HGETALL", settings->key};
    const char *field[] = {"HGET", settings->key, settings->field};
    redisReply *reply;
    int code = CLI_OK;

    if (settings->field != NULL) {
        reply = query_ask(query, field, 3, TIMES, &code);
    } else if ((reply = query_ask(query, type, 2, TIMES, &code)) != NULL) {
        bool is_hash = strcmp(reply->str, "hash") == 0;
        freeReplyObject(reply);
        reply = query_ask(query, is_hash ? hash : string, 2, TIMES, &code);
    }
    if (reply == NULL) {
        return code;
    }
    if (reply->type == REDIS_REPLY_STRING) {
        print_string(query, reply);
    } else if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0) {
        print_hash(query, reply);
    } else {
        code = query_refuse(query, QUERY_NO, "NONE", "nothing there");
    }
    freeReplyObject(reply);
    return code;
}

/* A lease for the moment: its token, or 0 with `*code`. */
static int64_t acquire(struct query *query, int *code)
{
    char wait[24], id[64];
    struct lease lease = {.token = 0};

    (void)snprintf(wait, sizeof wait, "%" PRId64, query->settings.wait_ms);
    (void)snprintf(id, sizeof id, "%s/acquire", query->id);
    const char *words[] = {"ACQUIRE", query->settings.key, OWN_LEASE_TTL, "WAIT", wait,
                           "OWNER",   query->id,           "ID",          id};
    query->wait_ms = query->settings.wait_ms;
    redisReply *reply = query_ask(query, words, sizeof words / sizeof *words, TIMES, code);
    query->wait_ms = 0;
    if (reply == NULL) {
        return 0;
    }
    if (lease_of(reply, &lease) != ACQUIRE_GRANTED) {
        *code = query_refuse(query, QUERY_HELD, "HELD", "another holds the lease");
    }
    freeReplyObject(reply);
    return lease.token;
}

/* Where it fails, the lease ends by its TTL. */
static void release(struct query *query, const char *token)
{
    char id[64];
    int code;

    (void)snprintf(id, sizeof id, "%s/release", query->id);
    const char *words[] = {"RELEASE", query->settings.key, token, "ID", id};
    freeReplyObject(query_ask(query, words, sizeof words / sizeof *words, TIMES, &code));
}

/* FENCED with the command: its reply, or NULL with `*code`. `token` becomes the one used. */
static redisReply *write_fenced(struct query *query, const char *const *command, size_t count,
                                int64_t *token, int *code)
{
    const char *words[WORDS_MAX + 4] = {"FENCED"};
    char number[24], id[64];

    *token = query->settings.token != 0 ? query->settings.token : acquire(query, code);
    if (*token == 0) {
        return NULL;
    }
    (void)snprintf(number, sizeof number, "%" PRId64, *token);
    (void)snprintf(id, sizeof id, "%s/write", query->id);
    words[1] = number;
    words[2] = "ID";
    words[3] = id;
    memcpy(words + 4, command, count * sizeof *command);
    redisReply *reply = query_ask(query, words, count + 4, TIMES, code);
    if (query->settings.token == 0 && query->client.context != NULL) {
        release(query, number);
    }
    return reply;
}

static int set(struct query *query)
{
    const struct query_settings *settings = &query->settings;
    const char *string[] = {"SET", settings->key, settings->value};
    const char *hash[] = {"HSET", settings->key, settings->field, settings->value};
    int64_t token;
    int code = CLI_OK;
    redisReply *reply = settings->field != NULL ? write_fenced(query, hash, 4, &token, &code)
                                                : write_fenced(query, string, 3, &token, &code);

    if (reply == NULL) {
        return code;
    }
    if (settings->json) {
        print_key(query);
        printf(", \"token\": %" PRId64 "}\n", token);
    } else {
        printf("OK\n");
    }
    freeReplyObject(reply);
    return code;
}

/* Taking is adding less than nothing, which hashes can as well. */
static int take(struct query *query)
{
    const struct query_settings *settings = &query->settings;
    char change[24], min[24];
    int64_t count, token, left = 0;
    int code = CLI_OK;

    if (!bytes_to_int64(bytes_of(settings->value), &count) || count < 1) {
        fprintf(stderr, "%s: N takes a whole number from 1 on, not \"%s\"; see %s --help\n",
                query->name, settings->value, query->name);
        return CLI_USAGE;
    }
    (void)snprintf(change, sizeof change, "%" PRId64, -count);
    (void)snprintf(min, sizeof min, "%" PRId64, settings->min);
    const char *string[] = {"INCRBY", settings->key, change, "MIN", min};
    const char *hash[] = {"HINCRBY", settings->key, settings->field, change, "MIN", min};
    redisReply *reply = settings->field != NULL ? write_fenced(query, hash, 6, &token, &code)
                                                : write_fenced(query, string, 5, &token, &code);
    if (reply == NULL) {
        return code;
    }
    (void)client_to_int64(reply, &left);
    if (settings->json) {
        print_key(query);
        printf(", \"taken\": %" PRId64 ", \"left\": %" PRId64 ", \"token\": %" PRId64 "}\n", count,
               left, token);
    } else {
        printf("%" PRId64 "\n", left);
    }
    freeReplyObject(reply);
    return code;
}

static int run(const struct option_table *table, int (*function)(struct query *),
               const struct cli *cli, int argc, char **argv)
{
    struct query query = {.settings = {.wait_ms = 10000}};
    int code;

    if (query_open(&query, table, cli, argc, argv, &code)) {
        code = function(&query);
        query_close(&query);
    }
    return code;
}

int get_run(const struct cli *cli, int argc, char **argv)
{
    return run(&get_table, get, cli, argc, argv);
}

int set_run(const struct cli *cli, int argc, char **argv)
{
    return run(&set_table, set, cli, argc, argv);
}

int take_run(const struct cli *cli, int argc, char **argv)
{
    return run(&take_table, take, cli, argc, argv);
}
