/* SPDX-License-Identifier: Apache-2.0 */
/* The table of resources: names, fences and leases. Every write goes through the cache as well, so
 * that the cache never differs from what the transaction sees.
 *
 * A resource that nobody has used for long is removed, a few rows at a time (resources_sweep).
 * Before a row goes, the store-wide floor rises to its token, so that the resource's next token is
 * larger (P2). If the log of retired tokens (receipts.c) still names the row then, it finds no
 * receipts there. */
#include "fence/base/check.h"
#include "store/sqlite/rows.h"

/* A fence stands at its own token or at the store-wide floor, whichever is higher. */
static void set_floor(const struct transaction *txn, struct fence *fence)
{
    fence->floor = txn->floor > fence->token ? txn->floor : fence->token;
}

/* Look the row up by name, past the cache; id 0: there is none. The cache learns either. */
static enum stk_error fetch(struct transaction *txn, struct bytes name, struct resource *resource)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_FIND);
    enum stk_error error;

    *resource = (struct resource){.id = 0};
    if (stmt == NULL)
        return STK_STORE;
    transaction_bind(stmt, 1, name);
    if (!transaction_row(txn, stmt, &error)) {
        if (error == STK_OK && txn->cache != NULL)
            cache_absent_put(txn->cache, name);
        return error;
    }
    int64_t token = sqlite3_column_int64(stmt, 1), state = sqlite3_column_int64(stmt, 2),
            type = sqlite3_column_int64(stmt, 3);
    resource->id = sqlite3_column_int64(stmt, 0);
    sqlite3_reset(stmt);
    if (resource->id <= 0 || token < 0 || token > TOKEN_MAX || state < FENCE_NONE ||
        state > FENCE_REVOKED || type < VALUE_NONE || type > VALUE_HASH)
        return transaction_implausible(txn);
    resource->fence.token = token;
    resource->fence.state = (enum fence_state)state;
    resource->type = (enum value_type)type;
    if (txn->cache != NULL)
        cache_put(txn->cache, name, resource);
    else if (txn->names != NULL && resource->type == VALUE_STRING)
        cache_put(txn->names, name, resource);
    return STK_OK;
}

static bool is_remembered(const struct transaction *txn, struct bytes name,
                          struct resource *resource)
{
    if (txn->cache == NULL)
        return false;
    *resource = (struct resource){.id = 0};
    return cache_find(txn->cache, name, resource) || cache_is_absent(txn->cache, name);
}

enum stk_error resources_find(struct store_txn *base, struct bytes name, struct resource *resource)
{
    struct transaction *txn = transaction_of(base);

    transaction_release(txn);
    if (transaction_floor(txn) != STK_OK)
        return STK_STORE;
    if (!is_remembered(txn, name, resource)) {
        enum stk_error error = fetch(txn, name, resource);
        if (error != STK_OK)
            return error;
    }
    set_floor(txn, &resource->fence);
    return STK_OK;
}

enum stk_error resources_make(struct store_txn *base, struct bytes name, struct resource *resource)
{
    struct transaction *txn = transaction_of(base);

    check(txn->cache != NULL);
    if (resource->id != 0)
        return STK_OK;
    if (transaction_floor(txn) != STK_OK)
        return STK_STORE;
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_MAKE);
    if (stmt == NULL)
        return STK_STORE;
    transaction_bind(stmt, 1, name);
    sqlite3_bind_int64(stmt, 2, txn->now_ms);
    /* It may have had a row before, whose tokens, and their receipts, are below the floor. */
    sqlite3_bind_int64(stmt, 3, txn->floor);
    if (transaction_change(txn, stmt) != STK_OK)
        return STK_STORE;
    if (sqlite3_changes64(txn->db) == 0) /* the operation itself has made it meanwhile */
        return resources_find(base, name, resource);
    *resource = (struct resource){.id = sqlite3_last_insert_rowid(txn->db)};
    cache_put(txn->cache, name, resource);
    set_floor(txn, &resource->fence);
    return STK_OK;
}

/* The fence as it stands in the row. */
static enum stk_error fence_of(struct transaction *txn, int64_t id, struct fence *fence)
{
    struct resource resource;
    enum stk_error error;

    *fence = (struct fence){.state = FENCE_NONE};
    if (cache_find_id(txn->cache, id, &resource)) {
        *fence = resource.fence;
        return STK_OK;
    }
    sqlite3_stmt *stmt = transaction_statement_for(txn, STATEMENT_FENCE_OF, id);
    if (!transaction_row(txn, stmt, &error))
        return error;
    fence->token = sqlite3_column_int64(stmt, 0);
    fence->state = (enum fence_state)sqlite3_column_int64(stmt, 1);
    sqlite3_reset(stmt);
    return STK_OK;
}

/* Bind them to a statement's second parameter and those behind it. */
static void bind_fence(sqlite3_stmt *stmt, const struct fence *fence, const struct lease *lease,
                       int64_t now_ms)
{
    sqlite3_bind_int64(stmt, 2, fence->token);
    sqlite3_bind_int64(stmt, 3, fence->state);
    sqlite3_bind_int64(stmt, 4, lease->holds);
    sqlite3_bind_int64(stmt, 5, lease->ttl_ms);
    sqlite3_bind_int64(stmt, 6, lease->opening);
    sqlite3_bind_int64(stmt, 7, lease->connection);
    sqlite3_bind_int64(stmt, 8, lease->anonymous);
    transaction_bind(stmt, 9, lease->owner);
    sqlite3_bind_int64(stmt, 10, now_ms);
}

/* Remember the lease as the row has it now. */
static void remember_lease(struct transaction *txn, int64_t id, const struct lease *lease,
                           int64_t receipts_gone)
{
    struct lease now = *lease;

    now.changed_ms = txn->now_ms;
    now.receipts_gone = receipts_gone;
    cache_lease_put(txn->cache, id, &now);
}

enum stk_error resources_fence_put(struct store_txn *base, const struct resource *resource,
                                   const struct lease *lease)
{
    struct transaction *txn = transaction_of(base);
    const struct fence *fence = &resource->fence;
    struct lease old_lease;
    struct fence old;

    check(txn->cache != NULL && resource->id != 0);
    check(fence->token >= 1 && fence->token <= TOKEN_MAX && fence->state != FENCE_NONE);
    if (fence_of(txn, resource->id, &old) != STK_OK ||
        receipts_retire(txn, resource->id, &old, fence) != STK_OK)
        return STK_STORE;
    sqlite3_stmt *stmt = transaction_statement_for(txn, STATEMENT_FENCE, resource->id);
    if (stmt == NULL)
        return STK_STORE;
    bind_fence(stmt, fence, lease, txn->now_ms);
    if (transaction_change(txn, stmt) != STK_OK)
        return STK_STORE;
    check(sqlite3_changes64(txn->db) == 1); /* the row is there, and its token did not sink */
    cache_update(txn->cache, resource);
    if (cache_lease(txn->cache, resource->id, &old_lease))
        remember_lease(txn, resource->id, lease, old_lease.receipts_gone);
    if (fence->token > old.token)
        cache_no_receipts_put(txn->cache, resource->id, fence->token);
    if (fence->token != old.token || fence->state != old.state)
        txn->put = (struct told){resource->id, *fence};
    return STK_OK;
}

enum stk_error resources_fence_make(struct store_txn *base, struct bytes name,
                                    struct resource *resource, const struct lease *lease)
{
    struct transaction *txn = transaction_of(base);
    struct fence fence = resource->fence;

    if (resource->id != 0)
        return resources_fence_put(base, resource, lease);
    check(txn->cache != NULL);
    check(fence.token >= 1 && fence.token <= TOKEN_MAX && fence.state != FENCE_NONE);
    if (transaction_floor(txn) != STK_OK)
        return STK_STORE;
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_FENCE_MAKE);
    if (stmt == NULL)
        return STK_STORE;
    transaction_bind(stmt, 1, name);
    bind_fence(stmt, &fence, lease, txn->now_ms);
    sqlite3_bind_int64(stmt, 11, txn->floor); /* as in resources_make */
    if (transaction_change(txn, stmt) != STK_OK)
        return STK_STORE;
    if (sqlite3_changes64(txn->db) == 0) { /* the operation itself has made it meanwhile */
        if (resources_find(base, name, resource) != STK_OK)
            return STK_STORE;
        resource->fence = fence;
        return resources_fence_put(base, resource, lease);
    }
    *resource = (struct resource){.id = sqlite3_last_insert_rowid(txn->db), .fence = fence};
    cache_put(txn->cache, name, resource);
    remember_lease(txn, resource->id, lease, txn->floor);
    cache_no_receipts_put(txn->cache, resource->id, fence.token);
    txn->put = (struct told){resource->id, fence};
    return STK_OK;
}

/* What the caller gets of it lasts until the next lease that is read. */
static void keep_owner(struct transaction *txn, struct lease *lease)
{
    buf_clear(&txn->owner);
    buf_append_bytes(&txn->owner, lease->owner);
    lease->owner = buf_bytes(&txn->owner);
}

static enum stk_error fetch_lease(struct transaction *txn, const struct resource *resource,
                                  struct lease *lease)
{
    sqlite3_stmt *stmt = transaction_statement_for(txn, STATEMENT_LEASE, resource->id);
    enum stk_error error;

    *lease = (struct lease){.owner = {"", 0}, .receipts_gone = resource->fence.floor};
    if (!transaction_row(txn, stmt, &error))
        return error;
    lease->holds = sqlite3_column_int64(stmt, 0);
    lease->ttl_ms = sqlite3_column_int64(stmt, 1);
    lease->opening = sqlite3_column_int64(stmt, 2);
    lease->connection = sqlite3_column_int64(stmt, 3);
    lease->anonymous = sqlite3_column_int64(stmt, 4) != 0;
    lease->owner = transaction_column(stmt, 5);
    keep_owner(txn, lease);
    lease->changed_ms = lease->change = sqlite3_column_int64(stmt, 6);
    lease->age_ms = -1;
    lease->receipts_gone = sqlite3_column_int64(stmt, 7);
    sqlite3_reset(stmt);
    if (txn->cache != NULL)
        cache_lease_put(txn->cache, resource->id, lease);
    return STK_OK;
}

enum stk_error resources_lease(struct store_txn *base, const struct resource *resource,
                               struct lease *lease)
{
    struct transaction *txn = transaction_of(base);

    if (txn->cache == NULL || !cache_lease(txn->cache, resource->id, lease))
        return fetch_lease(txn, resource, lease);
    transaction_release(txn);
    keep_owner(txn, lease);
    return STK_OK;
}

static enum stk_error each_name(struct transaction *txn, enum statement which, int64_t after,
                                txn_each_name each, void *context)
{
    sqlite3_stmt *stmt = transaction_statement_for(txn, which, after);
    enum stk_error error;

    txn->iterating = true;
    while (transaction_row(txn, stmt, &error) &&
           each(context, sqlite3_column_int64(stmt, 0), transaction_column(stmt, 1),
                (enum value_type)sqlite3_column_int64(stmt, 2)))
        ;
    txn->iterating = false;
    sqlite3_reset(stmt);
    return error;
}

enum stk_error resources_each_live(struct store_txn *txn, int64_t after, txn_each_name each,
                                   void *context)
{
    return each_name(transaction_of(txn), STATEMENT_EACH_LIVE, after, each, context);
}

enum stk_error resources_each_key(struct store_txn *txn, int64_t after, txn_each_name each,
                                  void *context)
{
    return each_name(transaction_of(txn), STATEMENT_EACH_KEY, after, each, context);
}

enum stk_error resources_count_keys(struct store_txn *base, int64_t *count)
{
    struct transaction *txn = transaction_of(base);
    return transaction_number(txn, transaction_statement(txn, STATEMENT_COUNT_KEYS), count);
}

enum stk_error resources_count_live(struct store_txn *base, int64_t *count)
{
    struct transaction *txn = transaction_of(base);
    return transaction_number(txn, transaction_statement(txn, STATEMENT_COUNT_LIVE), count);
}

/* Clean-up. */

/* The tokens of abandoned resources that have receipts end now; their receipts, and then their
 * rows, go in due time. */
static enum stk_error retire_abandoned(struct transaction *txn, int64_t after, int64_t end,
                                       int64_t before_ms)
{
    sqlite3_stmt *stmt = transaction_statement_pair(txn, STATEMENT_SWEEP_RETIRE, after, end);
    enum stk_error error = STK_OK;

    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 3, before_ms);
    sqlite3_bind_int64(stmt, 4, txn->now_ms);
    while (error == STK_OK && transaction_row(txn, stmt, &error)) {
        cache_forget(txn->cache, sqlite3_column_int64(stmt, 0));
        error = receipts_log(txn, sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1));
    }
    sqlite3_reset(stmt);
    return error;
}

static enum stk_error remove_resources(struct transaction *txn, int64_t after, int64_t end,
                                       int64_t before_ms, int64_t live_before_ms, size_t *removed)
{
    sqlite3_stmt *stmt = transaction_statement_pair(txn, STATEMENT_SWEEP_REMOVE, after, end);
    enum stk_error error;
    int64_t floor = 0;

    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 3, live_before_ms);
    sqlite3_bind_int64(stmt, 4, before_ms);
    while (transaction_row(txn, stmt, &error)) {
        int64_t token = sqlite3_column_int64(stmt, 1);
        cache_forget(txn->cache, sqlite3_column_int64(stmt, 0));
        if (token > floor)
            floor = token;
        ++*removed;
    }
    if (error != STK_OK || floor == 0)
        return error;
    if (floor > TOKEN_MAX)
        return transaction_implausible(txn);
    txn->floor_known = false;
    return transaction_change(txn, transaction_statement_for(txn, STATEMENT_FLOOR_RAISE, floor));
}

/* The last of up to `max` rows behind `after`; 0: there are none. */
static enum stk_error find_end(struct transaction *txn, int64_t after, size_t max, int64_t *end)
{
    *end = 0;
    return transaction_number(
        txn, transaction_statement_pair(txn, STATEMENT_SWEEP_END, after, (int64_t)max), end);
}

enum stk_error resources_sweep(struct store_txn *base, int64_t before_ms, int64_t live_before_ms,
                               size_t max, int64_t *after, size_t *removed, bool *more)
{
    struct transaction *txn = transaction_of(base);
    int64_t end;

    check(txn->cache != NULL && max > 0);
    before_ms = store_clock_before_ms(txn->clock, before_ms);
    live_before_ms = store_clock_before_ms(txn->clock, live_before_ms);
    *removed = 0;
    *more = false;
    if (find_end(txn, *after, max, &end) != STK_OK)
        return STK_STORE;
    if (end != 0 &&
        (retire_abandoned(txn, *after, end, live_before_ms) != STK_OK ||
         remove_resources(txn, *after, end, before_ms, live_before_ms, removed) != STK_OK))
        return STK_STORE;
    *after = end;
    *more = end != 0;
    return STK_OK;
}

enum stk_error resources_due(struct store_txn *base, int64_t before_ms, int64_t live_before_ms,
                             size_t max, int64_t *after, bool *due, bool *more)
{
    struct transaction *txn = transaction_of(base);
    int64_t end, any = 0;

    check(max > 0);
    *due = *more = false;
    if (find_end(txn, *after, max, &end) != STK_OK)
        return STK_STORE;
    sqlite3_stmt *stmt = transaction_statement_pair(txn, STATEMENT_SWEEP_DUE, *after, end);
    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 3, store_clock_before_ms(txn->clock, live_before_ms));
    sqlite3_bind_int64(stmt, 4, store_clock_before_ms(txn->clock, before_ms));
    if (transaction_number(txn, stmt, &any) != STK_OK)
        return STK_STORE;
    *due = any != 0;
    *more = end != 0;
    if (!*due)
        *after = end;
    return STK_OK;
}
