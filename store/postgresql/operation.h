/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives of store/txn.h, done on the working set of a transaction. */
#ifndef STOCKADE_STORE_POSTGRESQL_OPERATION_H
#define STOCKADE_STORE_POSTGRESQL_OPERATION_H

#include "store/postgresql/transaction.h"

/* Give the transaction its primitives, also those that go past the set (tables.c). */
void pg_operations_init(struct pg_txn *txn);
/* Run an operation, the `number`th of its batch. Its result is in op->error, and whether it could
 * go on in txn->stop. Its changes stay in the set, even where it failed: the caller undoes them. */
void pg_operation_run(struct pg_txn *txn, struct store_op *op, size_t number);

#endif
