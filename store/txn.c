/* SPDX-License-Identifier: Apache-2.0 */
/* Hands calls on to the transaction behind the interface. No logic of its own. */
#include "store/txn.h"

#include <stdio.h>

#include "store/store_impl.h"

int64_t txn_now_ms(struct store_txn *txn)
{
    return txn->impl->now_ms(txn);
}

enum stk_error txn_mark(struct store_txn *txn)
{
    return txn->impl->mark(txn);
}

enum stk_error txn_mark_keep(struct store_txn *txn)
{
    return txn->impl->mark_keep(txn);
}

enum stk_error txn_mark_undo(struct store_txn *txn)
{
    return txn->impl->mark_undo(txn);
}

enum stk_error txn_resource(struct store_txn *txn, struct bytes name, struct resource *resource)
{
    return txn->impl->resource(txn, name, resource);
}

enum stk_error txn_resource_make(struct store_txn *txn, struct bytes name,
                                 struct resource *resource)
{
    return txn->impl->resource_make(txn, name, resource);
}

enum stk_error txn_fence_put(struct store_txn *txn, const struct resource *resource,
                             const struct lease *lease)
{
    return txn->impl->fence_put(txn, resource, lease);
}

enum stk_error txn_lease(struct store_txn *txn, const struct resource *resource,
                         struct lease *lease)
{
    return txn->impl->lease(txn, resource, lease);
}

enum stk_error txn_each_live(struct store_txn *txn, int64_t after, txn_each_name each,
                             void *context)
{
    return txn->impl->each_live(txn, after, each, context);
}

enum stk_error txn_each_key(struct store_txn *txn, int64_t after, txn_each_name each, void *context)
{
    return txn->impl->each_key(txn, after, each, context);
}

enum stk_error txn_count_keys(struct store_txn *txn, int64_t *count)
{
    return txn->impl->count_keys(txn, count);
}

enum stk_error txn_count_live(struct store_txn *txn, int64_t *count)
{
    return txn->impl->count_live(txn, count);
}

enum stk_error txn_string(struct store_txn *txn, const struct resource *resource, bool *found,
                          struct bytes *value)
{
    return txn->impl->string(txn, resource, found, value);
}

enum stk_error txn_string_of(struct store_txn *txn, struct bytes name, bool *found,
                             struct bytes *value)
{
    *found = false;
    return txn->impl->string_of == NULL ? STK_OK : txn->impl->string_of(txn, name, found, value);
}

enum stk_error txn_string_put(struct store_txn *txn, struct resource *resource, struct bytes value)
{
    return txn->impl->string_put(txn, resource, value);
}

enum stk_error txn_field(struct store_txn *txn, const struct resource *resource, struct bytes field,
                         bool *found, struct bytes *value)
{
    return txn->impl->field(txn, resource, field, found, value);
}

enum stk_error txn_field_put(struct store_txn *txn, struct resource *resource, struct bytes field,
                             struct bytes value)
{
    return txn->impl->field_put(txn, resource, field, value);
}

enum stk_error txn_field_remove(struct store_txn *txn, struct resource *resource,
                                struct bytes field, bool *found)
{
    return txn->impl->field_remove(txn, resource, field, found);
}

enum stk_error txn_each_field_from(struct store_txn *txn, const struct resource *resource,
                                   struct bytes from, txn_each_field each, void *context)
{
    return txn->impl->each_field_from(txn, resource, from, each, context);
}

enum stk_error txn_count_fields(struct store_txn *txn, const struct resource *resource,
                                int64_t *count)
{
    return txn->impl->count_fields(txn, resource, count);
}

enum stk_error txn_value_clear(struct store_txn *txn, struct resource *resource)
{
    return txn->impl->value_clear(txn, resource);
}

enum stk_error txn_receipts_due(struct store_txn *txn, int64_t before_ms, bool *due)
{
    return txn->impl->receipts_due(txn, before_ms, due);
}

enum stk_error txn_resources_due(struct store_txn *txn, int64_t before_ms, int64_t live_before_ms,
                                 size_t max, int64_t *after, bool *due, bool *more)
{
    return txn->impl->resources_due(txn, before_ms, live_before_ms, max, after, due, more);
}

enum stk_error txn_flush(struct store_txn *txn)
{
    return txn->impl->flush(txn);
}

enum stk_error txn_receipt(struct store_txn *txn, const struct resource *resource, struct bytes id,
                           bool *found, struct receipt *receipt)
{
    return txn->impl->receipt(txn, resource, id, found, receipt);
}

enum stk_error txn_receipt_put(struct store_txn *txn, const struct resource *resource,
                               struct bytes id, const struct receipt *receipt)
{
    return txn->impl->receipt_put(txn, resource, id, receipt);
}

enum stk_error txn_receipt_remove(struct store_txn *txn, const struct resource *resource,
                                  struct bytes id)
{
    return txn->impl->receipt_remove(txn, resource, id);
}

enum stk_error txn_sweep_receipts(struct store_txn *txn, int64_t before_ms, size_t max,
                                  size_t *removed, bool *more)
{
    return txn->impl->sweep_receipts(txn, before_ms, max, removed, more);
}

enum stk_error txn_sweep_resources(struct store_txn *txn, int64_t before_ms, int64_t live_before_ms,
                                   size_t max, int64_t *after, size_t *removed, bool *more)
{
    return txn->impl->sweep_resources(txn, before_ms, live_before_ms, max, after, removed, more);
}

/* SQL. */

static enum stk_error no_sql(char why[SQL_WHY_MAX])
{
    snprintf(why, SQL_WHY_MAX, "this store has no SQL");
    return STK_ERR;
}

enum stk_error txn_sql(struct store_txn *txn, struct sql_call *call)
{
    return txn->impl->sql != NULL ? txn->impl->sql(txn, call) : no_sql(call->why);
}

void txn_present(struct store_txn *txn, const struct claim *claims, size_t count)
{
    if (txn->impl->present != NULL)
        txn->impl->present(txn, claims, count);
}

enum stk_error txn_guard_create(struct store_txn *txn, struct bytes table, struct bytes column,
                                struct bytes prefix, char why[SQL_WHY_MAX])
{
    return txn->impl->guard_create != NULL
               ? txn->impl->guard_create(txn, table, column, prefix, why)
               : no_sql(why);
}

enum stk_error txn_guard_drop(struct store_txn *txn, struct bytes table, char why[SQL_WHY_MAX])
{
    return txn->impl->guard_drop != NULL ? txn->impl->guard_drop(txn, table, why) : no_sql(why);
}

enum stk_error txn_guards(struct store_txn *txn, txn_each_guard each, void *context)
{
    return txn->impl->guards != NULL ? txn->impl->guards(txn, each, context) : STK_OK;
}
