/* SPDX-License-Identifier: Apache-2.0 */
/* What replies say. A stk_reply is a redisReply, which nobody outside needs to know. */
#include <stdlib.h>

#include "proxy/client/export.h"
#include "proxy/client/peer.h"
#include "proxy/client/stockade.h"

static const redisReply *of(const stk_reply *reply)
{
    return (const redisReply *)(const void *)reply;
}

EXPORT enum stk_reply_type stk_reply_type(const stk_reply *reply)
{
    switch (reply == NULL ? REDIS_REPLY_NIL : of(reply)->type) {
    case REDIS_REPLY_INTEGER: return STK_INTEGER;
    case REDIS_REPLY_ARRAY: return STK_ARRAY;
    case REDIS_REPLY_NIL: return STK_NIL;
    default: return STK_STRING;
    }
}

EXPORT int64_t stk_reply_integer(const stk_reply *reply)
{
    int64_t value = 0;

    if (stk_reply_type(reply) == STK_INTEGER)
        return of(reply)->integer;
    if (stk_reply_type(reply) == STK_STRING)
        (void)bytes_to_int64((struct bytes){of(reply)->str, of(reply)->len}, &value);
    return value;
}

EXPORT const char *stk_reply_string(const stk_reply *reply, size_t *len)
{
    bool is = stk_reply_type(reply) == STK_STRING;

    if (len != NULL)
        *len = is ? of(reply)->len : 0;
    return is ? of(reply)->str : NULL;
}

EXPORT size_t stk_reply_count(const stk_reply *reply)
{
    return stk_reply_type(reply) == STK_ARRAY ? of(reply)->elements : 0;
}

EXPORT const stk_reply *stk_reply_at(const stk_reply *reply, size_t i)
{
    return i < stk_reply_count(reply) ? (const stk_reply *)(const void *)of(reply)->element[i]
                                      : NULL;
}

EXPORT void stk_reply_free(stk_reply *reply)
{
    if (reply != NULL)
        freeReplyObject(reply);
}
