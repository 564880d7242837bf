/* SPDX-License-Identifier: Apache-2.0 */
/* Asking, and telling what went wrong. */
#include "tools/query/query.h"

#include <stdio.h>
#include <string.h>

#include "fence/base/json.h"

enum { ANSWER_LIMIT_MS = 5000 };

int query_run(int (*function)(struct query *), const struct option_table *table,
              const struct cli *cli, int argc, char **argv)
{
    struct query query = {.name = table->command, .settings = {.wait_ms = 10000}};

    switch (options_parse(table, &query.settings, argc, argv)) {
    case OPTIONS_HELPED: return CLI_OK;
    case OPTIONS_WRONG: return CLI_USAGE;
    case OPTIONS_RUN: break;
    }
    query.uri = cli->uri.text;
    int code = function(&query);
    query_print(&query);
    stk_client_close(query.client);
    buf_free(&query.out);
    return code;
}

bool query_connect(struct query *query, int *code)
{
    enum stk_error error = STK_OK;

    if (query->client == NULL) {
        error = stk_client_open(query->uri, ANSWER_LIMIT_MS, &query->client);
    }
    if (error != STK_OK) {
        *code = query_fail(query, error);
    }
    return error == STK_OK;
}

stk_reply *query_ask(struct query *query, const char *const *words, size_t count, int *code)
{
    stk_reply *reply;

    if (!query_connect(query, code)) {
        return NULL;
    }
    enum stk_error error = stk_command(query->client, count, words, NULL, &reply);
    if (error != STK_OK) {
        *code = query_fail(query, error);
    }
    return reply;
}

void query_print(struct query *query)
{
    (void)fwrite(query->out.data, 1, query->out.len, stdout);
    buf_clear(&query->out);
}

int query_fail(struct query *query, enum stk_error error)
{
    const char *message = stk_message(), *code = stk_error_code(error);

    switch (error) {
    case STK_STALE: return query_refuse(query, QUERY_STALE, code, message);
    case STK_RANGE: return query_refuse(query, QUERY_NO, code, message);
    case STK_HELD: return query_refuse(query, QUERY_HELD, code, "another holds the lease");
    case STK_LEASEDOWN:
    case STK_BUSY:
    case STK_TIMEOUT:
    case STK_UNSURE:
    case STK_UNREACHABLE: return query_refuse(query, QUERY_UNREACHABLE, code, message);
    default: return query_refuse(query, CLI_FAILED, code, message);
    }
}

int query_refuse(struct query *query, int code, const char *error, const char *message)
{
    const char *key = query->settings.key;
    struct buf *out = &query->out;

    if (!query->settings.json) {
        fprintf(stderr, "%s: %s%s%s\n", query->name, key != NULL ? key : "",
                key != NULL ? ": " : "", message);
        return code;
    }
    query_json_name(out, true, "error");
    json_string(out, bytes_of(error));
    query_json_name(out, false, "message");
    json_string(out, bytes_of(message));
    if (key != NULL) {
        query_json_name(out, false, "key");
        json_string(out, bytes_of(key));
    }
    buf_append_text(out, "}\n");
    return code;
}

struct bytes query_bytes(const stk_reply *string)
{
    struct bytes bytes;

    bytes.data = stk_reply_string(string, &bytes.len);
    return bytes;
}

void query_json_name(struct buf *out, bool first, const char *name)
{
    buf_printf(out, "%s\"%s\": ", first ? "{" : ", ", name);
}
