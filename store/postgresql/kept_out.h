/* SPDX-License-Identifier: Apache-2.0 */
/* Who keeps us out of the store: has stockade.meta locked, which every change asks for. A `stockade
 * move` or `restore` does, for as long as it takes. One that stands still (Ctrl-Z is enough) in the
 * middle of COPY would do so for ever: no setting of the server's ends it there. So whoever has
 * waited for it ends its backend once nothing of it has changed for KEPT_OUT_STILL_MS: one of our
 * own role's and kind only, in COPY, that waits for its client. Everybody else is named. */
#ifndef STOCKADE_STORE_POSTGRESQL_KEPT_OUT_H
#define STOCKADE_STORE_POSTGRESQL_KEPT_OUT_H

#include <pthread.h>
#include <stdatomic.h>

#include "fence/base/log.h"
#include "store/postgresql/pg.h"

enum { KEPT_OUT_STILL_MS = 30 * 1000 };

/* One process's, for all threads of the store. */
struct kept_out {
    pthread_mutex_t lock;
    /* The maintenance that was seen last, as it was; `since_ms` by clock_monotonic. */
    int64_t pid, state_us, progress, since_ms;
    atomic_size_t ended; /* backends that were, and that nobody has counted yet */
};

void kept_out_init(struct kept_out *kept_out);
void kept_out_destroy(struct kept_out *kept_out);
/* A trip on this connection, which is in no transaction any more, has failed for the reason in
 * pg->why. If that was a lock that did not come, says there who has it. Logs whom it ends. */
void kept_out_explain(struct kept_out *kept_out, struct pg *pg, const struct log *log);
/* Is the error of the last trip that a lock did not come? */
bool kept_out_is_why(const struct pg *pg);

#endif
