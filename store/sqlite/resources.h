/* SPDX-License-Identifier: Apache-2.0 */
/* The table of resources: names, fences and leases. Each function is the primitive of txn.h that
 * ends in the same words, with its contract.
 *
 * Every write goes through the cache as well, so that the cache never differs from what the
 * transaction sees.
 *
 * A resource that nobody has used for long is removed, a few rows at a time (resources_sweep).
 * Before a row goes, the store-wide floor rises to its token, so the resource's next token is
 * larger (P2). An entry of the log of retired tokens (receipts.c) that still names the row finds no
 * receipts. */
#ifndef STOCKADE_STORE_SQLITE_RESOURCES_H
#define STOCKADE_STORE_SQLITE_RESOURCES_H

#include "store/txn.h"

enum stk_error resources_find(struct store_txn *txn, struct bytes name, struct resource *resource);
enum stk_error resources_make(struct store_txn *txn, struct bytes name, struct resource *resource);
enum stk_error resources_fence_put(struct store_txn *txn, const struct resource *resource,
                                   const struct lease *lease);
enum stk_error resources_lease(struct store_txn *txn, const struct resource *resource,
                               struct lease *lease);
enum stk_error resources_each_live(struct store_txn *txn, int64_t after, txn_each_name each,
                                   void *context);
enum stk_error resources_each_key(struct store_txn *txn, int64_t after, txn_each_name each,
                                  void *context);
enum stk_error resources_count_keys(struct store_txn *txn, int64_t *count);
enum stk_error resources_count_live(struct store_txn *txn, int64_t *count);
enum stk_error resources_sweep(struct store_txn *txn, int64_t before_ms, int64_t live_before_ms,
                               size_t max, int64_t *after, size_t *removed, bool *more);
enum stk_error resources_due(struct store_txn *txn, int64_t before_ms, int64_t live_before_ms,
                             size_t max, int64_t *after, bool *due, bool *more);

#endif
