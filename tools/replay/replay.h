/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of one replay share: what is asked for, the orders, and the tally that all workers
 * write to. */
#ifndef STOCKADE_TOOLS_REPLAY_REPLAY_H
#define STOCKADE_TOOLS_REPLAY_REPLAY_H

#include <stdatomic.h>

#include "tools/client.h"
#include "tools/crew.h"
#include "tools/replay/orders.h"
#include "tools/report/trace.h"
#include "tools/signals.h"

enum { REPLAY_KEY_MAX = 320 };

/* In shared memory. All atomic: a worker that is stopped or killed leaves nothing locked. */
struct tally {
    _Atomic size_t next_invoice; /* the queue: workers take invoices from here, in order */
    _Atomic int64_t done;        /* lines */
    _Atomic int64_t sales, returns, no_stock;
    _Atomic int64_t stale;      /* writes refused as STALE; the line was tried again */
    _Atomic int64_t held;       /* waits for a lease that ran out; tried again */
    _Atomic int64_t busy;       /* BUSY and LEASEDOWN; tried again */
    _Atomic int64_t below_zero; /* stock read below 0 */
    struct failure failures[CREW_MAX];
    struct sku_tally {
        _Atomic int64_t sold, returned; /* pieces whose write was acknowledged */
    } skus[];
};

/* What the options ask for. */
struct replay_settings {
    const char *orders, *prefix, *lease; /* prefix: of the keys */
    int64_t opening_percent, workers, limit, pause_every, ttl_ms, pause_ms;
    bool strict;
    const char *report; /* the file for it; NULL: none */
};

struct replay {
    struct replay_settings settings;
    const struct client_uri *server;
    struct orders orders;
    struct tally *tally;
    struct trace *trace; /* for the report; NULL: none */
};

/* Write the key, and so the resource, of a SKU; return `out`. */
const char *inventory_key(const struct replay *replay, const struct sku *sku,
                          char out[REPLAY_KEY_MAX]);
/* Set each SKU's key to its opening stock under a lease of its own. A key that is there already is
 * somebody's data: it is named as the failure, and not touched. */
bool inventory_load(const struct replay *replay, struct signals *signals, struct failure *failure);

/* Be worker number `index`: work on invoices until there are none left. Return the exit code. */
int worker_run(const struct replay *replay, unsigned index);

struct audit {
    size_t right; /* SKUs where opening - sold + returned = left */
    size_t wrong; /* each named on stderr, up to a limit */
    size_t below_zero;
    size_t sold_out; /* SKUs with nothing left */
};

/* Compare each SKU's stock with what was sold and returned. */
bool inventory_audit(const struct replay *replay, struct audit *audit, struct failure *failure);

#endif
