/* SPDX-License-Identifier: Apache-2.0 */
/* What an operation may call (store/txn.h), on the working set of its transaction. */
#ifndef STOCKADE_STORE_POSTGRESQL_OPERATION_H
#define STOCKADE_STORE_POSTGRESQL_OPERATION_H

#include "store/postgresql/transaction.h"

/* The primitives, and those that go past the set (tables.c). */
void pg_operations_init(struct pg_txn *txn);
/* Run an operation. What it returned is in op->error, whether it could go on in txn->stop. What it
 * did stays, even where it failed: pg_operation_undo. */
void pg_operation_run(struct pg_txn *txn, struct store_op *op, size_t number);

#endif
