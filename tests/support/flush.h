/* SPDX-License-Identifier: Apache-2.0 */
/* A flush in one transaction, in steps of a few rows. */
#ifndef STOCKADE_TESTS_FLUSH_H
#define STOCKADE_TESTS_FLUSH_H

#include "store/txn.h"

static inline enum stk_error flush_in_steps(struct store_txn *txn)
{
    struct flush_walk walk = {.more = true};
    enum stk_error error = STK_OK;

    while (error == STK_OK && walk.more)
        error = txn_flush(txn, 3, &walk);
    return error;
}

#endif
