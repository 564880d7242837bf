/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives that go past the working set, straight to the tables: lists, counts, clean-up,
 * FLUSHALL, guards. In a batch that changes things, an operation that calls one stops with
 * PG_NEEDS_OWN. In a transaction of its own, its changes in the set are written first. */
#ifndef STOCKADE_STORE_POSTGRESQL_TABLES_H
#define STOCKADE_STORE_POSTGRESQL_TABLES_H

#include "store/postgresql/statements.h"
#include "store/postgresql/transaction.h"

/* Get ready to go past the set: begin the transaction and write the changes where need be. False:
 * the operation has stopped. */
bool pg_may_use_tables(struct pg_txn *txn);
enum stk_error pg_each_live(struct store_txn *txn, int64_t after, txn_each_name each,
                            void *context);
enum stk_error pg_each_key(struct store_txn *txn, int64_t after, txn_each_name each, void *context);
enum stk_error pg_count_keys(struct store_txn *txn, int64_t *count);
enum stk_error pg_count_live(struct store_txn *txn, int64_t *count);
/* Call `each` for the fields of the resource with this id, from `from` on, in the order of names.
 */
enum stk_error pg_each_field(struct pg_txn *txn, int64_t id, struct bytes from, txn_each_field each,
                             void *context);
enum stk_error pg_each_receipt(struct store_txn *txn, const struct resource *resource,
                               txn_each_receipt each, void *context);
enum stk_error pg_sweep_receipts(struct store_txn *txn, int64_t before_ms, size_t max,
                                 size_t *removed, bool *more);
enum stk_error pg_sweep_resources(struct store_txn *txn, int64_t before_ms, int64_t live_before_ms,
                                  size_t max, int64_t *after, size_t *removed, bool *more);
enum stk_error pg_receipts_due(struct store_txn *txn, int64_t before_ms, bool *due);
enum stk_error pg_resources_due(struct store_txn *txn, int64_t before_ms, int64_t live_before_ms,
                                size_t max, int64_t *after, bool *due, bool *more);
enum stk_error pg_flush(struct store_txn *txn, size_t max, struct flush_walk *walk);
enum stk_error pg_audit_head(struct store_txn *txn, struct bytes chain, int64_t lines,
                             struct bytes hash, bool *restored);
/* Guards; schema/3_guards.sql does the work. */
enum stk_error pg_guard_create(struct store_txn *txn, const struct table_guard *guard,
                               char why[SQL_WHY_MAX]);
enum stk_error pg_guard_drop(struct store_txn *txn, struct bytes table, char why[SQL_WHY_MAX]);
enum stk_error pg_guards(struct store_txn *txn, txn_each_guard each, void *context);
/* Run a savepoint's statement, in an operation with a transaction of its own. */
enum stk_error pg_savepoint(struct pg_txn *txn, enum pg_statement statement);

#endif
