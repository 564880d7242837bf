/* SPDX-License-Identifier: Apache-2.0 */
/* RENEW: the holder's lease lives on.
 *
 *   judge (store) ──▶ extend (lease service) ──▶ confirm (store) ──▶ reply [ms left]
 *        ▲                                         │ └─ released or revoked meanwhile:
 *        └──────────── nothing is left ────────────┘    unlock, STALE
 *
 * - The store says whose lease it is. The lease service extends it, or takes it back where it
 *   expired and nobody has it. The store confirms that no release or revoke came first; where one
 *   did, the lock is let go again.
 * - What is told is what is left at the end. A lease that is over by then is renewed once more, as
 *   long as nobody has taken it, at most ROUNDS_MAX times.
 * - One that this daemon does not know (it had expired, or is of another daemon or an earlier run)
 * is watched from then on, and so counts among its user's. Who may have no more is told BUSY,
 * unless the lease is live: then it takes nothing from anybody. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/session/arguments.h"

#define ROUNDS_MAX 3

/* What is found out of a lease that the daemon does not know. */
struct stranger {
    struct buf owner;
    struct account *account; /* the owner's user's; NULL: not known yet */
    bool reserved;           /* one of its leases is to be this one */
    char why[ACCOUNT_WHY_SIZE];
};

static struct renewal *renewal_of(struct store_op *op)
{
    return list_entry(op, struct renewal, op);
}

static void unreserve(struct stranger *stranger)
{
    if (stranger->reserved)
        account_give(stranger->account, ACCOUNT_LEASES);
    stranger->reserved = false;
}

static void end(struct renewal *renewal, enum stk_error error, const char *reason)
{
    struct stranger *stranger = renewal->stranger;

    renewal->error = error;
    renewal->reason = reason;
    renewal->lost |= error == STK_STALE;
    renewal->stranger = NULL;
    if (stranger != NULL)
        unreserve(stranger);
    renewal->on_end(renewal); /* the renewal may be gone after this */
    if (stranger == NULL)
        return;
    account_drop(stranger->account);
    buf_free(&stranger->owner);
    free(stranger);
}

static void judge(struct renewal *renewal);

/* Step 3: confirm. */

/* From now on it is watched here. False: it is not known any more, and whose it is has to be found
 * out first. */
static bool watch(struct renewal *renewal, int64_t left_ms)
{
    struct session *session = *renewal->session;
    struct stranger *stranger = renewal->stranger;
    struct grant grant = {.by = GRANT_RENEWAL,
                          .resource = renewal->resource,
                          .token = renewal->token,
                          .left_ms = left_ms,
                          .ttl_ms = renewal->ttl_ms,
                          .until_ms = renewal->call.answer_until_ms,
                          .session = session,
                          .holder = renewal->notify ? session : NULL};

    if (session != NULL && renewal->notify)
        session->notified = true;
    if (stranger != NULL) {
        struct session *taker = lease_connection(renewal->engine, &renewal->record);
        grant.ephemeral = taker != NULL && renewal->record.ephemeral;
        if (grant.ephemeral || (taker != NULL && !renewal->notify))
            grant.holder = taker;
        else
            grant.holder = session; /* nobody else has a word of it */
        grant.owner = buf_bytes(&stranger->owner);
        grant.account = stranger->account;
        grant.age_ms = renewal->record.written_ms;
        grant.this_run = renewal->record.this_run;
        unreserve(stranger); /* it is counted as held */
    }
    return held_confirmed(renewal->engine, &grant);
}

static void on_confirmed(struct renewal *renewal)
{
    struct engine *engine = renewal->engine;
    int64_t left_ms = lease_left_ms(&renewal->call, engine_now_ms(engine));

    if (left_ms > 0 && !watch(renewal, left_ms)) { /* it was forgotten meanwhile */
        renewal->stranger = mem_zalloc(sizeof *renewal->stranger);
        judge(renewal);
    } else if (left_ms > 0) {
        renewal->left_ms = left_ms;
        engine->counters.leases_renewed++;
        end(renewal, STK_OK, NULL);
    } else if (*renewal->session != NULL && ++renewal->rounds < ROUNDS_MAX) {
        judge(renewal);
    } else {
        renewal->lost = true;
        end(renewal, STK_BUSY,
            "the lease ran out while it was being renewed; try again, or a longer ttl_ms");
    }
}

static void on_unlocked(struct lease_call *call)
{
    struct renewal *renewal = list_entry(call, struct renewal, call);

    line_wake(renewal->engine, renewal->resource);
    end(renewal, renewal->verdict, NULL);
}

/* Judge again, and remember the TTL where it changed (`local:` holds it after a restart). */
static enum stk_error confirm_run(struct store_op *op, struct store_txn *txn)
{
    struct renewal *renewal = renewal_of(op);
    struct resource row;
    struct lease lease;
    enum stk_error error = txn_resource(txn, renewal->resource, &row);

    if (error != STK_OK)
        return error;
    renewal->verdict = fence_judge(&row.fence, renewal->token);
    if (renewal->verdict != STK_OK)
        return STK_OK;
    error = txn_lease(txn, &row, &lease);
    int64_t age_ms = txn_now_ms(txn) - lease.changed_ms; /* negative: the clock was set back */
    bool dated = age_ms >= 0 && age_ms < renewal->dated_ms;
    if (error != STK_OK ||
        (dated && lease.ttl_ms == renewal->ttl_ms && lease.session == renewal->run))
        return error;
    lease.ttl_ms = renewal->ttl_ms;
    if (lease.session != renewal->run)
        lease.connection = 0; /* that connection was another daemon's, or an earlier run's */
    lease.session = renewal->run;
    return lease_rewrite(txn, &row, &lease);
}

static void confirm_done(struct store_op *op)
{
    struct renewal *renewal = renewal_of(op);
    struct lease_call *call = &renewal->call;

    if (op->error == STK_OK && renewal->verdict == STK_OK) {
        on_confirmed(renewal);
    } else if (op->error != STK_OK) {
        end(renewal, op->error, NULL); /* the lease itself was extended: harmless */
    } else {
        call->verb = LEASE_RELEASE;
        call->done = on_unlocked;
        lease_ask(renewal->engine->options.provider, call);
    }
}

/* Step 2: extend. */

static void on_extended(struct lease_call *call)
{
    struct renewal *renewal = list_entry(call, struct renewal, call);

    if (call->answer == LEASE_DOWN)
        end(renewal, STK_LEASEDOWN, call->reason);
    else if (call->answer != LEASE_GRANTED)
        end(renewal, STK_STALE, NULL);
    else if (lease_submit(renewal->engine, &renewal->op, true, renewal->resource, confirm_run,
                          confirm_done) != STK_OK)
        end(renewal, STK_BUSY, NULL);
}

/* Step 1: judge. */

static enum stk_error judge_run(struct store_op *op, struct store_txn *txn)
{
    struct renewal *renewal = renewal_of(op);
    return lease_read(txn, renewal->resource, renewal->run, &renewal->row, &renewal->record,
                      renewal->stranger == NULL ? NULL : &renewal->stranger->owner);
}

static void extend(struct renewal *renewal)
{
    struct lease_call *call = &renewal->call;

    *call = (struct lease_call){.verb = LEASE_RENEW,
                                .resource = renewal->resource,
                                .token = renewal->token,
                                .ttl_ms = renewal->ttl_ms,
                                .asked_ms = engine_now_ms(renewal->engine),
                                .record = renewal->record,
                                .done = on_extended};
    memcpy(call->nonce, renewal->record.nonce, sizeof call->nonce);
    lease_ask(renewal->engine->options.provider, call);
}

/* Its user may have no more: does it hold the lease already? */
static void on_looked(struct lease_call *call)
{
    struct renewal *renewal = list_entry(call, struct renewal, call);

    if (call->answer == LEASE_DOWN)
        end(renewal, STK_LEASEDOWN, call->reason);
    else if (call->answer == LEASE_FREE)
        end(renewal, STK_BUSY, renewal->stranger->why);
    else if (call->answer_token != renewal->token)
        end(renewal, STK_STALE, NULL);
    else
        extend(renewal);
}

static void look(struct renewal *renewal)
{
    struct lease_call *call = &renewal->call;

    *call = (struct lease_call){.verb = LEASE_QUERY,
                                .resource = renewal->resource,
                                .token = renewal->token,
                                .asked_ms = engine_now_ms(renewal->engine),
                                .record = renewal->record,
                                .done = on_looked};
    memcpy(call->nonce, renewal->record.nonce, sizeof call->nonce);
    lease_ask(renewal->engine->options.provider, call);
}

/* The connection that an EPHEMERAL lease was to end with has closed, when the lease had expired: so
 * it ends now. */
static bool is_orphaned(const struct renewal *renewal)
{
    const struct lease_record *record = &renewal->record;
    return record->ephemeral && record->this_run &&
           lease_connection(renewal->engine, record) == NULL;
}

/* The daemon does not know the lease: may its user have it? */
static void meet(struct renewal *renewal)
{
    struct engine *engine = renewal->engine;
    struct stranger *stranger = renewal->stranger;

    if (is_orphaned(renewal)) {
        release_owe(engine, renewal->resource, renewal->token, (uint64_t)renewal->record.connection,
                    engine_now_ms(engine));
        end(renewal, STK_STALE, NULL);
        return;
    }
    if (stranger->account == NULL)
        stranger->account = lease_account(engine, buf_bytes(&stranger->owner));
    if (!stranger->reserved)
        stranger->reserved = account_take(stranger->account, ACCOUNT_LEASES, stranger->why);
    if (stranger->reserved)
        extend(renewal);
    else
        look(renewal);
}

static void judge_done(struct store_op *op)
{
    struct renewal *renewal = renewal_of(op);
    enum stk_error error =
        op->error != STK_OK ? op->error : fence_judge(&renewal->row.fence, renewal->token);

    if (error != STK_OK)
        end(renewal, error, NULL);
    else if (renewal->stranger != NULL)
        meet(renewal);
    else
        extend(renewal);
}

static void judge(struct renewal *renewal)
{
    if (lease_submit(renewal->engine, &renewal->op, false, renewal->resource, judge_run,
                     judge_done) != STK_OK)
        end(renewal, STK_BUSY, NULL);
}

static bool is_known(const struct renewal *renewal)
{
    struct held_shown held;
    return held_find(renewal->engine, renewal->resource, &held) && held.token == renewal->token;
}

void renewal_start(struct renewal *renewal)
{
    const struct engine_options *options = &renewal->engine->options;

    if (!is_known(renewal))
        renewal->stranger = mem_zalloc(sizeof *renewal->stranger);
    renewal->run = store_session(options->store);
    /* Others that share the store, and no lease service, see a renewal there: they count the time
     * that is told here from then on. */
    renewal->dated_ms = lease_provider_relies_on_store(options->provider) ? 0 : RENEWAL_WRITTEN_MS;
    judge(renewal);
}

/* The command. */

struct renew_command {
    struct request *request;
    struct renewal renewal;
};

static void on_end(struct renewal *renewal)
{
    struct request *request = list_entry(renewal, struct renew_command, renewal)->request;
    bool ruled = renewal->error == STK_STALE || renewal->error == STK_UNKNOWN;

    request->verdict = ruled ? renewal->error : STK_OK;
    request->op.error = renewal->error == STK_STORE ? STK_STORE : STK_OK;
    request->op.why = renewal->op.why;
    if (request_refused(request))
        return;
    if (renewal->error != STK_OK) {
        request_fail(request, renewal->error, renewal->reason == NULL ? NULL : "%s",
                     renewal->reason);
        return;
    }
    request_tell_left(request, renewal->left_ms);
    request_finish(request);
}

/* RENEW resource token ttl_ms [NOTIFY] */
void lease_renew(struct request *request)
{
    struct renew_command *command = mem_zalloc(sizeof *command);
    struct renewal *renewal = &command->renewal;

    request->state = command;
    command->request = request;
    if (!request_name(request, 1, "a resource") || !request_token(request, 2, &renewal->token) ||
        !request_int(request, 3, LEASE_TTL_MIN_MS, LEASE_TTL_MAX_MS, "ttl_ms", &renewal->ttl_ms))
        return;
    renewal->notify = request->argc == 5 && request_is_word(request, 4, "NOTIFY");
    if (request->argc > 4 && !renewal->notify) {
        request_fail_arity(request, request->command->name);
        return;
    }
    renewal->engine = request->engine;
    renewal->session = &request->session;
    renewal->resource = request->argv[1];
    renewal->on_end = on_end;
    if (audit_refuses(&request->engine->options.audit, AUDIT_BIT(AUDIT_RESUME)) != NULL &&
        !is_known(renewal) && !request_may_audit(request, AUDIT_BIT(AUDIT_RESUME)))
        return;
    renewal_start(renewal);
}
