/* SPDX-License-Identifier: Apache-2.0 */
/* The plan's faults, at their time, and the calm after them. */
#ifndef STOCKADE_TESTS_SIM_FAULTS_H
#define STOCKADE_TESTS_SIM_FAULTS_H

#include "tests/sim/world.h"

void faults_schedule(struct world *world);

#endif
