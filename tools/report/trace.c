/* SPDX-License-Identifier: Apache-2.0 */
/* Who notes an event takes the next place in the array; its kind, written last, says that it is
 * whole. */
#include "tools/report/trace.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "tools/crew.h"

struct event {
    int64_t at_us, value;
    int32_t sku;
    uint16_t who;
    _Atomic int kind; /* set last; 0: not noted to its end */
};

struct trace {
    _Atomic size_t count; /* may be more than there is room for */
    struct event events[TRACE_MAX];
};

struct trace *trace_open(void)
{
    return crew_share(sizeof(struct trace));
}

void trace_close(struct trace *trace)
{
    if (trace != NULL)
        crew_unshare(trace, sizeof *trace);
}

static size_t noted(const struct trace *trace)
{
    size_t count = atomic_load(&trace->count);

    return count < TRACE_MAX ? count : TRACE_MAX;
}

void trace_begin(struct trace *trace)
{
    if (trace != NULL) {
        for (size_t i = 0; i < noted(trace); i++)
            atomic_store(&trace->events[i].kind, 0);
        atomic_store(&trace->count, 0);
    }
}

void trace_note(struct trace *trace, unsigned who, enum trace_kind kind, int sku, int64_t value)
{
    if (trace == NULL)
        return;
    size_t at = atomic_fetch_add(&trace->count, 1);
    if (at < TRACE_MAX) {
        struct event *event = &trace->events[at];
        event->at_us = clock_now_us(&clock_monotonic);
        event->value = value;
        event->who = (uint16_t)who;
        event->sku = sku;
        atomic_store(&event->kind, (int)kind);
    }
}

static int compare_events(const void *a, const void *b)
{
    const struct event *const *one = a, *const *other = b;

    if ((*one)->at_us != (*other)->at_us)
        return (*one)->at_us < (*other)->at_us ? -1 : 1;
    return (*one > *other) - (*one < *other); /* one process's stay in order */
}

void trace_json(const struct trace *trace, struct buf *json)
{
    const struct event **order = mem_alloc(TRACE_MAX * sizeof(struct event *));
    size_t count = 0;

    for (size_t i = 0; i < noted(trace); i++)
        if (atomic_load(&trace->events[i].kind) != 0)
            order[count++] = &trace->events[i];
    qsort(order, count, sizeof *order, compare_events);
    buf_printf(json, "\"dropped\": %zu, \"events\": [", atomic_load(&trace->count) - count);
    int64_t began_us = count > 0 ? order[0]->at_us : 0;
    for (size_t i = 0; i < count; i++)
        buf_printf(json, "%s[%" PRId64 ",%d,%d,%d,%" PRId64 "]", i > 0 ? "," : "",
                   order[i]->at_us - began_us, order[i]->who, atomic_load(&order[i]->kind),
                   order[i]->sku, order[i]->value);
    buf_append_text(json, "]");
    free(order);
}
