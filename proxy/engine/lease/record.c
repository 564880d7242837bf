/* SPDX-License-Identifier: Apache-2.0 */
/* The store's half of ACQUIRE, on its thread: whether a token becomes the newest, with its lease
 * and, for a request with an id, its receipt, all in one transaction. It may run more than once. */
#include "proxy/engine/lease/lease.h"

/* For a repeat of this request: with the TTL that it had at first. */
static enum stk_error remember(const struct acquire *acquire, struct store_txn *txn)
{
    struct buf reply = {0};

    resp_array(&reply, 2);
    resp_int(&reply, acquire->call.answer_token);
    resp_int(&reply, acquire->ttl_ms);
    enum stk_error error = txn_receipt_put(txn, &acquire->view.row, acquire->options.id,
                                           &(struct receipt){.token = acquire->call.answer_token,
                                                             .fingerprint = acquire->fingerprint,
                                                             .reply = buf_bytes(&reply)});
    buf_free(&reply);
    return error;
}

/* Not admitted: the next ask goes by what the store knows now. Another daemon may have recorded its
 * grant since this one looked. */
static enum stk_error look_again(struct acquire *acquire, struct store_txn *txn)
{
    return lease_view_read(txn, acquire->request->argv[1], acquire->session, &acquire->view, NULL);
}

/* The owner has the lock under a token that the store never saw: the daemon that was granted it has
 * died, or is about to record it for a twin of this request. Either this one voids it or that one
 * tells it, and who is here first has the word: a token that is over here is recorded by nobody. */
static enum stk_error retire_unseen(struct acquire *acquire, struct store_txn *txn)
{
    struct resource *row = &acquire->view.row;

    row->fence.state = FENCE_RELEASED;
    enum stk_error error = txn_fence_put(txn, row,
                                         &(struct lease){.owner = acquire->owner,
                                                         .anonymous = acquire->anonymous,
                                                         .session = acquire->session});
    return error == STK_OK ? look_again(acquire, txn) : error;
}

enum stk_error acquire_record(struct acquire *acquire, struct store_txn *txn)
{
    struct request *request = acquire->request;
    int64_t token = acquire->call.answer_token, holds = 1;
    struct resource *row = &acquire->view.row;
    struct lease lease;
    struct receipt receipt;
    bool has_receipt = false;
    enum stk_error error = txn_resource(txn, request->argv[1], row);

    acquire->recorded = acquire->entered = false;
    if (error == STK_OK && acquire->options.id.len > 0 && row->id != 0)
        error = txn_receipt(txn, row, acquire->options.id, &has_receipt, &receipt);
    if (error != STK_OK)
        return error;
    /* A twin of this request may have been granted since the receipt was looked for. */
    acquire->repeats |= has_receipt && receipt.token == token;
    if (fence_judge(&row->fence, token) == STK_OK) {
        error = txn_lease(txn, row, &lease);
        if (error != STK_OK)
            return error;
        bool named = !lease.anonymous && !acquire->anonymous;
        if (!(named || acquire->repeats) || !bytes_equal(lease.owner, acquire->owner))
            return look_again(acquire, txn);
        acquire->entered = true;
        holds = lease.holds + !acquire->repeats;
    } else {
        if (!fence_admits(&row->fence, token))
            return look_again(acquire, txn);
        acquire->behind |= row->id == 0 && token > row->fence.floor + 1;
        if (row->id == 0 && (error = txn_resource_make(txn, request->argv[1], row)) != STK_OK)
            return error;
        row->fence = (struct fence){.token = token, .floor = token, .state = FENCE_LIVE};
        if (acquire->call.answer == LEASE_OWN)
            return retire_unseen(acquire, txn);
    }
    lease = (struct lease){.owner = acquire->owner,
                           .anonymous = acquire->anonymous,
                           .holds = holds,
                           .ttl_ms = acquire->ttl_ms,
                           .session = acquire->session,
                           .connection = acquire->connection};
    error = txn_fence_put(txn, row, &lease);
    if (error == STK_OK && acquire->options.id.len > 0 && !has_receipt && !acquire->of_basket)
        error = remember(acquire, txn);
    acquire->recorded = error == STK_OK;
    return error;
}

enum stk_error acquire_record_next_holder(struct acquire *acquire, struct store_txn *txn)
{
    struct resource *row = &acquire->view.row;
    struct receipt receipt;
    bool granted_before = false;
    enum stk_error error = txn_resource(txn, acquire->request->argv[1], row);

    acquire->recorded = false;
    if (error == STK_OK && acquire->options.id.len > 0)
        error = txn_receipt(txn, row, acquire->options.id, &granted_before, &receipt);
    if (error != STK_OK || granted_before) /* a twin of this request was: it is told so */
        return error;
    acquire->call.answer = LEASE_GRANTED;
    acquire->call.answer_token = token_next(row->fence.token, row->fence.floor);
    return acquire->call.answer_token == 0 ? STK_OK : acquire_record(acquire, txn);
}
