/* SPDX-License-Identifier: Apache-2.0 */
/* RENEW: the holder's lease lives on.
 *
 *   judge (store) ──▶ extend (lease service) ──▶ confirm (store) ──▶ reply [ms left]
 *    │   ▲ ▲              │                        │ │ └─ released or revoked meanwhile:
 *    │   │ └ another has it ┘                      │ │      unlock, STALE
 *    │   │                                         │ └─ held up by a transaction: reply [ms left],
 *    │   └──────────── nothing is left ────────────┘      and confirm all the same
 *    └─▶ STALE, UNKNOWN; once another has it: BUSY
 *
 * - The store alone says whose lease it is, and whether its token is STALE: it is so for a write,
 *   too. Where another has the lock, the store is asked again. If it knows of no newer grant the
 *   token still is good, and only its time is over. (That other grant is on its way to the store,
 *   or its daemon has died on the way, and the lock stands until its TTL.)
 * - The lease service extends the lease, or takes it back where it expired and nobody has it. The
 *   store confirms that no release or revoke came first; where one did, the lock is let go again.
 * - What is told is what is left at the end. A lease that is over by then is renewed once more, as
 *   long as nobody has taken it, at most ROUNDS_MAX times.
 * - A holder at work holds up its own renewal: a transaction that has presented the token has the
 *   fence's row locked, or SQLite's write lock. Nobody can end or take the lease before the
 *   transaction ends, for that would have to be recorded behind it, and behind the confirmation,
 *   which waits already. So the holder is told at once what it has; the confirmation stays where
 *   it is (engine->renewals), and further renewals of that lease are told the same. A hung
 *   transaction is the database's to end: store/GUARDS_POSTGRESQL.md.
 * - One that this daemon does not know (it had expired, or is of another daemon or an earlier run)
 * is watched from then on, and so counts among its user's. Who may have no more is told BUSY,
 * unless the lease is live: then it takes nothing from anybody. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/session/arguments.h"

enum {
    ROUNDS_MAX = 3,
    /* A holder is told early enough: the packages wait for a fourth of the TTL. */
    PATIENCE_PART = 8,
    PATIENCE_MS_MAX = 1000,
    /* A confirmation that failed after such a time has waited for a lock, and waits again. */
    WAITED_MS = 2000,
};

/* What is found out of a lease that the daemon does not know. */
struct unknown_lease {
    struct buf owner;
    struct account *account; /* the owner's user's; NULL: not known yet */
    bool reserved;           /* one of its leases is to be this one */
    char why[ACCOUNT_WHY_SIZE];
};

static struct renewal *renewal_of(struct store_op *op)
{
    return list_entry(op, struct renewal, op);
}

static void unreserve(struct unknown_lease *unknown)
{
    if (unknown->reserved)
        account_give(unknown->account, ACCOUNT_LEASES);
    unknown->reserved = false;
}

/* For the store's answer: see wait_until. */
static void stop_waiting(struct renewal *renewal)
{
    struct engine *engine = renewal->engine;

    list_remove(&renewal->waiting);
    if (list_empty(&engine->confirming))
        timer_stop(engine, &engine->impatience);
}

static void dispose(struct renewal *renewal)
{
    stop_waiting(renewal);
    free(renewal);
}

static void tell(struct renewal *renewal, enum stk_error error, const char *reason)
{
    struct unknown_lease *unknown = renewal->unknown;

    renewal->error = error;
    renewal->reason = reason;
    renewal->lost |= error == STK_STALE;
    renewal->unknown = NULL;
    if (unknown != NULL)
        unreserve(unknown);
    renewal->on_end(renewal);
    if (unknown == NULL)
        return;
    account_drop(unknown->account);
    buf_free(&unknown->owner);
    free(unknown);
}

static void end(struct renewal *renewal, enum stk_error error, const char *reason)
{
    tell(renewal, error, reason);
    dispose(renewal);
}

static void judge(struct renewal *renewal);

/* From now on it is watched here. False: it is not known any more, and whose it is has to be found
 * out first. */
static bool watch(struct renewal *renewal, int64_t left_ms)
{
    struct session *session = *renewal->session;
    struct unknown_lease *unknown = renewal->unknown;
    struct grant grant = {.by = GRANT_RENEWAL,
                          .resource = renewal->hold.resource,
                          .token = renewal->hold.token,
                          .left_ms = left_ms,
                          .ttl_ms = renewal->ttl_ms,
                          .until_ms = renewal->call.answer_until_ms,
                          .session = session,
                          .holder = renewal->notify ? session : NULL};

    if (session != NULL && renewal->notify)
        session->notified = true;
    if (unknown != NULL) {
        struct session *taker = lease_connection(renewal->engine, &renewal->record);
        grant.ephemeral = taker != NULL && renewal->record.ephemeral;
        if (grant.ephemeral || (taker != NULL && !renewal->notify))
            grant.holder = taker;
        else
            grant.holder = session; /* nobody else has a word of it */
        grant.owner = buf_bytes(&unknown->owner);
        grant.account = unknown->account;
        grant.age_ms = renewal->record.written_ms;
        grant.this_opening = renewal->record.this_opening;
        unreserve(unknown); /* it is counted as held */
    }
    return held_confirmed(renewal->engine, &grant);
}

/* The holder may be told: so much is left. False: see watch. */
static bool live_on(struct renewal *renewal, int64_t left_ms)
{
    if (!watch(renewal, left_ms))
        return false;
    renewal->left_ms = left_ms;
    renewal->engine->counters.leases_renewed++;
    return true;
}

/* One that is ahead: its askers have been told, and it waits to be confirmed. */

static struct renewal *of_node(const struct table_node *node)
{
    return list_entry(node, struct renewal, node);
}

static struct bytes name_of(const struct table_node *node)
{
    return of_node(node)->hold.resource;
}

static struct renewal *find_ahead(const struct engine *engine, struct bytes resource)
{
    struct table_node *node = table_find(&engine->renewals, resource);
    return node == NULL ? NULL : of_node(node);
}

static bool go_ahead(struct renewal *renewal, int64_t left_ms)
{
    static struct session *const nobody = NULL;
    struct engine *engine = renewal->engine;

    if (!live_on(renewal, left_ms))
        return false;
    renewal->ahead = true;
    renewal->good_ms = engine_now_ms(engine) + left_ms;
    renewal->session = &nobody;
    table_add(&engine->renewals, &renewal->node);
    engine->requests_open++;
    tell(renewal, STK_OK, NULL);
    return true;
}

static void end_ahead(struct renewal *renewal)
{
    table_remove(&renewal->engine->renewals, &renewal->node);
    renewal->engine->requests_open--;
    dispose(renewal);
}

/* Those that wait for the store have one timer together, for nearly all are answered long before it
 * is due: it is set while there are any, and not later than the first of them is due. */

static void wait_until(struct renewal *renewal, int64_t due_ms)
{
    struct engine *engine = renewal->engine;

    renewal->due_ms = due_ms;
    if (list_empty(&engine->confirming) || due_ms < engine->impatience.node.at_ms)
        timer_set(engine, &engine->impatience, due_ms);
    list_append(&engine->confirming, &renewal->waiting);
}

/* The store does not answer: where a transaction is in its way, go ahead. */
static bool may_go_ahead(struct renewal *renewal, int64_t now_ms)
{
    struct engine *engine = renewal->engine;
    int64_t left_ms = lease_left_ms(&renewal->call, now_ms);

    return left_ms > 0 && store_holds_up(engine->options.store, &renewal->op) &&
           find_ahead(engine, renewal->hold.resource) == NULL && go_ahead(renewal, left_ms);
}

static void on_impatience(struct timer *timer)
{
    struct engine *engine = list_entry(timer, struct engine, impatience);
    int64_t now_ms = engine_now_ms(engine);
    struct list all, *link;

    list_init(&all);
    list_splice(&all, &engine->confirming);
    while ((link = list_pop(&all)) != NULL) {
        struct renewal *renewal = list_entry(link, struct renewal, waiting);
        if (renewal->due_ms > now_ms)
            wait_until(renewal, renewal->due_ms);
        else if (!may_go_ahead(renewal, now_ms))
            wait_until(renewal, now_ms + PATIENCE_MS_MAX / 10);
    }
}

/* Is one ahead of this one that will be confirmed in its stead? */
static bool follow(struct renewal *renewal)
{
    struct engine *engine = renewal->engine;
    struct renewal *first = find_ahead(engine, renewal->hold.resource);

    if (first == NULL || first->hold.token != renewal->hold.token)
        return false;
    int64_t left_ms = lease_left_ms(&renewal->call, engine_now_ms(engine));
    if (left_ms == 0 || !store_holds_up(engine->options.store, &first->op) ||
        !live_on(renewal, left_ms))
        return false;
    first->ttl_ms = renewal->ttl_ms;
    first->good_ms = engine_now_ms(engine) + left_ms;
    end(renewal, STK_OK, NULL);
    return true;
}

/* Step 3: confirm. */

static void on_confirmed(struct renewal *renewal)
{
    int64_t left_ms = lease_left_ms(&renewal->call, engine_now_ms(renewal->engine));

    if (left_ms > 0 && live_on(renewal, left_ms)) {
        end(renewal, STK_OK, NULL);
    } else if (left_ms > 0) { /* it was forgotten meanwhile */
        renewal->unknown = mem_zalloc(sizeof *renewal->unknown);
        judge(renewal);
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

    line_wake(renewal->engine, renewal->hold.resource);
    if (renewal->ahead)
        end_ahead(renewal);
    else
        end(renewal, renewal->verdict, NULL);
}

/* Judge again, and remember the TTL where it changed (`local:` holds it after a restart). */
static enum stk_error confirm_run(struct store_op *op, struct store_txn *txn)
{
    struct renewal *renewal = renewal_of(op);
    struct resource row;
    struct lease lease;
    int64_t ttl_ms = renewal->confirmed_ttl_ms = renewal->ttl_ms;
    enum stk_error error = txn_resource(txn, renewal->hold.resource, &row);

    if (error != STK_OK)
        return error;
    renewal->verdict = fence_judge(&row.fence, renewal->hold.token);
    if (renewal->verdict != STK_OK)
        return STK_OK;
    error = txn_lease(txn, &row, &lease);
    int64_t age_ms = txn_now_ms(txn) - lease.changed_ms; /* negative: the clock was set back */
    bool dated = age_ms >= 0 && age_ms < renewal->dated_ms;
    if (error != STK_OK || (dated && lease.ttl_ms == ttl_ms && lease.opening == renewal->opening))
        return error;
    lease.ttl_ms = ttl_ms;
    if (lease.opening != renewal->opening)
        lease.connection = 0; /* that connection was another daemon's, or an earlier run's */
    lease.opening = renewal->opening;
    return lease_rewrite(txn, &row, &lease);
}

static void confirm_done(struct store_op *op);

static bool confirm(struct renewal *renewal)
{
    struct engine *engine = renewal->engine;
    int64_t now_ms = engine_now_ms(engine), patience_ms = renewal->ttl_ms / PATIENCE_PART;

    if (lease_submit(engine, &renewal->op, true, renewal->hold.resource, confirm_run,
                     confirm_done) != STK_OK)
        return false;
    renewal->confirm_ms = now_ms;
    if (!renewal->ahead)
        wait_until(renewal,
                   now_ms + (patience_ms < PATIENCE_MS_MAX ? patience_ms : PATIENCE_MS_MAX));
    return true;
}

/* The store failed. What its askers were told holds only if it is confirmed once it can be. */
static void confirm_failed(struct renewal *renewal)
{
    struct engine *engine = renewal->engine;
    int64_t now_ms = engine_now_ms(engine);
    bool waited = now_ms - renewal->confirm_ms >= WAITED_MS;

    if (!renewal->ahead)
        end(renewal, renewal->op.error, NULL); /* the lease itself was extended: harmless */
    else if (!waited || engine->draining || now_ms >= renewal->good_ms || !confirm(renewal))
        end_ahead(renewal);
}

static void confirm_done(struct store_op *op)
{
    struct renewal *renewal = renewal_of(op);
    struct lease_call *call = &renewal->call;

    stop_waiting(renewal);
    if (op->error != STK_OK) {
        confirm_failed(renewal);
    } else if (renewal->verdict != STK_OK) {
        call->verb = LEASE_RELEASE;
        call->done = on_unlocked;
        lease_ask(renewal->engine->options.provider, call);
    } else if (!renewal->ahead) {
        on_confirmed(renewal);
    } else if (renewal->confirmed_ttl_ms == renewal->ttl_ms || !confirm(renewal)) {
        end_ahead(renewal);
    }
}

/* Step 2: extend. */

/* Another has the lock. */
static void judge_again(struct renewal *renewal)
{
    renewal->taken = true;
    judge(renewal);
}

static void on_extended(struct lease_call *call)
{
    struct renewal *renewal = list_entry(call, struct renewal, call);

    if (call->answer == LEASE_DOWN)
        end(renewal, STK_LEASEDOWN, call->reason);
    else if (call->answer != LEASE_GRANTED)
        judge_again(renewal);
    else if (!follow(renewal) && !confirm(renewal))
        end(renewal, STK_BUSY, NULL);
}

/* Step 1: judge. */

static enum stk_error judge_run(struct store_op *op, struct store_txn *txn)
{
    struct renewal *renewal = renewal_of(op);
    return lease_read(txn, renewal->hold.resource, renewal->opening, &renewal->row,
                      &renewal->record, renewal->unknown == NULL ? NULL : &renewal->unknown->owner);
}

static void extend(struct renewal *renewal)
{
    struct lease_call *call = &renewal->call;

    *call = (struct lease_call){.verb = LEASE_RENEW,
                                .resource = renewal->hold.resource,
                                .token = renewal->hold.token,
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
        end(renewal, STK_BUSY, renewal->unknown->why);
    else if (call->answer_token != renewal->hold.token)
        judge_again(renewal);
    else
        extend(renewal);
}

static void look(struct renewal *renewal)
{
    struct lease_call *call = &renewal->call;

    *call = (struct lease_call){.verb = LEASE_QUERY,
                                .resource = renewal->hold.resource,
                                .token = renewal->hold.token,
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
    return record->ephemeral && record->this_opening &&
           lease_connection(renewal->engine, record) == NULL;
}

/* The daemon does not know the lease: may its user have it? */
static void meet(struct renewal *renewal)
{
    struct engine *engine = renewal->engine;
    struct unknown_lease *unknown = renewal->unknown;

    if (is_orphaned(renewal)) {
        release_ephemeral(engine, renewal->hold, (uint64_t)renewal->record.connection);
        end(renewal, STK_STALE, NULL);
        return;
    }
    if (unknown->account == NULL)
        unknown->account = lease_account(engine, buf_bytes(&unknown->owner));
    if (!unknown->reserved)
        unknown->reserved = account_take(unknown->account, ACCOUNT_LEASES, unknown->why);
    if (unknown->reserved)
        extend(renewal);
    else
        look(renewal);
}

/* Another has the lock, and the store knows of no newer grant. */
static void end_taken(struct renewal *renewal)
{
    renewal->lost = true;
    end(renewal, STK_BUSY,
        "the lease has run out, and its lock is another's, whose grant is not recorded (yet); "
        "try again, or ask for a new lease");
}

static void judge_done(struct store_op *op)
{
    struct renewal *renewal = renewal_of(op);
    enum stk_error error =
        op->error != STK_OK ? op->error : fence_judge(&renewal->row.fence, renewal->hold.token);

    if (error != STK_OK)
        end(renewal, error, NULL);
    else if (renewal->taken)
        end_taken(renewal);
    else if (renewal->unknown != NULL)
        meet(renewal);
    else
        extend(renewal);
}

static void judge(struct renewal *renewal)
{
    if (lease_submit(renewal->engine, &renewal->op, false, renewal->hold.resource, judge_run,
                     judge_done) != STK_OK)
        end(renewal, STK_BUSY, NULL);
}

static bool is_known(struct engine *engine, struct bytes resource, int64_t token)
{
    struct held_shown held;
    return held_find(engine, resource, &held) && held.token == token;
}

struct renewal *renewal_new(struct engine *engine, struct hold hold, int64_t ttl_ms)
{
    size_t len = hold.resource.len;
    struct renewal *renewal = mem_zalloc(offsetof(struct renewal, name) + len);

    memcpy(renewal->name, hold.resource.data, len);
    renewal->engine = engine;
    renewal->hold = hold;
    renewal->hold.resource.data = renewal->name;
    renewal->ttl_ms = ttl_ms;
    list_init(&renewal->waiting);
    return renewal;
}

void renewal_start(struct renewal *renewal)
{
    const struct engine_options *options = &renewal->engine->options;

    if (!is_known(renewal->engine, renewal->hold.resource, renewal->hold.token))
        renewal->unknown = mem_zalloc(sizeof *renewal->unknown);
    renewal->opening = store_opening(options->store);
    /* Others that share the store, and no lease service, see a renewal there: they count the time
     * that is told here from then on. */
    renewal->dated_ms = lease_provider_relies_on_store(options->provider) ? 0 : RENEWAL_WRITTEN_MS;
    judge(renewal);
}

void renewals_init(struct engine *engine)
{
    table_init(&engine->renewals, name_of);
    list_init(&engine->confirming);
    engine->impatience.fire = on_impatience;
}

void renewals_free(struct engine *engine)
{
    check(engine->renewals.count == 0 && list_empty(&engine->confirming));
    table_free(&engine->renewals);
}

/* The command. */

static void on_end(struct renewal *renewal)
{
    struct request *request = renewal->context;
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
    struct lease_options options = {0};
    int64_t token, ttl_ms;

    if (!request_name(request, 1, "a resource") || !request_token(request, 2, &token) ||
        !request_int(request, 3, LEASE_TTL_MIN_MS, LEASE_TTL_MAX_MS, "ttl_ms", &ttl_ms) ||
        !lease_options_parse(request, 4, OF_RENEW, &options))
        return;
    if (audit_refuses(&request->engine->options.audit, AUDIT_BIT(AUDIT_RESUME)) != NULL &&
        !is_known(request->engine, request->argv[1], token) &&
        !request_may_audit(request, AUDIT_BIT(AUDIT_RESUME)))
        return;
    struct renewal *renewal =
        renewal_new(request->engine, (struct hold){request->argv[1], token}, ttl_ms);
    renewal->session = &request->session;
    renewal->notify = lease_option_given(&options, OPTION_NOTIFY);
    renewal->context = request;
    renewal->on_end = on_end;
    renewal_start(renewal);
}
