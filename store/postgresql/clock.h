/* SPDX-License-Identifier: Apache-2.0 */
/* The store's time in a database: the wall clock of its server plus a correction, which stands
 * beside the data. Whatever is dated, deadlines of leases too, is dated by it.
 *
 *   each time it is read: does it agree with clock_monotonic, as it did before?
 *     ├─ yes ─▶ go on
 *     └─ it has jumped ─▶ whoever sees it first corrects it (identity.c), under a new number
 *                           └─▶ everybody who sees a new number trusts no date before it
 *
 * - A daemon that is at work bridges what happens to the server's clock, a failover included: the
 *   time goes on as measured. Jumps below PG_CLOCK_JUMP_MS, all of them together, are not seen, so
 *   an age is told that much too small.
 * - What was dated before this daemon began to look, or before the last correction, or by another
 *   server, may have been dated by a clock that was wrong: its age counts from there. So a lease
 *   is held for its full TTL from then on.
 * - So an age is told too small at times, and never too large.
 *
 * The arithmetic only: nothing here reads a clock or speaks to a server. */
#ifndef STOCKADE_STORE_POSTGRESQL_CLOCK_H
#define STOCKADE_STORE_POSTGRESQL_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"

#define PG_CLOCK_JUMP_MS    500
#define PG_CLOCK_SERVER_MAX 64

/* The store's time as a server told it, in a trip from `sent_ms` to `got_ms` of clock_monotonic. */
struct pg_clock_look {
    int64_t now_ms, number; /* of the correction that is in it */
    int64_t sent_ms, got_ms;
};

/* One process's, for all threads of the store. */
struct pg_clock {
    pthread_mutex_t lock;
    bool known;                       /* there was a look */
    bool distrusted;                  /* what is dated before the next look counts from there */
    char server[PG_CLOCK_SERVER_MAX]; /* who tells the time; empty: nobody yet */
    int64_t number;                   /* that the looks were under: */
    int64_t least_ms, most_ms; /* between these the store's time less clock_monotonic's lies */
    int64_t since_ms;          /* the store's time from which on dates are right */
};

void pg_clock_init(struct pg_clock *clock);
void pg_clock_destroy(struct pg_clock *clock);

/* Compare. True: `*since_ms` is what pg_clock_age_ms needs. False: the clock has jumped, or the
 * correction in the look is an old one; the look is forgotten. */
bool pg_clock_look(struct pg_clock *clock, const struct pg_clock_look *look, int64_t *since_ms);
/* The correction in this look is the one that counts from now on. */
void pg_clock_follow(struct pg_clock *clock, const struct pg_clock_look *look);
/* This server tells the time from now on. Where it is another one than before, dates are trusted
 * from the next look on. */
void pg_clock_of(struct pg_clock *clock, struct bytes server);
/* Was there a look? */
bool pg_clock_is_known(struct pg_clock *clock);
/* By how much is the look wrong, going by those before it? 0: it agrees. An old correction is none
 * that somebody has made since: a failover has lost the newer one. False: there is nothing to go
 * by, since this is the first look, or somebody has made a correction since the last one. */
bool pg_clock_error_ms(struct pg_clock *clock, const struct pg_clock_look *look, int64_t *error_ms);

/* Return how long ago something was dated at least, at the store's time `now_ms`. */
int64_t pg_clock_age_ms(int64_t now_ms, int64_t since_ms, int64_t dated_ms);

/* What the store's time was when it was noted last, and the wall clock of whoever noted it. */
struct pg_clock_note {
    int64_t now_ms, wall_ms; /* 0: never */
};
/* Return by how much a look is wrong that is the first one, where nobody may have been at work
 * since the note: of the time that has passed by it and by the wall clock `wall_ms` here, the
 * shorter one is believed. */
int64_t pg_clock_gap_error_ms(const struct pg_clock_note *note, const struct pg_clock_look *look,
                              int64_t wall_ms);

#endif
