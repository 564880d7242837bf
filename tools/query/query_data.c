/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade get`, `set` and `take`. The writes bring a token, or take the lease for the moment and
 * give it back. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/json.h"
#include "tools/query/query.h"

enum { OWN_LEASE_TTL_MS = 10000, DAY_MS = 24 * 3600 * 1000 };

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

static void append_key(struct query *query)
{
    query_json_name(&query->out, true, "key");
    json_string(&query->out, bytes_of(query->settings.key));
    if (query->settings.field != NULL) {
        query_json_name(&query->out, false, "field");
        json_string(&query->out, bytes_of(query->settings.field));
    }
}

static void append_string(struct query *query, struct bytes value)
{
    if (query->settings.json) {
        append_key(query);
        query_json_name(&query->out, false, "value");
        json_string(&query->out, value);
        buf_append_text(&query->out, "}\n");
    } else {
        buf_append_bytes(&query->out, value);
        buf_append_text(&query->out, "\n");
    }
}

static void append_hash(struct query *query, const stk_reply *reply)
{
    struct buf *out = &query->out;
    bool json = query->settings.json;

    if (json) {
        append_key(query);
        query_json_name(out, false, "fields");
    }
    for (size_t i = 0; i + 1 < stk_reply_count(reply); i += 2) {
        struct bytes field = query_bytes(stk_reply_at(reply, i));
        struct bytes value = query_bytes(stk_reply_at(reply, i + 1));
        if (json) {
            buf_append_text(out, i == 0 ? "{" : ", ");
            json_string(out, field);
            buf_append_text(out, ": ");
            json_string(out, value);
        } else {
            buf_append_bytes(out, field);
            buf_append_text(out, ": ");
            buf_append_bytes(out, value);
            buf_append_text(out, "\n");
        }
    }
    if (json) {
        buf_append_text(out, "}}\n");
    }
}

static int get(struct query *query)
{
    const struct query_settings *settings = &query->settings;
    const char *type[] = {"TYPE", settings->key}, *string[] = {"GET", settings->key};
    const char *hash[] = {"HGETALL", settings->key};
    const char *field[] = {"HGET", settings->key, settings->field};
    stk_reply *reply;
    int code = CLI_OK;

    if (settings->field != NULL) {
        reply = query_ask(query, field, 3, &code);
    } else if ((reply = query_ask(query, type, 2, &code)) != NULL) {
        const char *kind = stk_reply_string(reply, NULL);
        bool is_hash = kind != NULL && strcmp(kind, "hash") == 0;
        stk_reply_free(reply);
        reply = query_ask(query, is_hash ? hash : string, 2, &code);
    }
    if (reply == NULL) {
        return code;
    }
    if (stk_reply_type(reply) == STK_STRING) {
        append_string(query, query_bytes(reply));
    } else if (stk_reply_count(reply) > 0) {
        append_hash(query, reply);
    } else {
        code = query_refuse(query, QUERY_NO, "NONE", "nothing there");
    }
    stk_reply_free(reply);
    return code;
}

/* Whether the server has answered: then a release will not take long either. */
static bool is_answer(enum stk_error error)
{
    return error != STK_TIMEOUT && error != STK_UNSURE && error != STK_UNREACHABLE;
}

/* The command under the token that was given, or under a lease for the moment, which ends by its
 * TTL where it cannot be given back. Returns the reply, or NULL with `*code`; `*token` is the one
 * used. */
static stk_reply *write_fenced(struct query *query, const char *const *words, size_t count,
                               int64_t *token, int *code)
{
    const struct query_settings *settings = &query->settings;
    const stk_lease_options options = {
        .ttl_ms = OWN_LEASE_TTL_MS, .wait_ms = settings->wait_ms, .no_keep_alive = true};
    stk_lease *lease;
    stk_reply *reply = NULL;

    if (!query_connect(query, code)) {
        return NULL;
    }
    enum stk_error error =
        settings->token != 0 ? stk_lease_use(query->client, settings->key, settings->token, &lease)
                             : stk_acquire(query->client, settings->key, &options, &lease);
    *token = stk_lease_token(lease, NULL);
    if (error == STK_OK) {
        error = stk_fenced(lease, count, words, NULL, &reply);
    }
    if (error != STK_OK) {
        *code = query_fail(query, error);
    }
    if (lease != NULL && settings->token == 0 && is_answer(error)) {
        (void)stk_release(lease);
    }
    stk_lease_free(lease);
    return reply;
}

static int set(struct query *query)
{
    const struct query_settings *settings = &query->settings;
    const char *string[] = {"SET", settings->key, settings->value};
    const char *hash[] = {"HSET", settings->key, settings->field, settings->value};
    int64_t token;
    int code = CLI_OK;
    stk_reply *reply = settings->field != NULL ? write_fenced(query, hash, 4, &token, &code)
                                               : write_fenced(query, string, 3, &token, &code);

    if (reply == NULL) {
        return code;
    }
    if (settings->json) {
        append_key(query);
        buf_printf(&query->out, ", \"token\": %" PRId64 "}\n", token);
    } else {
        buf_append_text(&query->out, "OK\n");
    }
    stk_reply_free(reply);
    return code;
}

/* Taking is adding less than nothing, which hashes can as well. */
static int take(struct query *query)
{
    const struct query_settings *settings = &query->settings;
    char change[24], min[24];
    int64_t count, token;
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
    stk_reply *reply = settings->field != NULL ? write_fenced(query, hash, 6, &token, &code)
                                               : write_fenced(query, string, 5, &token, &code);
    if (reply == NULL) {
        return code;
    }
    int64_t left = stk_reply_integer(reply);
    if (settings->json) {
        append_key(query);
        buf_printf(&query->out,
                   ", \"taken\": %" PRId64 ", \"left\": %" PRId64 ", \"token\": %" PRId64 "}\n",
                   count, left, token);
    } else {
        buf_printf(&query->out, "%" PRId64 "\n", left);
    }
    stk_reply_free(reply);
    return code;
}

int get_run(const struct cli *cli, int argc, char **argv)
{
    return query_run(get, &get_table, cli, argc, argv);
}

int set_run(const struct cli *cli, int argc, char **argv)
{
    return query_run(set, &set_table, cli, argc, argv);
}

int take_run(const struct cli *cli, int argc, char **argv)
{
    return query_run(take, &take_table, cli, argc, argv);
}
