/* SPDX-License-Identifier: Apache-2.0 */
/* One run: a plan is carried out from start to end, and made small where it fails. */
#ifndef STOCKADE_TESTS_SIM_RUN_H
#define STOCKADE_TESTS_SIM_RUN_H

#include "tests/sim/world.h"

struct outcome_of_run {
    enum promise broken; /* PROMISE_NONE: all was kept */
    char why[400];
    int64_t end_ms; /* of the virtual time */
    uint64_t digest;
    int rounds[CLIENTS_MAX]; /* that each client has begun, and when */
    int64_t round_starts_us[CLIENTS_MAX][ROUNDS_MAX + 1];
};

/* `story` may be NULL. The tally is added to. */
struct outcome_of_run run_plan(const struct plan *plan, struct tally *tally, struct buf *story);

/* Schedule the plan's faults, and the calm after them: faults.c. */
void faults_schedule(struct world *world);

/* Make a failing plan small, as shrink.c tells. `plan` fails with `outcome`; both are changed to
 * the smallest ones found. Return the number of runs that it took. */
int shrink(struct plan *plan, struct outcome_of_run *outcome);

#endif
