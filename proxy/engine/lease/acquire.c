/* SPDX-License-Identifier: Apache-2.0 */
/* ACQUIRE, the grant protocol. Each line is a way through the states, which lease.h explains:
 *
 *   IDLE ──▶ FLOOR ──▶ ASKING ──▶ RECORDING ──▶ IDLE      [token, ttl left]
 *   IDLE ──▶ IDLE                                         its user may have no more that wait
 *            FLOOR ──▶ IDLE                               the ID is another command's, or over
 *            FLOOR ──▶ LOOKING ──▶ ASKING                 a lock key: its value does not have it
 *                      LOOKING ──▶ IDLE                   it has: null
 *                      ASKING ──▶ IDLE                    held, and no time to wait: null
 *                      ASKING ──▶ FLOOR                   its turn came while it asked
 *                      ASKING ──▶ WAITING ──▶ FLOOR       held, until its turn or a poll
 *                      ASKING ──▶ UNLOCKING               granted, and nobody wants it any more
 *                                 WAITING ──▶ IDLE        the deadline: null
 *                                 WAITING ──▶ INHERITING ──▶ CLAIMING ──▶ IDLE
 *                                             INHERITING ──▶ FLOOR
 *                                             CLAIMING ──▶ GIVING_BACK
 *                                 RECORDING ──▶ ASKING, LOOKING    the store knows better
 *                                 RECORDING ──▶ YIELDING ──▶ WAITING, FLOOR, IDLE
 *                                 RECORDING ──▶ UNLOCKING ──▶ IDLE
 *                                 RECORDING ──▶ GIVING_BACK ──▶ FLOOR, IDLE
 *
 * - A grant is the client's only when the store has recorded its token, and so has fenced every
 *   older one (P1). What the lease service says is not enough: a daemon that died between the two
 *   steps leaves a lock whose token the store never saw. Such a token is ended in the store before
 *   the lock is replaced, as its grant may still be on its way to be recorded.
 * - A token the store does not admit is never handed out; the next one is minted above the store's
 *   floor (P2), at most ROUNDS_MAX times.
 * - A repeat with the id of a lease that still runs renews it instead of asking for one (P6).
 * - A lease that is over by the time it is recorded is given back. It is tried for again while
 *   there is time to wait; else the answer is null. Its id is free again, as nobody was told.
 * - A client that goes away: what waits leaves the line, what is on its way is given back (P8).
 * - Where the store is the only memory of leases (local:), the head of the line needs no question
 *   when the lease is released here: it inherits it, in the transaction that retires the old token.
 */
#include <string.h>

#include "fence/base/check.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/scope.h"

#define ROUNDS_MAX 16
#define YIELDS_MS  200

/* The client is gone or the daemon stops: nothing should be taken any more. */
static bool is_unwanted(const struct acquire *acquire)
{
    return acquire->session == NULL || acquire->engine->draining;
}

static bool has_time(const struct acquire *acquire)
{
    return acquire->options.wait_until_ms > engine_now_ms(acquire->engine);
}

static bool is_recorded(const struct acquire *acquire)
{
    return acquire->recorded >= RECORDED_NEW;
}

/* Its place in the line. */
static struct waiter *place_of(struct acquire *acquire)
{
    return acquire->way == WAY_BASKET ? acquire->place : &acquire->waiter;
}

/* The states. */

#define TO(name) STATE_BIT(ACQUIRE_##name)

static const struct state states[] = {
    [ACQUIRE_IDLE] = {"IDLE", TO(FLOOR) | TO(IDLE)},
    [ACQUIRE_FLOOR] = {"FLOOR", TO(LOOKING) | TO(ASKING) | TO(IDLE)},
    [ACQUIRE_LOOKING] = {"LOOKING", TO(ASKING) | TO(IDLE)},
    [ACQUIRE_ASKING] = {"ASKING",
                        TO(RECORDING) | TO(WAITING) | TO(FLOOR) | TO(UNLOCKING) | TO(IDLE)},
    [ACQUIRE_WAITING] = {"WAITING", TO(FLOOR) | TO(INHERITING) | TO(IDLE)},
    [ACQUIRE_INHERITING] = {"INHERITING", TO(CLAIMING) | TO(FLOOR)},
    [ACQUIRE_CLAIMING] = {"CLAIMING", TO(GIVING_BACK) | TO(IDLE)},
    [ACQUIRE_RECORDING] = {"RECORDING", TO(LOOKING) | TO(ASKING) | TO(YIELDING) | TO(UNLOCKING) |
                                            TO(GIVING_BACK) | TO(IDLE)},
    [ACQUIRE_YIELDING] = {"YIELDING", TO(WAITING) | TO(FLOOR) | TO(IDLE)},
    [ACQUIRE_UNLOCKING] = {"UNLOCKING", TO(IDLE)},
    [ACQUIRE_GIVING_BACK] = {"GIVING_BACK", TO(FLOOR) | TO(IDLE)},
};

/* What holds in its state. What a lease service answers is no invariant. */
static void check_state(struct acquire *acquire)
{
    const struct waiter *waiter = &acquire->waiter;
    const struct lease_call *call = &acquire->call;

    if (acquire->state == ACQUIRE_IDLE) {
        check(acquire->account == NULL && acquire->allowance != ALLOWANCE_TAKEN);
        check(waiter->line == NULL || (acquire_keeps_place(acquire) && acquire->grant.token == 0));
        return;
    }
    check(acquire->account != NULL && place_of(acquire)->line != NULL);
    check(waiter->waits == (acquire->state == ACQUIRE_WAITING));
    check(acquire->error == STK_OK && acquire->grant.token == 0); /* nobody was told of anything */
    switch (acquire->state) {
    case ACQUIRE_IDLE:
    case ACQUIRE_FLOOR: check(acquire->recorded == RECORDED_NOT); break;
    case ACQUIRE_LOOKING:
        check(call->verb == LEASE_QUERY && acquire->way == WAY_LOCK && !acquire->looked);
        break;
    case ACQUIRE_ASKING:
        check(call->verb == LEASE_GRANT || call->verb == LEASE_RENEW);
        check(call->reentry_only ||
              (acquire->allowance == ALLOWANCE_TAKEN && acquire->way != WAY_PROBE));
        break;
    case ACQUIRE_WAITING:
        check(acquire->session != NULL && acquire->way == WAY_WAITS);
        check(acquire->wait.since_us != 0 && acquire->allowance != ALLOWANCE_TAKEN);
        break;
    case ACQUIRE_INHERITING: check(acquire->wait.since_us != 0 && !is_recorded(acquire)); break;
    case ACQUIRE_CLAIMING:
        check(acquire->allowance == ALLOWANCE_TAKEN && is_recorded(acquire));
        break;
    case ACQUIRE_RECORDING:
        check(acquire->way != WAY_PROBE);
        check(call->answer == LEASE_GRANTED || call->answer == LEASE_OWN);
        break;
    case ACQUIRE_YIELDING: check(acquire->recorded == RECORDED_YIELDS); break;
    case ACQUIRE_UNLOCKING: check(!is_recorded(acquire)); break;
    case ACQUIRE_GIVING_BACK: check(is_recorded(acquire) && call->answer_token > 0); break;
    }
}

/* Every change of state is one of these. */
static void step(struct acquire *acquire, enum acquire_state to)
{
    state_check_step(states, acquire->state, to);
    acquire->state = to;
    check_state(acquire);
}

/* What comes back from others finds it in the state in which it went out. */
static struct acquire *in_state(struct acquire *acquire, enum acquire_state state)
{
    check(acquire->state == state);
    return acquire;
}

/* What follows goes by the states, in their order. */

static void tell(struct acquire *acquire);
static void attempt(struct acquire *acquire);
static void floor_done(struct store_op *op);
static void ask(struct acquire *acquire);
static void on_looked(struct lease_call *call);
static void on_answered(struct lease_call *call);
static void on_denied(struct acquire *acquire);
static void await_turn(struct acquire *acquire);
static void on_vain(struct lease_wait *wait, enum stk_error why);
static const struct waiter_events waiter_events;
static void on_claimed(struct lease_call *call);
static void record_grant(struct acquire *acquire);
static void record_done(struct store_op *op);
static void record_failed(struct acquire *acquire, enum stk_error error);
static void on_recorded(struct acquire *acquire);
static void yield(struct acquire *acquire);
static void on_yielded(struct lease_call *call);
static void unlock(struct acquire *acquire);
static void on_unlocked(struct lease_call *call);
static void end_unrecorded(struct acquire *acquire);
static void give_back(struct acquire *acquire);
static void on_given_back(struct acquire *acquire);

/* IDLE: its beginning. */

static void make_owner(struct acquire *acquire)
{
    struct bytes *owner = &acquire->grant.owner, user = bytes_of(account_name(acquire->account));

    *owner = acquire->options.owner;
    acquire->anonymous = owner->len == 0 && bytes_equal(user, bytes_of(ACL_DEFAULT_USER));
    if (owner->len == 0) {
        chance_hex(acquire->engine->options.chance, acquire->generated, LEASE_NONCE_LEN);
        *owner = (struct bytes){acquire->generated, LEASE_NONCE_LEN};
    }
    if (acquire->options.owner.len == 0 && !acquire->anonymous) { /* whose it is, the row tells */
        acquire->generated[owner->len++] = SCOPE_MARK;
        memcpy(acquire->generated + owner->len, user.data, user.len);
        owner->len += user.len;
    }
    lease_nonce(*owner, acquire->anonymous, acquire->call.nonce);
}

static void begin(struct acquire *acquire)
{
    acquire->account = account_keep(acquire->session->account);
    acquire->connection = (int64_t)acquire->session->id;
    acquire->error = STK_OK;
    acquire->reason = NULL;
    acquire->grant.token = 0;
    acquire->is_free = false;
    acquire->wait.since_us = 0;
    acquire->call.ttl_ms = acquire->ttl_ms;
    make_owner(acquire);
}

/* False: its user may have no more of them. */
static bool join(struct acquire *acquire)
{
    if (!account_take(acquire->account, ACCOUNT_WAITERS, acquire->why))
        return false;
    acquire->waiter.account = account_keep(acquire->account);
    if (!acquire_keeps_place(acquire))
        acquire->waiter.events = &waiter_events;
    line_join(acquire->engine, acquire->resource, &acquire->waiter);
    return true;
}

void acquire_start(struct acquire *acquire)
{
    begin(acquire);
    if (acquire->way != WAY_BASKET && !join(acquire)) {
        acquire->error = STK_BUSY;
        acquire->reason = acquire->why;
        tell(acquire);
        return;
    }
    acquire->opening = store_opening(acquire->engine->options.store);
    acquire->wait.on_vain = on_vain;
    acquire->call.resource = acquire->resource;
    attempt(acquire);
}

void acquire_again(struct acquire *acquire)
{
    begin(acquire);
    acquire->waiter.waits = false;
    acquire->waiter.passed_over = false;
    attempt(acquire);
}

/* IDLE: its end. Each leaves the line before it tells: the next head asks at once. One that keeps
 * its place leaves with a lease only, and a basket's place is the basket's. */

/* `granted_ms` as for line_leave. */
static void leave(struct acquire *acquire, int64_t granted_ms)
{
    struct waiter *waiter = &acquire->waiter;

    lease_wait_end(&acquire->wait, acquire->engine, acquire->session);
    if (acquire->way == WAY_BASKET)
        return;
    if (!acquire_keeps_place(acquire) || granted_ms > 0) {
        line_leave(waiter, granted_ms);
        return;
    }
    waiter->waits = true;
    if (line_is_head(waiter) && !acquire->is_free)
        await_turn(acquire);
}

static void unreserve(struct acquire *acquire)
{
    if (acquire->allowance != ALLOWANCE_TAKEN)
        return;
    account_give(acquire->account, ACCOUNT_LEASES);
    acquire->allowance = ALLOWANCE_UNASKED;
}

static void tell(struct acquire *acquire)
{
    buf_free(&acquire->owner);
    unreserve(acquire);
    account_drop(acquire->account);
    acquire->account = NULL;
    step(acquire, ACQUIRE_IDLE);
    acquire->on_end(acquire);
}

static void fail(struct acquire *acquire, enum stk_error error, const char *reason)
{
    leave(acquire, 0);
    acquire->error = error;
    acquire->reason = reason;
    tell(acquire);
}

/* Is it a repeat of the head of its line, which is still on its way? Then nobody else has the
 * lease: the head is about to be told of it, or to give it back because its client has gone. */
static bool repeats_head(const struct acquire *acquire)
{
    const struct bytes id = acquire->options.id;

    if (id.len == 0 || acquire->way == WAY_BASKET || line_is_head(&acquire->waiter))
        return false;
    const struct waiter *head = line_head(&acquire->waiter);
    return head != NULL && !head->waits && head->events == &waiter_events &&
           bytes_equal(list_entry(head, const struct acquire, waiter)->options.id, id);
}

static void end_denied(struct acquire *acquire)
{
    if (repeats_head(acquire)) {
        fail(acquire, STK_BUSY, "the first request of this ID is still under way; ask again");
        return;
    }
    leave(acquire, 0);
    acquire->engine->counters.leases_denied++;
    acquire->engine->counters.waits_in_vain += acquire->wait.since_us != 0;
    tell(acquire);
}

static void end_unwanted(struct acquire *acquire)
{
    if (acquire->session != NULL) {
        fail(acquire, STK_BUSY, "the daemon is stopping; try again");
        return;
    }
    leave(acquire, 0);
    tell(acquire);
}

static void end_granted(struct acquire *acquire, int64_t left_ms)
{
    struct engine_counters *counters = &acquire->engine->counters;
    struct grant *grant = &acquire->grant;

    leave(acquire, left_ms);
    grant->by = acquire->recorded == RECORDED_NEW ? GRANT_NEW : GRANT_ENTRY;
    grant->resource = acquire->resource;
    grant->account = acquire->account;
    grant->this_opening = acquire->record.this_opening;
    grant->token = acquire->call.answer_token;
    grant->left_ms = left_ms;
    grant->ttl_ms = acquire->ttl_ms;
    grant->until_ms = acquire->call.answer_until_ms;
    grant->session = grant->holder = acquire->session;
    grant->ephemeral = acquire->options.ephemeral;
    (void)held_confirmed(acquire->engine, grant);
    if (grant->by == GRANT_ENTRY)
        counters->leases_reentered++;
    else
        counters->leases_granted++;
    tell(acquire);
}

/* FLOOR: what the store knows (record.c). */

static void attempt(struct acquire *acquire)
{
    acquire->recorded = RECORDED_NOT;
    step(acquire, ACQUIRE_FLOOR);
    if (lease_submit(acquire->engine, &acquire->op, false, acquire->resource, acquire_read_floor,
                     floor_done) != STK_OK)
        fail(acquire, STK_BUSY, NULL);
}

/* As the owner that it was granted to. */
static void become_owner(struct acquire *acquire)
{
    acquire->grant.owner = buf_bytes(&acquire->owner);
    memcpy(acquire->call.nonce, acquire->record.nonce, sizeof acquire->call.nonce);
}

static void floor_done(struct store_op *op)
{
    struct acquire *acquire = in_state(list_entry(op, struct acquire, op), ACQUIRE_FLOOR);

    if (is_unwanted(acquire)) {
        end_unwanted(acquire);
    } else if (op->error != STK_OK) {
        acquire->engine->counters.store_errors++;
        fail(acquire, op->error, NULL);
    } else if (acquire->id_use == ID_MISUSED) {
        fail(acquire, STK_ERR, ID_OF_ANOTHER);
    } else if (acquire->id_use == ID_OVER && !acquire_keeps_place(acquire)) {
        fail(acquire, STK_STALE,
             "the lease that this ID was granted is over; ask again with another ID");
    } else {
        if (acquire->id_use == ID_REPEATS)
            become_owner(acquire);
        acquire->call.void_token = 0;
        acquire->looked = false;
        acquire->rounds = 0;
        acquire->grant.counter_ahead = false;
        ask(acquire);
    }
}

/* LOOKING, ASKING: the lease service. */

/* Its user may have so many leases: one of them is kept for it while it may be granted. */
static bool reserve(struct acquire *acquire)
{
    if (acquire->allowance != ALLOWANCE_TAKEN)
        acquire->allowance = account_take(acquire->account, ACCOUNT_LEASES, acquire->why)
                                 ? ALLOWANCE_TAKEN
                                 : ALLOWANCE_REFUSED;
    return acquire->allowance == ALLOWANCE_TAKEN;
}

static void ask(struct acquire *acquire)
{
    struct lease_call *call = &acquire->call;
    struct engine *engine = acquire->engine;
    const struct lease_record *record = &acquire->record;
    /* A repeat whose lease still runs gets that one, though the service may have lost its lock, or
     * those of several masters that can be reached. */
    bool renews = acquire->id_use == ID_REPEATS && record->unexpired && call->void_token == 0;
    /* To ask for a grant would let its owner's lease live longer. */
    bool looks = acquire->way == WAY_LOCK && !acquire->looked && record->live &&
                 strcmp(record->nonce, call->nonce) == 0;

    call->verb = renews ? LEASE_RENEW : looks ? LEASE_QUERY : LEASE_GRANT;
    acquire->asked_us = engine_read_clock_us(engine);
    call->asked_ms = acquire->asked_us / 1000;
    call->token = renews ? record->token : 0;
    call->floor = acquire->row.fence.floor;
    call->believed_max = token_believed_max(call->floor, clock_wall_us(engine->options.clock));
    if (acquire->allowance == ALLOWANCE_REFUSED)
        acquire->allowance = ALLOWANCE_UNASKED;
    bool may_take = acquire->way != WAY_PROBE && line_may_take(place_of(acquire));
    call->reentry_only = !may_take || !reserve(acquire);
    call->waits = acquire->options.wait_until_ms > call->asked_ms;
    call->record = *record;
    call->done = looks ? on_looked : on_answered;
    step(acquire, looks ? ACQUIRE_LOOKING : ACQUIRE_ASKING);
    lease_ask(engine->options.provider, call);
}

static void on_looked(struct lease_call *call)
{
    struct acquire *acquire = in_state(list_entry(call, struct acquire, call), ACQUIRE_LOOKING);

    if (is_unwanted(acquire)) {
        end_unwanted(acquire);
    } else if (call->answer == LEASE_DOWN) {
        fail(acquire, STK_LEASEDOWN, call->reason);
    } else if (call->answer == LEASE_FREE) {
        acquire->looked = true;
        ask(acquire);
    } else {
        on_denied(acquire);
    }
}

/* It became the head, or was woken, while it asked: then it asks again. */
static bool asks_again(struct acquire *acquire)
{
    bool woken = line_is_head(&acquire->waiter) &&
                 (line_was_woken(&acquire->waiter) || acquire->call.answer == LEASE_FREE);
    if (woken) {
        acquire->waiter.waits = false;
        attempt(acquire);
    }
    return woken;
}

static void on_probed(struct acquire *acquire)
{
    enum lease_answer answer = acquire->call.answer;

    acquire->is_free =
        line_is_head(&acquire->waiter) && (answer == LEASE_FREE || answer == LEASE_OWN);
    if (!acquire->is_free && answer != LEASE_DOWN && asks_again(acquire))
        return;
    leave(acquire, 0);
    tell(acquire);
}

static void on_answered(struct lease_call *call)
{
    struct acquire *acquire = in_state(list_entry(call, struct acquire, call), ACQUIRE_ASKING);
    bool taken = call->answer == LEASE_GRANTED || call->answer == LEASE_OWN;

    if (call->verb == LEASE_GRANT)
        durations_add(&acquire->engine->times.grants,
                      engine_read_clock_us(acquire->engine) - acquire->asked_us);
    if (call->verb == LEASE_RENEW && call->answer == LEASE_GRANTED)
        call->answer = LEASE_OWN;
    if (acquire->way == WAY_PROBE)
        on_probed(acquire);
    else if (is_unwanted(acquire) && call->answer == LEASE_GRANTED)
        unlock(acquire);
    else if (is_unwanted(acquire))
        end_unwanted(acquire); /* entering again was not counted yet: nothing to give back */
    else if (call->answer == LEASE_DOWN)
        fail(acquire, STK_LEASEDOWN, call->reason);
    else if (taken)
        record_grant(acquire);
    else if (acquire->allowance == ALLOWANCE_REFUSED && call->answer == LEASE_FREE)
        fail(acquire, STK_BUSY, acquire->why);
    else
        on_denied(acquire);
}

/* WAITING: in line. */

/* Only the head may take the lease: it was none when it asked, and has not been denied it yet. */
static bool is_head_by_now(const struct acquire *acquire)
{
    return acquire->state == ACQUIRE_ASKING && acquire->way != WAY_BASKET &&
           acquire->call.reentry_only && acquire->allowance != ALLOWANCE_REFUSED &&
           line_is_head(&acquire->waiter);
}

/* Another has it: wait, or say so. */
static void on_denied(struct acquire *acquire)
{
    unreserve(acquire);
    const struct lease_call *call = &acquire->call;
    struct waiter *waiter = &acquire->waiter;

    if (!has_time(acquire)) {
        if (acquire_keeps_place(acquire) && asks_again(acquire))
            return;
        if (!acquire_keeps_place(acquire) && is_head_by_now(acquire))
            attempt(acquire);
        else
            end_denied(acquire);
        return;
    }
    if (acquire->wait.since_us == 0) {
        lease_wait_begin(&acquire->wait, acquire->engine, acquire->options.wait_until_ms);
        deadlock_watch(&acquire->wait.deadlock, acquire->session, acquire->resource, call,
                       &acquire->record);
    }
    if (acquire->wait.deadlock.found) {
        fail(acquire, STK_DEADLOCK, NULL);
        return;
    }
    waiter->waits = true;
    step(acquire, ACQUIRE_WAITING);
    if (!asks_again(acquire) && line_is_head(waiter))
        await_turn(acquire);
}

/* The head of the line waits: until it is its turn, or is to ask again. */
static void await_turn(struct acquire *acquire)
{
    elsewhere_await_turn(acquire->engine, acquire->resource, &acquire->waiter, &acquire->call,
                         &acquire->record, &acquire->wait.awaited);
}

static void on_turn(struct waiter *waiter)
{
    attempt(in_state(list_entry(waiter, struct acquire, waiter), ACQUIRE_WAITING));
}

static void on_drain(struct waiter *waiter)
{
    end_unwanted(in_state(list_entry(waiter, struct acquire, waiter), ACQUIRE_WAITING));
}

/* One that is on its way learns it at its next denial. */
static void on_vain(struct lease_wait *wait, enum stk_error why)
{
    struct acquire *acquire = list_entry(wait, struct acquire, wait);

    if (acquire->state != ACQUIRE_WAITING)
        return;
    if (why == STK_OK)
        end_denied(acquire);
    else
        fail(acquire, why, NULL);
}

void acquire_cancel(struct acquire *acquire)
{
    acquire->session = NULL;
    if (acquire->state == ACQUIRE_WAITING)
        end_unwanted(acquire);
}

/* INHERITING, CLAIMING: where the store is the only memory of leases. */

static void on_heir(struct waiter *waiter)
{
    struct acquire *acquire = in_state(list_entry(waiter, struct acquire, waiter), ACQUIRE_WAITING);

    acquire->call.asked_ms = engine_now_ms(acquire->engine); /* before others see it */
    (void)reserve(acquire);
    acquire->recorded = RECORDED_NOT;
    step(acquire, ACQUIRE_INHERITING);
}

static void on_inherited(struct waiter *waiter, bool committed)
{
    struct acquire *acquire =
        in_state(list_entry(waiter, struct acquire, waiter), ACQUIRE_INHERITING);
    struct lease_call *call = &acquire->call;

    if (!committed || !is_recorded(acquire)) {
        attempt(acquire);
        return;
    }
    call->verb = LEASE_INHERIT;
    call->token = call->answer_token;
    call->record = (struct lease_record){.token = call->token, .live = true, .this_opening = true};
    call->done = on_claimed;
    step(acquire, ACQUIRE_CLAIMING);
    lease_ask(acquire->engine->options.provider, call);
}

static void on_claimed(struct lease_call *call)
{
    struct acquire *acquire = in_state(list_entry(call, struct acquire, call), ACQUIRE_CLAIMING);

    if (call->answer == LEASE_GRANTED) {
        on_recorded(acquire);
        return;
    }
    call->answer_token = call->token;
    give_back(acquire); /* another daemon was granted it since */
}

static const struct waiter_events waiter_events = {.on_shown = acquire_shown,
                                                   .on_turn = on_turn,
                                                   .on_drain = on_drain,
                                                   .on_heir = on_heir,
                                                   .on_inherit = acquire_inherit,
                                                   .on_inherited = on_inherited};

/* RECORDING: the store records the grant (record.c). */

static void record_grant(struct acquire *acquire)
{
    step(acquire, ACQUIRE_RECORDING);
    enum stk_error error = lease_submit(acquire->engine, &acquire->op, true, acquire->resource,
                                        acquire_record, record_done);
    if (error != STK_OK) /* else the operation is the store's already */
        record_failed(acquire, error);
}

/* The service had lost state, or a daemon died here before: mint above the store's floor. */
static void mint_again(struct acquire *acquire)
{
    acquire->engine->counters.grants_repeated++;
    if (++acquire->rounds > ROUNDS_MAX || is_unwanted(acquire)) {
        unlock(acquire);
        return;
    }
    acquire->call.void_token = acquire->call.answer_token;
    ask(acquire);
}

/* The store failed. A lock entered again is still its owner's, by the earlier entry. */
static void record_failed(struct acquire *acquire, enum stk_error error)
{
    acquire->op.error = error;
    acquire->recorded = RECORDED_NOT; /* whatever the transaction did before it failed */
    if (acquire->call.answer == LEASE_OWN)
        end_unrecorded(acquire);
    else
        unlock(acquire);
}

static void record_done(struct store_op *op)
{
    struct acquire *acquire = in_state(list_entry(op, struct acquire, op), ACQUIRE_RECORDING);

    acquire->grant.counter_ahead |= acquire->is_ahead;
    if (op->error != STK_OK) {
        record_failed(acquire, op->error);
        return;
    }
    switch (acquire->recorded) {
    case RECORDED_NOT: mint_again(acquire); break;
    case RECORDED_TWIN: end_denied(acquire); break;
    case RECORDED_YIELDS: yield(acquire); break;
    case RECORDED_NEW:
    case RECORDED_ENTRY:
    case RECORDED_REPEAT: on_recorded(acquire); break;
    }
}

static void on_recorded(struct acquire *acquire)
{
    int64_t left_ms = lease_left_ms(&acquire->call, engine_now_ms(acquire->engine));

    if (is_unwanted(acquire) || left_ms == 0)
        give_back(acquire);
    else
        end_granted(acquire, left_ms);
}

/* YIELDING. */

/* As if the holder had renewed in time, which it may be about to. */
static void yield(struct acquire *acquire)
{
    step(acquire, ACQUIRE_YIELDING);
    acquire_let_go(acquire, on_yielded);
}

static void on_yielded(struct lease_call *call)
{
    struct acquire *acquire = in_state(list_entry(call, struct acquire, call), ACQUIRE_YIELDING);

    if (is_unwanted(acquire)) {
        end_unwanted(acquire);
        return;
    }
    call->answer = LEASE_HELD;
    call->answer_token = acquire->record.token;
    call->answer_ttl_ms = YIELDS_MS;
    on_denied(acquire);
}

/* UNLOCKING. */

static void unlock(struct acquire *acquire)
{
    step(acquire, ACQUIRE_UNLOCKING);
    acquire_let_go(acquire, on_unlocked);
}

static void on_unlocked(struct lease_call *call)
{
    end_unrecorded(in_state(list_entry(call, struct acquire, call), ACQUIRE_UNLOCKING));
}

/* The store did not record the grant: why, once the lock is let go. */
static void end_unrecorded(struct acquire *acquire)
{
    enum stk_error error = acquire->op.error;

    if (is_unwanted(acquire)) {
        end_unwanted(acquire);
    } else if (error != STK_OK) {
        acquire->engine->counters.store_errors += error == STK_STORE;
        fail(acquire, error, NULL);
    } else {
        fail(acquire, STK_LEASEDOWN, "it keeps minting tokens that were used already");
    }
}

/* GIVING_BACK (give_back.c). */

static void give_back(struct acquire *acquire)
{
    step(acquire, ACQUIRE_GIVING_BACK);
    acquire_give_back(acquire, on_given_back);
}

static void on_given_back(struct acquire *acquire)
{
    check(acquire->state == ACQUIRE_GIVING_BACK);
    if (is_unwanted(acquire))
        end_unwanted(acquire);
    else if (has_time(acquire))
        attempt(acquire);
    else
        end_denied(acquire);
}
