/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a failing plan small: leaves out faults, clients, rounds of clients, and what else can go,
 * as long as the same promise breaks. */
#ifndef STOCKADE_TESTS_SIM_SHRINK_H
#define STOCKADE_TESTS_SIM_SHRINK_H

#include "tests/sim/run.h"

#define SHRINK_RUNS_MAX  1500
#define SHRINK_CPU_S_MAX 6

/* `plan` fails with `outcome`; both are changed to the smallest ones found. Returns the number of
 * runs that it took. */
int shrink(struct plan *plan, struct outcome_of_run *outcome);

#endif
