/* SPDX-License-Identifier: Apache-2.0 */
/* Commands are lines of words, of which hiredis makes what goes over the wire. */
#include "tests/sim/calls.h"

#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"

const char *const resource_names[RESOURCES] = {"log0",  "log1",  "log2",  "sold",
                                               "count", "pairA", "pairB", "lock"};

static const char *name(const struct call *call, int i)
{
    return resource_names[call->resources[i]];
}

/* Write the call as one line; a transaction's commands are lines of their own. */
static void call_line(const struct call *call, struct buf *line)
{
    long long token = call->tokens[0], other = call->tokens[1], ttl_ms = call->ttl_ms;
    int number = call->op != NULL ? call->op->number : 0;
    char id[40] = "";

    if (call->op != NULL && call->op->has_id)
        snprintf(id, sizeof id, "ID w%d ", number);
    switch (call->verb) {
    case VERB_ACQUIRE: buf_printf(line, "ACQUIRE %s %lld", name(call, 0), ttl_ms); break;
    case VERB_ACQUIRE_ALL:
        buf_printf(line, "ACQUIREALL %lld %d %s %s", ttl_ms, call->count, name(call, 0),
                   name(call, 1));
        break;
    case VERB_RENEW: buf_printf(line, "RENEW %s %lld %lld", name(call, 0), token, ttl_ms); break;
    case VERB_RELEASE:
        if (call->id != 0)
            snprintf(id, sizeof id, " ID a%d", call->id);
        buf_printf(line, "RELEASE %s %lld%s", name(call, 0), token, id);
        break;
    case VERB_REVOKE: buf_printf(line, "REVOKE %s", name(call, 0)); break;
    case VERB_DEQUEUE: buf_printf(line, "DEQUEUE %s a%d", name(call, 0), call->id); break;
    case VERB_APPEND:
        buf_printf(line, "FENCED %lld %sAPPEND %s %d;", token, id, name(call, 0), number);
        break;
    case VERB_COUNT:
        buf_printf(line, "FENCED %lld %sHINCRBY %s sold 1", token, id, name(call, 0));
        break;
    case VERB_SELL:
        buf_printf(line,
                   "MULTI\nFENCED %lld %sHINCRBY %s sold 1 MAX %d\nFENCED %lld APPEND %s %d;\nEXEC",
                   token, id, name(call, 0), SOLD_MAX, other, name(call, 1), number);
        break;
    case VERB_PAIR:
        buf_printf(line, "FENCEDALL 2 %s %lld %s %lld %sMSET %s %d; %s %d;", name(call, 0), token,
                   name(call, 1), other, id, name(call, 0), number, name(call, 1), number);
        break;
    case VERB_GET: buf_printf(line, "GET %s", name(call, 0)); break;
    case VERB_FENCED_GET: buf_printf(line, "FENCED %lld GET %s", token, name(call, 0)); break;
    case VERB_RECEIPT: buf_printf(line, "RECEIPT %s %lld w%d", name(call, 0), token, number); break;
    case VERB_HISTORY: buf_printf(line, "HISTORY %s", name(call, 0)); break;
    case VERB_REFUSALS: buf_append_text(line, "REFUSALS"); break;
    case VERBS: break;
    }
    if (call->verb == VERB_ACQUIRE || call->verb == VERB_ACQUIRE_ALL) {
        if (call->wait_ms > 0)
            buf_printf(line, " WAIT %lld", (long long)call->wait_ms);
        if (call->owner >= 0)
            buf_printf(line, " OWNER o%d", call->owner);
        if (call->id != 0)
            buf_printf(line, " ID a%d", call->id);
        if (call->ephemeral)
            buf_append_text(line, " EPHEMERAL");
        if (call->queue)
            buf_append_text(line, " QUEUE");
    }
    buf_append(line, "", 1);
}

void call_write(struct call *call, struct buf *out)
{
    struct buf lines = {0};
    char *command, *rest;

    call_line(call, &lines);
    call->replies_left = 0;
    for (char *line = strtok_r(lines.data, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        int len = redisFormatCommand(&command, line);
        buf_append(out, command, (size_t)len);
        redisFreeCommand(command);
        call->replies_left++;
    }
    buf_free(&lines);
}

void call_describe(const struct call *call, char *out, size_t size)
{
    struct buf line = {0};

    call_line(call, &line);
    for (char *at = line.data; (at = strchr(at, '\n')) != NULL;)
        *at = '|';
    snprintf(out, size, "%s", line.data);
    buf_free(&line);
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

const redisReply *reply_value(const redisReply *map, const char *name)
{
    for (size_t i = 0; i + 1 < map->elements; i += 2)
        if (strcmp(map->element[i]->str, name) == 0)
            return map->element[i + 1];
    return NULL;
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
