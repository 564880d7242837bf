/* SPDX-License-Identifier: Apache-2.0 */
/* A story in sentences. Names are quoted and escaped, so nothing in them reaches the terminal as it
 * is. Times are local. */
#ifndef STOCKADE_TOOLS_WHY_TELL_H
#define STOCKADE_TOOLS_WHY_TELL_H

#include "tools/why/story.h"

enum { TELL_TIME_MAX = 40 };

/* Write 12:00:01.123; return `out`. */
const char *tell_time(int64_t time_ms, char out[TELL_TIME_MAX]);
/* Append one line: the state now, how many leases, how many refusals and how late. */
void tell_summary(struct buf *out, const struct story *story);
/* Append a sentence for each who waits, the next one first. */
void tell_waiters(struct buf *out, const struct story *story);
/* Append a sentence for each hold and each refusal, in order of time. */
void tell_events(struct buf *out, const struct story *story);

#endif
