/* SPDX-License-Identifier: Apache-2.0 */
/* Call the store's SQL, or refuse where the store has none. */
#include "store/sql.h"

#include <stdio.h>

#include "store/txn.h"

static enum stk_error no_sql(char why[SQL_WHY_MAX])
{
    snprintf(why, SQL_WHY_MAX, "this store has no SQL");
    return STK_ERR;
}

enum stk_error txn_sql(struct store_txn *txn, struct sql_call *call)
{
    return txn->impl->sql != NULL ? txn->impl->sql(txn, call) : no_sql(call->why);
}

enum stk_error txn_guard_create(struct store_txn *txn, const struct table_guard *guard,
                                char why[SQL_WHY_MAX])
{
    return txn->impl->guard_create != NULL ? txn->impl->guard_create(txn, guard, why) : no_sql(why);
}

enum stk_error txn_guard_drop(struct store_txn *txn, struct bytes table, char why[SQL_WHY_MAX])
{
    return txn->impl->guard_drop != NULL ? txn->impl->guard_drop(txn, table, why) : no_sql(why);
}

enum stk_error txn_guards(struct store_txn *txn, txn_each_guard each, void *context)
{
    return txn->impl->guards != NULL ? txn->impl->guards(txn, each, context) : STK_OK;
}
