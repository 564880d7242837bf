/* SPDX-License-Identifier: Apache-2.0 */
/* The trips that begin a transaction and fill its working set. */
#ifndef STOCKADE_STORE_POSTGRESQL_LOAD_H
#define STOCKADE_STORE_POSTGRESQL_LOAD_H

#include "store/postgresql/transaction.h"

/* Load what is wanted, and begin the transaction where it has not begun. False: pg->why. */
bool pg_load(struct pg_txn *txn);
/* The same for reads that are likely to need no more: the transaction is over after. */
bool pg_load_all(struct pg_txn *txn);
/* Begin the transaction with the lock that keeps all others from the floor: to raise it. */
bool pg_begin_floor(struct pg_txn *txn);

#endif
