/* SPDX-License-Identifier: Apache-2.0 */
/* Commands are written as RESP arrays, from a line of words. */
#include "tests/sim/calls.h"

#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"

const char *const resource_names[RESOURCES] = {"log0",  "log1",  "log2",  "sold",
                                               "count", "pairA", "pairB", "lock"};

static void add_words(struct buf *out, const char *line)
{
    size_t words = 1;

    for (const char *at = line; *at != '\0'; at++)
        words += *at == ' ';
    buf_printf(out, "*%zu\r\n", words);
    for (; words > 0; words--) {
        size_t len = strcspn(line, " ");
        buf_printf(out, "$%zu\r\n%.*s\r\n", len, (int)len, line);
        line += len + 1;
    }
}

static const char *name(const struct call *call, int i)
{
    return resource_names[call->resources[i]];
}

static void lease_line(const struct call *call, char *line, size_t size)
{
    char wish[120] = "", part[40];

    if (call->wait_ms > 0) {
        snprintf(part, sizeof part, " WAIT %lld", (long long)call->wait_ms);
        strcat(wish, part);
    }
    if (call->owner >= 0) {
        snprintf(part, sizeof part, " OWNER o%d", call->owner);
        strcat(wish, part);
    }
    if (call->id != 0) {
        snprintf(part, sizeof part, " ID a%d", call->id);
        strcat(wish, part);
    }
    if (call->ephemeral)
        strcat(wish, " EPHEMERAL");
    if (call->queue)
        strcat(wish, " QUEUE");
    if (call->verb == VERB_ACQUIRE)
        snprintf(line, size, "ACQUIRE %s %lld%s", name(call, 0), (long long)call->ttl_ms, wish);
    else
        snprintf(line, size, "ACQUIREALL %lld %d %s %s%s", (long long)call->ttl_ms, call->count,
                 name(call, 0), name(call, 1), wish);
}

/* The call in one line; a transaction's commands are parted by semicolons. */
static void call_line(const struct call *call, char *line, size_t size)
{
    long long token = call->tokens[0], other = call->tokens[1];
    int number = call->op != NULL ? call->op->number : 0;
    char id[40] = "";

    line[0] = '\0';
    if (call->op != NULL && call->op->has_id)
        snprintf(id, sizeof id, "ID w%d ", number);
    switch (call->verb) {
    case VERB_ACQUIRE:
    case VERB_ACQUIRE_ALL: lease_line(call, line, size); break;
    case VERB_RENEW:
        snprintf(line, size, "RENEW %s %lld %lld", name(call, 0), token, (long long)call->ttl_ms);
        break;
    case VERB_RELEASE:
        if (call->id != 0)
            snprintf(id, sizeof id, " ID a%d", call->id);
        snprintf(line, size, "RELEASE %s %lld%s", name(call, 0), token, id);
        break;
    case VERB_REVOKE: snprintf(line, size, "REVOKE %s", name(call, 0)); break;
    case VERB_DEQUEUE: snprintf(line, size, "DEQUEUE %s a%d", name(call, 0), call->id); break;
    case VERB_APPEND:
        snprintf(line, size, "FENCED %lld %sAPPEND %s %d;", token, id, name(call, 0), number);
        break;
    case VERB_COUNT:
        snprintf(line, size, "FENCED %lld %sHINCRBY %s sold 1", token, id, name(call, 0));
        break;
    case VERB_SELL:
        snprintf(line, size,
                 "MULTI\nFENCED %lld %sHINCRBY %s sold 1 MAX %d\nFENCED %lld APPEND %s %d;\nEXEC",
                 token, id, name(call, 0), SOLD_MAX, other, name(call, 1), number);
        break;
    case VERB_PAIR:
        snprintf(line, size, "FENCEDALL 2 %s %lld %s %lld %sMSET %s %d; %s %d;", name(call, 0),
                 token, name(call, 1), other, id, name(call, 0), number, name(call, 1), number);
        break;
    case VERB_GET: snprintf(line, size, "GET %s", name(call, 0)); break;
    case VERB_FENCED_GET: snprintf(line, size, "FENCED %lld GET %s", token, name(call, 0)); break;
    case VERB_RECEIPT:
        snprintf(line, size, "RECEIPT %s %lld w%d", name(call, 0), token, number);
        break;
    case VERBS: break;
    }
}

void call_write(struct call *call, struct buf *out)
{
    char lines[400];

    call_line(call, lines, sizeof lines);
    call->replies_left = 0;
    for (char *line = lines, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        add_words(out, line);
        call->replies_left++;
    }
}

void call_describe(const struct call *call, char *out, size_t size)
{
    call_line(call, out, size);
    for (char *at = out; (at = strchr(at, '\n')) != NULL;)
        *at = '|';
}

redisReply *reply_read(struct bytes raw)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    check(redisReaderFeed(reader, raw.data, raw.len) == REDIS_OK &&
          redisReaderGetReply(reader, &reply) == REDIS_OK && reply != NULL);
    redisReaderFree(reader);
    return reply;
}

int64_t reply_item(const redisReply *reply, int place)
{
    return (size_t)place < reply->elements ? reply->element[place]->integer : 0;
}

bool reply_is_queued(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
           reply->element[0]->type == REDIS_REPLY_STRING;
}

bool reply_is_error(const redisReply *reply, const char *code)
{
    size_t len = strlen(code);
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, code, len) == 0 &&
           (reply->str[len] == '\0' || reply->str[len] == ' ');
}

void reply_describe(const redisReply *reply, char *out, size_t size)
{
    switch (reply->type) {
    case REDIS_REPLY_NIL: snprintf(out, size, "null"); break;
    case REDIS_REPLY_INTEGER: snprintf(out, size, "%lld", reply->integer); break;
    case REDIS_REPLY_ARRAY:
        snprintf(out, size, "[%lld, %lld]", (long long)reply_item(reply, 0),
                 (long long)reply_item(reply, 1));
        break;
    default: snprintf(out, size, "%.120s", reply->str);
    }
}
