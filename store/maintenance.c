/* SPDX-License-Identifier: Apache-2.0 */
/* Passes each call on to the kind of store that the URI names. */
#include "store/maintenance.h"

#include "store/kinds.h"

bool store_backup(struct backup_call *call, char *why, size_t why_size)
{
    const struct store_kind *kind = store_kind_find(call->store, &call->store, why, why_size);

    return kind != NULL && kind->backup(call, why, why_size);
}

bool store_restore(struct restore_call *call, char *why, size_t why_size)
{
    const struct store_kind *kind = store_kind_find(call->store, &call->store, why, why_size);

    return kind != NULL && kind->restore(call, why, why_size);
}

bool store_check(struct check_call *call, char *why, size_t why_size)
{
    const struct store_kind *kind = store_kind_find(call->store, &call->store, why, why_size);

    return kind != NULL && kind->check(call, why, why_size);
}

bool store_audit_heads(const char *uri, struct store_audit_head **heads, size_t *count, char *why,
                       size_t why_size)
{
    const char *name;
    const struct store_kind *kind = store_kind_find(uri, &name, why, why_size);

    *heads = NULL;
    *count = 0;
    return kind != NULL && kind->heads(name, heads, count, why, why_size);
}
