/* SPDX-License-Identifier: Apache-2.0 */
/* The memory store's way to fail, for simulators and tests. */
#ifndef STOCKADE_TESTS_TWINS_MEMORY_STORE_H
#define STOCKADE_TESTS_TWINS_MEMORY_STORE_H

#include "store/store.h"

enum memory_fault {
    MEMORY_COMMIT_FAILS, /* the next commit fails cleanly: its operations get STK_STORE */
    MEMORY_COMMIT_LOST,  /* the outcome of the next commit is unknown: store_lost() */
};

/* `store` comes from store_memory_new. The next batch of writes meets the fault, once. */
void store_memory_fail(struct store *store, enum memory_fault fault);

#endif
