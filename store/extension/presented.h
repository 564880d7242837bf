/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that a program has presented in its transaction under way, on one connection.
 *
 * They must end with the transaction: at COMMIT, at ROLLBACK, and at ROLLBACK TO as far as it goes.
 * SQLite tells a virtual table of these. Unlike its hooks, which a connection has once and the
 * program may need, a table takes nothing away from anybody: so the tokens are the content of the
 * virtual table `stockade_presented`. stockade_present() writes it through SQL, programs may read
 * it. */
#ifndef STOCKADE_STORE_EXTENSION_PRESENTED_H
#define STOCKADE_STORE_EXTENSION_PRESENTED_H

#include "store/sqlite/guard_function.h"

struct presented;

/* Make an empty one, which the caller owns. SQLite owns it, too, once for each function and for the
 * table. The last owner's release frees it. NULL: out of memory. */
struct presented *presented_new(sqlite3 *db);
void presented_share(struct presented *presented); /* one more owner */
void presented_release(void *presented);           /* one owner less */
/* Make the table known to the connection. SQLITE_OK or SQLite's code. */
int presented_table_add(struct presented *presented);
/* The connection. */
sqlite3 *presented_db(const struct presented *presented);
/* What guard_function_add needs; it lives as long as its owners. */
struct guard_witness *presented_witness(struct presented *presented);

#endif
