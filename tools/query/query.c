/* SPDX-License-Identifier: Apache-2.0 */
/* Asking, once or again, and telling what went wrong. */
#include "tools/query/query.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "fence/base/check.h"

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

/* How many bytes the UTF-8 character at `text` has; 0: it is none. */
static size_t utf8_size(const unsigned char *text, size_t length)
{
    size_t size = text[0] < 0x80 ? 1 : text[0] < 0xe0 ? 2 : text[0] < 0xf0 ? 3 : 4;
    uint32_t code = size == 1 ? text[0] : text[0] & (0xffu >> (size + 1));
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};

    if ((text[0] >= 0x80 && text[0] < 0xc2) || text[0] > 0xf4 || size > length) {
        return 0;
    }
    for (size_t i = 1; i < size; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
        code = code << 6 | (text[i] & 0x3f);
    }
    bool sound = code >= least[size] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    return sound ? size : 0;
}

static bool is_utf8(const unsigned char *text, size_t length)
{
    for (size_t at = 0, size; at < length; at += size) {
        size = utf8_size(text + at, length - at);
        if (size == 0) {
            return false;
        }
    }
    return true;
}

void query_json_text(const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    bool utf8 = is_utf8(bytes, length);

    (void)putchar('"');
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] == '"' || bytes[i] == '\\') {
            printf("\\%c", bytes[i]);
        } else if (bytes[i] < 0x20 || (bytes[i] >= 0x80 && !utf8)) {
            printf("\\u%04x", bytes[i]);
        } else {
            (void)putchar(bytes[i]);
        }
    }
    (void)putchar('"');
}

void query_json_name(bool first, const char *name)
{
    printf("%s\"%s\": ", first ? "{" : ", ", name);
}
