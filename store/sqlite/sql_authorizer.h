/* SPDX-License-Identifier: Apache-2.0 */
/* What a user's statement may touch. SQLite calls the authorizer for each table, column, function
 * and object when it compiles a statement, also for those inside views and triggers, and says which
 * of these it is inside of (`inside`: the innermost). It gives the name of a WITH query there just
 * the same, so a name alone proves nothing: what may be read inside one of Stockade's own views is
 * listed to the column. */
#ifndef STOCKADE_STORE_SQLITE_SQL_AUTHORIZER_H
#define STOCKADE_STORE_SQLITE_SQL_AUTHORIZER_H

#include "store/sql.h"
#include "store/sqlite/transaction.h"

#define SQL_NOT_DDL "DDL needs no token but an administrator: send it as a bare SQL"

struct sql_verdict {
    const struct transaction *txn; /* whose guards count */

    /* The call under way. */
    bool active; /* a user's statement is compiled or run; else Stockade's own, which may do all */
    enum sql_right right;
    enum stk_error refusal; /* the first one, which counts */
    char *why;              /* explains it; SQL_WHY_MAX bytes */
};

/* Refuses the call, unless it is refused already. Returns the refusal that counts. */
enum stk_error sql_refuse(struct sql_verdict *verdict, enum stk_error error, const char *format,
                          ...) __attribute__((format(printf, 3, 4)));
/* The callback for sqlite3_set_authorizer; the context is a struct sql_verdict. */
int sql_authorize(void *context, int action, const char *a, const char *b, const char *file,
                  const char *inside);

#endif
