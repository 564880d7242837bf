/* SPDX-License-Identifier: Apache-2.0 */
/* A SQLite store that lasts from one input to the next, since it takes long to open. A number in
 * the names of their resources keeps inputs apart. */
#ifndef STOCKADE_TESTS_FUZZ_LASTING_H
#define STOCKADE_TESTS_FUZZ_LASTING_H

#include "tests/twins/world.h"

/* Return the store that there is, or a new one, for the options of a world. */
struct store *lasting_open(void);
/* Give the store the clock of this world; NULL before the world ends. */
void lasting_set_world(const struct world *world);
/* Return this input's number for its names. */
unsigned lasting_number(void);
/* Remove values and leases. A file serves 500 inputs. */
void lasting_end_input(void);

#endif
