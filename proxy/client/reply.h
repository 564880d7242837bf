/* SPDX-License-Identifier: Apache-2.0 */
/* What replies say. A stk_reply is a redisReply, which nobody outside needs to know. */
#ifndef STOCKADE_CLIENT_REPLY_H
#define STOCKADE_CLIENT_REPLY_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

#include "fence/base/err.h"
#include "proxy/client/stockade.h"

static inline stk_reply *reply_out(redisReply *reply)
{
    return (stk_reply *)(void *)reply;
}

static inline const redisReply *reply_in(const stk_reply *reply)
{
    return (const redisReply *)(const void *)reply;
}

/* The code of an error reply; STK_OK for any other. */
enum stk_error reply_code(const redisReply *reply);
/* The same, with the error's text kept by fail(). */
enum stk_error reply_error(const redisReply *reply);
bool reply_is_int(const redisReply *reply);
/* fail(STK_PROTOCOL): the reply to `command` is not what it should be. */
enum stk_error reply_strange(const char *command);
/* Take a reply out of the array that it belongs to, and hand it to the caller, unless `reply` is
 * NULL. */
void reply_take(redisReply **from, stk_reply **reply);

#endif
