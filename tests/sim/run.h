/* SPDX-License-Identifier: Apache-2.0 */
/* One run: a plan is carried out from start to end. */
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

#endif
