/* SPDX-License-Identifier: Apache-2.0 */
/* What may be wrong with the daemon, in one table: the page's first line, /ready, INFO's
 * `troubles_detail` and the line of `stockade top` all come from it, and proxy/server/OPERATIONS.md
 * lists it. Whoever says how the daemon is asks here, so that nothing is well that another page
 * calls bad. */
#ifndef STOCKADE_ENGINE_CONDITIONS_H
#define STOCKADE_ENGINE_CONDITIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"

struct engine;

/* What is counted, and is in trouble for a minute after it has grown. */
enum lately { LATELY_STORE, LATELY_LEASE_SERVICE, LATELY_LOG, LATELY_COUNT };
struct lately_seen {
    uint64_t count;
    int64_t grew_ms; /* by the engine's clock */
    bool grew;
};

/* One that holds now. */
struct trouble {
    char text[160];   /* for everybody: it tells no names */
    char reason[240]; /* for those who may see the page; empty: none */
};

struct condition {
    const char *name;
    bool stops_grants; /* no lease can be granted: /ready is 503 */
    bool (*holds)(struct engine *engine, struct trouble *trouble);
};
extern const struct condition conditions[];
extern const size_t conditions_count;

/* Call `each` for those that hold now, what stops grants first. */
void conditions_each(struct engine *engine,
                     void (*each)(void *context, const struct condition *condition,
                                  const struct trouble *trouble),
                     void *context);
/* Append the texts of those that hold now, with "; " between them. Return whether leases can be
 * granted. */
bool conditions_tell(struct engine *engine, struct buf *out);
/* How many hold now? */
uint64_t conditions_holding(struct engine *engine);
/* Once a second: what has grown since? */
void conditions_look(struct engine *engine);

#endif
