/* SPDX-License-Identifier: Apache-2.0 */
/* The store's time where the store is in a database: the wall clock of its server plus a
 * correction, which is kept with the data. All dates, deadlines of leases too, are by this time.
 *
 *   each time it is read: does it agree with clock_monotonic, as it did before?
 *     ├─ yes ─▶ go on
 *     └─ it has jumped ─▶ the daemon that sees it first corrects it, under a new number
 *                           └─▶ daemons that see a new number trust no date before it
 *
 * - While a daemon is at work, the time goes on as it measures, whatever happens to the server's
 *   clock, a failover included. It does not see jumps that are below SERVER_CLOCK_JUMP_MS, all of
 *   them together, so it takes that much off each age.
 * - A date from before this daemon began to look, or from before the last correction, or by
 *   another server, may be by a clock that was wrong: the age counts from the daemon's first look,
 *   or from the change. So a lease is held for its full TTL from then on.
 * - An age may therefore be told too small, but never too large.
 *
 * This file is the arithmetic only: it reads no clock and speaks to no server. The store reads the
 * time and writes the correction (in PostgreSQL: load.c, identity.c). */
#ifndef STOCKADE_STORE_SERVER_CLOCK_H
#define STOCKADE_STORE_SERVER_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"

#define SERVER_CLOCK_JUMP_MS  500
#define SERVER_CLOCK_NAME_MAX 64

/* The store's time as a server told it, in a trip from `sent_ms` to `got_ms` by clock_monotonic. */
struct server_clock_look {
    int64_t now_ms, number; /* `number`: which correction is in it */
    int64_t sent_ms, got_ms;
};

/* What a process knows of the store's time; shared by all threads of the store. */
struct server_clock {
    pthread_mutex_t lock;
    bool known;                         /* there was a look */
    bool distrusted;                    /* no date from before the next look is to be trusted */
    char server[SERVER_CLOCK_NAME_MAX]; /* which server tells the time; empty: none yet */
    int64_t number;                     /* the correction that the looks had in them: */
    int64_t least_ms, most_ms; /* the store's time less clock_monotonic's lies between these */
    int64_t since_ms;          /* dates from this time on are right */
};

void server_clock_init(struct server_clock *clock);
void server_clock_destroy(struct server_clock *clock);

/* Compare a look with those before. True: it agrees, and `*since_ms` is what server_clock_age_ms
 * needs. False: the server's clock has jumped, or the correction in the look is an old one; the
 * look is forgotten. */
bool server_clock_look(struct server_clock *clock, const struct server_clock_look *look,
                       int64_t *since_ms);
/* Go by the correction in this look from now on. */
void server_clock_follow(struct server_clock *clock, const struct server_clock_look *look);
/* Note which server tells the time from now on. Where it is another one than before, only dates
 * from the next look on are trusted. */
void server_clock_of(struct server_clock *clock, struct bytes server);
/* Was there a look? */
bool server_clock_is_known(struct server_clock *clock);
/* Tell by how much the look is wrong, going by those before it; 0: it agrees. (A look whose
 * correction is older than theirs is judged, too: a failover has lost the newer correction.)
 * False: there is nothing to go by, since this is the first look, or somebody has made a correction
 * since the last one. */
bool server_clock_error_ms(struct server_clock *clock, const struct server_clock_look *look,
                           int64_t *error_ms);

/* Return the age of a date, at least, at the store's time `now_ms`. */
int64_t server_clock_age_ms(int64_t now_ms, int64_t since_ms, int64_t dated_ms);

/* The store's time when it was noted last, and the wall clock's then, on the machine that noted it.
 */
struct server_clock_note {
    int64_t now_ms, wall_ms; /* 0: never */
};
/* Return by how much a process's first look is wrong. Perhaps nobody was at work since the note, so
 * two clocks are asked how much time has passed: the server's in the look, and the wall clock
 * `wall_ms` here. The shorter time is believed. */
int64_t server_clock_gap_error_ms(const struct server_clock_note *note,
                                  const struct server_clock_look *look, int64_t wall_ms);

#endif
