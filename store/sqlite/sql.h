/* SPDX-License-Identifier: Apache-2.0 */
/* The users' SQL on a connection of the store, and what keeps it within bounds:
 *
 *   sql.c             one statement, from its text to its rows; statements kept for later
 *   sql_authorizer.c  what a statement may touch
 *   sql_functions.c   stand-ins for functions of SQLite's that could run for hours
 *   sql_memory.c      how much memory one statement may take (sql_memory.h) */
#ifndef STOCKADE_STORE_SQLITE_SQL_H
#define STOCKADE_STORE_SQLITE_SQL_H

#include "store/sql.h"
#include "store/sqlite/transaction.h"

struct sql;

/* Set the transaction's connection up for users' SQL. The caller owns the result and frees it
 * before it closes the connection. NULL: SQLite has no memory. */
struct sql *sql_new(struct transaction *txn);
void sql_free(struct sql *sql);
/* The primitive txn_sql, with its contract. */
enum stk_error sql_run(struct store_txn *txn, struct sql_call *call);

/* sql_authorizer.c */

#define SQL_GUARD_NAME "stockade_guard_" /* begins the names of a guard's triggers */

struct sql_verdict {
    const struct transaction *txn; /* whose guards count */

    /* The call under way. */
    bool active; /* a user's statement is compiled or run; else Stockade's own, which may do all */
    enum sql_right right;
    bool own_hidden;        /* as struct sql_call has it */
    bool names_guard;       /* SQL_GUARD_NAME is in the statement's text */
    enum stk_error refusal; /* the first one, which counts */
    char *why;              /* explains it; SQL_WHY_MAX bytes */
};

/* Refuse the call, unless it is refused already. Return the refusal that counts. */
enum stk_error sql_refuse(struct sql_verdict *verdict, enum stk_error error, const char *format,
                          ...) __attribute__((format(printf, 3, 4)));
/* The callback for sqlite3_set_authorizer; the context is a struct sql_verdict. */
int sql_authorize(void *context, int action, const char *a, const char *b, const char *file,
                  const char *inside);

/* sql_functions.c */

/* Replace some functions of SQLite's. SQLITE_OK or its code. */
int sql_functions_add(sqlite3 *db);

#endif
