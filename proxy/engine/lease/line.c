/* SPDX-License-Identifier: Apache-2.0 */
/* The line for one resource: who came first is served first, and only the head asks the lease
 * service, however many wait.
 *
 * Leases in the store pass to the head in the transaction of the release itself (line_next_holder).
 * Else the head is woken by a release or revoke, at this daemon or as news from another one, by the
 * end of the lease as the service last told it, and once a second in case a wake-up was lost.
 *
 * Invariant: where the head waits, the look timer is set; so nobody waits for ever. */
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"

struct line {
    UT_hash_handle hh;
    struct engine *engine;
    struct list acquires;
    struct timer look;
    bool again; /* woken while the head was busy asking */
    size_t name_len;
    char name[];
};

static struct line *find(struct engine *engine, struct bytes resource)
{
    struct line *line;
    HASH_FIND(hh, engine->lines, resource.data, resource.len, line);
    return line;
}

static struct acquire *head_of(const struct line *line)
{
    return list_entry(line->acquires.next, struct acquire, in_line);
}

static void head_tries(struct line *line)
{
    struct acquire *head = head_of(line);

    if (head->phase != ACQUIRE_WAITING) {
        line->again = true;
        return;
    }
    line->again = false;
    timer_stop(line->engine, &line->look);
    acquire_try(head);
}

static void look_fired(struct timer *timer)
{
    head_tries(list_entry(timer, struct line, look));
}

void line_join(struct engine *engine, struct acquire *acquire)
{
    struct bytes name = acquire->request->argv[1];
    struct line *line = find(engine, name);

    if (line == NULL) {
        line = mem_zalloc(sizeof *line + name.len);
        line->engine = engine;
        line->look.fire = look_fired;
        line->name_len = name.len;
        memcpy(line->name, name.data, name.len);
        list_init(&line->acquires);
        HASH_ADD_KEYPTR(hh, engine->lines, line->name, line->name_len, line);
    }
    acquire->line = line;
    list_append(&line->acquires, &acquire->in_line);
    engine->acquires_count++;
}

bool line_is_head(const struct acquire *acquire)
{
    return acquire->line->acquires.next == &acquire->in_line;
}

void line_look_in(struct acquire *head, int64_t held_ms)
{
    struct line *line = head->line;
    int64_t look_ms = held_ms + 1 < LEASE_LOOK_MS ? held_ms + 1 : LEASE_LOOK_MS;
    timer_set(line->engine, &line->look, engine_now_ms(line->engine) + look_ms);
}

bool line_take_again(struct acquire *head)
{
    bool again = head->line->again;
    head->line->again = false;
    return again;
}

void line_leave(struct acquire *acquire, int64_t granted_ms)
{
    struct line *line = acquire->line;
    struct engine *engine = line->engine;
    bool was_head = line_is_head(acquire);

    list_remove(&acquire->in_line);
    acquire->line = NULL;
    engine->acquires_count--;
    if (list_empty(&line->acquires)) {
        timer_stop(engine, &line->look);
        HASH_DEL(engine->lines, line);
        free(line);
        return;
    }
    if (!was_head || engine->draining)
        return;
    if (granted_ms > 0 && !line->again)
        line_look_in(head_of(line), granted_ms);
    else
        head_tries(line); /* nobody knows how long the lease lasts: ask */
}

void line_wake(struct engine *engine, struct bytes resource)
{
    struct line *line = find(engine, resource);
    if (line != NULL)
        head_tries(line);
}

struct acquire *line_next_holder(struct engine *engine, struct bytes resource)
{
    struct line *line = find(engine, resource);

    if (line == NULL || engine->draining || head_of(line)->phase != ACQUIRE_WAITING)
        return NULL;
    timer_stop(engine, &line->look);
    acquire_inherit(head_of(line));
    return head_of(line);
}

void line_on_news(void *context, const struct lease_news *news)
{
    held_doubt(context, news->resource, news->token, news->revoked);
    line_wake(context, news->resource);
}

int64_t line_waiters(struct engine *engine, struct bytes resource)
{
    struct line *line = find(engine, resource);
    int64_t count = 0;

    if (line != NULL)
        for (struct list *at = line->acquires.next; at != &line->acquires; at = at->next)
            count += list_entry(at, struct acquire, in_line)->phase == ACQUIRE_WAITING;
    return count;
}

/* Fails what waits, not what is on its way: that learns of the drain at its next step. */
static void drain_line(struct line *line)
{
    struct list *at = line->acquires.next;
    bool last = at == &line->acquires;

    while (!last) {
        struct list *next = at->next;
        struct acquire *acquire = list_entry(at, struct acquire, in_line);
        last = next == &line->acquires; /* the line may go with its last one */
        if (acquire->phase == ACQUIRE_WAITING)
            acquire_stop(acquire);
        at = next;
    }
}

void acquire_drain(struct engine *engine)
{
    struct line *line, *next;
    HASH_ITER(hh, engine->lines, line, next)
    drain_line(line);
}
