/* SPDX-License-Identifier: Apache-2.0 */
/* Errors by their codes, and what the user reads of a reply. */
#include "proxy/client/reply.h"

#include <string.h>

#include "fence/base/bytes.h"
#include "proxy/client/thread.h"

/* The errors that a daemon may reply with, by their first word. */
static const struct {
    const char *code;
    enum stk_error error;
} codes[] = {
#define X(name, code, text) {code, STK_##name},
    STK_ERROR_MAP(X)
#undef X
};

enum stk_error reply_code(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return STK_OK;
    size_t len = strcspn(reply->str, " ");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strlen(codes[i].code) == len && memcmp(codes[i].code, reply->str, len) == 0)
            return codes[i].error;
    return STK_ERR;
}

enum stk_error reply_error(const redisReply *reply)
{
    enum stk_error error = reply_code(reply);

    if (error == STK_OK)
        return STK_OK;
    /* The caller gets the code as a number, so the text goes without it. STK_ERR also stands for
     * codes that are not ours: those stay. */
    const char *text = strchr(reply->str, ' ');
    bool ours = strncmp(reply->str, stk_error_code(error), strlen(stk_error_code(error))) == 0;
    return fail(error, "%s", text != NULL && ours ? text + 1 : reply->str);
}

bool reply_is_int(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_INTEGER;
}

enum stk_error reply_strange(const char *command)
{
    return fail(STK_PROTOCOL, "the reply to %s makes no sense: is it a Stockade?", command);
}

void reply_take(redisReply **from, stk_reply **reply)
{
    if (reply == NULL)
        return;
    *reply = reply_out(*from);
    *from = NULL; /* freeReplyObject passes over it */
}

enum stk_reply_type stk_reply_type(const stk_reply *reply)
{
    switch (reply == NULL ? REDIS_REPLY_NIL : reply_in(reply)->type) {
    case REDIS_REPLY_INTEGER: return STK_INTEGER;
    case REDIS_REPLY_ARRAY: return STK_ARRAY;
    case REDIS_REPLY_NIL: return STK_NIL;
    default: return STK_STRING;
    }
}

int64_t stk_reply_integer(const stk_reply *reply)
{
    int64_t value = 0;

    if (stk_reply_type(reply) == STK_INTEGER)
        return reply_in(reply)->integer;
    if (stk_reply_type(reply) == STK_STRING)
        (void)bytes_to_int64((struct bytes){reply_in(reply)->str, reply_in(reply)->len}, &value);
    return value;
}

const char *stk_reply_string(const stk_reply *reply, size_t *len)
{
    bool is = stk_reply_type(reply) == STK_STRING;

    if (len != NULL)
        *len = is ? reply_in(reply)->len : 0;
    return is ? reply_in(reply)->str : NULL;
}

size_t stk_reply_count(const stk_reply *reply)
{
    return stk_reply_type(reply) == STK_ARRAY ? reply_in(reply)->elements : 0;
}

const stk_reply *stk_reply_at(const stk_reply *reply, size_t i)
{
    return i < stk_reply_count(reply) ? reply_out(reply_in(reply)->element[i]) : NULL;
}

void stk_reply_free(stk_reply *reply)
{
    if (reply != NULL)
        freeReplyObject(reply);
}
