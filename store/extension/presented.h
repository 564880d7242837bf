/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that a program has presented in its transaction under way, on one connection.
 *
 * They must end with the transaction: at COMMIT, at ROLLBACK, and at ROLLBACK TO as far as it goes.
 * SQLite tells a virtual table of these, and unlike its hooks, which a connection has once and the
 * program may need, that takes nothing away from anybody: so the set is the content of the virtual
 * table `stockade_presented` (presented_table.c). */
#ifndef STOCKADE_STORE_EXTENSION_PRESENTED_H
#define STOCKADE_STORE_EXTENSION_PRESENTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "store/sqlite/guard_function.h"

struct presented_item {
    int64_t token;
    struct bytes file, resource; /* in the same allocation */
};

struct presented_mark; /* a savepoint, and how much was presented at it */

struct presented {
    size_t owners; /* SQLite keeps it for each function and the table, and tells us of each end */
    struct guard_witness witness;
    sqlite3 *db;
    struct presented_item **items;
    size_t count, room;
    struct presented_mark *marks; /* in the order of their savepoints */
    size_t marks_count, marks_room;
};

/* Owned once; NULL: out of memory. */
struct presented *presented_new(sqlite3 *db);
void presented_share(struct presented *presented); /* one more owner */
/* One owner less, the last of which frees it. */
void presented_release(void *presented);

/* Copies. SQLITE_OK or SQLITE_NOMEM. */
int presented_add(struct presented *presented, struct bytes file, struct bytes resource,
                  int64_t token);
bool presented_has(const struct presented *presented, struct bytes file, struct bytes resource,
                   int64_t token);
void presented_clear(struct presented *presented); /* the transaction has ended, or begins */
/* Savepoints by SQLite's numbers, as in sqlite3_module. SQLITE_OK or SQLITE_NOMEM. */
int presented_savepoint(struct presented *presented, int savepoint);
void presented_release_to(struct presented *presented, int savepoint);
void presented_rollback_to(struct presented *presented, int savepoint);

/* presented_table.c: makes the table known to the connection. SQLITE_OK or SQLite's code. */
int presented_table_add(struct presented *presented);

#endif
