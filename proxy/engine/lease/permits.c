/* SPDX-License-Identifier: Apache-2.0 */
/* ACQUIRE ... PERMITS n, a semaphore whose permits are fenced: each is an exclusive lease on
 * `resource#permit`, which one acquire takes as it would take any other. So never more than n are
 * held, and the lease services know nothing of permits.
 *
 *   NEW ──▶ LOOKING ──▶ ASKING ──▶ ENDED                    [token, ttl left, permit]
 *   NEW ──▶ ENDED                                           its user may have no more that wait
 *           LOOKING ──▶ LOOKING                             the next part; its turn came meanwhile
 *           LOOKING ──▶ WAITING ──▶ LOOKING                 all are taken, until its turn or a poll
 *           LOOKING ──▶ ENDED                               so, and there is no time; an error
 *                       ASKING ──▶ ASKING                   that one was taken: the next one
 *                       ASKING ──▶ LOOKING, WAITING         so were all that it asked for
 *                       ASKING ──▶ REMEMBERING ──▶ ENDED    it has an ID
 *                                  REMEMBERING ──▶ RETURNING ──▶ LOOKING, ENDED
 *                       WAITING ──▶ ENDED                   the deadline: null
 *
 * - Which permits may be free the store's rows tell, and the leases that this daemon watches; each
 *   look begins at another permit, so that daemons do not all ask for the same one. The lease
 *   service has the last word, and is asked for PERMIT_QUESTIONS_MAX of them at most. Where there
 *   are more that may be free, the next ones are asked for soon.
 * - The line is that of `resource`. Who has been denied there, and waits, comes before all who come
 *   later; those who have not been denied yet ask at the same time. The end of any permit is the
 *   head's turn.
 * - The receipt of an ID stands at `resource`, and tells the permit. It is written when the lease
 *   is recorded, in an operation of its own: before that a repeat is a request of its own, and
 *   gives back what it has where it finds that the other one was quicker.
 * - Who asks with a smaller n is granted none above it; those who hold one keep it. */
#include "proxy/engine/lease/permits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/scope.h"

enum {
    SOON_MS = 20,     /* until the next try, where more may be free, */
    STORE_MS = 15,    /* or another daemon on the same store has one, and nobody tells of its end */
    DENIED_MS = 1000, /* a permit that was denied is not asked for again, at most */
    BRIEF = 32,       /* permits that are looked at on the loop's thread */
};

static bool is_unwanted(const struct permits *permits)
{
    return permits->session == NULL || permits->engine->draining;
}

static bool has_time(const struct permits *permits)
{
    return permits->options.wait_until_ms > engine_now_ms(permits->engine);
}

#define TO(name) STATE_BIT(PERMITS_##name)

static const struct state states[] = {
    [PERMITS_NEW] = {"NEW", TO(LOOKING) | TO(ENDED)},
    [PERMITS_LOOKING] = {"LOOKING", TO(LOOKING) | TO(ASKING) | TO(WAITING) | TO(ENDED)},
    [PERMITS_ASKING] = {"ASKING",
                        TO(ASKING) | TO(LOOKING) | TO(WAITING) | TO(REMEMBERING) | TO(ENDED)},
    [PERMITS_WAITING] = {"WAITING", TO(LOOKING) | TO(ENDED)},
    [PERMITS_REMEMBERING] = {"REMEMBERING", TO(RETURNING) | TO(ENDED)},
    [PERMITS_RETURNING] = {"RETURNING", TO(LOOKING) | TO(ENDED)},
    [PERMITS_ENDED] = {"ENDED", 0},
};

/* What holds from the first moment of its state on. */
static void check_state(const struct permits *permits)
{
    bool stands = permits->waiter.line != NULL;

    check(permits->acquire.state == ACQUIRE_IDLE); /* ASKING begins one afterwards */
    check(permits->waiter.waits == (permits->state == PERMITS_WAITING));
    switch (permits->state) {
    case PERMITS_NEW: break;
    case PERMITS_LOOKING: check(stands && permits->looked < permits->options.permits); break;
    case PERMITS_ASKING: check(stands && permits->asked <= permits->candidates.count); break;
    case PERMITS_WAITING: check(stands && permits->wait.since_us != 0); break;
    case PERMITS_REMEMBERING:
    case PERMITS_RETURNING: check(stands && permits->acquire.grant.token != 0); break;
    case PERMITS_ENDED: check(!stands && permits->denied_ms == NULL); break;
    }
}

/* Every change of state is one of these. */
static void step(struct permits *permits, enum permits_state to)
{
    state_check_step(states, permits->state, to);
    permits->state = to;
    check_state(permits);
}

/* What follows goes by the states, in their order. */

static void look(struct permits *permits);
static void look_at_part(struct permits *permits);
static void choose(struct permits *permits);
static void ask_next(struct permits *permits);
static void on_acquired(struct acquire *acquire);
static void on_denied(struct permits *permits);
static const struct waiter_events waiter_events;
static void on_vain(struct lease_wait *wait, enum stk_error why);
static void remember(struct permits *permits);
static void give_back(struct permits *permits, enum stk_error error, const char *reason);

/* NEW: its beginning. */

void permits_start(struct permits *permits)
{
    struct account *account = permits->session->account;

    permits->fingerprint = lease_fingerprint("ACQUIRE PERMITS", permits->options.owner);
    permits->wait.on_vain = on_vain;
    if (permits->options.owner.len > 0)
        lease_nonce(permits->options.owner, false, permits->nonce);
    if (!account_take(account, ACCOUNT_WAITERS, permits->acquire.why)) {
        permits->error = STK_BUSY;
        permits->reason = permits->acquire.why;
        step(permits, PERMITS_ENDED);
        permits->on_end(permits);
        return;
    }
    permits->waiter.account = account_keep(account);
    permits->waiter.events = &waiter_events;
    permits->waiter.shares = true;
    line_join(permits->engine, permits->resource, &permits->waiter);
    look(permits);
}

/* ENDED. It leaves the line before it tells: the next head asks at once, for others may be free. */

static void end(struct permits *permits, enum stk_error error, const char *reason)
{
    lease_wait_end(&permits->wait, permits->engine, permits->session);
    line_leave(&permits->waiter, 0);
    free(permits->denied_ms);
    permits->denied_ms = NULL;
    permits->error = error;
    permits->reason = reason;
    step(permits, PERMITS_ENDED);
    permits->on_end(permits);
}

static void end_denied(struct permits *permits)
{
    permits->engine->counters.leases_denied++;
    permits->engine->counters.waits_in_vain += permits->wait.since_us != 0;
    end(permits, STK_OK, NULL);
}

static void end_unwanted(struct permits *permits)
{
    if (permits->session != NULL)
        end(permits, STK_BUSY, "the daemon is stopping; try again");
    else
        end(permits, STK_OK, NULL);
}

static void end_granted(struct permits *permits)
{
    permits->token = permits->acquire.grant.token;
    permits->left_ms = permits->until_ms - engine_now_ms(permits->engine);
    end(permits, STK_OK, NULL);
}

/* LOOKING: what the store knows, a part of the permits at a time. */

static int64_t permit_at(const struct permits *permits, int64_t i)
{
    return (permits->start + i) % permits->options.permits + 1;
}

static size_t part_size(const struct permits *permits)
{
    int64_t left = permits->options.permits - permits->looked;

    return left < PERMITS_AT_ONCE ? (size_t)left : PERMITS_AT_ONCE;
}

/* The name of a permit's resource, in `text`. */
static struct bytes name_of(const struct permits *permits, int64_t permit,
                            char text[RESOURCE_NAME_MAX])
{
    size_t len = permits->resource.len;
    char digits[INT64_TEXT_MAX];
    struct bytes number = bytes_of_int64(permit, digits);

    check(len + 1 + number.len <= RESOURCE_NAME_MAX);
    memcpy(text, permits->resource.data, len);
    text[len] = PERMIT_MARK;
    memcpy(text + len + 1, number.data, number.len);
    return (struct bytes){text, len + 1 + number.len};
}

static bool reads_receipt(const struct permits *permits)
{
    return permits->options.id.len > 0 && permits->looked == 0;
}

/* For a store that loads rows before it runs operations: all at once. */
static void look_hints(const struct store_op *op, store_each_hint *each, void *context)
{
    const struct permits *permits = list_entry(op, const struct permits, op);
    char text[RESOURCE_NAME_MAX];

    for (size_t i = 0; i < part_size(permits); i++)
        each(context, &(struct store_hint){
                          .resource = name_of(
                              permits, permit_at(permits, permits->looked + (int64_t)i), text)});
    if (reads_receipt(permits))
        each(context,
             &(struct store_hint){.resource = permits->resource, .receipt = permits->options.id});
}

/* Read one of the numbers of a receipt's reply, which stand one behind the other. */
static bool take_number(struct bytes *reply, int64_t *number)
{
    const char *end = reply->len == 0 ? NULL : memchr(reply->data, '\r', reply->len);

    if (end == NULL || reply->data[0] != ':')
        return false;
    struct bytes text = {reply->data + 1, (size_t)(end - reply->data) - 1};
    size_t used = text.len + sizeof ":\r\n" - 1;
    if (used > reply->len || !bytes_to_int64(text, number))
        return false;
    *reply = (struct bytes){reply->data + used, reply->len - used};
    return true;
}

/* What a receipt at the resource says: which permit, under which token. */
static bool read_reply(struct bytes reply, int64_t *token, int64_t *permit)
{
    struct bytes head = BYTES_LITERAL("*3\r\n");
    int64_t ttl_ms;

    if (reply.len < head.len || memcmp(reply.data, head.data, head.len) != 0)
        return false;
    reply = (struct bytes){reply.data + head.len, reply.len - head.len};
    return take_number(&reply, token) && take_number(&reply, &ttl_ms) &&
           take_number(&reply, permit) && *permit >= 1 && *permit <= PERMITS_MAX;
}

/* What was the ID used for? */
static enum stk_error find_first(struct permits *permits, struct store_txn *txn,
                                 struct resource *row)
{
    char text[RESOURCE_NAME_MAX];
    struct resource of_permit;
    struct receipt receipt;
    bool found = false;
    enum stk_error error = txn_resource(txn, permits->resource, row);

    permits->id_use = ID_UNUSED;
    if (error == STK_OK && row->id != 0)
        error = txn_receipt(txn, row, permits->options.id, &found, &receipt);
    if (error != STK_OK || !found)
        return error;
    permits->id_use = ID_MISUSED;
    if (receipt.fingerprint != permits->fingerprint ||
        !read_reply(receipt.reply, &permits->first.token, &permits->first.permit))
        return STK_OK;
    error = txn_resource(txn, name_of(permits, permits->first.permit, text), &of_permit);
    permits->id_use =
        fence_judge(&of_permit.fence, permits->first.token) == STK_OK ? ID_REPEATS : ID_OVER;
    return error;
}

static enum stk_error look_run(struct store_op *op, struct store_txn *txn)
{
    struct permits *permits = list_entry(op, struct permits, op);
    int64_t opening = store_opening(permits->engine->options.store);
    char text[RESOURCE_NAME_MAX];
    struct resource row;
    struct lease_record record;
    enum stk_error error = STK_OK;

    if (reads_receipt(permits))
        error = find_first(permits, txn, &row);
    for (size_t i = 0; error == STK_OK && i < part_size(permits); i++) {
        int64_t permit = permit_at(permits, permits->looked + (int64_t)i);
        error = lease_read(txn, name_of(permits, permit, text), opening, &row, &record, NULL);
        bool is_own = record.live && permits->options.owner.len > 0 &&
                      strcmp(record.nonce, permits->nonce) == 0;
        permits->part[i].left_ms = record.ttl_ms - record.written_ms;
        permits->part[i].seen = is_own             ? SEEN_OWN
                                : !record.live     ? SEEN_FREE
                                : record.unexpired ? SEEN_TAKEN
                                                   : SEEN_OVER;
    }
    return error;
}

/* From the beginning, at any permit. */
static void look(struct permits *permits)
{
    const struct chance *chance = permits->engine->options.chance;
    uint32_t random;

    chance->fill(chance, &random, sizeof random);
    permits->start = (int64_t)random % permits->options.permits;
    permits->looked = 0;
    permits->id_use = ID_UNUSED;
    permits->own = 0;
    permits->free.count = permits->over.count = permits->candidates.count = 0;
    permits->untried = permits->elsewhere = permits->is_permitted = false;
    permits->soonest_ms = LINE_POLL_MS;
    permits->was_next = line_may_take(&permits->waiter);
    permits->freed = line_is_head(&permits->waiter) ? line_take_freed(&permits->waiter) : 0;
    look_at_part(permits);
}

/* It may be free, but was denied a moment ago. */
static bool is_denied(struct permits *permits, int64_t permit)
{
    int64_t left_ms = permits->denied_ms == NULL
                          ? 0
                          : permits->denied_ms[permit - 1] - engine_now_ms(permits->engine);

    if (left_ms > 0 && left_ms < permits->soonest_ms)
        permits->soonest_ms = left_ms;
    return left_ms > 0;
}

static void add(struct permits *permits, struct permit_list *list, int64_t permit)
{
    if (is_denied(permits, permit))
        return;
    if (list->count < PERMIT_QUESTIONS_MAX)
        list->permits[list->count++] = permit;
    else
        permits->untried = true;
}

static void judge(struct permits *permits, size_t i)
{
    int64_t permit = permit_at(permits, permits->looked + (int64_t)i);
    enum permit_seen seen = permits->part[i].seen;
    int64_t left_ms = permits->part[i].left_ms;
    char text[RESOURCE_NAME_MAX];
    struct bytes name = name_of(permits, permit, text);
    struct held_shown held;

    if (permits->rights != NULL && !acl_may_touch(permits->rights, name, ACL_WRITES))
        return;
    permits->is_permitted = true;
    bool is_here = seen != SEEN_FREE && held_find(permits->engine, name, &held);
    if (seen == SEEN_OVER && is_here && held.until_ms > engine_now_ms(permits->engine)) {
        seen = SEEN_TAKEN; /* its renewals need not be in the store */
        left_ms = held.until_ms - engine_now_ms(permits->engine);
    }
    switch (seen) {
    case SEEN_OWN: permits->own = permit; break;
    case SEEN_FREE: add(permits, &permits->free, permit); break;
    case SEEN_OVER: add(permits, &permits->over, permit); break;
    case SEEN_TAKEN:
        permits->elsewhere |= !is_here;
        if (left_ms < permits->soonest_ms)
            permits->soonest_ms = left_ms;
        break;
    }
}

/* Does the ID say what comes next? */
static bool goes_by_id(struct permits *permits)
{
    switch (permits->id_use) {
    case ID_UNUSED: return false;
    case ID_MISUSED: end(permits, STK_ERR, ID_OF_ANOTHER); break;
    case ID_OVER:
        end(permits, STK_STALE,
            "the lease that this ID was granted is over; ask again with another ID");
        break;
    case ID_REPEATS:
        permits->own = permits->first.permit;
        choose(permits);
        break;
    }
    return true;
}

static void look_done(struct store_op *op)
{
    struct permits *permits = list_entry(op, struct permits, op);

    check(permits->state == PERMITS_LOOKING);
    if (is_unwanted(permits)) {
        end_unwanted(permits);
        return;
    }
    if (op->error != STK_OK) {
        permits->engine->counters.store_errors++;
        permits->why = op->why;
        end(permits, op->error, NULL);
        return;
    }
    if (goes_by_id(permits))
        return;
    for (size_t i = 0; i < part_size(permits); i++)
        judge(permits, i);
    permits->looked += (int64_t)part_size(permits);
    bool is_enough = permits->own != 0 || (permits->options.owner.len == 0 &&
                                           permits->free.count == PERMIT_QUESTIONS_MAX);
    if (!is_enough && permits->looked < permits->options.permits)
        look_at_part(permits);
    else if (!permits->is_permitted)
        end(permits, STK_NOPERM, NULL);
    else
        choose(permits);
}

static enum stk_error submit(struct permits *permits, bool writes, bool brief, store_run *run,
                             store_done *done,
                             void (*hints)(const struct store_op *op, store_each_hint *each,
                                           void *context))
{
    permits->op = (struct store_op){.writes = writes,
                                    .brief = brief,
                                    .about = permits->resource,
                                    .hints = hints,
                                    .run = run,
                                    .done = done,
                                    .submitted_us = permits->engine->now_us};
    list_init(&permits->op.link);
    return store_submit(permits->engine->options.store, &permits->op);
}

static void look_at_part(struct permits *permits)
{
    step(permits, PERMITS_LOOKING);
    if (submit(permits, false, part_size(permits) <= BRIEF, look_run, look_done, look_hints) !=
        STK_OK)
        end(permits, STK_BUSY, NULL);
}

/* ASKING: the lease service, by way of an acquire. */

static void add_candidate(struct permits *permits, int64_t permit)
{
    struct permit_list *list = &permits->candidates;

    for (size_t i = 0; i < list->count; i++)
        if (list->permits[i] == permit)
            return;
    if (list->count < PERMIT_QUESTIONS_MAX)
        list->permits[list->count++] = permit;
    else
        permits->untried = true;
}

/* Its own; then, if it may have another, those of which most says that they are free. */
static void choose(struct permits *permits)
{
    permits->asked = 0;
    if (permits->own != 0)
        add_candidate(permits, permits->own);
    if (permits->was_next && permits->id_use != ID_REPEATS) {
        if (permits->freed >= 1 && permits->freed <= permits->options.permits)
            add_candidate(permits, permits->freed);
        for (size_t i = 0; i < permits->free.count; i++)
            add_candidate(permits, permits->free.permits[i]);
        for (size_t i = 0; i < permits->over.count; i++)
            add_candidate(permits, permits->over.permits[i]);
    }
    ask_next(permits);
}

static void ask_next(struct permits *permits)
{
    if (is_unwanted(permits)) {
        end_unwanted(permits);
        return;
    }
    if (permits->asked == permits->candidates.count) {
        on_denied(permits);
        return;
    }
    step(permits, PERMITS_ASKING);
    permits->permit = permits->candidates.permits[permits->asked++];
    struct bytes name = name_of(permits, permits->permit, permits->name);
    bool repeats = permits->id_use == ID_REPEATS;
    permits->acquire =
        (struct acquire){.engine = permits->engine,
                         .session = permits->session,
                         .resource = name,
                         .ttl_ms = permits->ttl_ms,
                         .options = {.owner = permits->options.owner,
                                     .id = repeats ? permits->options.id : (struct bytes){"", 0},
                                     .ephemeral = permits->options.ephemeral},
                         .fingerprint = permits->fingerprint,
                         .way = WAY_BASKET,
                         .place = &permits->waiter,
                         .on_end = on_acquired};
    acquire_start(&permits->acquire);
}

/* This one is not asked for again too soon, for there may be others. */
static void note_denied(struct permits *permits, const struct lease_call *call)
{
    int64_t denied_ms = call->answer == LEASE_HELD && call->answer_ttl_ms < DENIED_MS
                            ? call->answer_ttl_ms
                            : DENIED_MS;

    if (!has_time(permits))
        return;
    if (permits->denied_ms == NULL)
        permits->denied_ms =
            mem_zalloc((size_t)permits->options.permits * sizeof *permits->denied_ms);
    if (permits->permit <= permits->options.permits)
        permits->denied_ms[permits->permit - 1] = engine_now_ms(permits->engine) + denied_ms;
    if (denied_ms < permits->soonest_ms)
        permits->soonest_ms = denied_ms;
}

static void on_acquired(struct acquire *acquire)
{
    struct permits *permits = list_entry(acquire, struct permits, acquire);

    if (acquire->error != STK_OK) {
        permits->why = acquire->op.why;
        end(permits, acquire->error, acquire->reason);
    } else if (acquire->grant.token == 0) {
        note_denied(permits, &acquire->call);
        ask_next(permits);
    } else {
        permits->until_ms = engine_now_ms(permits->engine) + acquire->grant.left_ms;
        if (permits->options.id.len > 0 && permits->id_use != ID_REPEATS)
            remember(permits);
        else
            end_granted(permits);
    }
}

/* WAITING: in line. */

/* When the head asks again, unless it has its turn before. */
static int64_t poll_in_ms(const struct permits *permits)
{
    const struct engine *engine = permits->engine;
    int64_t parts = (permits->options.permits - 1) / PERMITS_AT_ONCE + 1, poll_ms;
    unsigned char random; /* two daemons that ask in step would not take turns */

    if (permits->untried)
        return SOON_MS;
    if (!permits->elsewhere || !lease_provider_relies_on_store(engine->options.provider))
        return permits->soonest_ms;
    engine->options.chance->fill(engine->options.chance, &random, sizeof random);
    poll_ms = (STORE_MS + (int64_t)engine->use.things[ACCOUNT_WAITERS] / 2) * parts;
    poll_ms += random % STORE_MS;
    return poll_ms < permits->soonest_ms ? poll_ms : permits->soonest_ms;
}

/* May it have one now, that it could not have when it looked? */
static bool looks_again(struct permits *permits)
{
    struct waiter *waiter = &permits->waiter;

    return (!permits->was_next && line_may_take(waiter)) ||
           (has_time(permits) && line_is_head(waiter) && line_was_woken(waiter));
}

static void on_denied(struct permits *permits)
{
    if (looks_again(permits)) {
        look(permits);
        return;
    }
    if (!has_time(permits)) {
        end_denied(permits);
        return;
    }
    lease_wait_begin(&permits->wait, permits->engine, permits->options.wait_until_ms);
    permits->waiter.shares = false;
    permits->waiter.waits = true;
    step(permits, PERMITS_WAITING);
    if (line_is_head(&permits->waiter))
        line_poll_in(&permits->waiter, poll_in_ms(permits));
}

static struct permits *of_waiter(struct waiter *waiter)
{
    struct permits *permits = list_entry(waiter, struct permits, waiter);

    check(permits->state == PERMITS_WAITING);
    return permits;
}

static void on_turn(struct waiter *waiter)
{
    look(of_waiter(waiter));
}

static void on_drain(struct waiter *waiter)
{
    end_unwanted(of_waiter(waiter));
}

static struct waiter_about on_shown(const struct waiter *waiter)
{
    const struct permits *permits = list_entry(waiter, const struct permits, waiter);

    return (struct waiter_about){.session = permits->session,
                                 .resource = permits->resource,
                                 .owner = scope_name(permits->options.owner),
                                 .way = permits->options.wait_until_ms > 0 ? "wait" : NULL};
}

static const struct waiter_events waiter_events = {
    .on_shown = on_shown, .on_turn = on_turn, .on_drain = on_drain};

/* Its time is up. One that is on its way learns it at its next denial. Nothing else is in vain: any
 * of the others may give a permit back. */
static void on_vain(struct lease_wait *wait, enum stk_error why)
{
    struct permits *permits = list_entry(wait, struct permits, wait);

    (void)why;
    if (permits->state != PERMITS_WAITING)
        return;
    permits->waiter.waits = false;
    end_denied(permits);
}

void permits_cancel(struct permits *permits)
{
    permits->session = NULL;
    if (permits->acquire.state != ACQUIRE_IDLE) {
        acquire_cancel(&permits->acquire);
    } else if (permits->state == PERMITS_WAITING) {
        permits->waiter.waits = false;
        end_unwanted(permits);
    }
}

/* REMEMBERING: the receipt of its ID. */

static void remember_hints(const struct store_op *op, store_each_hint *each, void *context)
{
    const struct permits *permits = list_entry(op, const struct permits, op);

    each(context,
         &(struct store_hint){.resource = permits->resource, .receipt = permits->options.id});
    each(context, &(struct store_hint){.resource = {permits->name, permits->name_len},
                                       .receipt = permits->options.id});
}

/* Each receipt is kept as long as a token of its resource. So there is one for this one, which
 * nobody was granted, unless the resource is leased itself just now. */
static enum stk_error make_room(struct permits *permits, struct store_txn *txn,
                                struct resource *row)
{
    struct lease lease = {.owner = {"", 0},
                          .opening = store_opening(permits->engine->options.store)};
    int64_t token = token_next(0, row->fence.floor, 0);
    enum stk_error error;

    if (row->fence.state == FENCE_LIVE)
        return STK_OK;
    if (token == 0)
        return STK_LEASEDOWN;
    error =
        row->id == 0 ? txn_resource_make(txn, permits->resource, row) : txn_lease(txn, row, &lease);
    if (error != STK_OK)
        return error;
    row->fence = (struct fence){.token = token, .floor = token, .state = FENCE_RELEASED};
    lease.holds = 0;
    return lease_rewrite(txn, row, &lease);
}

/* The ID was granted this very lease by a duplicate of this request, of the same owner: what both
 * have counted counts once. */
static enum stk_error count_once(struct permits *permits, struct store_txn *txn,
                                 const struct resource *row)
{
    struct lease lease;
    enum stk_error error = txn_lease(txn, row, &lease);

    if (error != STK_OK)
        return error;
    if (lease.holds <= 1) { /* the other one's hold has been released since */
        permits->id_use = ID_OVER;
        return STK_OK;
    }
    lease.holds--;
    return lease_rewrite(txn, row, &lease);
}

static enum stk_error remember_run(struct store_op *op, struct store_txn *txn)
{
    struct permits *permits = list_entry(op, struct permits, op);
    struct bytes id = permits->options.id, name = {permits->name, permits->name_len};
    int64_t token = permits->acquire.grant.token;
    struct resource row, of_permit;
    struct buf reply = {0};
    enum stk_error error = find_first(permits, txn, &row);

    permits->twice = permits->lost = false;
    if (error == STK_OK)
        error = txn_resource(txn, name, &of_permit);
    if (error != STK_OK || permits->id_use == ID_MISUSED || permits->id_use == ID_OVER)
        return error;
    if (permits->id_use == ID_REPEATS) {
        permits->twice = permits->first.permit != permits->permit || permits->first.token != token;
        return permits->twice ? STK_OK : count_once(permits, txn, &of_permit);
    }
    permits->lost = fence_judge(&of_permit.fence, token) != STK_OK;
    if (permits->lost)
        return STK_OK;
    error = make_room(permits, txn, &row);
    if (error == STK_OK) /* of a use that the resource has forgotten */
        error = txn_receipt_remove(txn, &of_permit, id);
    if (error == STK_OK) /* so that the acquire of a repeat knows it for one */
        error =
            lease_remember_grant(txn, &of_permit, id, permits->fingerprint, token, permits->ttl_ms);
    if (error != STK_OK)
        return error;
    resp_array(&reply, 3);
    resp_int(&reply, token);
    resp_int(&reply, permits->ttl_ms);
    resp_int(&reply, permits->permit);
    error = txn_receipt_put(txn, &row, id,
                            &(struct receipt){.token = row.fence.token,
                                              .fingerprint = permits->fingerprint,
                                              .reply = buf_bytes(&reply)});
    buf_free(&reply);
    return error;
}

/* From here on the lease is the client's, even if it is gone: a repeat finds it. */
static void remember_done(struct store_op *op)
{
    struct permits *permits = list_entry(op, struct permits, op);

    check(permits->state == PERMITS_REMEMBERING);
    if (op->error != STK_OK) {
        permits->engine->counters.store_errors += op->error == STK_STORE;
        permits->why = op->why;
        give_back(permits, op->error, NULL);
    } else if (permits->id_use == ID_MISUSED) {
        give_back(permits, STK_ERR, ID_OF_ANOTHER);
    } else if (permits->id_use == ID_OVER) {
        give_back(permits, STK_STALE,
                  "the lease that this ID was granted is over; ask again with another ID");
    } else if (permits->twice || permits->lost) {
        give_back(permits, STK_OK, NULL);
    } else {
        end_granted(permits);
    }
}

static void remember(struct permits *permits)
{
    permits->name_len = permits->acquire.resource.len;
    step(permits, PERMITS_REMEMBERING);
    enum stk_error error = submit(permits, true, true, remember_run, remember_done, remember_hints);
    if (error != STK_OK)
        give_back(permits, error, NULL);
}

/* RETURNING: nobody is told of what it has. */

static void on_given_back(struct release *release)
{
    struct permits *permits = list_entry(release, struct permits, release);

    if (release->error != STK_OK)
        release_owe(release, permits->until_ms);
    if (is_unwanted(permits))
        end_unwanted(permits);
    else if (permits->error != STK_OK)
        end(permits, permits->error, permits->reason);
    else
        look(permits);
}

/* STK_OK: then it looks again. */
static void give_back(struct permits *permits, enum stk_error error, const char *reason)
{
    step(permits, PERMITS_RETURNING);
    permits->error = error;
    permits->reason = reason;
    permits->release =
        (struct release){.engine = permits->engine,
                         .kind = RELEASE_HOLD,
                         .hold = {{permits->name, permits->name_len}, permits->acquire.grant.token},
                         .on_end = on_given_back};
    release_start(&permits->release);
}
