/* SPDX-License-Identifier: Apache-2.0 */
/* Hands calls on to the transaction behind the interface. No logic of its own. */
#include "store/txn.h"

#include "store/store_impl.h"

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

enum stk_error txn_flush(struct store_txn *txn)
{
    return txn->impl->flush(txn);
}
