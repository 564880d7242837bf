/* SPDX-License-Identifier: Apache-2.0 */
/* Strings and hashes, keyed by the resource's id. The type in the resource's row is written only
 * where it changes, so a write to an existing key touches one table.
 *
 * Special way: strings by name (values_string_of). A read of a string need not look the resource up
 * first. On the writer's connection the cache may have the string itself; on the quick reader's,
 * `names` may have the id that the name once had. */
#include "fence/base/check.h"
#include "store/sqlite/rows.h"

/* Step a bound statement to its value; it stays open for the bytes. */
static enum stk_error get(struct transaction *txn, sqlite3_stmt *stmt, bool *found,
                          struct bytes *value)
{
    enum stk_error error;

    *found = transaction_row(txn, stmt, &error);
    if (!*found)
        return error;
    *value = transaction_column(stmt, 0);
    txn->open = stmt;
    return STK_OK;
}

static enum stk_error set_type(struct transaction *txn, struct resource *resource,
                               enum value_type type)
{
    if (resource->type == type)
        return STK_OK;
    sqlite3_stmt *stmt = transaction_statement_pair(txn, STATEMENT_TYPE, resource->id, type);
    if (transaction_change(txn, stmt) != STK_OK)
        return STK_STORE;
    resource->type = type;
    cache_update(txn->cache, resource);
    return STK_OK;
}

enum stk_error values_string(struct store_txn *base, const struct resource *resource, bool *found,
                             struct bytes *value)
{
    struct transaction *txn = transaction_of(base);

    if (txn->cache != NULL && cache_string_of_id(txn->cache, resource->id, value)) {
        transaction_release(txn);
        *found = true;
        return STK_OK;
    }
    sqlite3_stmt *stmt = transaction_statement_for(txn, STATEMENT_STRING, resource->id);
    enum stk_error error = get(txn, stmt, found, value);
    if (error == STK_OK && *found && txn->cache != NULL)
        cache_string_put(txn->cache, resource->id, *value);
    return error;
}

/* The id that the name once had may be trusted: it belongs to no other name while its row is there,
 * and a row with a value is never removed. So a string that is found under that id is the name's.
 * A restored file has other ids, but always another floor, too. */
enum stk_error values_string_of(struct store_txn *base, struct bytes name, bool *found,
                                struct bytes *value)
{
    struct transaction *txn = transaction_of(base);
    struct resource resource;

    transaction_release(txn);
    *found = false;
    if (txn->cache != NULL)
        *found = cache_string(txn->cache, name, value);
    if (txn->names == NULL)
        return STK_OK;
    if (transaction_floor(txn) != STK_OK)
        return STK_STORE;
    if (txn->names_floor != txn->floor)
        cache_clear(txn->names);
    txn->names_floor = txn->floor;
    if (!cache_find(txn->names, name, &resource))
        return STK_OK;
    return get(txn, transaction_statement_for(txn, STATEMENT_STRING, resource.id), found, value);
}

static enum stk_error string_put(struct transaction *txn, struct resource *resource,
                                 struct bytes value)
{
    sqlite3_stmt *stmt = transaction_statement_key(txn, STATEMENT_STRING_PUT, resource->id, value);
    enum stk_error error = transaction_change(txn, stmt);

    return error == STK_OK ? set_type(txn, resource, VALUE_STRING) : error;
}

enum stk_error values_string_put(struct store_txn *base, struct resource *resource,
                                 struct bytes value)
{
    struct transaction *txn = transaction_of(base);
    bool done = false;

    check(txn->cache != NULL && resource->id != 0 && resource->type != VALUE_HASH);
    if (cache_string_has_len(txn->cache, resource->id, value.len) &&
        transaction_overwrite(txn, resource->id, value, &done) != STK_OK)
        return STK_STORE;
    if (!done && string_put(txn, resource, value) != STK_OK)
        return STK_STORE;
    txn->string_put = true;
    cache_string_update(txn->cache, resource->id, value);
    return STK_OK;
}

enum stk_error values_field(struct store_txn *base, const struct resource *resource,
                            struct bytes field, bool *found, struct bytes *value)
{
    struct transaction *txn = transaction_of(base);

    if (txn->cache != NULL && cache_field(txn->cache, resource->id, field, value)) {
        transaction_release(txn);
        *found = true;
        return STK_OK;
    }
    sqlite3_stmt *stmt = transaction_statement_key(txn, STATEMENT_FIELD, resource->id, field);
    enum stk_error error = get(txn, stmt, found, value);
    if (error == STK_OK && *found && txn->cache != NULL)
        cache_field_put(txn->cache, resource->id, field, *value);
    return error;
}

enum stk_error values_field_put(struct store_txn *base, struct resource *resource,
                                struct bytes field, struct bytes value)
{
    struct transaction *txn = transaction_of(base);

    check(txn->cache != NULL && resource->id != 0 && resource->type != VALUE_STRING);
    sqlite3_stmt *stmt = transaction_statement_key(txn, STATEMENT_FIELD_PUT, resource->id, field);
    if (stmt == NULL)
        return STK_STORE;
    transaction_bind(stmt, 3, value);
    if (transaction_change(txn, stmt) != STK_OK)
        return STK_STORE;
    cache_field_update(txn->cache, resource->id, field, value);
    return set_type(txn, resource, VALUE_HASH);
}

enum stk_error values_field_remove(struct store_txn *base, struct resource *resource,
                                   struct bytes field, bool *found)
{
    struct transaction *txn = transaction_of(base);
    int64_t left = 0;

    check(txn->cache != NULL);
    sqlite3_stmt *stmt =
        transaction_statement_key(txn, STATEMENT_FIELD_REMOVE, resource->id, field);
    if (transaction_change(txn, stmt) != STK_OK)
        return STK_STORE;
    *found = sqlite3_changes64(txn->db) != 0;
    if (!*found)
        return STK_OK;
    cache_field_forget(txn->cache, resource->id, field);
    stmt = transaction_statement_for(txn, STATEMENT_FIELD_ANY, resource->id);
    if (transaction_number(txn, stmt, &left) != STK_OK)
        return STK_STORE;
    return left != 0 ? STK_OK : set_type(txn, resource, VALUE_NONE);
}

enum stk_error values_each_field(struct store_txn *base, const struct resource *resource,
                                 struct bytes from, txn_each_field each, void *context)
{
    struct transaction *txn = transaction_of(base);
    sqlite3_stmt *stmt = transaction_statement_key(txn, STATEMENT_EACH_FIELD, resource->id, from);
    enum stk_error error;

    txn->iterating = true;
    while (transaction_row(txn, stmt, &error) &&
           each(context, transaction_column(stmt, 0), transaction_column(stmt, 1)))
        ;
    txn->iterating = false;
    sqlite3_reset(stmt);
    return error;
}

enum stk_error values_count_fields(struct store_txn *base, const struct resource *resource,
                                   int64_t *count)
{
    struct transaction *txn = transaction_of(base);
    sqlite3_stmt *stmt = transaction_statement_for(txn, STATEMENT_COUNT_FIELDS, resource->id);
    return transaction_number(txn, stmt, count);
}

enum stk_error values_clear(struct store_txn *base, struct resource *resource)
{
    struct transaction *txn = transaction_of(base);

    check(txn->cache != NULL);
    if (resource->type == VALUE_NONE)
        return STK_OK;
    sqlite3_stmt *stmt = transaction_statement_for(
        txn, resource->type == VALUE_STRING ? STATEMENT_STRING_CLEAR : STATEMENT_HASH_CLEAR,
        resource->id);
    if (transaction_change(txn, stmt) != STK_OK)
        return STK_STORE;
    return set_type(txn, resource, VALUE_NONE);
}
