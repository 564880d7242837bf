/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of a crew did, and when: events in shared memory, which a report shows. The
 * memory is bounded; events that it has no room for are counted. A process that is killed while it
 * notes an event leaves that one out. */
#ifndef STOCKADE_TOOLS_REPORT_TRACE_H
#define STOCKADE_TOOLS_REPORT_TRACE_H

#include <stdint.h>

#include "fence/base/bytes.h"

enum { TRACE_MAX = 65536 };

/* `value` as said here; events without one have 0. */
enum trace_kind {
    TRACE_LOCKED = 1, /* a grant was answered; the token, where there is one */
    TRACE_READ,       /* the stock that was read */
    TRACE_PAUSED,     /* is about to be stopped */
    TRACE_WOKEN,
    TRACE_STALE,    /* the next write is stale, and is not refused */
    TRACE_WRITTEN,  /* acknowledged; the stock from then on */
    TRACE_REFUSED,  /* a stale write was refused */
    TRACE_SOLD,     /* confirmed; pieces */
    TRACE_LOST,     /* a reply was lost: the write is sent again */
    TRACE_UNLOCKED, /* the lock was given back */
};

struct trace;

/* Return an empty trace, which the processes that are started from now on share. */
struct trace *trace_open(void);
void trace_close(struct trace *trace); /* NULL: nothing to close */
/* Forget all events. NULL: nothing to do. */
void trace_begin(struct trace *trace);
/* Note what process `who` did just now, with article `sku`. NULL: note nothing. */
void trace_note(struct trace *trace, unsigned who, enum trace_kind kind, int sku, int64_t value);
/* Append "dropped": N, "events": [[microseconds, who, kind, sku, value], ...] in order of time; the
 * first one is at 0. */
void trace_json(const struct trace *trace, struct buf *json);

#endif
