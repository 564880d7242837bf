/* SPDX-License-Identifier: Apache-2.0 */
/* ACQUIREALL: a basket of leases, all or none. It looks at all before it takes any, so that one
 * that gets null has done nothing to anybody.
 *
 *   NEW ──▶ LOOKING ──▶ TAKING ──▶ CONFIRMING                    all are free: [token ...]
 *                       TAKING ──▶ FRESHENING ──▶ CONFIRMING     it took its time
 *                                  CONFIRMING ──▶ FRESHENING     so did the confirmation
 *           LOOKING ──▶ WAITING ──▶ LOOKING                      one is held: until its turn there
 *           LOOKING ──▶ LOOKING                                  its turn came while it looked
 *           LOOKING, WAITING, TAKING, FRESHENING, CONFIRMING ──▶ RETURNING    null, an error
 *           RETURNING ──▶ LOOKING                                there is time to go on
 *
 * - Only where another takes one between the look and the taking has it fenced somebody for
 *   nothing; what it has taken goes back.
 * - It has a place in the line of each resource from its beginning to its end, and so comes before
 *   all who come later. While it waits for one it is passed over in the other lines: it holds
 *   nothing. Its turn there makes it look at all again, as the first one in each line.
 * - All its places are taken at once. So of two baskets the same one is the first wherever they
 *   meet, and they never wait for each other in a circle. Leases are taken in the order of the
 *   names, the same for everybody: so are two that cross at different daemons.
 * - Where that took time, all are renewed before the reply. Where one is lost all the same, all go
 *   back and it begins anew.
 * - It is whole when it is handed out: one read of the store confirms that each token is good (P5).
 * - Its ID is remembered in that same operation. Before that, a repeat is a basket of its own; each
 *   gives back only what it has counted itself. From then on the leases are the client's, even
 *   where the reply is lost: a repeat finds them, counts nothing, and gives nothing back (P6).
 * - Besides the questions of a look, at most one acquire, renewal or release is under way;
 *   next_step() says what follows when it has ended. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/lease/look_all.h"
#include "proxy/engine/scope.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/behind.h"

enum basket_state {
    BASKET_NEW,        /* being read, and not in the lines yet */
    BASKET_LOOKING,    /* what the store knows of all of them, then whether each is free */
    BASKET_WAITING,    /* for one of them, passed over in the other lines */
    BASKET_TAKING,     /* one after the other */
    BASKET_FRESHENING, /* has all, and renews them: so much time has gone by */
    BASKET_CONFIRMING, /* has all; are they all good still? */
    BASKET_RETURNING,  /* gives back what it has */
};

/* What comes when all are back. */
enum basket_sequel {
    SEQUEL_REPLY,
    SEQUEL_LOOK, /* a lease was lost: it begins anew, if there is time */
    SEQUEL_WAIT, /* another took the one at `denied_at`: so, too, from waiting for that one on */
};

struct basket_item {
    struct basket *basket;
    struct bytes resource;
    struct waiter waiter; /* its place in the line */
    size_t place;         /* in the order asked */
    int64_t token, until_ms;
    bool counted; /* a hold of its own; else what its ID was granted before */
};

struct basket {
    struct request *request;
    struct account *account; /* that counts it as one that waits */
    struct lease_options options;
    uint64_t fingerprint;
    enum basket_state state;
    size_t taken;   /* items whose lease it has */
    size_t renewed; /* of these, in this pass */
    enum basket_sequel sequel;
    size_t denied_at;
    bool lost;              /* so the confirmation found */
    bool remembered;        /* its ID is, for all of it */
    enum stk_error failure; /* what it gave up for; STK_OK: null */
    char reason[160];       /* for people; empty: the code's usual text */
    int64_t ttl_ms;
    struct lease_wait wait;
    size_t awaited_at;     /* the item that it is for */
    struct look_all *look; /* LOOKING */
    struct acquire acquire;
    struct release release;
    size_t count;
    struct basket_item items[];
};

static bool is_unwanted(const struct basket *basket)
{
    return basket->request->session == NULL || basket->request->engine->draining;
}

static bool has_time(const struct basket *basket)
{
    return basket->options.wait_until_ms > engine_now_ms(basket->request->engine);
}

#define TO(name) STATE_BIT(BASKET_##name)

static const struct state states[] = {
    [BASKET_NEW] = {"NEW", TO(LOOKING)},
    [BASKET_LOOKING] = {"LOOKING", TO(LOOKING) | TO(WAITING) | TO(TAKING) | TO(RETURNING)},
    [BASKET_WAITING] = {"WAITING", TO(LOOKING) | TO(RETURNING)},
    [BASKET_TAKING] = {"TAKING", TO(FRESHENING) | TO(CONFIRMING) | TO(RETURNING)},
    [BASKET_FRESHENING] = {"FRESHENING", TO(CONFIRMING) | TO(RETURNING)},
    [BASKET_CONFIRMING] = {"CONFIRMING", TO(FRESHENING) | TO(RETURNING)},
    [BASKET_RETURNING] = {"RETURNING", TO(LOOKING)},
};

/* What holds from the first moment of its state on. */
static void check_state(const struct basket *basket)
{
    check(basket->acquire.state == ACQUIRE_IDLE); /* TAKING begins one afterwards */
    check(basket->failure == STK_OK || basket->state == BASKET_RETURNING);
    switch (basket->state) {
    case BASKET_NEW:
    case BASKET_LOOKING:
    case BASKET_TAKING: check(basket->taken == 0 && !basket->remembered); break;
    case BASKET_WAITING:
        check(basket->taken == 0 && basket->look == NULL && basket->wait.since_us != 0);
        break;
    case BASKET_FRESHENING: check(basket->taken == basket->count); break;
    case BASKET_CONFIRMING: check(basket->taken == basket->count && !basket->remembered); break;
    case BASKET_RETURNING: check(!basket->remembered || basket->taken == 0); break;
    }
}

/* Every change of state is one of these. */
static void step(struct basket *basket, enum basket_state to)
{
    state_check_step(states, basket->state, to);
    basket->state = to;
    check_state(basket);
}

/* What follows goes by the states, in their order. */

static const struct waiter_events waiter_events;
static void on_vain(struct lease_wait *wait, enum stk_error why);
static void look(struct basket *basket);
static void on_looked(struct look_all *looked);
static void deny(struct basket *basket);
static void wait_for(struct basket *basket, size_t at, const struct lease_call *call,
                     const struct lease_record *record);
static void next_step(struct basket *basket);
static void give_up(struct basket *basket, enum stk_error error, const char *reason);
static void lose(struct basket *basket);
static void reply_whole(struct basket *basket);
static void reply_failed(struct basket *basket);

/* NEW: the command, and its places in the lines. */

/* Into all lines at once. False: its user may have no more that wait. */
static bool join(struct basket *basket)
{
    struct request *request = basket->request;
    char why[ACCOUNT_WHY_SIZE];

    if (!account_take(request->session->account, ACCOUNT_WAITERS, why)) {
        request_fail(request, STK_BUSY, "%s", why);
        return false;
    }
    basket->account = account_keep(request->session->account);
    for (size_t i = 0; i < basket->count; i++) {
        struct basket_item *item = &basket->items[i];
        item->basket = basket;
        item->waiter.events = &waiter_events;
        line_join(request->engine, item->resource, &item->waiter);
    }
    return true;
}

static int by_name(const void *a, const void *b)
{
    const struct basket_item *left = a, *right = b;
    return bytes_compare(left->resource, right->resource);
}

/* False: the request has failed. */
static bool fill(struct request *request, struct basket *basket)
{
    for (size_t i = 0; i < basket->count; i++) {
        if (!request_name(request, 3 + i, "a resource"))
            return false;
        basket->items[i] = (struct basket_item){.resource = request->argv[3 + i], .place = i};
    }
    qsort(basket->items, basket->count, sizeof *basket->items, by_name);
    for (size_t i = 1; i < basket->count; i++)
        if (bytes_equal(basket->items[i - 1].resource, basket->items[i].resource)) {
            request_fail(request, STK_ERR, "a resource is named twice");
            return false;
        }
    if (lease_options_have(request->argv, request->argc, 3 + basket->count, OF_ACQUIRE,
                           OPTION_QUEUE)) {
        request_fail(request, STK_ERR, "ACQUIREALL has no QUEUE: WAIT, on a connection of its own");
        return false;
    }
    if (!lease_options_parse(request, 3 + basket->count, OF_ACQUIREALL, &basket->options))
        return false;
    basket->fingerprint = lease_fingerprint("ACQUIREALL", basket->options.owner);
    for (size_t i = 0; i < basket->count; i++)
        basket->fingerprint = XXH3_64bits_withSeed(
            basket->items[i].resource.data, basket->items[i].resource.len, basket->fingerprint);
    return true;
}

/* ACQUIREALL ttl_ms n resource ... [WAIT ms] [OWNER owner] [ID id] [EPHEMERAL] */
void lease_acquire_all(struct request *request)
{
    int64_t ttl_ms, count;

    if (!request_may_audit(request, AUDIT_LEASES) ||
        !request_int(request, 1, LEASE_TTL_MIN_MS, LEASE_TTL_MAX_MS, "ttl_ms", &ttl_ms) ||
        !request_int(request, 2, 1, LEASES_AT_ONCE_MAX, "the number of resources", &count))
        return;
    if (request->argc < 3 + (size_t)count) {
        request_fail(request, STK_ERR, "ACQUIREALL ttl_ms %lld takes %lld resources",
                     (long long)count, (long long)count);
        return;
    }
    struct basket *basket = mem_zalloc(sizeof *basket + (size_t)count * sizeof *basket->items);
    request->state = basket;
    basket->request = request;
    basket->ttl_ms = ttl_ms;
    basket->count = (size_t)count;
    basket->wait.on_vain = on_vain;
    if (fill(request, basket) && join(basket))
        look(basket);
}

/* LOOKING (look_all.c). */

static void look(struct basket *basket)
{
    struct look_all *looking = look_all_new(basket->request->engine, basket->count);

    step(basket, BASKET_LOOKING);
    for (size_t i = 0; i < basket->count; i++) {
        basket->items[i].waiter.passed_over = false; /* it may have its turn everywhere */
        looking->items[i].resource = basket->items[i].resource;
        looking->items[i].waiter = &basket->items[i].waiter;
    }
    looking->owner = basket->options.owner;
    looking->id = basket->options.id;
    looking->fingerprint = basket->fingerprint;
    looking->ttl_ms = basket->ttl_ms;
    looking->on_end = on_looked;
    looking->context = basket;
    basket->look = looking;
    look_all_start(looking);
}

/* Its user has room for those that are new: else it would take some, and give them back. */
static bool may_have_all(struct basket *basket, const struct look_all *looked)
{
    char why[ACCOUNT_WHY_SIZE];
    size_t more = 0;

    for (size_t i = 0; i < basket->count; i++)
        more += !looked->items[i].enters;
    if (more == 0 || account_has_room(basket->account, ACCOUNT_LEASES, more, why))
        return true;
    give_up(basket, STK_BUSY, why);
    return false;
}

static void on_looked(struct look_all *looked)
{
    struct basket *basket = looked->context;
    size_t at = looked->denied_at;

    basket->look = NULL;
    if (looked->error != STK_OK) {
        basket->request->op.why = looked->op.why;
        give_up(basket, looked->error, looked->reason);
    } else if (at == basket->count && may_have_all(basket, looked)) {
        step(basket, BASKET_TAKING);
    }
    if (basket->state != BASKET_LOOKING || is_unwanted(basket))
        next_step(basket);
    else if (!has_time(basket))
        deny(basket);
    else
        wait_for(basket, at, &looked->denial, &looked->items[at].record);
    free(looked);
}

/* WAITING, for one of them. */

static void deny(struct basket *basket)
{
    basket->request->engine->counters.leases_denied++;
    give_up(basket, STK_OK, NULL);
    next_step(basket);
}

/* `at` is held, so says the call. Whom it lets pass in the other lines may have the lease, and have
 * given it back, before it comes to wait itself. */
static void wait_for(struct basket *basket, size_t at, const struct lease_call *call,
                     const struct lease_record *record)
{
    struct basket_item *item = &basket->items[at];
    struct engine *engine = basket->request->engine;

    bool is_first = basket->wait.since_us == 0;

    basket->request->waited = true;
    lease_wait_begin(&basket->wait, engine, basket->options.wait_until_ms);
    if (!is_unwanted(basket) && (is_first || basket->awaited_at != at)) {
        basket->wait.awaited = 0; /* tokens of two resources may be equal */
        basket->awaited_at = at;
        deadlock_watch(&basket->wait.deadlock, basket->request->session, item->resource, call,
                       record);
    }
    for (size_t i = 0; i < basket->count; i++)
        if (i != at)
            line_pass_over(&basket->items[i].waiter);
    if (is_unwanted(basket)) {
        next_step(basket);
    } else if (!has_time(basket)) {
        deny(basket);
    } else if (basket->wait.deadlock.found) {
        give_up(basket, STK_DEADLOCK, NULL);
        next_step(basket);
    } else if (line_is_head(&item->waiter) && line_was_woken(&item->waiter)) {
        look(basket);
    } else {
        step(basket, BASKET_WAITING);
        item->waiter.waits = true;
        if (line_is_head(&item->waiter))
            elsewhere_await_turn(engine, item->resource, &item->waiter, call, record,
                                 &basket->wait.awaited);
    }
}

static struct basket *basket_of(struct waiter *waiter)
{
    return list_entry(waiter, struct basket_item, waiter)->basket;
}

static void on_turn(struct waiter *waiter)
{
    look(basket_of(waiter));
}

static void stop_waiting(struct basket *basket)
{
    for (size_t i = 0; i < basket->count; i++)
        basket->items[i].waiter.waits = false;
}

static void on_drain(struct waiter *waiter)
{
    stop_waiting(basket_of(waiter));
    next_step(basket_of(waiter));
}

/* One that looks or takes learns it when it is to wait again. */
static void on_vain(struct lease_wait *wait, enum stk_error why)
{
    struct basket *basket = list_entry(wait, struct basket, wait);

    if (basket->state != BASKET_WAITING)
        return;
    stop_waiting(basket);
    if (why == STK_OK) {
        deny(basket);
        return;
    }
    give_up(basket, why, NULL);
    next_step(basket);
}

static struct waiter_about on_shown(const struct waiter *waiter)
{
    const struct basket_item *item = list_entry(waiter, struct basket_item, waiter);
    const struct basket *basket = item->basket;

    return (struct waiter_about){.session = basket->request->session,
                                 .resource = item->resource,
                                 .owner = scope_name(basket->options.owner),
                                 .way = basket->options.wait_until_ms > 0 ? "wait" : NULL};
}

static const struct waiter_events waiter_events = {
    .on_shown = on_shown, .on_turn = on_turn, .on_drain = on_drain};

void acquire_all_abandon(struct request *request)
{
    struct basket *basket = request->state;

    if (basket != NULL && basket->acquire.state != ACQUIRE_IDLE) {
        acquire_cancel(&basket->acquire);
    } else if (basket != NULL && basket->state == BASKET_WAITING) {
        stop_waiting(basket);
        next_step(basket);
    }
}

/* Of the lease that ends first. */
static int64_t least_left_ms(const struct basket *basket)
{
    int64_t until_ms = INT64_MAX;

    for (size_t i = 0; i < basket->taken; i++)
        if (basket->items[i].until_ms < until_ms)
            until_ms = basket->items[i].until_ms;
    return until_ms - engine_now_ms(basket->request->engine);
}

/* TAKING one more. */

static void on_acquired(struct acquire *acquire)
{
    struct basket *basket = list_entry(acquire, struct basket, acquire);
    struct basket_item *item = &basket->items[basket->taken];

    if (acquire->error != STK_OK) {
        basket->request->op.why = acquire->op.why;
        give_up(basket, acquire->error, acquire->reason);
    } else if (acquire->grant.token == 0) {
        give_up(basket, STK_OK, NULL);
        basket->sequel = SEQUEL_WAIT;
        basket->denied_at = basket->taken;
    } else {
        item->token = acquire->grant.token;
        item->until_ms = engine_now_ms(acquire->engine) + acquire->grant.left_ms;
        item->counted = acquire->recorded != RECORDED_REPEAT;
        basket->taken++;
    }
    next_step(basket);
}

static void take_next(struct basket *basket)
{
    struct basket_item *item = &basket->items[basket->taken];

    check(basket->state == BASKET_TAKING);
    basket->acquire = (struct acquire){.engine = basket->request->engine,
                                       .session = basket->request->session,
                                       .resource = item->resource,
                                       .ttl_ms = basket->ttl_ms,
                                       .options = {.owner = basket->options.owner,
                                                   .id = basket->options.id,
                                                   .ephemeral = basket->options.ephemeral},
                                       .fingerprint = basket->fingerprint,
                                       .way = WAY_BASKET,
                                       .place = &item->waiter,
                                       .on_end = on_acquired};
    acquire_start(&basket->acquire);
}

/* FRESHENING what it has. */

static void renew_next(struct basket *basket);

static void on_renewed(struct renewal *renewal)
{
    struct basket *basket = renewal->context;

    if (renewal->error == STK_OK) {
        basket->items[basket->renewed].until_ms = engine_now_ms(renewal->engine) + renewal->left_ms;
    } else if (renewal->lost) {
        lose(basket);
    } else {
        basket->request->op.why = renewal->op.why;
        give_up(basket, renewal->error, renewal->reason);
    }
    if (++basket->renewed < basket->taken && basket->state == BASKET_FRESHENING &&
        !is_unwanted(basket))
        renew_next(basket);
    else
        next_step(basket);
}

static void renew_next(struct basket *basket)
{
    const struct basket_item *item = &basket->items[basket->renewed];

    struct renewal *renewal = renewal_new(
        basket->request->engine, (struct hold){item->resource, item->token}, basket->ttl_ms);

    renewal->session = &basket->request->session;
    renewal->on_end = on_renewed;
    renewal->context = basket;
    renewal_start(renewal);
}

static void renew_all(struct basket *basket)
{
    step(basket, BASKET_FRESHENING);
    basket->renewed = 0;
    renew_next(basket);
}

/* CONFIRMING, on the store's thread; it may run more than once. */

/* An item, as the store knows it. */
struct known_item {
    struct resource row;
    struct lease lease; /* where the basket has an ID */
    bool duplicate;     /* a duplicate of this basket was told of this very token */
};

/* Is the token good? Then the request's verdict: is the ID this command's, and not used up? */
static enum stk_error judge_item(struct basket *basket, const struct basket_item *item,
                                 struct store_txn *txn, struct known_item *known)
{
    struct request *request = basket->request;
    struct receipt receipt;
    bool found = false;
    enum stk_error error = txn_resource(txn, item->resource, &known->row);

    known->duplicate = false;
    if (error != STK_OK)
        return error;
    basket->lost |= fence_judge(&known->row.fence, item->token) != STK_OK;
    if (basket->lost || basket->options.id.len == 0)
        return STK_OK;
    error = txn_receipt(txn, &known->row, basket->options.id, &found, &receipt);
    if (error != STK_OK || !found)
        return error;
    known->duplicate = receipt.token == item->token;
    if (receipt.fingerprint != basket->fingerprint)
        request->verdict = STK_ERR;
    error = txn_lease(txn, &known->row, &known->lease);
    if (error == STK_OK && known->duplicate && item->counted && known->lease.holds <= 1)
        request->verdict = STK_STALE; /* the duplicate's hold has been released since */
    return error;
}

static enum stk_error confirm_run(struct store_op *op, struct store_txn *txn)
{
    struct basket *basket = request_of_op(op)->state;
    bool has_id = basket->options.id.len > 0;
    enum stk_error error = STK_OK;
    struct known_item known;

    basket->lost = false;
    basket->request->verdict = STK_OK;
    for (size_t i = 0; i < basket->count; i++) {
        error = judge_item(basket, &basket->items[i], txn, &known);
        if (error != STK_OK || basket->lost || basket->request->verdict != STK_OK)
            return error;
    }
    for (size_t i = 0; has_id && error == STK_OK && i < basket->count; i++) {
        const struct basket_item *item = &basket->items[i];
        error = judge_item(basket, item, txn, &known);
        if (error == STK_OK && !known.duplicate) {
            error = lease_remember_grant(txn, &known.row, basket->options.id, basket->fingerprint,
                                         item->token, basket->ttl_ms);
        } else if (error == STK_OK && item->counted) {
            known.lease.holds--; /* what both twins have counted counts once */
            error = lease_rewrite(txn, &known.row, &known.lease);
        }
    }
    return error;
}

/* All tokens are good. What the confirmation took may have been all the time that was left. */
static void hand_out(struct basket *basket)
{
    if (least_left_ms(basket) > 0 || (basket->remembered && basket->request->session == NULL)) {
        reply_whole(basket);
    } else if (basket->remembered && basket->state == BASKET_CONFIRMING) {
        renew_all(basket);
    } else {
        lose(basket);
        next_step(basket);
    }
}

static void confirm_done(struct store_op *op)
{
    struct basket *basket = request_of_op(op)->state;
    struct engine *engine = basket->request->engine;

    if (op->error != STK_OK) {
        engine->counters.store_errors += op->error == STK_STORE;
        give_up(basket, op->error, NULL);
    } else if (basket->request->verdict == STK_ERR) {
        give_up(basket, STK_ERR, ID_OF_ANOTHER);
    } else if (basket->request->verdict != STK_OK) {
        give_up(basket, STK_STALE, ID_LEASES_OVER);
    } else if (basket->lost) {
        lose(basket);
    } else if (basket->options.id.len > 0) {
        basket->remembered = true;
        hand_out(basket);
        return;
    } else if (!is_unwanted(basket)) {
        hand_out(basket);
        return;
    }
    next_step(basket);
}

static void confirm(struct basket *basket)
{
    step(basket, BASKET_CONFIRMING);
    enum stk_error error =
        request_submit(basket->request, basket->options.id.len > 0, confirm_run, confirm_done);
    if (error != STK_OK) {
        give_up(basket, error, NULL);
        next_step(basket);
    }
}

/* RETURNING: it gives up, and gives back. */

static void on_given_back(struct release *release)
{
    struct basket *basket = list_entry(release, struct basket, release);

    if (release->error != STK_OK) /* nobody is told that it has this one */
        release_owe(release, basket->items[basket->taken].until_ms);
    next_step(basket);
}

static void give_back_last(struct basket *basket)
{
    const struct basket_item *item = &basket->items[--basket->taken];

    if (!item->counted) {
        next_step(basket);
        return;
    }
    basket->release = (struct release){.engine = basket->request->engine,
                                       .kind = RELEASE_HOLD,
                                       .hold = {item->resource, item->token},
                                       .on_end = on_given_back};
    release_start(&basket->release);
}

/* It will not be whole: the reply says why, what it has goes back. Once its ID is remembered they
 * are its client's, who may have been told of them by a repeat: they stay. */
static void give_up(struct basket *basket, enum stk_error error, const char *reason)
{
    if (basket->state == BASKET_RETURNING)
        return;
    if (basket->remembered)
        basket->taken = 0;
    step(basket, BASKET_RETURNING);
    basket->failure = error;
    snprintf(basket->reason, sizeof basket->reason, "%s", reason != NULL ? reason : "");
}

/* One of its leases is over, by nobody's fault. */
static void lose(struct basket *basket)
{
    if (basket->remembered) {
        give_up(basket, STK_STALE, ID_LEASES_OVER);
    } else if (basket->state != BASKET_RETURNING) {
        basket->sequel = SEQUEL_LOOK;
        step(basket, BASKET_RETURNING);
    }
}

/* All are back. */
static void on_all_given_back(struct basket *basket)
{
    bool goes_on = !is_unwanted(basket) && has_time(basket);
    enum basket_sequel sequel = goes_on ? basket->sequel : SEQUEL_REPLY;

    basket->sequel = SEQUEL_REPLY;
    switch (sequel) {
    case SEQUEL_REPLY: reply_failed(basket); break;
    case SEQUEL_LOOK: look(basket); break;
    case SEQUEL_WAIT:
        step(basket, BASKET_LOOKING);
        wait_for(basket, basket->denied_at, &basket->acquire.call, &basket->acquire.record);
        break;
    }
}

/* What comes next, once nothing is under way. */
static void next_step(struct basket *basket)
{
    if (basket->state != BASKET_RETURNING && is_unwanted(basket))
        give_up(basket, STK_BUSY, "the daemon is stopping; try again");
    if (basket->state == BASKET_RETURNING) {
        if (basket->taken > 0)
            give_back_last(basket);
        else
            on_all_given_back(basket);
    } else if (basket->taken < basket->count) {
        take_next(basket);
    } else if (basket->state == BASKET_TAKING &&
               least_left_ms(basket) < basket->ttl_ms - basket->ttl_ms / 8) {
        renew_all(basket);
    } else if (basket->remembered) {
        hand_out(basket);
    } else if (least_left_ms(basket) <= 0) {
        lose(basket);
        next_step(basket);
    } else {
        confirm(basket);
    }
}

/* The end. */

/* Out of all lines, before it is told: the next ones ask at once. `granted`: it has the leases. */
static void leave(struct basket *basket, bool granted)
{
    struct engine *engine = basket->request->engine;

    lease_wait_end(&basket->wait, engine, basket->request->session);
    for (size_t i = 0; i < basket->count; i++) {
        int64_t left_ms = basket->items[i].until_ms - engine_now_ms(engine);
        line_leave(&basket->items[i].waiter, granted && left_ms > 0 ? left_ms : 0);
    }
    account_give(basket->account, ACCOUNT_WAITERS);
    account_drop(basket->account);
}

static void reply_failed(struct basket *basket)
{
    struct request *request = basket->request;

    request->engine->counters.waits_in_vain +=
        basket->failure == STK_OK && basket->wait.since_us != 0;
    leave(basket, false);
    if (basket->failure != STK_OK) {
        request_fail(request, basket->failure, basket->reason[0] == '\0' ? NULL : "%s",
                     basket->reason);
        return;
    }
    resp_null_array(&request->reply, request->resp3);
    request_finish(request);
}

static void reply_whole(struct basket *basket)
{
    struct request *request = basket->request;
    int64_t *tokens = mem_alloc(basket->count * sizeof *tokens);

    leave(basket, true);
    for (size_t i = 0; i < basket->count; i++)
        tokens[basket->items[i].place] = basket->items[i].token;
    resp_array(&request->reply, basket->count);
    for (size_t i = 0; i < basket->count; i++)
        resp_int(&request->reply, tokens[i]);
    free(tokens);
    request_finish(request);
}
