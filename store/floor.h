/* SPDX-License-Identifier: Apache-2.0 */
/* Where tokens go on in a store that may not remember all that it has given out. */
#ifndef STOCKADE_STORE_FLOOR_H
#define STOCKADE_STORE_FLOOR_H

#include <stdint.h>

/* token_floor_anew by the wall clock of this machine, or by `others_us`, the time by another clock
 * (microseconds since 1970; 0: there is none), whichever is later. 0: no token is left. */
int64_t store_floor_anew(int64_t known, int64_t others_us);

#endif
