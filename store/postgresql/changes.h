/* SPDX-License-Identifier: Apache-2.0 */
/* What operations have changed in the working set, as statements that write it. */
#ifndef STOCKADE_STORE_POSTGRESQL_CHANGES_H
#define STOCKADE_STORE_POSTGRESQL_CHANGES_H

#include "store/postgresql/transaction.h"

/* Queue all that has changed. */
void pg_send_changes(struct pg_txn *txn);
/* Write it now, within the transaction. False: pg->why. */
bool pg_write(struct pg_txn *txn);

#endif
