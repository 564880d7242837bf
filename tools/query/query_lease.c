/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade lease`, `revoke` and `leases`. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tools/query/query.h"
#include "tools/term.h"

enum { TIMES = 3, CHUNK = 500, COLUMNS = 7, CELL_MAX = 64 };

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

/* What LEASE says under a name; it says all of them. */
static const redisReply *entry(const redisReply *lease, const char *name)
{
    for (size_t i = 0; i + 1 < lease->elements; i += 2) {
        if (strcmp(lease->element[i]->str, name) == 0) {
            return lease->element[i + 1];
        }
    }
    check(false);
}

static int64_t number_of(const redisReply *lease, const char *name)
{
    int64_t number = 0;

    (void)client_to_int64(entry(lease, name), &number);
    return number;
}

static bool is_held(const redisReply *lease)
{
    return strcmp(entry(lease, "state")->str, "held") == 0;
}

static void print_json(const char *resource, size_t length, const redisReply *lease)
{
    static const char *const numbers[] = {"token", "ttl_ms", "holds", "waiters"};
    const redisReply *owner = entry(lease, "owner");

    query_json_name(true, "resource");
    query_json_text(resource, length);
    query_json_name(false, "state");
    query_json_text(entry(lease, "state")->str, entry(lease, "state")->len);
    query_json_name(false, "owner");
    query_json_text(owner->str, owner->len);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        query_json_name(false, numbers[i]);
        printf("%" PRId64, number_of(lease, numbers[i]));
    }
    printf("}");
}

static int lease(struct query *query)
{
    const char *key = query->settings.key, *words[] = {"LEASE", key};
    int code = CLI_OK;
    redisReply *reply = query_ask(query, words, 2, TIMES, &code);

    if (reply == NULL) {
        return code;
    }
    if (reply->type != REDIS_REPLY_ARRAY) {
        code = query_refuse(query, QUERY_NO, "NONE", "was never leased");
    } else if (query->settings.json) {
        print_json(key, strlen(key), reply);
        printf("\n");
    } else if (is_held(reply)) {
        const redisReply *owner = entry(reply, "owner");
        printf("held by \"%.*s\" under token %" PRId64 ", %" PRId64 " ms left, %" PRId64
               " holds, %" PRId64 " waiting\n",
               (int)owner->len, owner->str, number_of(reply, "token"), number_of(reply, "ttl_ms"),
               number_of(reply, "holds"), number_of(reply, "waiters"));
    } else {
        printf("free, newest token %" PRId64 "\n", number_of(reply, "token"));
    }
    freeReplyObject(reply);
    return code;
}

static int revoke(struct query *query)
{
    const char *key = query->settings.key, *words[] = {"REVOKE", key};
    int code = CLI_OK;
    /* Once: a repeat could revoke the successor. */
    redisReply *reply = query_ask(query, words, 2, 1, &code);
    int64_t token;

    if (reply == NULL) {
        return code;
    }
    if (!client_to_int64(reply, &token)) {
        code = query_refuse(query, QUERY_NO, "NONE", "was never leased");
    } else if (query->settings.json) {
        query_json_name(true, "resource");
        query_json_text(key, strlen(key));
        printf(", \"token\": %" PRId64 "}\n", token);
    } else {
        printf("token %" PRId64 " is retired\n", token);
    }
    freeReplyObject(reply);
    return code;
}

/* A cell of the table: what would move the cursor is shown as a dot. */
static const char *cell_text(const redisReply *text)
{
    char *cell = mem_alloc(text->len + 1);

    for (size_t i = 0; i < text->len; i++) {
        unsigned char byte = (unsigned char)text->str[i];
        cell[i] = byte < 0x20 || byte == 0x7f ? '.' : (char)byte;
    }
    cell[text->len] = '\0';
    return cell;
}

static const char *cell_number(int64_t number)
{
    char *cell = mem_alloc(CELL_MAX);

    (void)snprintf(cell, CELL_MAX, "%" PRId64, number);
    return cell;
}

static void fill_row(const char **row, const redisReply *name, const redisReply *lease)
{
    row[0] = cell_text(name);
    row[1] = cell_text(entry(lease, "state"));
    row[2] = cell_number(number_of(lease, "token"));
    row[3] = cell_number(number_of(lease, "ttl_ms"));
    row[4] = cell_number(number_of(lease, "holds"));
    row[5] = cell_number(number_of(lease, "waiters"));
    row[6] = cell_text(entry(lease, "owner"));
}

/* Asks for the lease of each name; one that is gone by now is left out. */
static int print_leases(struct query *query, const redisReply *names)
{
    static const char *const head[] = {"RESOURCE", "STATE",   "TOKEN", "TTL_MS",
                                       "HOLDS",    "WAITERS", "OWNER"};
    const char **cells = mem_alloc((names->elements + 1) * COLUMNS * sizeof *cells);
    bool json = query->settings.json;
    size_t rows = 1;
    int code = CLI_OK;

    memcpy(cells, head, sizeof head);
    for (size_t i = 0; i < names->elements && code == CLI_OK; i++) {
        const redisReply *name = names->element[i];

        for (size_t j = i; i % CHUNK == 0 && j < names->elements && j < i + CHUNK; j++) {
            client_append(&query->client, "LEASE %b", names->element[j]->str,
                          names->element[j]->len);
        }
        redisReply *reply = client_next(&query->client);
        if (reply == NULL) {
            code =
                query_refuse(query, QUERY_UNREACHABLE, "UNREACHABLE", query->client.failure.text);
        } else if (reply->type == REDIS_REPLY_ARRAY && json) {
            printf("%s", rows++ == 1 ? "[\n  " : ",\n  ");
            print_json(name->str, name->len, reply);
        } else if (reply->type == REDIS_REPLY_ARRAY) {
            fill_row(cells + rows++ * COLUMNS, name, reply);
        }
        freeReplyObject(reply);
    }
    if (json) {
        printf("%s]\n", rows == 1 ? "[" : "\n");
    } else if (code == CLI_OK && rows > 1) {
        struct term term;
        term_open(&term);
        term_table(&term, cells, rows, COLUMNS);
    }
    for (size_t i = COLUMNS; !json && i < rows * COLUMNS; i++) {
        free((char *)(uintptr_t)cells[i]);
    }
    free(cells);
    return code;
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
    redisReply *reply = query_ask(query, words, count, TIMES, &code);
    if (reply != NULL) {
        code = print_leases(query, reply);
        freeReplyObject(reply);
    }
    return code;
}

static int run(const struct option_table *table, int (*function)(struct query *),
               const struct cli *cli, int argc, char **argv)
{
    struct query query = {.wait_ms = 0};
    int code;

    if (query_open(&query, table, cli, argc, argv, &code)) {
        code = function(&query);
        query_close(&query);
    }
    return code;
}

int lease_run(const struct cli *cli, int argc, char **argv)
{
    return run(&lease_table, lease, cli, argc, argv);
}

int revoke_run(const struct cli *cli, int argc, char **argv)
{
    return run(&revoke_table, revoke, cli, argc, argv);
}

int leases_run(const struct cli *cli, int argc, char **argv)
{
    return run(&leases_table, leases, cli, argc, argv);
}
