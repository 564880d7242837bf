/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about leases and writes, and REVOKE. */
#include <stdio.h>
#include <string.h>

#include "proxy/client/export.h"
#include "proxy/client/fenced.h"

EXPORT enum stk_error stk_revoke(stk_client *client, const char *resource, int64_t *token)
{
    const char *const argv[] = {"REVOKE", resource};
    stk_reply *reply = NULL;
    enum stk_error error = stk_command(client, 2, argv, NULL, &reply);

    if (token != NULL)
        *token = error == STK_OK ? stk_reply_integer(reply) : 0;
    stk_reply_free(reply);
    return error;
}

static void note(stk_lease_info *info, const char *name, const stk_reply *value)
{
    const char *text = stk_reply_string(value, NULL);

    if (strcmp(name, "state") == 0)
        info->held = text != NULL && strcmp(text, "held") == 0;
    else if (strcmp(name, "token") == 0)
        info->token = stk_reply_integer(value);
    else if (strcmp(name, "owner") == 0 && text != NULL)
        snprintf(info->owner, sizeof info->owner, "%s", text);
    else if (strcmp(name, "ttl_ms") == 0)
        info->ttl_ms = stk_reply_integer(value);
    else if (strcmp(name, "holds") == 0)
        info->holds = stk_reply_integer(value);
    else if (strcmp(name, "waiters") == 0)
        info->waiters = stk_reply_integer(value);
}

EXPORT enum stk_error stk_query(stk_client *client, const char *resource, stk_lease_info *info)
{
    const char *const argv[] = {"LEASE", resource};
    stk_reply *reply = NULL;

    *info = (stk_lease_info){.held = false};
    enum stk_error error = stk_command(client, 2, argv, NULL, &reply);
    for (size_t i = 0; i + 1 < stk_reply_count(reply); i += 2) {
        const char *name = stk_reply_string(stk_reply_at(reply, i), NULL);
        if (name != NULL)
            note(info, name, stk_reply_at(reply, i + 1));
    }
    stk_reply_free(reply);
    return error;
}

/* [1, reply], [0, null] or null */
static enum stk_error read_receipt(redisReply *receipt, enum stk_outcome *outcome,
                                   stk_reply **reply)
{
    if (receipt->type == REDIS_REPLY_ERROR)
        return reply_error(receipt);
    if (receipt->type == REDIS_REPLY_NIL)
        return STK_OK;
    if (receipt->type != REDIS_REPLY_ARRAY || receipt->elements != 2 ||
        !reply_is_int(receipt->element[0]))
        return reply_strange("RECEIPT");
    *outcome = receipt->element[0]->integer == 1 ? STK_APPLIED : STK_NOT_APPLIED;
    if (*outcome == STK_APPLIED && reply != NULL) {
        *reply = (stk_reply *)(void *)receipt->element[1];
        receipt->element[1] = NULL; /* hiredis passes over it */
    }
    return STK_OK;
}

EXPORT enum stk_error stk_receipt(stk_client *client, const char *resource, int64_t token,
                                  const char *id, enum stk_outcome *outcome, stk_reply **reply)
{
    enum stk_error error = client_check(client);
    struct call call = {.client = client, .replies_count = 1, .repeatable = true};

    *outcome = STK_NOT_YET;
    if (reply != NULL)
        *reply = NULL;
    if (error != STK_OK)
        return error;
    call.deadline_ms = now_ms() + client->timeout_ms;
    ask_begin(&call.request, 4);
    ask_text(&call.request, "RECEIPT");
    ask_text(&call.request, resource);
    ask_int(&call.request, token);
    ask_text(&call.request, id);
    error = call_run(&call);
    if (error == STK_OK)
        error = read_receipt(call.replies[0], outcome, reply);
    call_end(&call);
    return error;
}
