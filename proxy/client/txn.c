/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions. MULTI, the commands and EXEC leave in one go, so a connection is never left between
 * them, and a repeat is all of it again, under the one ID. */
#include <stdlib.h>

#include "fence/base/mem.h"
#include "proxy/client/command.h"
#include "proxy/client/reply.h"
#include "proxy/resp/resp.h"

struct stk_txn {
    stk_client *client;
    struct buf commands;
    size_t count;
    bool fenced;  /* one of them is: it carries the ID */
    bool changes; /* one of them may change something, fenced or not */
    bool done;
    char id[ID_MAX + 1]; /* "": it needs none */
};

enum stk_error stk_txn_begin(stk_client *client, stk_txn **txn)
{
    enum stk_error error = client_check(client);

    *txn = NULL;
    if (error != STK_OK)
        return error;
    *txn = mem_zalloc(sizeof **txn);
    (*txn)->client = client;
    thread_take_id(client->embedded == NULL, (*txn)->id);
    return STK_OK;
}

enum stk_error stk_txn_add(stk_txn *txn, stk_lease *lease, size_t argc, const char *const *argv,
                           const size_t *lens)
{
    const stk_words words = {argc, argv, lens};
    enum stk_error error = STK_OK;

    if (txn->done || argc == 0)
        return fail(STK_MISUSE, txn->done ? "this transaction is over" : "a command is needed");
    if (lease != NULL)
        error = leases_check(&lease, 1, txn->client);
    if (error != STK_OK)
        return error;
    if (lease == NULL) {
        resp_array(&txn->commands, argc);
        txn->changes |= !words_only_read(txn->client, &words);
    } else {
        bool has_id = !txn->fenced && txn->id[0] != '\0'; /* the first one, for all */
        fence_begin(&txn->commands, &lease, 1, has_id ? txn->id : NULL, argc);
        txn->fenced = txn->changes = true;
    }
    words_add(&txn->commands, &words);
    txn->count++;
    return STK_OK;
}

/* The first error says why: EXEC's own only says that a command before it was refused. But that one
 * says whether anything was applied: a program repeats what was refused as BUSY. */
static enum stk_error take_replies(const struct call *call, stk_reply **reply)
{
    redisReply **last = &call->replies[call->replies_count - 1];
    enum stk_error outcome = reply_code(*last);
    bool undone = outcome == STK_BUSY || outcome == STK_EXECABORT;

    for (size_t i = 0; i < call->replies_count; i++) {
        enum stk_error error = reply_error(call->replies[i]);
        if (error == STK_BUSY && !undone)
            return fail(STK_UNSURE,
                        "%s: the daemon refused a part of the transaction; it may have "
                        "applied others",
                        stk_error_code(STK_BUSY));
        if (error != STK_OK)
            return error;
    }
    if ((*last)->type != REDIS_REPLY_ARRAY)
        return reply_strange("EXEC");
    reply_take(last, reply);
    return STK_OK;
}

enum stk_error stk_txn_exec(stk_txn *txn, stk_reply **reply)
{
    enum stk_error error = client_check(txn->client);
    bool has_id = txn->fenced && txn->id[0] != '\0';

    if (reply != NULL)
        *reply = NULL;
    if (error != STK_OK)
        return error;
    if (txn->done)
        return fail(STK_MISUSE, "this transaction is over");
    txn->done = true;
    struct call call = {.client = txn->client,
                        .replies_count = txn->count + 2,
                        .repeatable = has_id || !txn->changes,
                        .changes = txn->changes,
                        .deadline_ms = now_ms() + txn->client->timeout_ms};
    if (txn->changes)
        thread_set_last_id(has_id ? txn->id : "");
    buf_append_text(&call.request, "*1\r\n$5\r\nMULTI\r\n");
    buf_append_bytes(&call.request, buf_bytes(&txn->commands));
    buf_append_text(&call.request, "*1\r\n$4\r\nEXEC\r\n");
    error = call_run(&call);
    if (error == STK_OK)
        error = take_replies(&call, reply);
    call_end(&call);
    return error;
}

void stk_txn_free(stk_txn *txn)
{
    if (txn == NULL)
        return;
    buf_free(&txn->commands);
    free(txn);
}
