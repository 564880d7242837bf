/* SPDX-License-Identifier: Apache-2.0 */
/* What `stockade top` knows of a daemon: its leases, and what it counts. Each look asks a bounded
 * number of questions, so that many leases keep neither the daemon nor the screen from anything
 * else: all names now and then, and the state of LOOK_MAX of them, in turn; those on the screen
 * first. */
#ifndef STOCKADE_TOOLS_TOP_WATCH_H
#define STOCKADE_TOOLS_TOP_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "proxy/client/stockade.h"

enum { WATCH_LEASES_MAX = 100000 };

struct watch_lease {
    struct buf name, owner;
    int64_t token, left_ms, holds, waiters;
    int64_t seen_ms; /* when that was so; 0: not looked at yet */
    bool is_held;
    bool matches; /* the filter */
};

enum watch_rate { RATE_COMMANDS, RATE_GRANTS, RATE_WRITES, RATE_REFUSED, RATES };
extern const char *const watch_rate_names[RATES];

enum watch_sort { SORT_WAITERS, SORT_RESOURCE, SORT_OWNER, SORT_TOKEN, SORT_LEFT, SORTS };
extern const char *const watch_sort_names[SORTS];

struct watch {
    const char *uri;   /* borrowed */
    const char *match; /* the daemon's pattern; NULL: all */
    stk_client *client;
    bool is_away;         /* the last look had no answer */
    enum stk_error error; /* then: of that look */
    char why[200];        /* and what it means */
    int64_t away_ms;      /* since when */

    char version[32];
    char troubles[320]; /* what is wrong, as the daemon says; empty: nothing */
    int64_t up_s, clients, waiting;
    int64_t counted_ms;      /* when the counters were read; 0: never */
    int64_t counters[RATES]; /* then */
    double rates[RATES];     /* per second; negative: not known yet */

    struct watch_lease *leases; /* owned, by name */
    size_t count, looked_at;
    bool is_cut;          /* there may be more than WATCH_LEASES_MAX */
    int64_t names_due_ms; /* when to ask for all names again */
    size_t next;          /* the lease that is looked at next */

    enum watch_sort sort;
    bool is_turned;  /* the other way round */
    char filter[65]; /* a part of the name, or a pattern */
    size_t *order;   /* owned: what matches the filter, sorted */
    size_t matched;
};

enum watch_result {
    WATCH_DONE,
    WATCH_AWAY,      /* no answer: is_away, and `why` */
    WATCH_CUT_SHORT, /* by stk_cancel_on's descriptor */
};

/* Look once, and sort. `from` and `rows`: what is on the screen. */
enum watch_result watch_look(struct watch *watch, size_t from, size_t rows);
/* Sort again, after the filter or the order has changed. */
void watch_sort(struct watch *watch);
/* Return how much of its time the lease has left by now. */
int64_t watch_left_ms(const struct watch_lease *lease, int64_t now_ms);
void watch_close(struct watch *watch);

#endif
