/* SPDX-License-Identifier: Apache-2.0 */
/* In front of SQLite's allocator, which stays in use: one that has nothing to give when it is told
 * so. For programs of a single thread. */
#ifndef STOCKADE_TESTS_FAULT_MEMORY_H
#define STOCKADE_TESTS_FAULT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Before SQLite starts, and after another allocator was chosen. */
void fault_memory_install(void);
/* Set the first call to fail (0: none), and whether all after it do. Counts begin anew. */
void fault_memory_set(int64_t first, bool lasting);
int64_t fault_memory_calls(void);
/* Fail no more. Return whether a call has failed. */
bool fault_memory_end(void);

/* From now on calls are told apart by who calls. Then: is this call one of the first `times` of its
 * kind? */
void fault_memory_sites_begin(void);
void fault_memory_sites_end(void);
bool fault_memory_is_new(int64_t call, size_t times);

#endif
