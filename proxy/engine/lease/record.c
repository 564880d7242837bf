/* SPDX-License-Identifier: Apache-2.0 */
/* The store's part of an ACQUIRE, on the store's thread. A transaction may run more than once, so
 * each of these begins by taking back what it said before; and what it said counts only where the
 * transaction was committed.
 *
 * acquire_read_floor  what asking the lease service goes by: which tokens were used up, who has the
 *                     lease, is this a repeat?
 * acquire_record      whether a token becomes the newest, with its lease and, for a request with an
 *                     id, its receipt, all in one transaction
 * acquire_inherit     the same, in the transaction that ends the lease before */
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/scope.h"
#include "proxy/engine/write/lock_value.h"

enum stk_error acquire_read_floor(struct store_op *op, struct store_txn *txn)
{
    struct acquire *acquire = list_entry(op, struct acquire, op);
    bool has_id = acquire->options.id.len > 0;
    enum stk_error error = lease_read(txn, acquire->resource, acquire->opening, &acquire->row,
                                      &acquire->record, has_id ? &acquire->owner : NULL);

    acquire->id_use = ID_UNUSED;
    if (error != STK_OK || !has_id || acquire->row.id == 0)
        return error;
    error = lease_find_repeat(txn, &acquire->row, acquire->options.id, acquire->fingerprint,
                              &acquire->id_use);
    if (acquire->id_use == ID_REPEATS && acquire->way == WAY_PROBE)
        acquire->id_use = ID_UNUSED;
    return error;
}

/* Not admitted: the next question goes by what the store knows now. Another daemon may have
 * recorded its grant since this one read the floor. */
static enum stk_error read_again(struct acquire *acquire, struct store_txn *txn)
{
    return lease_read(txn, acquire->resource, acquire->opening, &acquire->row, &acquire->record,
                      NULL);
}

static enum stk_error put(struct acquire *acquire, struct store_txn *txn, const struct lease *lease)
{
    return txn_fence_make(txn, acquire->resource, &acquire->row, lease);
}

/* The owner has the lock under a token that the store never saw: the daemon that was granted it has
 * died, or is about to record it for a duplicate of this request. Either this one voids it or that
 * one tells it, and who is here first has the word: a token that is over here is recorded by
 * nobody. */
static enum stk_error retire_unseen(struct acquire *acquire, struct store_txn *txn)
{
    acquire->row.fence.state = FENCE_RELEASED;
    enum stk_error error = put(acquire, txn,
                               &(struct lease){.owner = acquire->grant.owner,
                                               .anonymous = acquire->anonymous,
                                               .opening = acquire->opening});
    return error == STK_OK ? read_again(acquire, txn) : error;
}

/* The connection, as the row has it. */
int64_t acquire_row_connection(const struct acquire *acquire)
{
    return acquire->options.ephemeral ? -acquire->connection : acquire->connection;
}

static enum stk_error record(struct acquire *acquire, struct store_txn *txn)
{
    enum acquire_recorded recorded = RECORDED_NEW;
    int64_t token = acquire->call.answer_token, holds = 1;
    struct resource *row = &acquire->row;
    struct grant *grant = &acquire->grant;
    struct bytes id = acquire->options.id;
    struct lease lease;
    struct receipt receipt;
    bool has_receipt = false, repeats = acquire->id_use == ID_REPEATS;
    enum stk_error error = txn_resource(txn, acquire->resource, row);

    acquire->recorded = RECORDED_NOT;
    acquire->is_ahead = false;
    if (error == STK_OK && id.len > 0 && row->id != 0)
        error = txn_receipt(txn, row, id, &has_receipt, &receipt);
    if (error != STK_OK)
        return error;
    /* A duplicate of this request may have been granted since the receipt was looked for. */
    repeats |= has_receipt && receipt.token == token;
    if (has_receipt && receipt.token != token && acquire_keeps_place(acquire)) {
        error = txn_receipt_remove(txn, row, id); /* of a lease that is over */
        if (error != STK_OK)
            return error;
        has_receipt = false;
    }
    if (fence_judge(&row->fence, token) == STK_OK) {
        error = txn_lease(txn, row, &lease);
        if (error != STK_OK)
            return error;
        bool named = !lease.anonymous && !acquire->anonymous;
        if (!(named || repeats) || !bytes_equal(lease.owner, grant->owner))
            return read_again(acquire, txn);
        if (acquire->way == WAY_LOCK) {
            acquire->recorded = RECORDED_TWIN;
            return STK_OK;
        }
        recorded = repeats ? RECORDED_REPEAT : RECORDED_ENTRY;
        holds = lease.holds + !repeats;
    } else {
        if (!fence_admits(&row->fence, token))
            return read_again(acquire, txn);
        /* Its time is over, and nobody has ended it; but until now its row, or the store, was
         * locked, as like as not by its holder's own transaction, behind which its renewal waits
         * too, at whichever daemon: that one comes first. */
        if (row->fence.state == FENCE_LIVE && acquire->op.found_locked &&
            acquire->call.answer == LEASE_GRANTED) {
            acquire->recorded = RECORDED_YIELDS;
            return read_again(acquire, txn);
        }
        acquire->is_ahead = row->id == 0 && token > row->fence.floor + 1;
        row->fence = (struct fence){.token = token, .floor = token, .state = FENCE_LIVE};
        if (acquire->call.answer == LEASE_OWN)
            return retire_unseen(acquire, txn);
    }
    lease = (struct lease){.owner = grant->owner,
                           .anonymous = acquire->anonymous,
                           .holds = holds,
                           .ttl_ms = acquire->ttl_ms,
                           .opening = acquire->opening,
                           .connection = acquire_row_connection(acquire)};
    error = put(acquire, txn, &lease);
    /* For a repeat of this request: with the TTL that it had at first. */
    if (error == STK_OK && id.len > 0 && !has_receipt && acquire->way != WAY_BASKET)
        error = lease_remember_grant(txn, row, id, acquire->fingerprint, token, acquire->ttl_ms);
    if (error == STK_OK && acquire_is_by_value(acquire))
        error = lock_value_remember(txn, row, scope_name(grant->owner), token);
    if (error == STK_OK)
        acquire->recorded = recorded;
    return error;
}

enum stk_error acquire_record(struct store_op *op, struct store_txn *txn)
{
    return record(list_entry(op, struct acquire, op), txn);
}

enum stk_error acquire_inherit(struct waiter *waiter, struct store_txn *txn)
{
    struct acquire *acquire = list_entry(waiter, struct acquire, waiter);
    struct resource *row = &acquire->row;
    struct receipt receipt;
    bool granted_before = false;
    enum stk_error error = txn_resource(txn, acquire->resource, row);

    acquire->recorded = RECORDED_NOT;
    if (error == STK_OK && acquire->options.id.len > 0)
        error = txn_receipt(txn, row, acquire->options.id, &granted_before, &receipt);
    if (error != STK_OK || granted_before) /* a duplicate of this request was: it is told so */
        return error;
    if (acquire->allowance != ALLOWANCE_TAKEN) /* it may have no more leases, and is told so */
        return STK_OK;
    acquire->call.answer = LEASE_GRANTED;
    acquire->call.answer_token = token_next(0, row->fence.floor, 0);
    return acquire->call.answer_token == 0 ? STK_OK : record(acquire, txn);
}
