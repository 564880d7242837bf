/* SPDX-License-Identifier: Apache-2.0 */
/* Receipts, from the write that leaves one to its removal: what remains of a write that carried an
 * ID, keyed by resource and ID.
 *
 * A receipt is needed as long as its token lives, and a while longer. When a token that has
 * receipts ends, that is logged, once, in the order in which tokens end (stockade_retired): so old
 * receipts are found without searching for them. receipts_sweep works the log off, a little at a
 * time. Before the first receipt of a token goes, its resource says so (receipts_gone), so an ID
 * without a receipt never passes for "not applied" where there may have been one. Ages go by the
 * store's time (store/clock.h), which no jump of a clock makes larger. */
#ifndef STOCKADE_STORE_SQLITE_RECEIPTS_H
#define STOCKADE_STORE_SQLITE_RECEIPTS_H

#include "store/sqlite/transaction.h"

/* The primitives of txn.h that end in the same words, with their contracts. */
enum stk_error receipts_find(struct store_txn *txn, const struct resource *resource,
                             struct bytes id, bool *found, struct receipt *receipt);
enum stk_error receipts_put(struct store_txn *txn, const struct resource *resource, struct bytes id,
                            const struct receipt *receipt);
enum stk_error receipts_remove(struct store_txn *txn, const struct resource *resource,
                               struct bytes id);
enum stk_error receipts_sweep(struct store_txn *txn, int64_t before_ms, size_t max, size_t *removed,
                              bool *more);
enum stk_error receipts_due(struct store_txn *txn, int64_t before_ms, bool *due);

/* Logs the end of a token that has receipts. */
enum stk_error receipts_log(struct transaction *txn, int64_t id, int64_t token);
/* Logs the end of the row's live token where it has receipts: `fence` is about to replace it. */
enum stk_error receipts_retire(struct transaction *txn, int64_t id, const struct fence *fence);
/* Logs the end of every live token that has receipts. */
enum stk_error receipts_retire_all(struct transaction *txn);

#endif
