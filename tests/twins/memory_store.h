/* SPDX-License-Identifier: Apache-2.0 */
/* A store in memory, for the simulator and unit tests: the same promises but durability, no threads
 * (store_step), and ways to fail. */
#ifndef STOCKADE_TESTS_TWINS_MEMORY_STORE_H
#define STOCKADE_TESTS_TWINS_MEMORY_STORE_H

#include "store/open.h"

enum memory_fault {
    MEMORY_FINE,
    MEMORY_COMMIT_FAILS, /* the next commit fails cleanly: its operations get STK_STORE */
    MEMORY_COMMIT_LOST,  /* the outcome of the next commit is unknown: store_lost() */
};

/* Its options have no path and no threads. The caller owns it and ends it with store_close. */
struct store *store_memory_new(const struct store_options *options);

/* The next batch of writes meets the fault, once. */
void store_memory_fail(struct store *store, enum memory_fault fault);
/* The n-th call (from 1) that an operation makes from now on fails, once; 0: none. */
void store_memory_fail_call(struct store *store, int nth);
/* Whether it has come to that. */
bool store_memory_has_failed(struct store *store);
/* Take no operation, as if the queue were full. */
void store_memory_set_full(struct store *store, bool full);
/* Run each operation once only, from now on: those of a test that may not run again. */
void store_memory_run_once(struct store *store);
/* Run no writes, until this is taken back: they gather, and are one batch then. */
void store_memory_hold_writes(struct store *store, bool hold);
/* From now on it is as if another daemon had opened it. */
void store_memory_set_opening(struct store *store, int64_t opening);

#endif
