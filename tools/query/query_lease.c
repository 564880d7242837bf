/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade lease`, `revoke` and `leases`. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/json.h"
#include "fence/base/mem.h"
#include "tools/query/query.h"
#include "tools/term.h"

enum { CHUNK = 500, COLUMNS = 7 };

static const struct option_row json_rows[] = {QUERY_JSON_ROW};
static const struct option_table lease_table = {
    .command = "stockade lease",
    .usage = "stockade lease RESOURCE [options]",
    .about = "Tells who holds the lease on a resource, and for how long.\n\n" QUERY_EXITS,
    .rows = json_rows,
    .count = sizeof json_rows / sizeof *json_rows,
    .operand = "RESOURCE",
    .operand_offset = offsetof(struct query_settings, key),
};
static const struct option_table revoke_table = {
    .command = "stockade revoke",
    .usage = "stockade revoke RESOURCE [options]",
    .about = "Ends the lease on a resource, whoever holds it: the holder's next write is STALE.\n"
             "Prints the token that is retired now.\n\n" QUERY_EXITS,
    .rows = json_rows,
    .count = sizeof json_rows / sizeof *json_rows,
    .operand = "RESOURCE",
    .operand_offset = offsetof(struct query_settings, key),
};
static const struct option_row leases_rows[] = {
    {"count", OPTION_NUMBER, offsetof(struct query_settings, count), 1, INT64_MAX, "N",
     "at most so many (100000)", NULL},
    QUERY_JSON_ROW,
};
static const struct option_table leases_table = {
    .command = "stockade leases",
    .usage = "stockade leases [MATCH] [options]",
    .about = "Lists the resources whose newest token was not released or revoked; MATCH is a\n"
             "pattern such as 'sku:*'.\n\n" QUERY_EXITS,
    .rows = leases_rows,
    .count = sizeof leases_rows / sizeof *leases_rows,
    .operand = "MATCH",
    .operand_offset = offsetof(struct query_settings, value),
    .operand_is_optional = true,
};

/* What LEASE says under a name; NULL, which reads as nothing or zero: it does not say it. */
static const stk_reply *entry(const stk_reply *lease, const char *name)
{
    for (size_t i = 0; i + 1 < stk_reply_count(lease); i += 2) {
        const char *said = stk_reply_string(stk_reply_at(lease, i), NULL);
        if (said != NULL && strcmp(said, name) == 0) {
            return stk_reply_at(lease, i + 1);
        }
    }
    return NULL;
}

static int64_t number_of(const stk_reply *lease, const char *name)
{
    return stk_reply_integer(entry(lease, name));
}

static struct bytes text_of(const stk_reply *lease, const char *name)
{
    return query_bytes(entry(lease, name));
}

static void append_json(struct buf *out, struct bytes resource, const stk_reply *lease)
{
    static const char *const texts[] = {"state", "owner"};
    static const char *const numbers[] = {"token", "ttl_ms", "holds", "waiters"};

    query_json_name(out, true, "resource");
    json_string(out, resource);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        query_json_name(out, false, texts[i]);
        json_string(out, text_of(lease, texts[i]));
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        query_json_name(out, false, numbers[i]);
        buf_printf(out, "%" PRId64, number_of(lease, numbers[i]));
    }
    buf_append_text(out, "}");
}

static int lease(struct query *query)
{
    const char *key = query->settings.key, *words[] = {"LEASE", key};
    struct buf *out = &query->out;
    int code = CLI_OK;
    stk_reply *reply = query_ask(query, words, 2, &code);

    if (reply == NULL) {
        return code;
    }
    if (stk_reply_type(reply) != STK_ARRAY) {
        code = query_refuse(query, QUERY_NO, "NONE", "was never leased");
    } else if (query->settings.json) {
        append_json(out, bytes_of(key), reply);
        buf_append_text(out, "\n");
    } else if (bytes_equal(text_of(reply, "state"), BYTES_LITERAL("held"))) {
        buf_append_text(out, "held by \"");
        buf_append_bytes(out, text_of(reply, "owner"));
        buf_printf(out,
                   "\" under token %" PRId64 ", %" PRId64 " ms left, %" PRId64 " holds, %" PRId64
                   " waiting\n",
                   number_of(reply, "token"), number_of(reply, "ttl_ms"), number_of(reply, "holds"),
                   number_of(reply, "waiters"));
    } else {
        buf_printf(out, "free, newest token %" PRId64 "\n", number_of(reply, "token"));
    }
    stk_reply_free(reply);
    return code;
}

static int revoke(struct query *query)
{
    const char *key = query->settings.key;
    int64_t token;
    int code;

    if (!query_connect(query, &code)) {
        return code;
    }
    enum stk_error error = stk_revoke(query->client, key, &token);
    if (error != STK_OK) {
        return query_fail(query, error);
    }
    if (token == 0) {
        return query_refuse(query, QUERY_NO, "NONE", "was never leased");
    }
    if (query->settings.json) {
        query_json_name(&query->out, true, "resource");
        json_string(&query->out, bytes_of(key));
        buf_printf(&query->out, ", \"token\": %" PRId64 "}\n", token);
    } else {
        buf_printf(&query->out, "token %" PRId64 " is retired\n", token);
    }
    return CLI_OK;
}

/* A cell of the table; free it. What would move the cursor is shown as a dot. */
static char *cell_text(struct bytes text)
{
    char *cell = mem_alloc(text.len + 1);

    for (size_t i = 0; i < text.len; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        cell[i] = byte < 0x20 || byte == 0x7f ? '.' : (char)byte;
    }
    cell[text.len] = '\0';
    return cell;
}

static char *cell_number(const stk_reply *lease, const char *name)
{
    char digits[24];

    (void)snprintf(digits, sizeof digits, "%" PRId64, number_of(lease, name));
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
    struct buf *out = &listing->query->out;

    if (listing->query->settings.json) {
        buf_append_text(out, listing->rows == 0 ? "[\n  " : ",\n  ");
        append_json(out, name, lease);
        query_print(listing->query);
    } else {
        row[0] = cell_text(name);
        row[1] = cell_text(text_of(lease, "state"));
        row[2] = cell_number(lease, "token");
        row[3] = cell_number(lease, "ttl_ms");
        row[4] = cell_number(lease, "holds");
        row[5] = cell_number(lease, "waiters");
        row[6] = cell_text(text_of(lease, "owner"));
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
        struct bytes name = query_bytes(stk_reply_at(names, i));
        argv[i - from][0] = "LEASE";
        argv[i - from][1] = name.data;
        lens[i - from][0] = 5;
        lens[i - from][1] = name.len;
        commands[i - from] = (stk_words){2, argv[i - from], lens[i - from]};
    }
    enum stk_error error = stk_command_all(listing->query->client, commands, to - from, &leases);
    for (size_t i = from; i < to && error == STK_OK; i++) {
        const stk_reply *lease = stk_reply_at(leases, i - from);
        if (stk_reply_type(lease) == STK_ARRAY) {
            add_row(listing, query_bytes(stk_reply_at(names, i)), lease);
        }
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

    for (size_t i = 0; i < count && error == STK_OK; i += CHUNK) {
        error = add_rows(&listing, names, i, i + CHUNK < count ? i + CHUNK : count);
    }
    if (json) {
        buf_printf(&query->out, "%s]\n", listing.rows == 0 ? "[" : "\n");
    } else if (error == STK_OK && listing.rows > 0) {
        print_table(&listing);
    }
    for (size_t i = 0; i < listing.rows * COLUMNS; i++) {
        free(listing.cells[i]);
    }
    free(listing.cells);
    return error == STK_OK ? CLI_OK : query_fail(query, error);
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
    stk_reply *reply = query_ask(query, words, count, &code);
    if (reply != NULL) {
        code = list_leases(query, reply);
        stk_reply_free(reply);
    }
    return code;
}

int lease_run(const struct cli *cli, int argc, char **argv)
{
    return query_run(lease, &lease_table, cli, argc, argv);
}

int revoke_run(const struct cli *cli, int argc, char **argv)
{
    return query_run(revoke, &revoke_table, cli, argc, argv);
}

int leases_run(const struct cli *cli, int argc, char **argv)
{
    return query_run(leases, &leases_table, cli, argc, argv);
}
