/* SPDX-License-Identifier: Apache-2.0 */
/* ACQUIRE ... QUEUE: a place in the line of a resource that outlives the reply, for clients that
 * share one connection among many callers and so cannot let WAIT hold it up.
 *
 *   asked ──granted──▶ the lease, the place is gone
 *     │ ▲
 *     │ └───────────────── asked again, by the ID ──────────────┐
 *     └──denied──▶ stands in line ──its turn──▶ PROBE ──free──▶ told of its turn
 *                   │     ▲                       │                │
 *                   │     └──────── held ─────────┘                │ a second has passed
 *                   │ no word from it,                             ▼
 *                   └─ DEQUEUE ──▶ gone ◀── no word ── passed over (so is one whose connection
 *                                                      has closed)
 *
 * - A place is an acquire that keeps its place in the line. It asks once for each command that
 *   comes with its ID, one after the other, and once by itself when its turn comes: whether the
 *   lease is free. Nobody is granted a lease unasked.
 * - While it was told of its turn it is the head: nobody else at this daemon is granted the lease.
 * - It lives in this daemon's memory: a restart loses the line, and who asks again stands at its
 *   end. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/scope.h"
#include "proxy/engine/session/events.h"

enum {
    SILENCE_MAX_MS = 10000, /* a place is dropped after this, or its TTL, without a word */
    TURN_MS = 1000,         /* then the turn passes on */
};

struct place {
    struct table_node node;   /* in engine->places */
    struct acquire acquire;   /* and its place in the line */
    struct session *session;  /* that asked last; NULL: gone */
    struct list of_session;   /* session->places */
    struct queue_ask *asking; /* the command that is being answered, or NULL */
    struct list asks;         /* the commands behind it */
    bool busy;                /* its acquire is under way: for a command, or as a probe */
    bool missed;              /* the probe comes a second after its turn, which was not taken */
    bool leaving;             /* out of the line as soon as it is not busy; dropped, unless it was
                                 asked for again by then */
    struct timer silence;
    struct timer turn; /* runs while it was told of its turn */
    uint16_t resource_len, id_len;
    char bytes[]; /* its name, then the owner */
};

static struct place *of_acquire(struct acquire *acquire)
{
    return list_entry(acquire, struct place, acquire);
}

static struct place *of_waiter(struct waiter *waiter)
{
    return of_acquire(list_entry(waiter, struct acquire, waiter));
}

/* A place's name: the resource's, with its length in front, and the ID. */
static void append_name(struct buf *name, struct bytes resource, struct bytes id)
{
    uint16_t len = (uint16_t)resource.len;

    buf_append(name, (const char *)&len, sizeof len);
    buf_append_bytes(name, resource);
    buf_append_bytes(name, id);
}

static struct bytes name_of_node(const struct table_node *node)
{
    const struct place *place = list_entry(node, struct place, node);
    return (struct bytes){place->bytes, 2u + place->resource_len + place->id_len};
}

static struct bytes id_of(const struct place *place)
{
    return (struct bytes){place->bytes + 2 + place->resource_len, place->id_len};
}

static struct place *find(struct engine *engine, struct bytes resource, struct bytes id)
{
    struct buf name = {0};

    append_name(&name, resource, id);
    struct table_node *node = table_find(&engine->places, buf_bytes(&name));
    buf_free(&name);
    return node == NULL ? NULL : list_entry(node, struct place, node);
}

/* Its end. */

static void end_ask(struct queue_ask *ask, enum stk_error error, const char *reason)
{
    ask->error = error;
    ask->reason = reason;
    ask->on_end(ask);
}

/* Answer the commands that still wait for it: null. */
static void end_asks(struct place *place)
{
    struct list *link;

    while ((link = list_pop(&place->asks)) != NULL) {
        struct queue_ask *ask = list_entry(link, struct queue_ask, link);
        if (place->acquire.engine->draining)
            end_ask(ask, STK_BUSY, "the daemon is stopping; try again");
        else
            end_ask(ask, STK_OK, NULL);
    }
}

/* Free a place that is out of the table. */
static void dispose(struct place *place)
{
    struct engine *engine = place->acquire.engine;

    if (place->acquire.waiter.line != NULL)
        line_leave(&place->acquire.waiter, 0);
    end_asks(place);
    timer_stop(engine, &place->silence);
    timer_stop(engine, &place->turn);
    list_remove(&place->of_session);
    free(place);
}

static void drop(struct place *place)
{
    table_remove(&place->acquire.engine->places, &place->node);
    dispose(place);
}

/* Drop it, now or as soon as it is not busy. Who has asked for it so far gets null; who asks from
 * now on stands at the end of the line. */
static void leave(struct place *place)
{
    place->leaving = true;
    end_asks(place);
    if (!place->busy)
        drop(place);
}

static void on_silence(struct timer *timer)
{
    struct place *place = list_entry(timer, struct place, silence);

    if (place->asking == NULL)
        leave(place);
    else /* its command waits for the lease service, and so has the client's word */
        timer_set(place->acquire.engine, timer,
                  engine_now_ms(place->acquire.engine) + SILENCE_MAX_MS);
}

static void on_drain(struct waiter *waiter)
{
    drop(of_waiter(waiter));
}

/* Asking. */

static void answer_next(struct place *place)
{
    struct acquire *acquire = &place->acquire;
    struct queue_ask *ask = list_entry(list_pop(&place->asks), struct queue_ask, link);
    int64_t silence_ms = ask->ttl_ms < SILENCE_MAX_MS ? ask->ttl_ms : SILENCE_MAX_MS;

    place->asking = ask;
    place->busy = true;
    place->session = ask->session;
    list_remove(&place->of_session);
    list_append(&ask->session->places, &place->of_session);
    timer_stop(acquire->engine, &place->turn);
    timer_set(acquire->engine, &place->silence, engine_now_ms(acquire->engine) + silence_ms);
    acquire->session = ask->session;
    acquire->ttl_ms = ask->ttl_ms;
    acquire->options.ephemeral = ask->options.ephemeral;
    acquire->way = WAY_PLACE;
    if (acquire->waiter.line == NULL)
        acquire_start(acquire);
    else
        acquire_again(acquire);
}

/* Find out whether the lease is free. `missed`: its client was told of its turn a second ago. */
static void probe(struct place *place, bool missed)
{
    timer_stop(place->acquire.engine, &place->turn);
    place->busy = true;
    place->missed = missed;
    place->acquire.way = WAY_PROBE;
    place->acquire.engine->requests_open++;
    acquire_again(&place->acquire);
}

static void on_turn(struct waiter *waiter)
{
    probe(of_waiter(waiter), false);
}

static void tell_turn(struct place *place)
{
    struct engine *engine = place->acquire.engine;

    timer_set(engine, &place->turn, engine_now_ms(engine) + TURN_MS);
    engine_tell(engine, &(struct fact){.kind = FACT_TURN,
                                       .resource = place->acquire.resource,
                                       .id = scope_name(id_of(place))});
    events_push_turn(place->session, place->acquire.resource, scope_name(id_of(place)));
}

static void on_turn_over(struct timer *timer)
{
    probe(list_entry(timer, struct place, turn), true);
}

static void on_end(struct acquire *acquire)
{
    struct place *place = of_acquire(acquire);
    struct engine *engine = acquire->engine;
    struct queue_ask *ask = place->asking;
    bool stands = acquire->waiter.line != NULL && acquire->error != STK_ERR;
    bool ends = place->leaving || engine->draining;

    place->busy = false;
    place->asking = NULL;
    if (ask == NULL) {
        engine->requests_open--;
    } else {
        ask->token = acquire->grant.token;
        ask->left_ms = acquire->grant.left_ms;
        ask->why = acquire->op.why;
        ask->place = stands && !ends ? line_place(&acquire->waiter) : 0;
        end_ask(ask, acquire->error, acquire->reason);
    }
    bool asked_again = !list_empty(&place->asks);
    if (place->leaving && asked_again && acquire->waiter.line != NULL)
        line_leave(&acquire->waiter, 0); /* to its end */
    place->leaving = false;
    if (engine->draining || (!asked_again && (ends || !stands)))
        drop(place);
    else if (asked_again)
        answer_next(place);
    else if (acquire->is_free && place->missed)
        line_pass_over(&acquire->waiter);
    else if (acquire->is_free)
        tell_turn(place);
}

static const struct waiter_events waiter_events = {
    .on_shown = acquire_shown, .on_turn = on_turn, .on_drain = on_drain};

static struct place *place_new(const struct queue_ask *ask, uint64_t fingerprint)
{
    struct bytes resource = ask->resource, id = ask->options.id, owner = ask->options.owner;
    struct place *place =
        mem_zalloc(offsetof(struct place, bytes) + 2 + resource.len + id.len + owner.len);
    struct acquire *acquire = &place->acquire;
    struct buf name = {0};

    append_name(&name, resource, id);
    buf_append_bytes(&name, owner);
    memcpy(place->bytes, name.data, name.len);
    buf_free(&name);
    place->resource_len = (uint16_t)resource.len;
    place->id_len = (uint16_t)id.len;
    list_init(&place->of_session);
    list_init(&place->asks);
    place->silence.fire = on_silence;
    place->turn.fire = on_turn_over;
    *acquire = (struct acquire){
        .engine = ask->engine,
        .resource = {place->bytes + 2, resource.len},
        .options = {.id = id_of(place),
                    .owner = {place->bytes + 2 + resource.len + id.len, owner.len}},
        .fingerprint = fingerprint,
        .way = WAY_PLACE,
        .waiter = {.events = &waiter_events},
        .on_end = on_end};
    table_add(&ask->engine->places, &place->node);
    return place;
}

void queue_ask(struct queue_ask *ask)
{
    struct place *place = find(ask->engine, ask->resource, ask->options.id);
    uint64_t fingerprint = lease_fingerprint("ACQUIRE", ask->options.owner);

    list_init(&ask->link);
    if (place == NULL) {
        place = place_new(ask, fingerprint);
    } else if (place->acquire.fingerprint != fingerprint) {
        end_ask(ask, STK_ERR, "this ID stands in line for another owner");
        return;
    }
    ask->of = place;
    list_append(&place->asks, &ask->link);
    if (!place->busy)
        answer_next(place);
}

/* Its end before its time. */

void queue_ask_cancel(struct queue_ask *ask)
{
    struct place *place = ask->of;

    if (place->asking == ask) {
        place->acquire.session = NULL;
        return;
    }
    list_remove(&ask->link);
    end_ask(ask, STK_OK, NULL);
}

bool queue_leave(struct engine *engine, struct bytes resource, struct bytes id)
{
    struct place *place = find(engine, resource, id);

    if (place == NULL || (place->leaving && list_empty(&place->asks)))
        return false;
    leave(place);
    return true;
}

void queue_session_closed(struct session *session)
{
    struct list *link;

    while ((link = list_pop(&session->places)) != NULL) {
        struct place *place = list_entry(link, struct place, of_session);
        struct acquire *acquire = &place->acquire;
        place->session = NULL;
        if (acquire->session == session)
            acquire->session = NULL;
        timer_stop(acquire->engine, &place->turn);
        if (acquire->options.ephemeral)
            leave(place);
        else
            line_pass_over(&acquire->waiter);
    }
}

void queue_init(struct engine *engine)
{
    table_init(&engine->places, name_of_node);
}

static void forget(struct table_node *node)
{
    dispose(list_entry(node, struct place, node));
}

void queue_free(struct engine *engine)
{
    table_drain(&engine->places, forget);
    table_free(&engine->places);
}
