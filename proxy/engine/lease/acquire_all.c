/* SPDX-License-Identifier: Apache-2.0 */
/* ACQUIREALL: a basket of leases, all or none. Each is an ACQUIRE of its own, asked one after the
 * other in the order of the names, the same for everybody: so two baskets that cross never wait for
 * each other in a circle.
 *
 *   TAKING ──all granted──▶ FRESHENING ──▶ CONFIRMING ──▶ reply [token ...]
 *    ▲ │                        │              │
 *    │ └──null, error───────────┴──────────────┴──▶ RETURNING ──▶ null, error
 *    └──────────one is over, and there is time──────────┘
 *
 * - While it waits for one, those it has are renewed at a third of their TTL; before the reply all
 *   are renewed once more where that took time. Where one is over all the same, all go back and it
 *   begins anew.
 * - It is whole when it is handed out: one look at the store confirms that each token is good.
 * - Its ID is remembered there and then, for all of it. Before that a repeat is a basket of its
 *   own: nobody gives back what another counts on, as each gives back what it has counted itself.
 *   From then on its leases are its client's, also where the reply is lost: a repeat finds them,
 *   counts nothing, and gives nothing back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"

#define BASKET_MAX 256
#define ID_OVER    "the leases that this ID was granted are over; ask again with another ID"

enum basket_phase { BASKET_TAKING, BASKET_FRESHENING, BASKET_CONFIRMING, BASKET_RETURNING };

struct basket_item {
    struct bytes resource;
    size_t place; /* in the order asked */
    int64_t token, until_ms;
    bool counted; /* a hold of its own; else what its ID was granted before */
};

struct basket {
    struct request *request;
    struct lease_options options;
    uint64_t fingerprint;
    enum basket_phase phase;
    struct request *taking;   /* the ACQUIRE under way, or NULL */
    struct request *renewing; /* the RENEW under way, or NULL */
    size_t taken;             /* items whose lease it has */
    size_t renewed;           /* of these, in this pass */
    bool again;               /* one was lost: from the beginning, once all are back */
    bool over;                /* so the confirmation found */
    bool remembered;          /* its ID is, for all of it */
    int64_t ttl_ms;
    struct timer keep_alive;
    struct lease_return back;
    size_t count;
    struct basket_item items[];
};

static void go_on(struct basket *basket);

static bool is_over(const struct basket *basket)
{
    return basket->request->session == NULL || basket->request->engine->draining;
}

/* A command of our own, whose reply comes to `finished`. */
static struct request *new_sub(struct basket *basket, const struct bytes *argv, size_t argc,
                               void (*finished)(struct request *))
{
    struct request *request = basket->request;
    struct request *sub =
        request_new(request->session, command_find(&request->engine->index, argv[0]), argv, argc);

    sub->parent = request;
    sub->on_finished = finished;
    sub->started = true;
    sub->resp3 = false;
    sub->order = ORDER_NOW;
    request->engine->requests_open++;
    return sub;
}

static struct basket *basket_of(struct request *sub)
{
    return sub->parent->state;
}

/* The basket's end: its reply is written. */
static void end(struct basket *basket)
{
    timer_stop(basket->request->engine, &basket->keep_alive);
    request_finish(basket->request);
}

static void returned(struct lease_return *back)
{
    go_on(list_entry(back, struct basket, back));
}

static void give_back_last(struct basket *basket)
{
    const struct basket_item *item = &basket->items[--basket->taken];

    if (!item->counted) {
        go_on(basket);
        return;
    }
    basket->back = (struct lease_return){.engine = basket->request->engine,
                                         .kind = RETURN_RELEASE,
                                         .resource = item->resource,
                                         .token = item->token,
                                         .done = returned};
    lease_return_start(&basket->back);
}

/* It will not be whole: the reply says why, what it has goes back. Once its ID is remembered they
 * are its client's, who may have been told of them by a repeat: they stay. */
static void give_up(struct basket *basket, struct bytes reply)
{
    struct buf *out = &basket->request->reply;

    if (basket->phase == BASKET_RETURNING)
        return;
    basket->phase = BASKET_RETURNING;
    if (basket->remembered)
        basket->taken = 0;
    buf_append_bytes(out, reply);
}

static void give_up_for(struct basket *basket, enum stk_error error, const char *why)
{
    struct buf reply = {0};

    resp_error(&reply, error, why == NULL ? NULL : "%s", why);
    give_up(basket, buf_bytes(&reply));
    buf_free(&reply);
}

/* One of its leases is over, by nobody's fault. */
static void lose(struct basket *basket)
{
    if (basket->remembered) {
        give_up_for(basket, STK_STALE, ID_OVER);
    } else if (basket->phase != BASKET_RETURNING) {
        basket->again = true;
        basket->phase = BASKET_RETURNING;
    }
}

static void end_with_null(struct basket *basket)
{
    resp_null_array(&basket->request->reply, basket->request->resp3);
    end(basket);
}

/* ":29998": as long as that from now on. False: it is none. */
static bool read_int(struct bytes text, int64_t *number)
{
    const char *end = text.len == 0 ? NULL : memchr(text.data, '\r', text.len);

    return end != NULL && text.data[0] == ':' &&
           bytes_to_int64((struct bytes){text.data + 1, (size_t)(end - text.data) - 1}, number);
}

static void renew_next(struct basket *basket);

static void renew_finished(struct request *sub)
{
    struct basket *basket = basket_of(sub);
    int64_t left_ms;

    basket->renewing = NULL;
    if (read_int(buf_bytes(&sub->reply), &left_ms))
        basket->items[basket->renewed].until_ms = engine_now_ms(sub->engine) + left_ms;
    else if (renew_lost(sub))
        lose(basket);
    else
        give_up(basket, buf_bytes(&sub->reply));
    basket->renewed++;
    request_free(sub);
    if (basket->phase == BASKET_RETURNING) {
        if (basket->taking != NULL && basket->taking->session != NULL) {
            basket->taking->session = NULL; /* nobody wants it any more */
            acquire_abandon(basket->taking);
        } else {
            go_on(basket);
        }
    } else if (basket->renewed < basket->taken && !is_over(basket)) {
        renew_next(basket);
    } else {
        timer_set(basket->request->engine, &basket->keep_alive,
                  engine_now_ms(basket->request->engine) + basket->ttl_ms / 3);
        go_on(basket);
    }
}

static void renew_next(struct basket *basket)
{
    const struct basket_item *item = &basket->items[basket->renewed];
    char token[24], ttl[24];
    snprintf(token, sizeof token, "%lld", (long long)item->token);
    snprintf(ttl, sizeof ttl, "%lld", (long long)basket->ttl_ms);
    struct bytes argv[] = {bytes_of("RENEW"), item->resource, bytes_of(token), bytes_of(ttl)};
    basket->renewing = new_sub(basket, argv, 4, renew_finished);
    lease_renew(basket->renewing);
}

static void renew_all(struct basket *basket)
{
    basket->renewed = 0;
    renew_next(basket);
}

static void keep_alive(struct timer *timer)
{
    struct basket *basket = list_entry(timer, struct basket, keep_alive);
    if (basket->phase == BASKET_TAKING && basket->renewing == NULL && !is_over(basket))
        renew_all(basket);
}

/* [34, 30000]. False: it is no grant. */
static bool read_grant(struct bytes reply, struct basket_item *item, int64_t now_ms)
{
    static const char head[] = "*2\r\n";
    int64_t left_ms;

    if (reply.len < sizeof head || memcmp(reply.data, head, sizeof head - 1) != 0)
        return false;
    reply = (struct bytes){reply.data + 4, reply.len - 4};
    if (!read_int(reply, &item->token))
        return false;
    const char *second = memchr(reply.data, '\n', reply.len);
    if (second == NULL ||
        !read_int((struct bytes){second + 1, reply.len - (size_t)(second + 1 - reply.data)},
                  &left_ms))
        return false;
    item->until_ms = now_ms + left_ms;
    return true;
}

static void take_finished(struct request *sub)
{
    struct basket *basket = basket_of(sub);
    int64_t now_ms = engine_now_ms(sub->engine);

    basket->taking = NULL;
    if (read_grant(buf_bytes(&sub->reply), &basket->items[basket->taken], now_ms)) {
        basket->items[basket->taken].counted = acquire_counted(sub);
        if (basket->taken++ == 0)
            timer_set(sub->engine, &basket->keep_alive, now_ms + basket->ttl_ms / 3);
    } else if (sub->reply.len > 0 && sub->reply.data[0] == '-') {
        give_up(basket, buf_bytes(&sub->reply));
    } else {
        give_up(basket, (struct bytes){"", 0});
    }
    request_free(sub);
    go_on(basket);
}

static void take_next(struct basket *basket)
{
    const struct lease_options *options = &basket->options;
    struct engine *engine = basket->request->engine;
    char ttl[24], wait[24];
    struct bytes argv[10];
    size_t argc = 0;

    snprintf(ttl, sizeof ttl, "%lld", (long long)basket->ttl_ms);
    argv[argc++] = bytes_of("ACQUIRE");
    argv[argc++] = basket->items[basket->taken].resource;
    argv[argc++] = bytes_of(ttl);
    int64_t left_ms = options->wait_until_ms - engine_now_ms(engine);
    if (options->wait_until_ms != 0 && left_ms > 0) {
        snprintf(wait, sizeof wait, "%lld", (long long)left_ms);
        argv[argc++] = bytes_of("WAIT");
        argv[argc++] = bytes_of(wait);
    }
    if (options->owner.len > 0) {
        argv[argc++] = bytes_of("OWNER");
        argv[argc++] = options->owner;
    }
    if (options->id.len > 0) {
        argv[argc++] = bytes_of("ID");
        argv[argc++] = options->id;
    }
    if (options->ephemeral)
        argv[argc++] = bytes_of("EPHEMERAL");
    basket->taking = new_sub(basket, argv, argc, take_finished);
    acquire_for_basket(basket->taking, basket->fingerprint);
}

static void reply_whole(struct basket *basket)
{
    struct buf *out = &basket->request->reply;
    int64_t *tokens = mem_alloc(basket->count * sizeof *tokens);

    for (size_t i = 0; i < basket->count; i++)
        tokens[basket->items[i].place] = basket->items[i].token;
    resp_array(out, basket->count);
    for (size_t i = 0; i < basket->count; i++)
        resp_int(out, tokens[i]);
    free(tokens);
    end(basket);
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
static void given_back(struct basket *basket)
{
    bool again = basket->again && !is_over(basket);

    basket->again = false;
    if (again && basket->options.wait_until_ms > engine_now_ms(basket->request->engine)) {
        basket->phase = BASKET_TAKING;
        timer_stop(basket->request->engine, &basket->keep_alive);
        go_on(basket);
    } else if (basket->request->reply.len == 0) {
        end_with_null(basket);
    } else {
        end(basket);
    }
}

/* The confirmation, on the store's thread; it may run more than once. */

/* What the store says of one item. */
struct sight {
    struct resource row;
    struct lease lease; /* where the basket has an ID */
    bool known;         /* a twin of this basket was told of this very token */
};

/* Is the token good? Then the request's verdict: is the ID this command's, and not used up? */
static enum stk_error look_at(struct basket *basket, const struct basket_item *item,
                              struct store_txn *txn, struct sight *sight)
{
    struct request *request = basket->request;
    struct receipt receipt;
    bool found = false;
    enum stk_error error = txn_resource(txn, item->resource, &sight->row);

    sight->known = false;
    if (error != STK_OK)
        return error;
    basket->over |= fence_judge(&sight->row.fence, item->token) != STK_OK;
    if (basket->over || basket->options.id.len == 0)
        return STK_OK;
    error = txn_receipt(txn, &sight->row, basket->options.id, &found, &receipt);
    if (error != STK_OK || !found)
        return error;
    sight->known = receipt.token == item->token;
    if (receipt.fingerprint != basket->fingerprint)
        request->verdict = STK_ERR;
    error = txn_lease(txn, &sight->row, &sight->lease);
    if (error == STK_OK && sight->known && item->counted && sight->lease.holds <= 1)
        request->verdict = STK_STALE; /* the twin's hold has been released since */
    return error;
}

/* What both twins have counted counts once. */
static enum stk_error count_once(struct store_txn *txn, struct sight *sight)
{
    struct lease *lease = &sight->lease;
    struct buf owner = {0}; /* lease->owner is borrowed from the row that is written now */

    lease->holds--;
    buf_append_bytes(&owner, lease->owner);
    lease->owner = buf_bytes(&owner);
    enum stk_error error = txn_fence_put(txn, &sight->row, lease);
    buf_free(&owner);
    return error;
}

static enum stk_error remember(const struct basket *basket, const struct basket_item *item,
                               struct store_txn *txn, const struct resource *row)
{
    struct buf reply = {0};

    resp_array(&reply, 2);
    resp_int(&reply, item->token);
    resp_int(&reply, basket->ttl_ms);
    enum stk_error error = txn_receipt_put(txn, row, basket->options.id,
                                           &(struct receipt){.token = item->token,
                                                             .fingerprint = basket->fingerprint,
                                                             .reply = buf_bytes(&reply)});
    buf_free(&reply);
    return error;
}

static enum stk_error confirm_run(struct store_op *op, struct store_txn *txn)
{
    struct basket *basket = request_of_op(op)->state;
    bool has_id = basket->options.id.len > 0;
    enum stk_error error = STK_OK;
    struct sight sight;

    basket->over = false;
    basket->request->verdict = STK_OK;
    for (size_t i = 0; i < basket->count; i++) {
        error = look_at(basket, &basket->items[i], txn, &sight);
        if (error != STK_OK || basket->over || basket->request->verdict != STK_OK)
            return error;
    }
    for (size_t i = 0; has_id && error == STK_OK && i < basket->count; i++) {
        const struct basket_item *item = &basket->items[i];
        error = look_at(basket, item, txn, &sight);
        if (error == STK_OK && !sight.known)
            error = remember(basket, item, txn, &sight.row);
        else if (error == STK_OK && item->counted)
            error = count_once(txn, &sight);
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
        go_on(basket);
    }
}

static void confirm_done(struct store_op *op)
{
    struct basket *basket = request_of_op(op)->state;
    struct engine *engine = basket->request->engine;

    if (op->error != STK_OK) {
        engine->counters.store_errors += op->error == STK_STORE;
        give_up_for(basket, op->error, NULL);
    } else if (basket->request->verdict == STK_ERR) {
        give_up_for(basket, STK_ERR, "this ID was used for another command");
    } else if (basket->request->verdict != STK_OK) {
        give_up_for(basket, STK_STALE, ID_OVER);
    } else if (basket->over) {
        lose(basket);
    } else if (basket->options.id.len > 0) {
        basket->remembered = true;
        hand_out(basket);
        return;
    } else if (!is_over(basket)) {
        hand_out(basket);
        return;
    }
    go_on(basket);
}

static void confirm(struct basket *basket)
{
    basket->phase = BASKET_CONFIRMING;
    enum stk_error error =
        request_submit(basket->request, basket->options.id.len > 0, confirm_run, confirm_done);
    if (error != STK_OK) {
        give_up_for(basket, error, NULL);
        go_on(basket);
    }
}

/* What comes next, once nothing is under way. */
static void go_on(struct basket *basket)
{
    if (basket->taking != NULL || basket->renewing != NULL)
        return;
    if (basket->phase != BASKET_RETURNING && is_over(basket))
        give_up(basket, bytes_of("-BUSY the daemon is stopping; try again\r\n"));
    if (basket->phase == BASKET_RETURNING) {
        if (basket->taken > 0)
            give_back_last(basket);
        else
            given_back(basket);
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
        go_on(basket);
    } else {
        confirm(basket);
    }
}

void acquire_all_abandon(struct request *request)
{
    struct basket *basket = request->state;

    if (basket == NULL)
        return;
    if (basket->renewing != NULL)
        basket->renewing->session = NULL;
    if (basket->taking != NULL) {
        basket->taking->session = NULL;
        acquire_abandon(basket->taking);
    }
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
    if (!lease_options_parse(request, 3 + basket->count, &basket->options))
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

    if (!request_int(request, 1, LEASE_TTL_MIN_MS, LEASE_TTL_MAX_MS, "ttl_ms", &ttl_ms) ||
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
    basket->keep_alive.fire = keep_alive;
    if (fill(request, basket))
        go_on(basket);
}
