/* SPDX-License-Identifier: Apache-2.0 */
/* Asking, once or again, and telling what went wrong. */
#include "tools/query/query.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "fence/base/check.h"
#include "fence/base/json.h"

enum { WORDS_MAX = 16 };

bool query_open(struct query *query, const struct option_table *table, const struct cli *cli,
                int argc, char **argv, int *code)
{
    uint64_t random[2];

    query->name = table->command;
    query->uri = cli->uri;
    switch (options_parse(table, &query->settings, argc, argv)) {
    case OPTIONS_HELPED: *code = CLI_OK; return false;
    case OPTIONS_WRONG: *code = CLI_USAGE; return false;
    case OPTIONS_RUN: break;
    }
    check(getrandom(random, sizeof random, 0) == (ssize_t)sizeof random);
    (void)snprintf(query->id, sizeof query->id, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
    return true;
}

void query_close(struct query *query)
{
    client_close(&query->client);
}

static int refused_by_server(struct query *query, const redisReply *reply)
{
    static const struct {
        const char *error;
        int code;
    } codes[] = {{"STALE", QUERY_STALE},
                 {"RANGE", QUERY_NO},
                 {"LEASEDOWN", QUERY_UNREACHABLE},
                 {"BUSY", QUERY_UNREACHABLE}};
    char error[24];
    const char *message = reply->str + strcspn(reply->str, " ");

    (void)snprintf(error, sizeof error, "%.*s", (int)(message - reply->str), reply->str);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (strcmp(error, codes[i].error) == 0) {
            return query_refuse(query, codes[i].code, error, message + (*message == ' '));
        }
    }
    return query_refuse(query, CLI_FAILED, error, message + (*message == ' '));
}

redisReply *query_ask(struct query *query, const char *const *words, size_t count, int times,
                      int *code)
{
    struct client *client = &query->client;
    const char *argv[WORDS_MAX];
    redisReply *reply = NULL;

    check(count <= WORDS_MAX);
    memcpy(argv, words, count * sizeof *words);
    for (; times > 0 && reply == NULL; times--) {
        if (client->context == NULL && !client_open(client, &query->uri)) {
            break;
        }
        check(redisAppendCommandArgv(client->context, (int)count, argv, NULL) == REDIS_OK);
        if (client_limit(client, query->wait_ms + CLIENT_LIMIT_MS)) {
            reply = client_next(client);
        }
        if (reply == NULL) {
            client_close(client);
        }
    }
    if (reply == NULL) {
        *code = query_refuse(query, QUERY_UNREACHABLE, "UNREACHABLE", client->failure.text);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        *code = refused_by_server(query, reply);
        freeReplyObject(reply);
        reply = NULL;
    }
    return reply;
}

int query_refuse(struct query *query, int code, const char *error, const char *message)
{
    const char *key = query->settings.key;

    if (!query->settings.json) {
        fprintf(stderr, "%s: %s%s%s\n", query->name, key != NULL ? key : "",
                key != NULL ? ": " : "", message);
        return code;
    }
    query_json_name(true, "error");
    query_json_text(error, strlen(error));
    query_json_name(false, "message");
    query_json_text(message, strlen(message));
    if (key != NULL) {
        query_json_name(false, "key");
        query_json_text(key, strlen(key));
    }
    printf("}\n");
    return code;
}

void query_json_text(const char *text, size_t length)
{
    struct buf json = {0};

    json_string(&json, (struct bytes){text, length});
    (void)fwrite(json.data, 1, json.len, stdout);
    buf_free(&json);
}

void query_json_name(bool first, const char *name)
{
    printf("%s\"%s\": ", first ? "{" : ", ", name);
}
