/* SPDX-License-Identifier: Apache-2.0 */
/* Leases from before this daemon's start, in a store that it has to itself: those that live still
 * are watched from the start on, and not only from their first renewal.
 *
 *   reading (store, STEP rows) ──▶ asking the lease service of each ──▶ watching ──▶ reading on
 *      ▲  ▲                             │ is away                          │
 *      │  └──────── in a second ────────┘                                  └──all were seen──▶ over
 *      └── a lease that nobody knew has ended meanwhile: it may be one of these
 *
 * Nobody waits for this: a client that comes first is served as if there were no such thing. Where
 * several daemons share a store nothing is read, since whose a lease is cannot be told there: each
 * daemon knows what it has confirmed itself. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/scope.h"

enum {
    STEP = 64,       /* leases that are looked at together */
    AGAIN_MS = 1000, /* the store or the lease service could not be asked */
    ROUNDS_MAX = 3,  /* of a step in which leases end */
};

struct found {
    struct earlier *earlier;
    struct buf name, owner;
    struct lease_record record;
    struct lease_call call;
};

struct earlier {
    struct engine *engine;
    struct timer timer;
    struct store_op op;
    int64_t after, last; /* ids: where this step began, and its last one */
    int64_t opening;     /* store_opening() */
    bool more;
    size_t count, asked; /* of `found`; and those that are not answered yet */
    bool down;           /* an answer was that the service is away */
    unsigned rounds;     /* of this step */
    uint64_t ends;       /* engine->unknown_ended, when it was read */
    struct found found[STEP];
};

static void read_step(struct earlier *earlier);

static void again_in(struct earlier *earlier, int64_t ms)
{
    timer_set(earlier->engine, &earlier->timer, engine_now_ms(earlier->engine) + ms);
}

/* On the store's thread. */

static bool take_name(void *context, int64_t id, struct bytes name, enum value_type type)
{
    struct earlier *earlier = context;

    (void)type;
    earlier->more = earlier->count == STEP;
    if (earlier->more)
        return false;
    struct found *found = &earlier->found[earlier->count++];
    buf_clear(&found->name);
    buf_append_bytes(&found->name, name);
    earlier->last = id;
    return true;
}

static enum stk_error read_run(struct store_op *op, struct store_txn *txn)
{
    struct earlier *earlier = list_entry(op, struct earlier, op);
    struct resource row;

    earlier->count = 0;
    earlier->more = false;
    enum stk_error error = txn_each_live(txn, earlier->after, take_name, earlier);
    for (size_t i = 0; error == STK_OK && i < earlier->count; i++) {
        struct found *found = &earlier->found[i];
        error = lease_read(txn, buf_bytes(&found->name), earlier->opening, &row, &found->record,
                           &found->owner);
    }
    return error;
}

/* On the loop's. */

static void watch(struct earlier *earlier, const struct found *found)
{
    struct engine *engine = earlier->engine;
    const struct lease_call *call = &found->call;
    int64_t left_ms = lease_left_ms(call, engine_now_ms(engine));
    struct held_shown held;

    if (call->answer != LEASE_HELD || call->answer_token != found->record.token || left_ms == 0 ||
        held_find(engine, buf_bytes(&found->name), &held))
        return;
    struct account *account = lease_account(engine, buf_bytes(&found->owner));
    (void)held_confirmed(engine, &(struct grant){.by = GRANT_FOUND,
                                                 .resource = buf_bytes(&found->name),
                                                 .owner = buf_bytes(&found->owner),
                                                 .token = found->record.token,
                                                 .left_ms = left_ms,
                                                 .ttl_ms = found->record.ttl_ms,
                                                 .until_ms = call->answer_until_ms,
                                                 .age_ms = found->record.written_ms,
                                                 .account = account});
    account_drop(account);
}

/* All have been answered. */
static void end_step(struct earlier *earlier)
{
    bool ended = earlier->ends != earlier->engine->unknown_ended;

    if (earlier->down) {
        again_in(earlier, AGAIN_MS);
        return;
    }
    if (ended && ++earlier->rounds < ROUNDS_MAX) {
        read_step(earlier);
        return;
    }
    for (size_t i = 0; i < earlier->count; i++)
        watch(earlier, &earlier->found[i]);
    earlier->rounds = 0;
    earlier->after = earlier->last;
    if (earlier->more)
        read_step(earlier);
}

static void on_answer(struct lease_call *call)
{
    struct found *found = list_entry(call, struct found, call);
    struct earlier *earlier = found->earlier;

    earlier->engine->requests_open--;
    earlier->down |= call->answer == LEASE_DOWN;
    if (--earlier->asked == 0)
        end_step(earlier);
}

/* May it live still? Renewals are written down once an hour, or each time. */
static bool may_live(const struct earlier *earlier, const struct lease_record *record)
{
    return record->live && !record->this_opening &&
           (lease_provider_relies_on_store(earlier->engine->options.provider) ||
            record->written_ms <= record->ttl_ms + RENEWAL_WRITTEN_MS);
}

static void ask(struct earlier *earlier, struct found *found)
{
    struct lease_call *call = &found->call;

    found->earlier = earlier;
    *call = (struct lease_call){.verb = LEASE_QUERY,
                                .resource = buf_bytes(&found->name),
                                .asked_ms = engine_now_ms(earlier->engine),
                                .record = found->record,
                                .done = on_answer};
    memcpy(call->nonce, found->record.nonce, sizeof call->nonce);
    earlier->engine->requests_open++;
    earlier->asked++;
    lease_ask(earlier->engine->options.provider, call);
}

static void read_done(struct store_op *op)
{
    struct earlier *earlier = list_entry(op, struct earlier, op);

    earlier->engine->requests_open--;
    if (earlier->engine->draining)
        return;
    if (op->error != STK_OK) {
        again_in(earlier, AGAIN_MS);
        return;
    }
    earlier->down = false;
    earlier->asked = 1; /* the answers may come at once */
    for (size_t i = 0; i < earlier->count; i++) {
        earlier->found[i].call.answer = LEASE_FREE;
        if (may_live(earlier, &earlier->found[i].record))
            ask(earlier, &earlier->found[i]);
    }
    if (--earlier->asked == 0)
        end_step(earlier);
}

static void read_step(struct earlier *earlier)
{
    struct engine *engine = earlier->engine;

    if (engine->draining)
        return;
    earlier->ends = engine->unknown_ended;
    earlier->op = (struct store_op){
        .slow = true, .run = read_run, .done = read_done, .submitted_us = engine->now_us};
    list_init(&earlier->op.link);
    if (store_submit(engine->options.store, &earlier->op) == STK_OK)
        engine->requests_open++;
    else
        again_in(earlier, AGAIN_MS);
}

static void on_timer(struct timer *timer)
{
    read_step(list_entry(timer, struct earlier, timer));
}

struct earlier *earlier_new(struct engine *engine)
{
    if (!engine->options.watch_earlier || store_hears(engine->options.store))
        return NULL;
    struct earlier *earlier = mem_zalloc(sizeof *earlier);
    earlier->engine = engine;
    earlier->opening = store_opening(engine->options.store);
    earlier->timer.fire = on_timer;
    again_in(earlier, 0);
    return earlier;
}

void earlier_free(struct earlier *earlier)
{
    if (earlier == NULL)
        return;
    timer_stop(earlier->engine, &earlier->timer);
    for (size_t i = 0; i < STEP; i++) {
        buf_free(&earlier->found[i].name);
        buf_free(&earlier->found[i].owner);
    }
    free(earlier);
}
