/* SPDX-License-Identifier: Apache-2.0 */
/* The trips that begin a transaction and fill its working set. */
#ifndef STOCKADE_STORE_POSTGRESQL_LOAD_H
#define STOCKADE_STORE_POSTGRESQL_LOAD_H

#include "store/postgresql/transaction.h"

/* Load all of the set that is wanted; begin the transaction where it has not begun. False: pg->why
 * says why not. */
bool pg_load(struct pg_txn *txn);
/* Load it, and end the transaction in the same trip: for reads that probably need no more. */
bool pg_load_all(struct pg_txn *txn);
/* Begin the transaction with the lock that it takes to raise the floor: nobody else can change the
 * store then. */
bool pg_begin_floor(struct pg_txn *txn);

#endif
