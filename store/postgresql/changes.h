/* SPDX-License-Identifier: Apache-2.0 */
/* The statements that write what operations have changed in the working set. */
#ifndef STOCKADE_STORE_POSTGRESQL_CHANGES_H
#define STOCKADE_STORE_POSTGRESQL_CHANGES_H

#include "store/postgresql/transaction.h"

/* Queue the statements. */
void pg_send_changes(struct pg_txn *txn);
/* Write the changes now, within the transaction. False: pg->why says why not. */
bool pg_write(struct pg_txn *txn);

#endif
