/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives of txn.h over Stockade's own tables. Each function is the primitive that its name
 * ends in, with that contract; operation.c puts them into the store's table of functions. What is
 * worth knowing about each table stands at the top of its file. */
#ifndef STOCKADE_STORE_SQLITE_ROWS_H
#define STOCKADE_STORE_SQLITE_ROWS_H

#include "store/sqlite/transaction.h"

/* resources.c */

enum stk_error resources_find(struct store_txn *txn, struct bytes name, struct resource *resource);
enum stk_error resources_make(struct store_txn *txn, struct bytes name, struct resource *resource);
enum stk_error resources_fence_put(struct store_txn *txn, const struct resource *resource,
                                   const struct lease *lease);
enum stk_error resources_fence_make(struct store_txn *txn, struct bytes name,
                                    struct resource *resource, const struct lease *lease);
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

/* values.c */

enum stk_error values_string(struct store_txn *txn, const struct resource *resource, bool *found,
                             struct bytes *value);
enum stk_error values_string_of(struct store_txn *txn, struct bytes name, bool *found,
                                struct bytes *value);
enum stk_error values_string_put(struct store_txn *txn, struct resource *resource,
                                 struct bytes value);
enum stk_error values_field(struct store_txn *txn, const struct resource *resource,
                            struct bytes field, bool *found, struct bytes *value);
enum stk_error values_field_put(struct store_txn *txn, struct resource *resource,
                                struct bytes field, struct bytes value);
enum stk_error values_field_remove(struct store_txn *txn, struct resource *resource,
                                   struct bytes field, bool *found);
enum stk_error values_each_field(struct store_txn *txn, const struct resource *resource,
                                 struct bytes from, txn_each_field each, void *context);
enum stk_error values_count_fields(struct store_txn *txn, const struct resource *resource,
                                   int64_t *count);
enum stk_error values_clear(struct store_txn *txn, struct resource *resource);

/* receipts.c */

enum stk_error receipts_find(struct store_txn *txn, const struct resource *resource,
                             struct bytes id, bool *found, struct receipt *receipt);
enum stk_error receipts_put(struct store_txn *txn, const struct resource *resource, struct bytes id,
                            const struct receipt *receipt);
enum stk_error receipts_remove(struct store_txn *txn, const struct resource *resource,
                               struct bytes id);
enum stk_error receipts_each(struct store_txn *txn, const struct resource *resource,
                             txn_each_receipt each, void *context);
enum stk_error receipts_sweep(struct store_txn *txn, int64_t before_ms, size_t max, size_t *removed,
                              bool *more);
enum stk_error receipts_due(struct store_txn *txn, int64_t before_ms, bool *due);

/* Log the end of a token that has receipts. */
enum stk_error receipts_log(struct transaction *txn, int64_t id, int64_t token);
/* Log the end of the row's live token where it has receipts: `fence` is about to replace `old`. */
enum stk_error receipts_retire(struct transaction *txn, int64_t id, const struct fence *old,
                               const struct fence *fence);
/* Log the end of every live token that has receipts, of the resources between two ids. */
enum stk_error receipts_retire_all(struct transaction *txn, int64_t after, int64_t until);

/* heads.c */

enum stk_error heads_keep(struct store_txn *txn, struct bytes chain, int64_t lines,
                          struct bytes hash, bool *restored);
/* Copy the heads of `store`, which a restore must not lose, into `db`, unless `db` has a later one.
 * Within a transaction of `db`. */
bool heads_carry_over(sqlite3 *db, sqlite3 *store);

#endif
