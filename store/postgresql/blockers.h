/* SPDX-License-Identifier: Apache-2.0 */
/* Who has locked the rows that operations wait for. The server tells only whom somebody waits for:
 * so a probe, on a connection that is there as long as rows are locked, asks for the row, is looked
 * at, and is cancelled.
 *
 * A daemon that stands still in mid-batch (SIGSTOP, a machine that is gone) leaves a backend that
 * waits for its client with rows locked. The server's own limits end it after 3 s at best, and not
 * at all where it was stopped in mid-message. So who waits ends it after 2 s: a backend of the same
 * role and of our own kind only, and only while it waits for its client. Everybody else is named.
 */
#ifndef STOCKADE_STORE_POSTGRESQL_BLOCKERS_H
#define STOCKADE_STORE_POSTGRESQL_BLOCKERS_H

#include <pthread.h>

#include "store/postgresql/connection.h"

enum {
    BLOCKERS_MAX = 32,
    BLOCKERS_WAIT_MS = 10 * 1000, /* that an operation waits for a row; then it fails */
};

/* A row that operations wait for. */
struct blocked {
    char name[RESOURCE_NAME_MAX];
    size_t len;
    int64_t last_ms;   /* it was found locked, by clock_monotonic */
    int64_t looked_ms; /* at who has it; 0: never */
    /* Who has it locked, as it was when it was looked at last. */
    char holder[PG_HOLDER_MAX]; /* for people; empty: not known */
    bool named;                 /* it is none of ours */
    int64_t pid;                /* of one of ours, which is ended where nothing of it changes: */
    int64_t state_us;           /* since when, by the server's clock */
    int64_t still_ms;           /* since when it was seen to wait for its client, in that state */
};

struct blockers {
    pthread_mutex_t lock;
    struct blocked all[BLOCKERS_MAX]; /* those beyond are looked at once there is room */
    size_t count;
    /* Of who looks. */
    struct pg probe;
};

/* `uri` is borrowed. */
void blockers_init(struct blockers *blockers, const char *uri);
void blockers_destroy(struct blockers *blockers);
/* Has it waited for long? Most locks are gone soon: those of other batches. */
bool blockers_concern(const struct store_op *op);
/* Note the locked rows of the set. For any thread. True: some were not noted yet. */
bool blockers_note(struct blockers *blockers, const struct set *set);
/* Fail an operation that has waited for too long, with who has the row. For any thread. */
void blockers_fail(struct blockers *blockers, struct store_reasons *reasons, struct store_op *op);
/* Look who it is, on this connection. Return how many backends were ended; whether rows are left
 * in `*more`. False in `*good`: the connection failed. */
size_t blockers_look(struct blockers *blockers, struct pg_connection *connection,
                     const struct log *log, bool *more, bool *good);

#endif
