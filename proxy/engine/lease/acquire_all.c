/* SPDX-License-Identifier: Apache-2.0 */
/* ACQUIREALL: a basket of leases, all or none. They are acquired one after the other in the order
 * of the names, the same for everybody: so two baskets that cross never wait for each other in a
 * circle.
 *
 *   TAKING ──all granted──▶ FRESHENING ──▶ CONFIRMING ──▶ reply [token ...]
 *    ▲ │                        │              │
 *    │ └──null, error───────────┴──────────────┴──▶ RETURNING ──▶ null, error
 *    └──────────one is lost, and there is time────────┘
 *
 * - While it waits for one, those it has are renewed at a third of their TTL; before the reply all
 *   are renewed once more where that took time. Where one is lost all the same, all go back and it
 *   begins anew.
 * - It is whole when it is handed out: one read of the store confirms that each token is good (P5).
 * - Its ID is remembered in that same operation. Before that, a repeat is a basket of its own; each
 *   gives back only what it has counted itself. From then on the leases are the client's, even
 * where the reply is lost: a repeat finds them, counts nothing, and gives nothing back (P6).
 * - At most one acquire, one renewal and one release are under way; next_step() says what follows
 *   when they have ended. */
#include <stdio.h>
#include <stdlib.h>

#include <xxhash.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/session/arguments.h"

#define BASKET_MAX 256
#define ID_LOST    "the leases that this ID was granted are over; ask again with another ID"

enum basket_phase { BASKET_TAKING, BASKET_FRESHENING, BASKET_CONFIRMING, BASKET_RETURNING };

struct basket_item {
    struct bytes resource;
    size_t place; /* in the order asked */
    int64_t token, until_ms;
    bool counted; /* a hold of its own; else what its ID was granted before */
};

struct basket {
    struct request *request;
    struct acquire_options options;
    uint64_t fingerprint;
    enum basket_phase phase;
    bool is_acquiring, is_renewing;
    size_t taken;           /* items whose lease it has */
    size_t renewed;         /* of these, in this pass */
    bool restart;           /* a lease was lost: from the beginning, once all are back */
    bool lost;              /* so the confirmation found */
    bool remembered;        /* its ID is, for all of it */
    enum stk_error failure; /* what it gave up for; STK_OK: null */
    char reason[160];       /* for people; empty: the code's usual text */
    int64_t ttl_ms;
    struct timer keep_alive;
    struct acquire acquire;
    struct release release;
    size_t count;
    struct basket_item items[];
};

static void next_step(struct basket *basket);

static bool is_unwanted(const struct basket *basket)
{
    return basket->request->session == NULL || basket->request->engine->draining;
}

/* Giving up, and giving back. */

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
                                       .resource = item->resource,
                                       .token = item->token,
                                       .on_end = on_given_back};
    release_start(&basket->release);
}

/* It will not be whole: the reply says why, what it has goes back. Once its ID is remembered they
 * are its client's, who may have been told of them by a repeat: they stay. */
static void give_up(struct basket *basket, enum stk_error error, const char *reason)
{
    if (basket->phase == BASKET_RETURNING)
        return;
    basket->phase = BASKET_RETURNING;
    if (basket->remembered)
        basket->taken = 0;
    basket->failure = error;
    snprintf(basket->reason, sizeof basket->reason, "%s", reason != NULL ? reason : "");
}

/* One of its leases is over, by nobody's fault. */
static void lose(struct basket *basket)
{
    if (basket->remembered) {
        give_up(basket, STK_STALE, ID_LOST);
    } else if (basket->phase != BASKET_RETURNING) {
        basket->restart = true;
        basket->phase = BASKET_RETURNING;
    }
}

/* Keeping what it has. */

static void renew_next(struct basket *basket);

static void set_keep_alive(struct basket *basket)
{
    struct engine *engine = basket->request->engine;
    timer_set(engine, &basket->keep_alive, engine_now_ms(engine) + basket->ttl_ms / 3);
}

static void on_renewed(struct renewal *renewal)
{
    struct basket *basket = renewal->context;

    basket->is_renewing = false;
    if (renewal->error == STK_OK) {
        basket->items[basket->renewed].until_ms = engine_now_ms(renewal->engine) + renewal->left_ms;
    } else if (renewal->lost) {
        lose(basket);
    } else {
        basket->request->op.why = renewal->op.why;
        give_up(basket, renewal->error, renewal->reason);
    }
    basket->renewed++;
    if (basket->phase == BASKET_RETURNING) {
        if (basket->is_acquiring && basket->acquire.session != NULL)
            acquire_cancel(&basket->acquire); /* nobody wants it any more */
        else
            next_step(basket);
    } else if (basket->renewed < basket->taken && !is_unwanted(basket)) {
        renew_next(basket);
    } else {
        set_keep_alive(basket);
        next_step(basket);
    }
}

static void renew_next(struct basket *basket)
{
    const struct basket_item *item = &basket->items[basket->renewed];

    struct renewal *renewal =
        renewal_new(basket->request->engine, item->resource, item->token, basket->ttl_ms);

    basket->is_renewing = true;
    renewal->session = &basket->request->session;
    renewal->on_end = on_renewed;
    renewal->context = basket;
    renewal_start(renewal);
}

static void renew_all(struct basket *basket)
{
    basket->renewed = 0;
    renew_next(basket);
}

static void on_keep_alive(struct timer *timer)
{
    struct basket *basket = list_entry(timer, struct basket, keep_alive);
    if (basket->phase == BASKET_TAKING && !basket->is_renewing && !is_unwanted(basket))
        renew_all(basket);
}

/* Taking one more. */

static void on_acquired(struct acquire *acquire)
{
    struct basket *basket = list_entry(acquire, struct basket, acquire);
    struct basket_item *item = &basket->items[basket->taken];

    basket->is_acquiring = false;
    basket->request->waited |= acquire->waited;
    if (acquire->error != STK_OK) {
        basket->request->op.why = acquire->op.why;
        give_up(basket, acquire->error, acquire->reason);
    } else if (acquire->grant.token == 0) {
        give_up(basket, STK_OK, NULL);
    } else {
        item->token = acquire->grant.token;
        item->until_ms = engine_now_ms(acquire->engine) + acquire->grant.left_ms;
        item->counted = acquire->counted;
        if (basket->taken++ == 0)
            set_keep_alive(basket);
    }
    next_step(basket);
}

static void take_next(struct basket *basket)
{
    basket->is_acquiring = true;
    basket->acquire = (struct acquire){.engine = basket->request->engine,
                                       .session = basket->request->session,
                                       .resource = basket->items[basket->taken].resource,
                                       .ttl_ms = basket->ttl_ms,
                                       .options = basket->options,
                                       .fingerprint = basket->fingerprint,
                                       .of_basket = true,
                                       .on_end = on_acquired};
    acquire_start(&basket->acquire);
}

/* The end. */

static void reply_failed(struct basket *basket)
{
    struct request *request = basket->request;

    timer_stop(request->engine, &basket->keep_alive);
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

    timer_stop(request->engine, &basket->keep_alive);
    for (size_t i = 0; i < basket->count; i++)
        tokens[basket->items[i].place] = basket->items[i].token;
    resp_array(&request->reply, basket->count);
    for (size_t i = 0; i < basket->count; i++)
        resp_int(&request->reply, tokens[i]);
    free(tokens);
    request_finish(request);
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

/* All are back. */
static void on_all_given_back(struct basket *basket)
{
    struct engine *engine = basket->request->engine;
    bool restart = basket->restart && !is_unwanted(basket);

    basket->restart = false;
    if (restart && basket->options.wait_until_ms > engine_now_ms(engine)) {
        basket->phase = BASKET_TAKING;
        timer_stop(engine, &basket->keep_alive);
        next_step(basket);
    } else {
        reply_failed(basket);
    }
}

/* The confirmation, on the store's thread; it may run more than once. */

/* An item, as the store knows it. */
struct known_item {
    struct resource row;
    struct lease lease; /* where the basket has an ID */
    bool twin;          /* a twin of this basket was told of this very token */
};

/* Is the token good? Then the request's verdict: is the ID this command's, and not used up? */
static enum stk_error judge_item(struct basket *basket, const struct basket_item *item,
                                 struct store_txn *txn, struct known_item *known)
{
    struct request *request = basket->request;
    struct receipt receipt;
    bool found = false;
    enum stk_error error = txn_resource(txn, item->resource, &known->row);

    known->twin = false;
    if (error != STK_OK)
        return error;
    basket->lost |= fence_judge(&known->row.fence, item->token) != STK_OK;
    if (basket->lost || basket->options.id.len == 0)
        return STK_OK;
    error = txn_receipt(txn, &known->row, basket->options.id, &found, &receipt);
    if (error != STK_OK || !found)
        return error;
    known->twin = receipt.token == item->token;
    if (receipt.fingerprint != basket->fingerprint)
        request->verdict = STK_ERR;
    error = txn_lease(txn, &known->row, &known->lease);
    if (error == STK_OK && known->twin && item->counted && known->lease.holds <= 1)
        request->verdict = STK_STALE; /* the twin's hold has been released since */
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
        if (error == STK_OK && !known.twin) {
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
    } else if (basket->remembered && basket->phase == BASKET_CONFIRMING) {
        basket->phase = BASKET_FRESHENING;
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
        give_up(basket, STK_ERR, "this ID was used for another command");
    } else if (basket->request->verdict != STK_OK) {
        give_up(basket, STK_STALE, ID_LOST);
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
    basket->phase = BASKET_CONFIRMING;
    enum stk_error error =
        request_submit(basket->request, basket->options.id.len > 0, confirm_run, confirm_done);
    if (error != STK_OK) {
        give_up(basket, error, NULL);
        next_step(basket);
    }
}

/* What comes next, once nothing is under way. */
static void next_step(struct basket *basket)
{
    if (basket->is_acquiring || basket->is_renewing)
        return;
    if (basket->phase != BASKET_RETURNING && is_unwanted(basket))
        give_up(basket, STK_BUSY, "the daemon is stopping; try again");
    if (basket->phase == BASKET_RETURNING) {
        if (basket->taken > 0)
            give_back_last(basket);
        else
            on_all_given_back(basket);
    } else if (basket->taken < basket->count) {
        take_next(basket);
    } else if (basket->phase == BASKET_TAKING &&
               least_left_ms(basket) < basket->ttl_ms - basket->ttl_ms / 8) {
        basket->phase = BASKET_FRESHENING;
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

/* The command. */

void acquire_all_abandon(struct request *request)
{
    struct basket *basket = request->state;

    if (basket != NULL && basket->is_acquiring)
        acquire_cancel(&basket->acquire);
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
    if (!acquire_options_parse(request, 3 + basket->count, &basket->options))
        return false;
    if (basket->options.queue) {
        request_fail(request, STK_ERR, "ACQUIREALL has no QUEUE: WAIT, on a connection of its own");
        return false;
    }
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
        !request_int(request, 2, 1, BASKET_MAX, "the number of resources", &count))
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
    basket->keep_alive.fire = on_keep_alive;
    if (fill(request, basket))
        next_step(basket);
}
