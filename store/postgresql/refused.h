/* SPDX-License-Identifier: Apache-2.0 */
/* What guards and present() have refused to programs that write by themselves. Their transactions
 * are undone, so the database tells it by sequences (schema/7_refused.sql). */
#ifndef STOCKADE_STORE_POSTGRESQL_REFUSED_H
#define STOCKADE_STORE_POSTGRESQL_REFUSED_H

#include <pthread.h>

#include "store/postgresql/pg.h"
#include "store/store.h"

struct pg_refused {
    /* Numbers of refusals, the watch's: up to this one all were told, or are too old to be; and the
     * newest of the last look. -1: there was no look yet. */
    int64_t told, newest;

    /* Under the lock: those that the owner is still to be told of, as struct store_refusal, its
     * resource's name behind it. */
    pthread_mutex_t lock;
    struct buf records;
};

void pg_refused_init(struct pg_refused *refused);
void pg_refused_destroy(struct pg_refused *refused);
/* Look for new ones. `*count` is how many there are. What came before the first look is old. False:
 * the connection failed. */
bool pg_refused_look(struct pg_refused *refused, struct pg *pg, size_t *count);
/* Tell of those that were found. For the owner's thread. */
void pg_refused_collect(struct pg_refused *refused,
                        void (*on_refused)(void *context, const struct store_refusal *refusal),
                        void *context);

#endif
