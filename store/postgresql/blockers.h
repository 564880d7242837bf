/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out who has locked the rows that operations wait for. The server only tells for whom a
 * backend waits. So a probe, on a connection that lives as long as rows are locked, asks for the
 * row; we look whom the probe waits for, and cancel it.
 *
 * A daemon that stands still in mid-batch (SIGSTOP, a machine that is gone) leaves a backend that
 * has rows locked and waits for its client. The server's own limits end it after 3 s at best, and
 * not at all where the daemon was stopped in mid-message. So a daemon that waits for it ends it
 * after 2 s: only a backend of our role and our kind, and only while it waits for its client.
 * Any other holder is named in the error. */
#ifndef STOCKADE_STORE_POSTGRESQL_BLOCKERS_H
#define STOCKADE_STORE_POSTGRESQL_BLOCKERS_H

#include <pthread.h>

#include "store/postgresql/connection.h"

enum {
    BLOCKERS_MAX = 32,
    BLOCKERS_WAIT_MS = 10 * 1000, /* how long an operation waits for a row before it fails */
};

/* A row that operations wait for. */
struct blocked {
    char name[RESOURCE_NAME_MAX];
    size_t len;
    int64_t last_ms;   /* when it was last found locked, by clock_monotonic */
    int64_t looked_ms; /* when we last looked for its holder; 0: never */
    /* The holder, as it was then. */
    char holder[PG_HOLDER_MAX]; /* for people; empty: not known */
    bool named;                 /* it is not one of ours */
    int64_t pid;                /* of one of ours, which is ended if it stays as it is; 0: none */
    int64_t state_us;           /* since when it is in its state, by the server's clock */
    int64_t still_ms;           /* since when we saw it wait for its client, in that state */
};

struct blockers {
    pthread_mutex_t lock;
    struct blocked all[BLOCKERS_MAX]; /* rows beyond these get their turn once there is room */
    size_t count;
    /* For the thread that looks. */
    struct pg probe;
};

/* `uri` is borrowed. */
void blockers_init(struct blockers *blockers, const char *uri);
void blockers_destroy(struct blockers *blockers);
/* Has the operation waited for so long that we look for the holder? Most locks are those of other
 * batches, and gone soon. */
bool blockers_concern(const struct store_op *op);
/* Note the locked rows of the set. Any thread may call it. True: some were not noted yet. */
bool blockers_note(struct blockers *blockers, const struct set *set);
/* Fail an operation that has waited for too long, and name the holder. Any thread may call it. */
void blockers_fail(struct blockers *blockers, struct store_reasons *reasons, struct store_op *op);
/* Look for the holders, on this connection, and end those that stand still. Return how many were
 * ended. `*more`: rows are left to look at. `*good` false: the connection failed. */
size_t blockers_look(struct blockers *blockers, struct pg_connection *connection,
                     const struct log *log, bool *more, bool *good);

#endif
