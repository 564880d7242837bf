/* SPDX-License-Identifier: Apache-2.0 */
/* The line for one resource: first come, first served. Only the head asks the lease service,
 * however many wait.
 *
 * The head's turn comes with a release or revoke, here or as news from another daemon; when the
 * lease ends, as far as the service has told; and once a second in case a wake-up was lost. Where
 * the store is the only memory of leases, the head gets the lease in the transaction that releases
 * it (line_take_heir).
 *
 * A process that stands still may wait in many threads: each would be granted in turn, and hold up
 * the others for its TTL. So where a holder's time runs out unheard, those who are like it, and
 * have been as silent, go behind the last one in the line then that is not. A holder costs the
 * others its TTL; each of its like that is granted afterwards costs nobody more who came before
 * that. Where all are alike nobody passes anybody.
 *
 * Invariant: while the head waits the poll timer is set, so nobody waits for ever. */
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"

struct line {
    UT_hash_handle hh;
    struct engine *engine;
    struct list waiters;
    struct timer poll;
    bool woken;    /* while the head was busy asking */
    int64_t freed; /* a permit that was given back, since the head asked for that; 0: none */
    int64_t count;
    size_t name_len;
    char name[];
};

static struct line *find(struct engine *engine, struct bytes resource)
{
    struct line *line;
    HASH_FIND(hh, engine->lines, resource.data, resource.len, line);
    return line;
}

/* The first that is not passed over; or NULL. */
static struct waiter *head_of(const struct line *line)
{
    for (struct list *at = line->waiters.next; at != &line->waiters; at = at->next) {
        struct waiter *waiter = list_entry(at, struct waiter, in_line);
        if (!waiter->passed_over)
            return waiter;
    }
    return NULL;
}

/* Let the head ask. */
static void give_turn(struct line *line)
{
    struct waiter *head = head_of(line);

    if (head == NULL)
        return;
    if (!head->waits) {
        line->woken = true;
        return;
    }
    line->woken = false;
    timer_stop(line->engine, &line->poll);
    head->waits = false;
    head->events->on_turn(head);
}

static bool is_like(const struct list *at, const struct session *holder)
{
    const struct waiter *waiter = list_entry(at, const struct waiter, in_line);
    const struct session *session = waiter->events->on_shown(waiter).session;

    return session == NULL || session_is_like(session, holder);
}

static bool is_silent(const struct list *at, int64_t since_ms)
{
    const struct waiter *waiter = list_entry(at, const struct waiter, in_line);
    const struct session *session = waiter->events->on_shown(waiter).session;

    return session != NULL && session->active_ms <= since_ms;
}

void line_put_behind(struct engine *engine, struct bytes resource, const struct silence *silence)
{
    struct line *line = find(engine, resource);

    if (line == NULL)
        return;
    struct list *end = &line->waiters, *last = end->prev, *next;
    while (last != end && is_like(last, silence->holder))
        last = last->prev;
    if (last == end)
        return;
    struct list *behind = last->next;
    for (struct list *at = end->next; at != last; at = next) {
        next = at->next;
        if (is_silent(at, silence->since_ms) && is_like(at, silence->holder)) {
            list_remove(at);
            list_insert(behind, at);
        }
    }
}

static void on_poll(struct timer *timer)
{
    struct line *line = list_entry(timer, struct line, poll);
    struct bytes resource = {line->name, line->name_len};
    struct engine *engine = line->engine;
    struct silence silence;

    if (engine->is_over_unheard(engine, resource, &silence)) /* before anybody has seen that */
        line_put_behind(engine, resource, &silence);
    give_turn(line);
}

void line_join(struct engine *engine, struct bytes resource, struct waiter *waiter)
{
    struct line *line = find(engine, resource);

    if (line == NULL) {
        line = mem_zalloc(sizeof *line + resource.len);
        line->engine = engine;
        line->poll.fire = on_poll;
        line->name_len = resource.len;
        memcpy(line->name, resource.data, resource.len);
        list_init(&line->waiters);
        HASH_ADD_KEYPTR(hh, engine->lines, line->name, line->name_len, line);
    }
    waiter->line = line;
    waiter->passed_over = false;
    waiter->joined_ms = engine_now_ms(engine);
    list_append(&line->waiters, &waiter->in_line);
    list_append(&engine->arrivals, &waiter->in_engine);
    engine->leases_changes++;
    line->count++;
}

const struct waiter *line_head(const struct waiter *waiter)
{
    return head_of(waiter->line);
}

bool line_is_head(const struct waiter *waiter)
{
    return line_head(waiter) == waiter;
}

void line_poll_in(struct waiter *head, int64_t held_ms)
{
    struct line *line = head->line;
    int64_t poll_ms = held_ms + 1 < LINE_POLL_MS ? held_ms + 1 : LINE_POLL_MS;
    timer_set(line->engine, &line->poll, engine_now_ms(line->engine) + poll_ms);
}

bool line_was_woken(struct waiter *head)
{
    bool woken = head->line->woken;
    head->line->woken = false;
    return woken;
}

/* The head has gone or was passed over. */
static void pass_on(struct line *line, int64_t granted_ms)
{
    if (line->engine->draining || head_of(line) == NULL)
        return;
    if (granted_ms > 0 && !line->woken)
        line_poll_in(head_of(line), granted_ms);
    else
        give_turn(line); /* nobody knows how long the lease lasts: ask */
}

void line_leave(struct waiter *waiter, int64_t granted_ms)
{
    struct line *line = waiter->line;
    struct engine *engine = line->engine;
    bool was_head = line_is_head(waiter);

    list_remove(&waiter->in_line);
    list_remove(&waiter->in_engine);
    engine->leases_changes++;
    line->count--;
    waiter->line = NULL;
    waiter->waits = false;
    if (waiter->account != NULL)
        account_give(waiter->account, ACCOUNT_WAITERS);
    account_drop(waiter->account);
    waiter->account = NULL;
    if (list_empty(&line->waiters)) {
        timer_stop(engine, &line->poll);
        HASH_DEL(engine->lines, line);
        free(line);
        return;
    }
    if (was_head)
        pass_on(line, granted_ms);
}

void line_pass_over(struct waiter *waiter)
{
    bool was_head = line_is_head(waiter);

    waiter->passed_over = true;
    if (was_head)
        pass_on(waiter->line, 0);
}

int64_t line_place(const struct waiter *waiter)
{
    int64_t place = 1;

    for (struct list *at = waiter->in_line.prev; at != &waiter->line->waiters; at = at->prev)
        place += !list_entry(at, struct waiter, in_line)->passed_over;
    return place;
}

bool line_may_take(const struct waiter *waiter)
{
    if (waiter->passed_over)
        return false;
    for (struct list *at = waiter->in_line.prev; at != &waiter->line->waiters; at = at->prev) {
        const struct waiter *before = list_entry(at, const struct waiter, in_line);
        if (!before->passed_over && !before->shares)
            return false;
    }
    return true;
}

int64_t line_take_freed(struct waiter *head)
{
    int64_t freed = head->line->freed;
    head->line->freed = 0;
    return freed;
}

void line_wake(struct engine *engine, struct bytes resource)
{
    struct line *line = find(engine, resource), *of_permits;
    struct bytes all;
    int64_t permit;

    if (line != NULL)
        give_turn(line);
    if (!lease_is_permit(resource, &all, &permit) || (of_permits = find(engine, all)) == NULL)
        return;
    of_permits->freed = permit;
    give_turn(of_permits);
}

struct waiter *line_take_heir(struct engine *engine, struct bytes resource)
{
    struct line *line = find(engine, resource);
    struct waiter *heir = line == NULL ? NULL : head_of(line);

    if (heir == NULL || engine->draining || !heir->waits || heir->events->on_heir == NULL)
        return NULL;
    timer_stop(engine, &line->poll);
    heir->waits = false;
    heir->events->on_heir(heir);
    return heir;
}

bool line_is_wanted(struct engine *engine, struct bytes resource)
{
    const struct line *line = find(engine, resource);
    return line != NULL && head_of(line) != NULL;
}

int64_t line_waiters(struct engine *engine, struct bytes resource)
{
    struct line *line = find(engine, resource);
    int64_t count = 0;

    if (line != NULL)
        for (struct list *at = line->waiters.next; at != &line->waiters; at = at->next)
            count += list_entry(at, struct waiter, in_line)->waits &&
                     !list_entry(at, struct waiter, in_line)->passed_over;
    return count;
}

int64_t line_each(struct engine *engine, struct bytes resource,
                  bool (*each)(void *context, const struct waiter *waiter), void *context)
{
    const struct line *line = find(engine, resource);

    if (line == NULL)
        return 0;
    for (struct list *at = line->waiters.next; at != &line->waiters; at = at->next)
        if (!each(context, list_entry(at, struct waiter, in_line)))
            break;
    return line->count;
}

/* Those who are asking are left alone: they learn of the drain at their next step. One that goes
 * may take others with it, which are in `left` then or in the engine's list again. */
void line_drain(struct engine *engine)
{
    struct list left, *link;

    list_init(&left);
    list_splice(&left, &engine->arrivals);
    while ((link = list_pop(&left)) != NULL) {
        struct waiter *waiter = list_entry(link, struct waiter, in_engine);
        list_append(&engine->arrivals, link);
        if (waiter->waits) {
            waiter->waits = false;
            waiter->events->on_drain(waiter);
        }
    }
}
