/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to the leases behind lock keys, key by key, from the first look to the reply:
 *
 *   LOOK     look at each ─────────────────────────────────────────▶ reply
 *   TAKE     look at each, where there are several
 *               ├─ one is held ────────────────────────────────────▶ reply
 *               └▶ acquire each, in the order of their names ──────▶ reply
 *                     └─ one is held: what was taken goes back ────▶ reply
 *   EXTEND   look at each ─▶ all are the value's ─▶ renew each ────▶ reply
 *   GIVE     look at each ─▶ all are the value's ─▶ release each ──▶ reply
 *   REVOKE   look at each ─▶ revoke each ──────────────────────────▶ reply
 *
 * - As in Redis, a lease whose time is over is not the value's any more: it is neither renewed nor
 *   given back. (Its token is retired all the same where the value gives it back.)
 * - Redis runs a script as one step. Here a lease may end between the look and what follows, by
 *   its time or by a REVOKE; then it counts as gone.
 * - Where the client goes, or the daemon stops, while it looks at several keys, it does no more.
 *   Where it gives leases back or revokes them it goes on: that is wanted all the same.
 * - A lock that nobody will hear of is not kept: where the client goes, or an error comes, what was
 *   taken is given back. */
#include "proxy/engine/lockkeys/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/lock_clients.h"
#include "proxy/engine/lockkeys/signals.h"
#include "proxy/engine/scope.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/identity.h"
#include "proxy/engine/session/notes.h"
#include "proxy/engine/write/lock_value.h"

#define LOOKS_MAX 3   /* at a lease whose grant is on its way to the store */
#define SOON_MS   100 /* others stand in line for it: when to ask again */

static void run_free(void *state)
{
    struct lock_run *run = state;

    buf_free(&run->view.owner);
    for (size_t i = 0; i < run->count; i++) {
        buf_free(&run->items[i].owner);
        buf_free(&run->items[i].scoped);
    }
    free(run);
}

static bool is_unwanted(const struct lock_run *run)
{
    return run->request->session == NULL || run->request->engine->draining;
}

static void finish(struct lock_run *run)
{
    struct request *request = run->request;

    if (run->is_failed) {
        request_fail(request, run->error, run->reason[0] == '\0' ? NULL : "%s", run->reason);
        return;
    }
    run->form->reply(run, &request->reply);
    request_finish(request);
}

/* Remember why it fails. `why`: with STK_STORE, the store operation's. */
static void note_failure(struct lock_run *run, enum stk_error error, const char *reason,
                         const char *why)
{
    run->is_failed = true;
    run->error = error;
    run->request->op.why = why;
    snprintf(run->reason, sizeof run->reason, "%s", reason != NULL ? reason : "");
}

static void fail(struct lock_run *run, enum stk_error error, const char *reason, const char *why)
{
    run->request->engine->counters.store_errors += error == STK_STORE;
    note_failure(run, error, reason, why);
    finish(run);
}

/* Taking. */

static void take_next(struct lock_run *run);

/* Give back the last one of the leases that were taken, then the one before. */
static void give_back(struct lock_run *run);

static void on_given_back(struct release *release)
{
    struct lock_run *run = list_entry(release, struct lock_run, release);

    if (release->error != STK_OK)
        release_owe(release, run->items[run->at].until_ms);
    give_back(run);
}

static void give_back(struct lock_run *run)
{
    while (run->at > 0 && run->items[run->at - 1].token == 0)
        run->at--;
    if (run->at == 0) {
        finish(run);
        return;
    }
    const struct lock_item *item = &run->items[--run->at];
    held_presented(run->request->engine, item->resource, item->token); /* nobody writes by it */
    run->release = (struct release){.engine = run->request->engine,
                                    .kind = RELEASE_HOLD,
                                    .hold = {item->resource, item->token},
                                    .value = item->value,
                                    .on_end = on_given_back};
    release_start(&run->release);
}

static void on_taken(struct acquire *acquire)
{
    struct lock_run *run = list_entry(acquire, struct lock_run, acquire);
    struct lock_item *item = &run->items[run->at];

    if (acquire->error != STK_OK) {
        note_failure(run, acquire->error, acquire->reason, acquire->op.why);
        give_back(run);
    } else if (acquire->grant.token == 0) {
        item->locked = true;
        item->left_ms = acquire->call.answer == LEASE_HELD ? acquire->call.answer_ttl_ms : SOON_MS;
        give_back(run);
    } else {
        item->token = acquire->grant.token;
        item->until_ms = engine_now_ms(acquire->engine) + acquire->grant.left_ms;
        run->at++;
        take_next(run);
    }
}

static bool is_named_before(const struct lock_run *run, size_t at)
{
    return at > 0 && bytes_equal(run->items[at].resource, run->items[at - 1].resource);
}

/* Have those that were taken first not run out meanwhile? */
static bool all_are_held(const struct lock_run *run)
{
    int64_t now_ms = engine_now_ms(run->request->engine);

    for (size_t i = 0; i < run->count; i++)
        if (run->items[i].token != 0 && run->items[i].until_ms <= now_ms)
            return false;
    return true;
}

static void take_next(struct lock_run *run)
{
    struct request *request = run->request;

    while (run->at < run->count && is_named_before(run, run->at))
        run->at++; /* the same key twice is one lock */
    if (run->at == run->count && !all_are_held(run)) {
        give_back(run);
        return;
    }
    if (run->at == run->count) {
        run->ok = true;
        run->done = run->count;
        finish(run);
        return;
    }
    if (run->at > 0 && is_unwanted(run)) {
        note_failure(run, STK_BUSY, "the daemon is stopping; try again", NULL);
        give_back(run);
        return;
    }
    const struct lock_item *item = &run->items[run->at];
    run->acquire =
        (struct acquire){.engine = request->engine,
                         .session = request->session,
                         .resource = item->resource,
                         .ttl_ms = run->ttl_ms,
                         .options = {.owner = item->as},
                         .way = run->form->flags & LOCK_REENTERS ? WAY_LOCK_AGAIN : WAY_LOCK,
                         .grant = {.lock_client = run->client},
                         .on_end = on_taken};
    acquire_start(&run->acquire);
}

static int by_resource(const void *a, const void *b)
{
    const struct lock_item *one = a, *other = b;
    return bytes_compare(one->resource, other->resource);
}

/* False: the request has failed. */
static bool may_take(struct lock_run *run)
{
    const char *why = NULL;

    for (size_t i = 0; i < run->count && why == NULL; i++)
        why = lock_value_refused(run->items[i].value);
    if (why != NULL)
        request_fail(run->request, STK_ERR, "%s", why);
    return why == NULL;
}

/* Take all, in the order of their names: that is the same for everybody, so two that cross do not
 * deny each other. */
static void take(struct lock_run *run)
{
    run->verb = LOCK_TAKE;
    run->at = 0;
    for (size_t i = 0; i < run->count; i++)
        run->items[i].token = 0; /* of an earlier grant */
    qsort(run->items, run->count, sizeof *run->items, by_resource);
    take_next(run);
}

void lock_abandon(struct request *request)
{
    struct lock_run *run = request->state;

    if (run != NULL && run->verb == LOCK_TAKE && run->acquire.session != NULL)
        acquire_cancel(&run->acquire);
}

/* Renewing, releasing, revoking: one key after the other. */

static void next(struct lock_run *run);

static void on_end(struct lock_run *run, enum stk_error error, const char *reason, const char *why)
{
    if (error != STK_OK) {
        fail(run, error, reason, why);
        return;
    }
    run->at++;
    next(run);
}

static void note_done(struct lock_run *run)
{
    struct lock_item *item = &run->items[run->at];

    run->done += !item->done;
    item->done = true;
}

static void on_renewed(struct renewal *renewal)
{
    struct lock_run *run = renewal->context;
    bool is_over = renewal->lost || renewal->error == STK_UNKNOWN;

    if (renewal->error == STK_OK)
        note_done(run);
    on_end(run, is_over ? STK_OK : renewal->error, renewal->reason, renewal->op.why);
}

static void renew(struct lock_run *run)
{
    struct lock_item *item = &run->items[run->at];
    int64_t ttl_ms = run->ttl_ms + (run->adds ? item->left_ms : 0);

    struct renewal *renewal =
        renewal_new(run->request->engine, (struct hold){item->resource, item->token},
                    ttl_ms < LEASE_TTL_MAX_MS ? ttl_ms : LEASE_TTL_MAX_MS);

    renewal->session = &run->request->session;
    renewal->on_end = on_renewed;
    renewal->context = run;
    renewal_start(renewal);
}

static void tell(const struct lock_run *run)
{
    struct engine *engine = run->request->engine;

    if (run->channel.len == 0)
        return;
    engine->counters.messages_published++;
    pubsub_send(engine, run->channel, run->message, (struct bytes){"", 0});
}

static void on_released(struct release *release)
{
    struct lock_run *run = list_entry(release, struct lock_run, release);
    struct lock_item *item = &run->items[run->at];
    bool revoked = release->kind == RELEASE_REVOKE;

    item->holds = release->holds;
    if (release->ended)
        lock_signals_wake(run->request->engine, item->resource);
    if (release->error == STK_OK && release->verdict == STK_OK &&
        (revoked ? item->locked : item->mine)) {
        note_done(run);
        if (release->holds == 0)
            tell(run);
    }
    if (release->error == STK_OK && release->holds > 0)
        renew(run); /* who has entered more than once has its time again */
    else
        on_end(run, release->error, NULL, release->op.why);
}

static void release(struct lock_run *run, enum release_kind kind)
{
    const struct lock_item *item = &run->items[run->at];
    struct request *request = run->request;

    run->release = (struct release){.engine = request->engine,
                                    .kind = kind,
                                    .hold = {item->resource, item->token},
                                    .by = {.request = request},
                                    .on_end = on_released};
    release_start(&run->release);
}

/* Do to each item, from run->at on, what the verb asks; then finish. */
static void next(struct lock_run *run)
{
    enum release_kind kind = run->form->flags & LOCK_ONE_HOLD ? RELEASE_HOLD : RELEASE_ALL;

    for (; run->at < run->count; run->at++) {
        const struct lock_item *item = &run->items[run->at];
        if (run->verb == LOCK_EXTEND && item->mine) {
            renew(run);
            return;
        }
        if (run->verb == LOCK_GIVE && (item->mine || item->was_mine)) {
            release(run, item->mine ? kind : RELEASE_ALL);
            return;
        }
        if (run->verb == LOCK_REVOKE) {
            release(run, RELEASE_REVOKE);
            return;
        }
    }
    run->ok = run->done == run->count;
    finish(run);
}

/* Looking. */

static void look(struct lock_run *run);

/* Nobody waits for the answer, or the daemon stops: what was not begun is left. */
static void stop(struct lock_run *run)
{
    fail(run, STK_BUSY, "the daemon is stopping; try again", NULL);
}

/* Is it another's, or does another stand in line for it? A script with one key is told so by its
 * ACQUIRE; one with several keys must not have taken any by then. */
static bool is_denied(const struct lock_run *run, struct lock_item *item)
{
    if (item->mine && (run->form->flags & LOCK_REENTERS))
        return false;
    item->locked = item->locked || line_is_wanted(run->request->engine, item->resource);
    return item->locked;
}

/* None has been taken: not all are free. */
static bool take_none(struct lock_run *run)
{
    for (size_t i = 0; i < run->count; i++)
        if (is_denied(run, &run->items[i])) {
            run->request->engine->counters.leases_denied++;
            return true;
        }
    return false;
}

/* All are free. Would its user have too many leases? Then it takes none of several. */
static bool has_room(struct lock_run *run, char why[ACCOUNT_WHY_SIZE])
{
    size_t more = 0;

    for (size_t i = 0; i < run->count; i++)
        more += !run->items[i].mine;
    return run->count == 1 || more == 0 ||
           account_has_room(run->request->session->account, ACCOUNT_LEASES, more, why);
}

static void on_all_seen(struct lock_run *run)
{
    char why[ACCOUNT_WHY_SIZE];
    size_t mine = 0, locked = 0;

    for (size_t i = 0; i < run->count; i++) {
        mine += run->items[i].mine;
        locked += run->items[i].locked;
    }
    run->at = 0;
    bool takes = run->verb == LOCK_TAKE ||
                 (run->verb == LOCK_EXTEND && (run->form->flags & LOCK_TAKES_FREE) && locked == 0 &&
                  !run->extends_only);
    bool is_late = run->least_ms > 0 && run->items[0].left_ms < run->least_ms;
    run->ok = !takes && mine == run->count && !is_late;
    bool goes_on = run->verb == LOCK_REVOKE || run->ok || (run->form->flags & LOCK_EACH) ||
                   (run->verb == LOCK_GIVE && locked == 0);
    bool ends = takes ? run->request->session == NULL || take_none(run)
                      : run->verb == LOCK_LOOK || !goes_on;
    if (ends)
        finish(run);
    else if (!takes)
        next(run);
    else if (!has_room(run, why))
        fail(run, STK_BUSY, why, NULL);
    else if (may_take(run))
        take(run);
}

static void on_seen(struct lease_view *view)
{
    struct lock_run *run = list_entry(view, struct lock_run, view);
    struct lock_item *item = &run->items[run->at];
    bool is_known = view->call.answer_token == view->record.token;

    if (view->error != STK_OK) {
        fail(run, view->error, view->reason, view->op.why);
        return;
    }
    if (view->locked && !is_known && ++run->looks < LOOKS_MAX) {
        look(run); /* the store hears of its grant now */
        return;
    }
    bool is_own =
        view->record.live && item->value.len > 0 && bytes_equal(buf_bytes(&view->owner), item->as);
    item->locked = view->locked;
    item->mine = is_own && view->locked && is_known;
    item->was_mine = is_own && !view->locked;
    item->token = is_own ? view->record.token : 0;
    item->left_ms = view->left_ms;
    item->holds = view->record.holds;
    if (view->held) {
        item->owner = view->owner;
        view->owner = (struct buf){0};
    }
    run->looks = 0;
    /* To unlock and close is usual: what ends leases is done all the same, while there is time. */
    bool may_stop =
        (run->verb != LOCK_GIVE && run->verb != LOCK_REVOKE) || run->request->engine->draining;
    if (++run->at < run->count && may_stop && is_unwanted(run))
        stop(run);
    else if (run->at < run->count)
        look(run);
    else
        on_all_seen(run);
}

static void look(struct lock_run *run)
{
    run->view.engine = run->request->engine;
    run->view.resource = run->items[run->at].resource;
    run->view.asks_anyway = run->verb == LOCK_TAKE;
    run->view.on_end = on_seen;
    lease_view_start(&run->view);
}

void lock_run_start(struct request *request, const struct lock_ask *ask)
{
    struct engine *engine = request->engine;

    if (ask->count > LEASES_AT_ONCE_MAX) {
        request_fail(request, STK_ERR, "at most %d lock keys at once", LEASES_AT_ONCE_MAX);
        return;
    }
    if (ask->form->verb != LOCK_LOOK && !request_may_audit(request, AUDIT_LEASES))
        return;
    struct lock_run *run = mem_zalloc(sizeof *run + ask->count * sizeof *run->items);
    request->state = run;
    request->free_state = run_free;
    run->request = request;
    run->form = ask->form;
    run->verb = ask->form->verb;
    run->ttl_ms = ask->ttl_ms;
    run->least_ms = ask->least_ms;
    run->adds = ask->adds;
    run->extends_only = ask->extends_only;
    run->resp3 = request->resp3;
    run->channel = ask->channel;
    run->message = ask->message;
    run->client = lock_client_of(request->session);
    run->count = ask->count;
    for (size_t i = 0; i < ask->count; i++) {
        struct lock_item *item = &run->items[i];
        item->key = ask->keys[i];
        item->place = i + 1;
        item->value = ask->values != NULL ? ask->values[i] : ask->value;
        if (!lock_patterns_match(&engine->lock_patterns, ask->keys[i], &item->resource)) {
            request_fail(request, STK_ERR,
                         "'%.*s' is no lock key: start stockaded with "
                         "--lock-keys PATTERN",
                         BYTES_CUT(ask->keys[i], 64));
            return;
        }
        item->as = identity_scope(request->session, item->value, &item->scoped);
        if (item->resource.len > RESOURCE_NAME_MAX) {
            request_fail(request, STK_ERR, "a resource must be 1 to %d bytes long",
                         RESOURCE_NAME_MAX);
            return;
        }
    }
    if (run->verb == LOCK_TAKE && !may_take(run))
        return;
    if (run->verb == LOCK_TAKE && run->count == 1)
        take(run);
    else
        look(run);
}
