/* SPDX-License-Identifier: Apache-2.0 */
/* The memory store's ways to fail, for tests. `store` comes from store_memory_new. */
#ifndef STOCKADE_TESTS_TWINS_MEMORY_STORE_H
#define STOCKADE_TESTS_TWINS_MEMORY_STORE_H

#include "store/store.h"

enum memory_fault {
    MEMORY_FINE,
    MEMORY_COMMIT_FAILS, /* the next commit fails cleanly: its operations get STK_STORE */
    MEMORY_COMMIT_LOST,  /* the outcome of the next commit is unknown: store_lost() */
};

/* The next batch of writes meets the fault, once. */
void store_memory_fail(struct store *store, enum memory_fault fault);
/* The n-th call (from 1) that an operation makes from now on fails, once; 0: none. */
void store_memory_fail_call(struct store *store, int nth);
/* Whether it has come to that. */
bool store_memory_has_failed(struct store *store);
/* Take no operation, as if the queue were full. */
void store_memory_set_full(struct store *store, bool full);
/* From now on it is as if another daemon had opened it. */
void store_memory_set_session(struct store *store, int64_t session);

#endif
