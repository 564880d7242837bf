/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that ask one thing or write one thing: `stockade get`, `set`, `take`, `lease`, `revoke`
 * and `leases`, for people and, with --json and exit codes, for scripts. They go through the
 * library, so what was lost on its way is asked again where that is harmless. The writes bring a
 * token, or take a lease, write and release it. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/bytes.h"
#include "fence/base/json.h"
#include "fence/base/mem.h"
#include "proxy/client/stockade.h"
#include "tools/answer.h"
#include "tools/cli.h"
#include "tools/options.h"
#include "tools/term.h"

enum {
    OWN_LEASE_TTL_MS = 10000,
    DAY_MS = 24 * 3600 * 1000,
    CHUNK = 500, /* leases that are asked for at a time */
    COLUMNS = 7,
};

struct settings {
    const char *key, *value; /* the operands */
    const char *field;       /* of a hash; NULL: the key holds a string */
    int64_t token;           /* 0: take a lease, and release it after the write */
    int64_t wait_ms, min, count;
    bool json;
};

struct query {
    struct answer answer;
    struct settings settings;
};

#define JSON_ROW                                                                                   \
    {                                                                                              \
        "json", OPTION_FLAG, offsetof(struct settings, json), 0, 0, NULL,                          \
            "one JSON value instead of text", NULL                                                 \
    }

/* Read the options, run `function`, and print what it has left in `out`. Return the exit code. */
static int run_query(int (*function)(struct query *), const struct option_table *table,
                     struct cli *cli, int argc, char **argv)
{
    struct query query = {.settings = {.wait_ms = 10000}};

    switch (options_parse(table, &query.settings, cli, argc, argv)) {
    case OPTIONS_HELPED: return CLI_OK;
    case OPTIONS_WRONG: return CLI_USAGE;
    case OPTIONS_RUN: break;
    }
    query.answer = (struct answer){.command = table->command,
                                   .key = query.settings.key,
                                   .json = query.settings.json,
                                   .cli = cli};
    int code = function(&query);
    answer_print(&query.answer);
    answer_close(&query.answer);
    return code;
}

/* stockade get, set, take */

#define FIELD_ROW                                                                                  \
    {                                                                                              \
        "field", OPTION_TEXT, offsetof(struct settings, field), 0, 0, "FIELD",                     \
            "a field of the key's hash", NULL                                                      \
    }
#define TOKEN_ROW                                                                                  \
    {                                                                                              \
        "token", OPTION_NUMBER, offsetof(struct settings, token), 1, INT64_MAX, "T",               \
            "the token of your lease; without it, one is taken and released", NULL                 \
    }
#define WAIT_ROW                                                                                   \
    {                                                                                              \
        "wait", OPTION_MS, offsetof(struct settings, wait_ms), 0, DAY_MS, "10s",                   \
            "how long to wait for that lease", NULL                                                \
    }

static const struct option_row get_rows[] = {FIELD_ROW, JSON_ROW};
static const struct option_table get_table = {
    .command = "stockade get",
    .usage = "stockade get KEY [options]",
    .about = "Prints what a key holds: a string, or a hash as \"field: value\" lines.\n\n" //
    ANSWER_EXITS,
    OPTION_ROWS(get_rows),
    .operands = {{"KEY", offsetof(struct settings, key)}},
};

static const struct option_row set_rows[] = {FIELD_ROW, TOKEN_ROW, WAIT_ROW, JSON_ROW};
static const struct option_table set_table = {
    .command = "stockade set",
    .usage = "stockade set KEY VALUE [options]",
    .about = "Writes a value under a lease. A negative one goes after --: set KEY -- -5.\n\n" //
    ANSWER_WRITE_EXITS,
    OPTION_ROWS(set_rows),
    .operands = {{"KEY", offsetof(struct settings, key)},
                 {"VALUE", offsetof(struct settings, value)}},
};

static const struct option_row take_rows[] = {
    {"min", OPTION_NUMBER, offsetof(struct settings, min), INT64_MIN, INT64_MAX, "0",
     "the least that has to be left", NULL},
    FIELD_ROW,
    TOKEN_ROW,
    WAIT_ROW,
    JSON_ROW,
};
static const struct option_table take_table = {
    .command = "stockade take",
    .usage = "stockade take KEY N [options]",
    .about = "Takes N off a number under a lease and prints what is left; takes nothing where\n"
             "less than --min would be left.\n\n" //
    ANSWER_WRITE_EXITS,
    OPTION_ROWS(take_rows),
    .operands = {{"KEY", offsetof(struct settings, key)}, {"N", offsetof(struct settings, value)}},
};

static void append_key(struct query *query)
{
    answer_text(&query->answer.out, "{", "key", bytes_of(query->settings.key));
    if (query->settings.field != NULL)
        answer_text(&query->answer.out, ", ", "field", bytes_of(query->settings.field));
}

/* What programs read are the bytes themselves. */
static void append_shown(struct query *query, struct bytes text)
{
    struct term term;

    term_open(&term);
    if (!term.live) {
        buf_append_bytes(&query->answer.out, text);
        return;
    }
    char *shown = term_shown(text);
    buf_append_text(&query->answer.out, shown);
    free(shown);
}

static void append_string(struct query *query, struct bytes value)
{
    if (query->settings.json) {
        append_key(query);
        answer_text(&query->answer.out, ", ", "value", value);
        buf_append_text(&query->answer.out, "}\n");
    } else {
        append_shown(query, value);
        buf_append_text(&query->answer.out, "\n");
    }
}

static void append_hash(struct query *query, const stk_reply *reply)
{
    struct buf *out = &query->answer.out;
    bool json = query->settings.json;

    if (json) {
        append_key(query);
        buf_append_text(out, ", \"fields\": ");
    }
    for (size_t i = 0; i + 1 < stk_reply_count(reply); i += 2) {
        struct bytes field = answer_string(stk_reply_at(reply, i));
        struct bytes value = answer_string(stk_reply_at(reply, i + 1));
        if (json) {
            buf_append_text(out, i == 0 ? "{" : ", ");
            json_string(out, field);
            buf_append_text(out, ": ");
            json_string(out, value);
        } else {
            append_shown(query, field);
            buf_append_text(out, ": ");
            append_shown(query, value);
            buf_append_text(out, "\n");
        }
    }
    if (json)
        buf_append_text(out, "}}\n");
}

static int get(struct query *query)
{
    const struct settings *settings = &query->settings;
    const char *type[] = {"TYPE", settings->key}, *string[] = {"GET", settings->key};
    const char *hash[] = {"HGETALL", settings->key};
    const char *field[] = {"HGET", settings->key, settings->field};
    stk_reply *reply;
    int code = CLI_OK;

    if (settings->field != NULL) {
        reply = answer_ask(&query->answer, field, 3, &code);
    } else if ((reply = answer_ask(&query->answer, type, 2, &code)) != NULL) {
        const char *kind = stk_reply_string(reply, NULL);
        bool is_hash = kind != NULL && strcmp(kind, "hash") == 0;
        stk_reply_free(reply);
        reply = answer_ask(&query->answer, is_hash ? hash : string, 2, &code);
    }
    if (reply == NULL)
        return code;
    if (stk_reply_type(reply) == STK_STRING)
        append_string(query, answer_string(reply));
    else if (stk_reply_count(reply) > 0)
        append_hash(query, reply);
    else
        code = answer_refuse(&query->answer, CLI_NOTHING, "NONE", "nothing there");
    stk_reply_free(reply);
    return code;
}

/* Return whether the server has answered: then a release will not take long either. */
static bool is_answer(enum stk_error error)
{
    return error != STK_TIMEOUT && error != STK_UNSURE && error != STK_UNREACHABLE;
}

/* Say how many are left, where there are fewer than were to be taken. The lease still stands, so
 * nobody else has changed that meanwhile. Return the exit code. */
static int refuse_take(struct query *query, stk_lease *lease)
{
    const struct settings *settings = &query->settings;
    const char *string[] = {"GET", settings->key},
               *hash[] = {"HGET", settings->key, settings->field};
    char least[48] = "", message[160];
    stk_reply *reply = NULL;
    enum stk_error error = settings->field != NULL ? stk_fenced(lease, 3, hash, NULL, &reply)
                                                   : stk_fenced(lease, 2, string, NULL, &reply);

    if (error != STK_OK)
        return answer_fail(&query->answer, error);
    if (settings->min != 0)
        (void)snprintf(least, sizeof least, ", %" PRId64 " have to stay", settings->min);
    (void)snprintf(message, sizeof message, "%" PRId64 " left, %s asked for%s; nothing taken",
                   stk_reply_integer(reply), settings->value, least);
    stk_reply_free(reply);
    return answer_refuse(&query->answer, CLI_NOTHING, stk_error_code(STK_RANGE), message);
}

/* Send the command under the token that was given, or under a lease of its own, which ends by its
 * TTL where it cannot be given back. Return the reply, or NULL with `*code`; `*token` is the one
 * that was used. */
static stk_reply *write_fenced(struct query *query, const char *const *words, size_t count,
                               int64_t *token, int *code)
{
    const struct settings *settings = &query->settings;
    const stk_lease_options options = {
        .ttl_ms = OWN_LEASE_TTL_MS, .wait_ms = settings->wait_ms, .no_keep_alive = true};
    stk_lease *lease;
    stk_reply *reply = NULL;

    if (!answer_connect(&query->answer, code))
        return NULL;
    enum stk_error error =
        settings->token != 0
            ? stk_lease_use(query->answer.client, settings->key, settings->token, &lease)
            : stk_acquire(query->answer.client, settings->key, &options, &lease);
    *token = stk_lease_token(lease, NULL);
    if (error == STK_OK)
        error = stk_fenced(lease, count, words, NULL, &reply);
    if (error != STK_OK)
        *code = error == STK_RANGE ? refuse_take(query, lease) : answer_fail(&query->answer, error);
    if (lease != NULL && settings->token == 0 && is_answer(error))
        (void)stk_release(lease);
    stk_lease_free(lease);
    return reply;
}

static int set(struct query *query)
{
    const struct settings *settings = &query->settings;
    const char *string[] = {"SET", settings->key, settings->value};
    const char *hash[] = {"HSET", settings->key, settings->field, settings->value};
    int64_t token;
    int code = CLI_OK;
    stk_reply *reply = settings->field != NULL ? write_fenced(query, hash, 4, &token, &code)
                                               : write_fenced(query, string, 3, &token, &code);

    if (reply == NULL)
        return code;
    if (settings->json) {
        append_key(query);
        answer_number(&query->answer.out, "token", token);
        buf_append_text(&query->answer.out, "}\n");
    } else {
        buf_append_text(&query->answer.out, "OK\n");
    }
    stk_reply_free(reply);
    return code;
}

/* Add a negative number: hashes have no DECRBY. */
static int take(struct query *query)
{
    const struct settings *settings = &query->settings;
    char change[24], min[24];
    int64_t count, token;
    int code = CLI_OK;

    if (!bytes_to_int64(bytes_of(settings->value), &count) || count < 1) {
        term_error("%s: N takes a whole number from 1 on, not \"%s\"; see %s --help",
                   query->answer.command, settings->value, query->answer.command);
        return CLI_USAGE;
    }
    (void)snprintf(change, sizeof change, "%" PRId64, -count);
    (void)snprintf(min, sizeof min, "%" PRId64, settings->min);
    const char *string[] = {"INCRBY", settings->key, change, "MIN", min};
    const char *hash[] = {"HINCRBY", settings->key, settings->field, change, "MIN", min};
    stk_reply *reply = settings->field != NULL ? write_fenced(query, hash, 6, &token, &code)
                                               : write_fenced(query, string, 5, &token, &code);
    if (reply == NULL)
        return code;
    int64_t left = stk_reply_integer(reply);
    if (settings->json) {
        append_key(query);
        answer_number(&query->answer.out, "taken", count);
        answer_number(&query->answer.out, "left", left);
        answer_number(&query->answer.out, "token", token);
        buf_append_text(&query->answer.out, "}\n");
    } else {
        buf_printf(&query->answer.out, "%" PRId64 "\n", left);
    }
    stk_reply_free(reply);
    return code;
}

/* stockade lease, revoke, leases */

static const struct option_row json_rows[] = {JSON_ROW};
static const struct option_table lease_table = {
    .command = "stockade lease",
    .usage = "stockade lease RESOURCE [options]",
    .about = "Tells who holds the lease on a resource, and for how long.\n\n" ANSWER_EXITS,
    OPTION_ROWS(json_rows),
    .operands = {{"RESOURCE", offsetof(struct settings, key)}},
};
static const struct option_table revoke_table = {
    .command = "stockade revoke",
    .usage = "stockade revoke RESOURCE [options]",
    .about = "Ends the lease on a resource, whoever holds it: the holder's next write is STALE.\n"
             "Prints the token that is retired now.\n\n" ANSWER_EXITS,
    OPTION_ROWS(json_rows),
    .operands = {{"RESOURCE", offsetof(struct settings, key)}},
};
static const struct option_row leases_rows[] = {
    {"count", OPTION_NUMBER, offsetof(struct settings, count), 1, INT64_MAX, "N",
     "list no more than N (100000)", NULL},
    JSON_ROW,
};
static const struct option_table leases_table = {
    .command = "stockade leases",
    .usage = "stockade leases [MATCH] [options]",
    .about = "Lists the resources whose newest token was not released or revoked; MATCH is a\n"
             "pattern such as 'sku:*'.\n\n" ANSWER_EXITS,
    OPTION_ROWS(leases_rows),
    .operands = {{"MATCH", offsetof(struct settings, value)}},
    .operand_is_optional = true,
};

static void append_json(struct buf *out, struct bytes resource, const stk_reply *lease)
{
    static const char *const texts[] = {"state", "owner"};
    static const char *const numbers[] = {"token", "ttl_ms", "holds", "waiters"};

    answer_text(out, "{", "resource", resource);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        answer_text(out, ", ", texts[i], answer_entry_text(lease, texts[i]));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        answer_number(out, numbers[i], answer_entry_number(lease, numbers[i]));
    buf_append_text(out, "}");
}

static int lease(struct query *query)
{
    const char *key = query->settings.key, *words[] = {"LEASE", key};
    struct buf *out = &query->answer.out;
    int code = CLI_OK;
    stk_reply *reply = answer_ask(&query->answer, words, 2, &code);

    if (reply == NULL)
        return code;
    if (stk_reply_type(reply) != STK_ARRAY) {
        code = answer_refuse(&query->answer, CLI_NOTHING, "NONE", "was never leased");
    } else if (query->settings.json) {
        append_json(out, bytes_of(key), reply);
        buf_append_text(out, "\n");
    } else if (bytes_equal(answer_entry_text(reply, "state"), BYTES_LITERAL("held"))) {
        char *owner = term_shown(answer_entry_text(reply, "owner"));
        buf_printf(out,
                   "held by \"%s\" under token %" PRId64 ", %" PRId64 " ms left, %" PRId64
                   " holds, %" PRId64 " waiting\n",
                   owner, answer_entry_number(reply, "token"), answer_entry_number(reply, "ttl_ms"),
                   answer_entry_number(reply, "holds"), answer_entry_number(reply, "waiters"));
        free(owner);
    } else {
        buf_printf(out, "free, newest token %" PRId64 "\n", answer_entry_number(reply, "token"));
    }
    stk_reply_free(reply);
    return code;
}

static int revoke(struct query *query)
{
    const char *key = query->settings.key;
    int64_t token;
    int code;

    if (!answer_connect(&query->answer, &code))
        return code;
    enum stk_error error = stk_revoke(query->answer.client, key, &token);
    if (error != STK_OK)
        return answer_fail(&query->answer, error);
    if (token == 0)
        return answer_refuse(&query->answer, CLI_NOTHING, "NONE", "was never leased");
    if (query->settings.json) {
        answer_text(&query->answer.out, "{", "resource", bytes_of(key));
        answer_number(&query->answer.out, "token", token);
        buf_append_text(&query->answer.out, "}\n");
    } else {
        buf_printf(&query->answer.out, "token %" PRId64 " is retired\n", token);
    }
    return CLI_OK;
}

static char *cell_number(const stk_reply *lease, const char *name)
{
    char digits[24];

    (void)snprintf(digits, sizeof digits, "%" PRId64, answer_entry_number(lease, name));
    return mem_strdup(digits);
}

/* The rows of a table, or a JSON array. */
struct listing {
    struct query *query;
    char **cells; /* COLUMNS for each row, owned */
    size_t rows;
};

static void add_row(struct listing *listing, struct bytes name, const stk_reply *lease)
{
    char **row = listing->cells + listing->rows * COLUMNS;
    struct buf *out = &listing->query->answer.out;

    if (listing->query->settings.json) {
        buf_append_text(out, listing->rows == 0 ? "[\n  " : ",\n  ");
        append_json(out, name, lease);
    } else {
        row[0] = term_shown(name);
        row[1] = term_shown(answer_entry_text(lease, "state"));
        row[2] = cell_number(lease, "token");
        row[3] = cell_number(lease, "ttl_ms");
        row[4] = cell_number(lease, "holds");
        row[5] = cell_number(lease, "waiters");
        row[6] = term_shown(answer_entry_text(lease, "owner"));
    }
    listing->rows++;
}

/* Add the leases of names `from` to `to`. One that is gone by now is left out. */
static enum stk_error add_rows(struct listing *listing, const stk_reply *names, size_t from,
                               size_t to)
{
    stk_words commands[CHUNK] = {{0}};
    const char *argv[CHUNK][2];
    size_t lens[CHUNK][2];
    stk_reply *leases;

    for (size_t i = from; i < to; i++) {
        struct bytes name = answer_string(stk_reply_at(names, i));
        argv[i - from][0] = "LEASE";
        argv[i - from][1] = name.data;
        lens[i - from][0] = 5;
        lens[i - from][1] = name.len;
        commands[i - from] = (stk_words){2, argv[i - from], lens[i - from]};
    }
    enum stk_error error =
        stk_command_all(listing->query->answer.client, commands, to - from, &leases);
    for (size_t i = from; i < to && error == STK_OK; i++) {
        const stk_reply *lease = stk_reply_at(leases, i - from);
        if (stk_reply_type(lease) == STK_ARRAY)
            add_row(listing, answer_string(stk_reply_at(names, i)), lease);
    }
    stk_reply_free(leases);
    return error;
}

static void print_table(const struct listing *listing)
{
    static const char *const head[] = {"RESOURCE", "STATE",   "TOKEN", "TTL_MS",
                                       "HOLDS",    "WAITERS", "OWNER"};
    size_t cells = listing->rows * COLUMNS;
    const char **all = mem_alloc(sizeof head + cells * sizeof *all);
    struct term term;

    memcpy(all, head, sizeof head);
    memcpy(all + COLUMNS, listing->cells, cells * sizeof *all);
    term_open(&term);
    term_table(&term, all, listing->rows + 1, COLUMNS);
    free(all);
}

static int list_leases(struct query *query, const stk_reply *names)
{
    size_t count = stk_reply_count(names);
    bool json = query->settings.json;
    struct listing listing = {.query = query,
                              .cells = mem_zalloc((count + 1) * COLUMNS * sizeof(char *))};
    enum stk_error error = STK_OK;

    for (size_t i = 0; i < count && error == STK_OK; i += CHUNK)
        error = add_rows(&listing, names, i, i + CHUNK < count ? i + CHUNK : count);
    if (error != STK_OK)
        buf_clear(&query->answer.out); /* the answer is the error alone */
    else if (json)
        buf_printf(&query->answer.out, "%s]\n", listing.rows == 0 ? "[" : "\n");
    else if (listing.rows > 0)
        print_table(&listing);
    for (size_t i = 0; i < listing.rows * COLUMNS; i++)
        free(listing.cells[i]);
    free(listing.cells);
    return error == STK_OK ? CLI_OK : answer_fail(&query->answer, error);
}

static int leases(struct query *query)
{
    const char *words[5] = {"LEASES"};
    size_t count = 1;
    char number[24];
    int code = CLI_OK;

    if (query->settings.value != NULL) {
        words[count++] = "MATCH";
        words[count++] = query->settings.value;
    }
    if (query->settings.count != 0) {
        (void)snprintf(number, sizeof number, "%" PRId64, query->settings.count);
        words[count++] = "COUNT";
        words[count++] = number;
    }
    stk_reply *reply = answer_ask(&query->answer, words, count, &code);
    if (reply != NULL) {
        code = list_leases(query, reply);
        stk_reply_free(reply);
    }
    return code;
}

int get_run(struct cli *cli, int argc, char **argv)
{
    return run_query(get, &get_table, cli, argc, argv);
}

int set_run(struct cli *cli, int argc, char **argv)
{
    return run_query(set, &set_table, cli, argc, argv);
}

int take_run(struct cli *cli, int argc, char **argv)
{
    return run_query(take, &take_table, cli, argc, argv);
}

int lease_run(struct cli *cli, int argc, char **argv)
{
    return run_query(lease, &lease_table, cli, argc, argv);
}

int revoke_run(struct cli *cli, int argc, char **argv)
{
    return run_query(revoke, &revoke_table, cli, argc, argv);
}

int leases_run(struct cli *cli, int argc, char **argv)
{
    return run_query(leases, &leases_table, cli, argc, argv);
}
