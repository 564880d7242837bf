/* SPDX-License-Identifier: Apache-2.0 */
/* The users' SQL on a connection of the store, and what keeps it in its place:
 *
 *   sql.c             one statement, from its text to its rows, and statements kept for later
 *   sql_authorizer.c  what a statement may touch
 *   sql_functions.c   functions of SQLite's that could run for hours
 *   sql_memory.c      how much memory one statement may take */
#ifndef STOCKADE_STORE_SQLITE_SQL_H
#define STOCKADE_STORE_SQLITE_SQL_H

#include "store/sql.h"
#include "store/sqlite/transaction.h"

struct sql;

/* Sets the transaction's connection up for users' SQL. The caller owns the result and frees it
 * before it closes the connection. NULL: SQLite has no memory. */
struct sql *sql_new(struct transaction *txn);
void sql_free(struct sql *sql);
/* The primitive txn_sql, with its contract. */
enum stk_error sql_run(struct store_txn *txn, struct sql_call *call);

#endif
