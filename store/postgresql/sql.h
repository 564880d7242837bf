/* SPDX-License-Identifier: Apache-2.0 */
/* Users' SQL, in an operation that has a transaction of its own. */
#ifndef STOCKADE_STORE_POSTGRESQL_SQL_H
#define STOCKADE_STORE_POSTGRESQL_SQL_H

#include "store/postgresql/transaction.h"

/* The primitives txn_sql and txn_present: see store/sql.h. */
enum stk_error pg_sql(struct store_txn *txn, struct sql_call *call);
void pg_present(struct store_txn *txn, const struct claim *claims, size_t count);
/* To be called between two transactions. Where an operation has found that SQL is not ready, make
 * it ready, or note what is missing. */
void pg_sql_make_ready(struct pg_txn *txn);

#endif
