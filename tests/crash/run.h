/* SPDX-License-Identifier: Apache-2.0 */
/* A run of clients against one daemon, in rounds: in each, every slot's client sends something, and
 * all is answered before the next begins. What was sent and what was answered is written down with
 * the disk's events, so that for every event it is known what had been acknowledged by then. */
#ifndef STOCKADE_TESTS_CRASH_RUN_H
#define STOCKADE_TESTS_CRASH_RUN_H

#include "tests/crash/host.h"
#include "tests/crash/model.h"

enum { RUN_FLIGHT_MAX = 3, RUN_SETUP_STEPS = 4, RUN_WHY_MAX = 2000 };

/* What one slot may look like: this, and some of what is in flight done after it, in order. */
struct outlook {
    struct model_slot slot;
    struct op flight[RUN_FLIGHT_MAX];
    int flight_count;
};

struct expectation {
    struct outlook slots[MODEL_SLOTS];
    int setup;       /* steps that were acknowledged */
    bool setup_sent; /* and one more is in flight */
    bool faulty;     /* an operation failed on the way: grants may have been begun and given up */
};

struct run_step {
    struct op op;
    struct model_slot after;
    size_t sent_at, answered_at; /* events */
};

struct run {
    struct machine *machine;
    struct host *host; /* NULL: it could not be opened, or is over */
    uint64_t seed;
    struct model_slot first[MODEL_SLOTS]; /* before all */
    struct expectation now;
    int ids;
    size_t sent_at[MODEL_SLOTS];
    int replies[MODEL_SLOTS]; /* to the first in flight */
    struct run_step *steps[MODEL_SLOTS];
    size_t steps_count[MODEL_SLOTS];
    size_t setup_sent_at[RUN_SETUP_STEPS], setup_answered_at[RUN_SETUP_STEPS];
    bool may_fail;         /* faults are put in: STORE is a possible answer */
    int failed;            /* operations so answered */
    char why[RUN_WHY_MAX]; /* what went wrong; empty: nothing */
};

/* Open the store on the mounted disk and set the tables up. `from`: what the slots have already;
 * NULL: nothing. */
void run_start(struct run *run, struct machine *machine, const struct model_slot *from,
               uint64_t seed, bool may_fail);
/* Run some rounds. They end early where something is wrong, or the store is lost. */
void run_rounds(struct run *run, int first, int count);
/* Close the daemon, and open it again. */
void run_reopen(struct run *run);
/* Let so much time pass. */
void run_pause(struct run *run, int64_t ms);
/* Close what is open. */
void run_stop(struct run *run);
void run_free(struct run *run);
/* Tell what has to be there where the power goes during event n. */
void run_expect(const struct run *run, size_t n, struct expectation *out);
/* Write the n-th step of the setup, as a request that may be repeated. */
void run_setup_request(int step, struct buf *out);

#endif
