/* SPDX-License-Identifier: Apache-2.0 */
/* What an operation may do inside the store's transaction: the table behind txn.h and sql.h, put
 * together from resources.c, values.c, receipts.c, guards.c and sql.c; and what lasts as long as
 * one operation does: its savepoint, its claims, the time that its SQL has taken. */
#ifndef STOCKADE_STORE_SQLITE_OPERATION_H
#define STOCKADE_STORE_SQLITE_OPERATION_H

#include "store/sqlite/transaction.h"

/* Prepare a connection for operations. `db` and `clock` are borrowed, and so is `cache`, which is
 * NULL where nothing is written. False: SQLite has no memory; free it all the same. */
bool operations_init(struct transaction *txn, sqlite3 *db, struct cache *cache,
                     struct store_clock *clock);
void operations_free(struct transaction *txn);
/* Run one operation in the transaction, which has begun. What it returned is in op->error; whether
 * SQLite failed it, in txn->failed. */
void operation_run(struct transaction *txn, struct store_op *op);

#endif
