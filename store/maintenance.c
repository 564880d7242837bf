/* SPDX-License-Identifier: Apache-2.0 */
/* Passes each call on to the kind of store that the URI names. */
#include "store/maintenance.h"

#include "fence/base/uri.h"
#include "store/open.h"

/* Return what the kind of store takes: a path, or the URI. NULL: it is no store's; `why` says so.
 */
static const char *name_of(const char *uri, bool *postgresql, char *why, size_t why_size)
{
    if (!store_uri_is_valid(uri, why, why_size))
        return NULL;
    *postgresql = store_uri_is_postgresql(uri);
    return *postgresql ? uri : uri_after(uri, "sqlite:");
}

bool store_backup(struct backup_call *call, char *why, size_t why_size)
{
    bool postgresql;

    call->store = name_of(call->store, &postgresql, why, why_size);
    return call->store != NULL && (postgresql ? store_postgresql_backup(call, why, why_size)
                                              : store_sqlite_backup(call, why, why_size));
}

bool store_restore(struct restore_call *call, char *why, size_t why_size)
{
    bool postgresql;

    call->store = name_of(call->store, &postgresql, why, why_size);
    return call->store != NULL && (postgresql ? store_postgresql_restore(call, why, why_size)
                                              : store_sqlite_restore(call, why, why_size));
}

bool store_check(struct check_call *call, char *why, size_t why_size)
{
    bool postgresql;

    call->store = name_of(call->store, &postgresql, why, why_size);
    return call->store != NULL && (postgresql ? store_postgresql_check(call, why, why_size)
                                              : store_sqlite_check(call, why, why_size));
}

bool store_audit_heads(const char *uri, struct store_audit_head **heads, size_t *count, char *why,
                       size_t why_size)
{
    bool postgresql;
    const char *name = name_of(uri, &postgresql, why, why_size);

    *heads = NULL;
    *count = 0;
    return name != NULL && (postgresql ? store_postgresql_heads(name, heads, count, why, why_size)
                                       : store_sqlite_heads(name, heads, count, why, why_size));
}
