/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out who keeps us out of the store by a lock on stockade.meta, which every change needs,
 * too. A `stockade move` or `restore` has that lock for as long as it takes. One that stands still
 * in the middle of COPY (Ctrl-Z is enough) would have it for ever: no setting of the server's ends
 * it there. So a daemon that waits for the lock ends such a backend once nothing of it has changed
 * for KEPT_OUT_STILL_MS: only one of our role and kind, in COPY, that waits for its client. Any
 * other holder is named in the error. */
#ifndef STOCKADE_STORE_POSTGRESQL_KEPT_OUT_H
#define STOCKADE_STORE_POSTGRESQL_KEPT_OUT_H

#include <pthread.h>
#include <stdatomic.h>

#include "fence/base/log.h"
#include "store/postgresql/pg.h"

enum { KEPT_OUT_STILL_MS = 30 * 1000 };

/* What a process has seen; shared by all threads of the store. */
struct kept_out {
    pthread_mutex_t lock;
    /* The holder that was seen last, its state, and since when that is so, by clock_monotonic. */
    int64_t pid, state_us, progress, since_ms;
    atomic_size_t ended; /* backends that we have ended, and not counted in the stats yet */
};

void kept_out_init(struct kept_out *kept_out);
void kept_out_destroy(struct kept_out *kept_out);
/* A trip on this connection, which is in no transaction any more, has failed because a lock did not
 * come. Add to pg->why who has the lock; end the holder where that is due, and log it. */
void kept_out_explain(struct kept_out *kept_out, struct pg *pg, const struct log *log);
/* Did the last trip fail because a lock did not come? */
bool kept_out_is_why(const struct pg *pg);

#endif
