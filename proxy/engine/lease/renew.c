/* SPDX-License-Identifier: Apache-2.0 */
/* RENEW: the store says whose lease it is, the lease service extends it (or takes it back where it
 * expired and nobody has it), and the writer confirms that no release or revoke came first; where
 * one did, the lock is let go again and the answer is STALE. What is told is what is left then; a
 * lease that is over by then is renewed once more, as long as nobody has taken it. */
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"

#define RENEW_ROUNDS_MAX 3

struct renew {
    struct request *request;
    unsigned rounds;
    int64_t token, ttl_ms, session;
    bool notify, ran_out;
    int64_t dated_ms; /* the row is written where it was written longer ago than this */
    struct lease_view view;
    struct lease_call call;
};

static void renew_refuse(struct renew *renew, enum stk_error verdict)
{
    renew->request->verdict = verdict;
    renew->request->op.error = STK_OK;
    request_refused(renew->request);
}

static void let_go_done(struct lease_call *call)
{
    struct renew *renew = list_entry(call, struct renew, call);

    line_wake(renew->request->engine, renew->request->argv[1]);
    request_refused(renew->request);
}

/* Judges again, and remembers the TTL where it changed (`local:` holds it after a restart). */
static enum stk_error confirm_run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);
    struct renew *renew = request->state;
    struct resource row;
    struct lease lease;
    struct buf owner = {0};
    enum stk_error error = txn_resource(txn, request->argv[1], &row);

    if (error != STK_OK)
        return error;
    request->verdict = fence_judge(&row.fence, renew->token);
    if (request->verdict != STK_OK)
        return STK_OK;
    error = txn_lease(txn, &row, &lease);
    int64_t age_ms = txn_now_ms(txn) - lease.changed_ms; /* negative: the clock was set back */
    bool dated = age_ms >= 0 && age_ms < renew->dated_ms;
    if (error != STK_OK ||
        (dated && lease.ttl_ms == renew->ttl_ms && lease.session == renew->session))
        return error;
    lease.ttl_ms = renew->ttl_ms;
    if (lease.session != renew->session)
        lease.connection = 0; /* that connection was another daemon's, or an earlier run's */
    lease.session = renew->session;
    buf_append_bytes(&owner, lease.owner);
    lease.owner = buf_bytes(&owner);
    error = txn_fence_put(txn, &row, &lease);
    buf_free(&owner);
    return error;
}

static void begin(struct renew *renew);

static void confirmed(struct renew *renew)
{
    struct request *request = renew->request;
    int64_t left_ms = lease_left_ms(&renew->call, engine_now_ms(request->engine));

    if (left_ms > 0) {
        request->engine->counters.leases_renewed++;
        held_renewed(request->engine, request->argv[1], renew->token, left_ms,
                     renew->notify ? request->session : NULL);
        resp_int(&request->reply, left_ms);
        request_finish(request);
    } else if (request->session != NULL && ++renew->rounds < RENEW_ROUNDS_MAX) {
        begin(renew);
    } else {
        renew->ran_out = true;
        request_fail(request, STK_BUSY,
                     "the lease ran out while it was being renewed; try again, or a longer ttl_ms");
    }
}

static void confirm_done(struct store_op *op)
{
    struct request *request = request_of_op(op);
    struct renew *renew = request->state;
    struct lease_call *call = &renew->call;

    if (op->error == STK_OK && request->verdict == STK_OK) {
        confirmed(renew);
    } else if (op->error != STK_OK) {
        request_refused(request); /* the lease itself was extended: harmless */
    } else {
        call->verb = LEASE_RELEASE;
        call->done = let_go_done;
        lease_ask(request->engine->options.provider, call);
    }
}

static void renewed(struct lease_call *call)
{
    struct renew *renew = list_entry(call, struct renew, call);
    struct request *request = renew->request;

    if (call->answer == LEASE_DOWN)
        request_fail(request, STK_LEASEDOWN, "%s", call->reason);
    else if (call->answer != LEASE_GRANTED)
        renew_refuse(renew, STK_STALE);
    else if (request_submit(request, true, confirm_run, confirm_done) != STK_OK)
        request_fail(request, STK_BUSY, NULL);
}

static enum stk_error read_run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);
    struct renew *renew = request->state;
    return lease_view_read(txn, request->argv[1], renew->session, &renew->view, NULL);
}

static void read_done(struct store_op *op)
{
    struct request *request = request_of_op(op);
    struct renew *renew = request->state;
    struct lease_call *call = &renew->call;

    request->verdict =
        op->error != STK_OK ? STK_OK : fence_judge(&renew->view.row.fence, renew->token);
    if (request_refused(request))
        return;
    *call = (struct lease_call){.verb = LEASE_RENEW,
                                .resource = request->argv[1],
                                .token = renew->token,
                                .ttl_ms = renew->ttl_ms,
                                .asked_ms = engine_now_ms(request->engine),
                                .memory = renew->view.memory,
                                .done = renewed};
    memcpy(call->nonce, renew->view.memory.nonce, sizeof call->nonce);
    lease_ask(request->engine->options.provider, call);
}

static void begin(struct renew *renew)
{
    if (request_submit(renew->request, false, read_run, read_done) != STK_OK)
        request_fail(renew->request, STK_BUSY, NULL);
}

bool renew_lost(const struct request *request)
{
    const struct renew *renew = request->state;
    return renew->ran_out || request->verdict == STK_STALE;
}

void lease_renew(struct request *request)
{
    struct renew *renew = mem_zalloc(sizeof *renew);

    request->state = renew;
    renew->request = request;
    renew->session = store_session(request->engine->options.store);
    if (!request_name(request, 1, "a resource") || !request_token(request, 2, &renew->token) ||
        !request_int(request, 3, LEASE_TTL_MIN_MS, LEASE_TTL_MAX_MS, "ttl_ms", &renew->ttl_ms))
        return;
    renew->notify = request->argc == 5 && request_is_word(request, 4, "NOTIFY");
    if (request->argc > 4 && !renew->notify) {
        request_fail_arity(request, request->command->name);
        return;
    }
    /* Others that share the file, and no lease service, see a renewal by its date: they count the
     * time that is told here from there. */
    renew->dated_ms =
        lease_provider_needs_memory(request->engine->options.provider) ? 1 : RENEWAL_WRITTEN_MS;
    begin(renew);
}
