/* SPDX-License-Identifier: Apache-2.0 */
/* A SQLite store that lasts from one input to the next, for it takes long to open. Inputs keep out
 * of each other's way by a number in their resources' names. */
#ifndef STOCKADE_TESTS_FUZZ_LASTING_H
#define STOCKADE_TESTS_FUZZ_LASTING_H

#include "tests/twins/world.h"

/* Return the store that there is, or a new one, for the options of a world. */
struct store *lasting_open(void);
/* Whose clock is the store's clock; NULL before it ends. */
void lasting_set_world(const struct world *world);
/* What this input has for its names. */
unsigned lasting_number(void);
/* Removes values and leases; every 500th input is its file's last. */
void lasting_end_input(void);

#endif
