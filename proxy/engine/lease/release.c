/* SPDX-License-Identifier: Apache-2.0 */
/* RELEASE and REVOKE: the store retires the token first, so that it can never write again, and only
 * then the lease service lets go and the next in line is woken. No unlock before commit.
 *
 * The writer's queue is in order, so a release commits after the holder's writes before it. Where
 * the lease service is down the command still succeeds: the provider remembers to let go, and the
 * TTL does so anyway. */
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/session/notes.h"

void lease_nonce(struct bytes owner, bool anonymous, char nonce[LEASE_NONCE_LEN + 1])
{
    if (anonymous) {
        check(owner.len == LEASE_NONCE_LEN);
        memcpy(nonce, owner.data, LEASE_NONCE_LEN);
        nonce[LEASE_NONCE_LEN] = '\0';
        return;
    }
    XXH128_hash_t hash = XXH3_128bits(owner.data, owner.len);
    snprintf(nonce, LEASE_NONCE_LEN + 1, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

enum stk_error lease_view_read(struct store_txn *txn, struct bytes resource, int64_t session,
                               struct lease_view *view, struct buf *owner)
{
    struct lease lease;
    enum stk_error error = txn_resource(txn, resource, &view->row);

    view->memory = (struct lease_memory){0};
    view->holds = view->connection = 0;
    view->runs = false;
    if (error != STK_OK || view->row.fence.state == FENCE_NONE)
        return error;
    error = txn_lease(txn, &view->row, &lease);
    if (error != STK_OK)
        return error;
    view->holds = lease.holds;
    view->connection = lease.connection;
    view->runs = txn_now_ms(txn) < lease.changed_ms + lease.ttl_ms;
    view->memory.token = view->row.fence.token;
    view->memory.live = view->row.fence.state == FENCE_LIVE;
    view->memory.this_run = lease.session == session;
    /* A daemon that opened the store before this one may still be at work, unless the lease would
     * be over by the store's time, too. Even then it is held for its TTL from this one's start. */
    view->memory.earlier_run =
        lease.session < session && lease.changed_ms + lease.ttl_ms < txn_now_ms(txn);
    view->memory.changed_ms = lease.changed_ms;
    view->memory.ttl_ms = lease.ttl_ms;
    lease_nonce(lease.owner, lease.anonymous, view->memory.nonce);
    if (owner != NULL) {
        buf_clear(owner);
        buf_append_bytes(owner, lease.owner);
    }
    return STK_OK;
}

/* RELEASE with an id: a repeat counts nothing, and gets what the first one got. */
static enum stk_error release_replay(struct lease_return *back, struct store_txn *txn,
                                     const struct resource *row, bool *found)
{
    struct receipt receipt;
    enum stk_error error = txn_receipt(txn, row, back->id, found, &receipt);

    if (error != STK_OK || !*found)
        return error;
    back->misused = receipt.fingerprint != lease_fingerprint("RELEASE", (struct bytes){"", 0}) ||
                    receipt.token != back->token;
    if (!back->misused)
        (void)bytes_to_int64((struct bytes){receipt.reply.data + 1, receipt.reply.len - 3},
                             &back->holds);
    return STK_OK;
}

static enum stk_error release_remember(const struct lease_return *back, struct store_txn *txn,
                                       const struct resource *row)
{
    struct buf reply = {0};

    resp_int(&reply, back->holds);
    enum stk_error error = txn_receipt_put(
        txn, row, back->id,
        &(struct receipt){.token = back->token,
                          .fingerprint = lease_fingerprint("RELEASE", (struct bytes){"", 0}),
                          .reply = buf_bytes(&reply)});
    buf_free(&reply);
    return error;
}

/* Connections are numbered by each daemon from 1: the session tells whose it is. */
static bool is_still_its_own(const struct lease_return *back, const struct lease *lease)
{
    return lease->session == back->session && lease->connection == back->connection;
}

/* A grant that nobody was told of goes with its receipt: what asks again with the same id is no
 * repeat. */
static enum stk_error forget_grant(const struct lease_return *back, struct store_txn *txn,
                                   const struct resource *row)
{
    struct receipt receipt;
    bool found = false;

    if (back->grant_id.len == 0)
        return STK_OK;
    enum stk_error error = txn_receipt(txn, row, back->grant_id, &found, &receipt);
    if (error != STK_OK || !found || receipt.token != back->token)
        return error;
    return txn_receipt_remove(txn, row, back->grant_id);
}

/* Retires the token, or counts one hold less. On the store's thread. */
static enum stk_error return_run(struct store_op *op, struct store_txn *txn)
{
    struct lease_return *back = list_entry(op, struct lease_return, op);
    struct resource row;
    struct lease lease;
    bool found = false;
    enum stk_error error = txn_resource(txn, back->resource, &row);

    back->let_go = back->misused = false;
    back->holds = 0;
    back->retired_token = row.fence.token;
    back->verdict = STK_OK;
    if (error != STK_OK || (back->kind == RETURN_REVOKE && row.fence.state != FENCE_LIVE))
        return error;
    if (back->id.len > 0 && row.id != 0) {
        error = release_replay(back, txn, &row, &found);
        if (error != STK_OK || found)
            return error;
    }
    if (back->kind != RETURN_REVOKE) {
        back->verdict = fence_judge(&row.fence, back->token);
        if (back->verdict == STK_STALE && back->token == row.fence.token &&
            row.fence.state == FENCE_RELEASED)
            back->verdict = STK_OK;     /* the last release again: still free */
        if (back->verdict == STK_STALE) /* another was faster, or revoked it */
            return forget_grant(back, txn, &row);
        if (back->verdict != STK_OK || row.fence.state != FENCE_LIVE)
            return STK_OK;
    }
    error = txn_lease(txn, &row, &lease);
    if (error != STK_OK || (back->own_only && !is_still_its_own(back, &lease)))
        return error;
    lease_nonce(lease.owner, lease.anonymous, back->memory.nonce);
    back->memory.ttl_ms = lease.ttl_ms;
    lease.holds = back->kind == RETURN_RELEASE ? lease.holds - 1 : 0;
    back->holds = lease.holds;
    if (lease.holds == 0) {
        row.fence.state = back->kind == RETURN_REVOKE ? FENCE_REVOKED : FENCE_RELEASED;
        back->let_go = true;
    }
    struct buf owner = {0}; /* lease.owner is borrowed from the row that is written now */
    buf_append_bytes(&owner, lease.owner);
    lease.owner = buf_bytes(&owner);
    error = txn_fence_put(txn, &row, &lease);
    buf_free(&owner);
    if (error == STK_OK && back->id.len > 0)
        error = release_remember(back, txn, &row);
    if (error == STK_OK)
        error = forget_grant(back, txn, &row);
    if (error == STK_OK && back->let_go && back->next_holder != NULL)
        error = acquire_record_next_holder(back->next_holder, txn);
    return error;
}

static void return_unlocked(struct lease_call *call)
{
    struct lease_return *back = list_entry(call, struct lease_return, call);

    if (back->next_holder != NULL)
        acquire_inherited(back->next_holder, true);
    else
        line_wake(back->engine, back->resource);
    back->done(back);
}

static void return_done(struct store_op *op)
{
    struct lease_return *back = list_entry(op, struct lease_return, op);
    struct lease_call *call = &back->call;

    back->error = op->error;
    if (back->error != STK_OK || !back->let_go) {
        if (back->next_holder != NULL)
            acquire_inherited(back->next_holder, false);
        back->done(back);
        return;
    }
    if (!back->unseen)
        held_returned(back->engine, back->resource, back->retired_token,
                      back->kind == RETURN_REVOKE);
    *call = (struct lease_call){.verb = LEASE_RELEASE,
                                .resource = back->resource,
                                .token = back->retired_token,
                                .ttl_ms = back->memory.ttl_ms,
                                .revoked = back->kind == RETURN_REVOKE,
                                .done = return_unlocked};
    memcpy(call->nonce, back->memory.nonce, sizeof call->nonce);
    lease_ask(back->engine->options.provider, call);
}

void lease_return_start(struct lease_return *back)
{
    back->op =
        (struct store_op){.writes = true, .brief = true, .run = return_run, .done = return_done};
    list_init(&back->op.link);
    back->next_holder = lease_provider_needs_memory(back->engine->options.provider)
                            ? line_next_holder(back->engine, back->resource)
                            : NULL;
    back->error = store_submit(back->engine->options.store, &back->op);
    if (back->error == STK_OK)
        return;
    if (back->next_holder != NULL)
        acquire_inherited(back->next_holder, false);
    back->done(back);
}

struct return_command {
    struct request *request;
    struct lease_return back;
};

static void command_done(struct lease_return *back)
{
    struct request *request = list_entry(back, struct return_command, back)->request;
    struct engine_counters *counters = &request->engine->counters;

    request->op.error = back->error;
    request->op.why = back->op.why;
    request->verdict = back->verdict;
    if (back->error == STK_BUSY) {
        request_fail(request, STK_BUSY, NULL);
        return;
    }
    if (request_refused(request))
        return;
    if (back->misused) {
        request_fail(request, STK_ERR, "this ID was used for another command");
        return;
    }
    if (back->kind == RETURN_REVOKE)
        note_revoked(request, back->retired_token, back->let_go);
    if (back->kind == RETURN_RELEASE) {
        counters->leases_released += back->let_go;
        resp_int(&request->reply, back->holds);
    } else if (back->retired_token == 0) {
        resp_null(&request->reply, request->resp3);
    } else {
        counters->leases_revoked += back->let_go;
        resp_int(&request->reply, back->retired_token);
    }
    request_finish(request);
}

static void command_start_return(struct request *request, enum return_kind kind, int64_t token,
                                 struct bytes id)
{
    struct return_command *command = mem_zalloc(sizeof *command);

    request->state = command;
    command->request = request;
    command->back.engine = request->engine;
    command->back.kind = kind;
    command->back.resource = request->argv[1];
    command->back.token = token;
    command->back.id = id;
    command->back.done = command_done;
    lease_return_start(&command->back);
}

void lease_release(struct request *request)
{
    struct bytes id = {"", 0};
    int64_t token;

    if (!request_name(request, 1, "a resource") || !request_token(request, 2, &token))
        return;
    if (request->argc > 3 && (request->argc != 5 || !request_is_word(request, 3, "ID"))) {
        request_fail(request, STK_ERR, "syntax error: RELEASE resource token [ID id]");
        return;
    }
    if (request->argc == 5) {
        if (!request_id(request, 4))
            return;
        id = request->argv[4];
    }
    command_start_return(request, RETURN_RELEASE, token, id);
}

void lease_revoke(struct request *request)
{
    if (request_name(request, 1, "a resource"))
        command_start_return(request, RETURN_REVOKE, 0, (struct bytes){"", 0});
}
