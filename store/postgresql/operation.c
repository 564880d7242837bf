/* SPDX-License-Identifier: Apache-2.0 */
/* An operation finds what it asks for in the set, or it stops: every further call of it fails, so
 * it returns, and it is run again from scratch once the reason is gone. With txn->direct it does
 * not stop for what is missing: that is loaded at once. */
#include "store/postgresql/operation.h"

#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/postgresql/load.h"
#include "store/postgresql/sql.h"
#include "store/postgresql/tables.h"

/* Is it in the set, or can it be loaded now? False: the operation has stopped. */
static bool have(struct pg_txn *txn, enum known *known)
{
    if (txn->stop != PG_ON)
        return false;
    if (*known == KNOWN)
        return true;
    set_want(known);
    if (!txn->direct) {
        (void)pg_stop(txn, PG_MISSING);
        return false;
    }
    if (!pg_load(txn)) {
        (void)pg_stop(txn, PG_FAILED);
        return false;
    }
    return *known == KNOWN || *known == LOCKED;
}

static int64_t now_ms(struct store_txn *base)
{
    return pg_txn_of(base)->now_ms;
}

/* Resources. */

static void give(const struct pg_txn *txn, const struct row *row, struct resource *resource)
{
    *resource = (struct resource){.id = 0};
    if (row->now.exists)
        *resource = row->now.resource;
    resource->fence.floor = txn->floor > resource->fence.token ? txn->floor : resource->fence.token;
}

/* A row says what cannot be: the operation fails, and no other one. */
static enum stk_error implausible(struct pg_txn *txn)
{
    txn->implausible = true;
    return STK_STORE;
}

static enum stk_error find(struct store_txn *base, struct bytes name, struct resource *resource)
{
    struct pg_txn *txn = pg_txn_of(base);

    if (name.len > SET_KEY_MAX) /* it comes from a row, not from a client */
        return implausible(txn);
    struct row *row = set_row(&txn->set, name);
    txn->found_locked |= row->known == LOCKED;
    if (row->known == LOCKED)
        return pg_stop(txn, PG_LOCKED);
    if (!have(txn, &row->known))
        return STK_STORE;
    txn->found_locked |= row->known == LOCKED;
    if (row->implausible)
        return implausible(txn);
    row->asked_by = txn->number;
    /* An earlier operation that waits for the row comes first. */
    if (row->known == LOCKED || row->busy ||
        (row->blocked_by != 0 && row->blocked_by < txn->number))
        return pg_stop(txn, PG_LOCKED);
    give(txn, row, resource);
    return STK_OK;
}

static enum stk_error make(struct store_txn *base, struct bytes name, struct resource *resource)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct row *row = set_row(&txn->set, name);

    check(txn->kind != PG_READS);
    if (!have(txn, &row->known))
        return STK_STORE;
    if (!row->now.exists) {
        if (row->id == 0) {
            if (txn->next_id == txn->ids_end)
                return pg_stop(txn, PG_MISSING); /* the next load brings more ids */
            set_identify(&txn->set, row, txn->next_id++);
        }
        struct content *now = set_change(&txn->set, row);
        now->exists = true;
        now->resource = (struct resource){.id = row->id};
        /* It may have had a row before: its tokens, and their receipts, are below the floor. */
        now->lease = (struct lease){
            .owner = {"", 0}, .changed_ms = txn->now_ms, .receipts_gone = txn->floor};
        row->fields = row->string_known = KNOWN;
    }
    give(txn, row, resource);
    return STK_OK;
}

/* Return the row of a resource that the operation has found. NULL: it has stopped. */
static struct row *row_of(struct pg_txn *txn, const struct resource *resource)
{
    struct row *row = txn->stop == PG_ON ? set_row_by_id(&txn->set, resource->id) : NULL;

    check(txn->stop != PG_ON || row != NULL);
    return row;
}

/* Find the row of a resource that may have none: `*row` is NULL then. STK_STORE: the operation has
 * stopped. */
static enum stk_error row_if_any(struct pg_txn *txn, const struct resource *resource,
                                 struct row **row)
{
    *row = NULL;
    if (txn->stop != PG_ON)
        return STK_STORE;
    if (resource->id != 0)
        *row = row_of(txn, resource);
    return STK_OK;
}

static enum stk_error fence_put(struct store_txn *base, const struct resource *resource,
                                const struct lease *lease)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct row *row = row_of(txn, resource);
    const struct fence *fence = &resource->fence;

    if (row == NULL)
        return STK_STORE;
    struct content *now = set_change(&txn->set, row);
    const struct fence old = now->resource.fence;
    check(fence->token >= 1 && fence->token <= TOKEN_MAX && fence->state != FENCE_NONE &&
          fence->token >= old.token);
    if (old.state == FENCE_LIVE && now->receipts_token == old.token &&
        (fence->token != old.token || fence->state != FENCE_LIVE))
        set_retire(&txn->set, resource->id, old.token);
    int64_t receipts_gone = now->lease.receipts_gone, change = now->lease.change;
    now->resource.fence = *fence; /* whole; the floor is given anew at each reading */
    now->lease = *lease;
    now->lease.owner = set_copy(&txn->set, lease->owner);
    now->lease.changed_ms = txn->now_ms;
    now->lease.receipts_gone = receipts_gone;
    now->lease.change = change + 1;
    now->put_fence = true;
    return STK_OK;
}

static enum stk_error lease(struct store_txn *base, const struct resource *resource,
                            struct lease *out)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct row *row;
    enum stk_error error = row_if_any(txn, resource, &row);

    *out = (struct lease){.owner = {"", 0}, .receipts_gone = resource->fence.floor};
    if (row == NULL)
        return error;
    *out = row->now.lease;
    out->age_ms = server_clock_age_ms(txn->now_ms, txn->since_ms, out->changed_ms);
    return STK_OK;
}

static enum stk_error await(struct store_txn *base, const struct resource *resource)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct row *row = row_of(txn, resource);

    if (row == NULL)
        return STK_STORE;
    if (row->now.waited)
        return STK_OK;
    struct content *now = set_change(&txn->set, row);
    now->waited = now->put_fence = true;
    return STK_OK;
}

/* Values. */

/* Have the type and the number of fields written, which takes receipts_token along. */
static void put_type(struct pg_txn *txn, struct row *row, struct resource *resource,
                     enum value_type type, int64_t fields)
{
    struct content *now = set_change(&txn->set, row);

    now->resource.type = type;
    now->fields = fields;
    now->put_type = true;
    resource->type = type;
}

static enum stk_error string(struct store_txn *base, const struct resource *resource, bool *found,
                             struct bytes *value)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct row *row;
    enum stk_error error = row_if_any(txn, resource, &row);

    *found = false;
    if (row == NULL || row->now.resource.type != VALUE_STRING)
        return error;
    if (!row->now.put_value && !have(txn, &row->string_known))
        return STK_STORE;
    *found = true;
    *value = row->now.put_value ? row->now.string : row->string;
    return STK_OK;
}

static enum stk_error string_put(struct store_txn *base, struct resource *resource,
                                 struct bytes value)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct row *row = row_of(txn, resource);

    if (row == NULL)
        return STK_STORE;
    check(row->now.resource.type != VALUE_HASH);
    struct content *now = set_change(&txn->set, row);
    now->resource.type = resource->type = VALUE_STRING;
    now->string = set_copy(&txn->set, value);
    now->put_value = true;
    return STK_OK;
}

/* Return a field or a receipt of the row, of which it is known whether it exists. NULL: stopped. */
static struct part *known_part(struct pg_txn *txn, struct row *row, enum part_kind kind,
                               struct bytes key)
{
    if (row == NULL)
        return NULL;
    struct part *part = set_part(&txn->set, row, kind, key);
    if (part->known == UNKNOWN &&
        (!row->stored || (kind == PART_FIELD && (row->fields == KNOWN || row->now.cleared))))
        part->known = KNOWN;
    return have(txn, &part->known) ? part : NULL;
}

static enum stk_error field(struct store_txn *base, const struct resource *resource,
                            struct bytes name, bool *found, struct bytes *value)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct row *row;
    enum stk_error error = row_if_any(txn, resource, &row);

    *found = false;
    if (row == NULL || row->now.resource.type != VALUE_HASH)
        return error;
    const struct part *part = known_part(txn, row, PART_FIELD, name);
    if (part == NULL)
        return STK_STORE;
    *found = part->now.exists;
    *value = part->now.value;
    return STK_OK;
}

static enum stk_error field_put(struct store_txn *base, struct resource *resource,
                                struct bytes name, struct bytes value)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct row *row = row_of(txn, resource);
    struct part *part = known_part(txn, row, PART_FIELD, name);

    if (part == NULL)
        return STK_STORE;
    check(row->now.resource.type != VALUE_STRING);
    if (!part->now.exists)
        put_type(txn, row, resource, VALUE_HASH, row->now.fields + 1);
    struct part_content *now = set_change_part(&txn->set, part);
    now->exists = now->put = true;
    now->value = set_copy(&txn->set, value);
    return STK_OK;
}

static enum stk_error field_remove(struct store_txn *base, struct resource *resource,
                                   struct bytes name, bool *found)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct row *row = row_of(txn, resource);
    struct part *part = known_part(txn, row, PART_FIELD, name);

    if (part == NULL)
        return STK_STORE;
    *found = part->now.exists;
    if (!*found)
        return STK_OK;
    struct part_content *now = set_change_part(&txn->set, part);
    now->exists = false;
    now->put = true;
    int64_t left = row->now.fields > 1 ? row->now.fields - 1 : 0;
    put_type(txn, row, resource, left > 0 ? VALUE_HASH : VALUE_NONE, left);
    return STK_OK;
}

static int by_key(const void *a, const void *b)
{
    return bytes_compare((*(const struct part *const *)a)->key,
                         (*(const struct part *const *)b)->key);
}

/* Hand out the fields of a hash that is in the set as a whole, in the order of their names. What
 * the row counts of them may be wrong. */
static void each_here(const struct row *row, struct bytes from, txn_each_field each, void *context)
{
    size_t parts = 0, count = 0;

    for (const struct part *at = row->parts; at != NULL; at = at->next)
        parts++;
    const struct part **sorted = mem_alloc((parts + 1) * sizeof(void *));
    for (const struct part *at = row->parts; at != NULL; at = at->next)
        if (at->kind == PART_FIELD && at->now.exists && bytes_compare(at->key, from) >= 0)
            sorted[count++] = at;
    qsort(sorted, count, sizeof *sorted, by_key);
    for (size_t i = 0; i < count; i++)
        if (!each(context, sorted[i]->key, sorted[i]->now.value))
            break;
    free(sorted);
}

static enum stk_error each_field_from(struct store_txn *base, const struct resource *resource,
                                      struct bytes from, txn_each_field each, void *context)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct row *row;
    enum stk_error error = row_if_any(txn, resource, &row);

    if (row == NULL || row->now.resource.type != VALUE_HASH)
        return error;
    if (txn->kind == PG_READS && txn->direct)
        return pg_each_field(txn, row->id, from, each, context);
    if (txn->kind == PG_READS)
        return pg_stop(txn, PG_MISSING);
    if (!row->stored || row->now.cleared)
        row->fields = KNOWN;
    if (!have(txn, &row->fields))
        return STK_STORE;
    if (row->implausible)
        return implausible(txn);
    each_here(row, from, each, context);
    return STK_OK;
}

static enum stk_error count_fields(struct store_txn *base, const struct resource *resource,
                                   int64_t *count)
{
    struct row *row;
    enum stk_error error = row_if_any(pg_txn_of(base), resource, &row);

    *count = row != NULL ? row->now.fields : 0;
    return error;
}

static enum stk_error value_clear(struct store_txn *base, struct resource *resource)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct row *row = row_of(txn, resource);

    if (row == NULL)
        return STK_STORE;
    if (row->now.resource.type == VALUE_NONE)
        return STK_OK;
    struct content *now = set_change(&txn->set, row);
    if (now->resource.type == VALUE_STRING)
        now->put_value = true;
    else
        now->cleared = true;
    for (struct part *at = row->parts; at != NULL; at = at->next)
        if (at->kind == PART_FIELD) {
            struct part_content *part = set_change_part(&txn->set, at);
            part->exists = part->put = false;
        }
    now->string = (struct bytes){"", 0};
    put_type(txn, row, resource, VALUE_NONE, 0);
    return STK_OK;
}

/* Receipts. */

static enum stk_error receipt(struct store_txn *base, const struct resource *resource,
                              struct bytes id, bool *found, struct receipt *out)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct row *row;
    enum stk_error error = row_if_any(txn, resource, &row);

    *found = false;
    if (row == NULL)
        return error;
    const struct part *part = known_part(txn, row, PART_RECEIPT, id);
    if (part == NULL)
        return STK_STORE;
    *found = part->now.exists;
    if (*found)
        *out = part->now.receipt;
    return STK_OK;
}

static enum stk_error receipt_put(struct store_txn *base, const struct resource *resource,
                                  struct bytes id, const struct receipt *put)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct row *row = row_of(txn, resource);
    struct part *part = known_part(txn, row, PART_RECEIPT, id);
    const struct fence *fence = &resource->fence;

    if (part == NULL)
        return STK_STORE;
    if (!part->now.exists) {
        struct part_content *now = set_change_part(&txn->set, part);
        now->exists = now->put = true;
        now->receipt = *put;
        now->receipt.reply = set_copy(&txn->set, put->reply);
        now->receipt.written_ms = txn->now_ms;
    }
    if (row->now.receipts_token != put->token && put->token == fence->token) {
        struct content *now = set_change(&txn->set, row);
        now->receipts_token = put->token;
        now->put_type = true;
    }
    /* Nothing else would note the end of a token that has ended already. */
    if (put->token != fence->token || fence->state != FENCE_LIVE)
        set_retire(&txn->set, resource->id, put->token);
    return STK_OK;
}

static enum stk_error receipt_remove(struct store_txn *base, const struct resource *resource,
                                     struct bytes id)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct part *part = known_part(txn, row_of(txn, resource), PART_RECEIPT, id);

    if (part == NULL)
        return STK_STORE;
    if (part->now.exists) {
        struct part_content *now = set_change_part(&txn->set, part);
        now->exists = false;
        now->put = true;
    }
    return STK_OK;
}

/* Savepoints. In a transaction of its own an operation may go past the set, so there is one in
 * PostgreSQL, too. */

static enum stk_error savepoint(struct store_txn *base)
{
    struct pg_txn *txn = pg_txn_of(base);

    if (txn->stop != PG_ON)
        return STK_STORE;
    check(!txn->in_savepoint);
    if (txn->kind == PG_OWN && pg_savepoint(txn, PG_SAVEPOINT) != STK_OK)
        return STK_STORE;
    txn->in_savepoint = true;
    txn->set_savepoint = set_savepoint(&txn->set);
    return STK_OK;
}

static enum stk_error savepoint_keep(struct store_txn *base)
{
    struct pg_txn *txn = pg_txn_of(base);

    if (txn->stop != PG_ON)
        return STK_STORE;
    check(txn->in_savepoint);
    txn->in_savepoint = false;
    return txn->kind == PG_OWN ? pg_savepoint(txn, PG_SAVEPOINT_KEEP) : STK_OK;
}

static enum stk_error savepoint_undo(struct store_txn *base)
{
    struct pg_txn *txn = pg_txn_of(base);

    if (txn->stop != PG_ON)
        return STK_STORE;
    check(txn->in_savepoint);
    txn->in_savepoint = false;
    if (txn->must_drop)
        return STK_ERR;
    if (txn->kind != PG_OWN)
        set_undo(&txn->set, txn->set_savepoint);
    else if (pg_savepoint(txn, PG_SAVEPOINT_UNDO) != STK_OK ||
             pg_savepoint(txn, PG_SAVEPOINT_KEEP) != STK_OK)
        return STK_STORE;
    txn->broken = false;
    return STK_OK;
}

static const struct store_txn_impl operation_impl = {
    .now_ms = now_ms,
    .savepoint = savepoint,
    .savepoint_keep = savepoint_keep,
    .savepoint_undo = savepoint_undo,
    .resource = find,
    .resource_make = make,
    .fence_put = fence_put,
    .lease = lease,
    .await = await,
    .each_live = pg_each_live,
    .each_key = pg_each_key,
    .count_keys = pg_count_keys,
    .count_live = pg_count_live,
    .string = string,
    .string_put = string_put,
    .field = field,
    .field_put = field_put,
    .field_remove = field_remove,
    .each_field_from = each_field_from,
    .count_fields = count_fields,
    .value_clear = value_clear,
    .receipt = receipt,
    .receipt_put = receipt_put,
    .receipt_remove = receipt_remove,
    .each_receipt = pg_each_receipt,
    .sweep_receipts = pg_sweep_receipts,
    .sweep_resources = pg_sweep_resources,
    .receipts_due = pg_receipts_due,
    .resources_due = pg_resources_due,
    .flush = pg_flush,
    .audit_head = pg_audit_head,
    .guard_create = pg_guard_create,
    .guard_drop = pg_guard_drop,
    .guards = pg_guards,
    .sql = pg_sql,
    .present = pg_present,
};

void pg_operations_init(struct pg_txn *txn)
{
    txn->base.impl = &operation_impl;
    set_init(&txn->set);
}

void pg_operation_run(struct pg_txn *txn, struct store_op *op, size_t number)
{
    txn->stop = PG_ON;
    txn->number = number;
    txn->in_savepoint = txn->broken = txn->found_locked = txn->implausible = false;
    txn->sql_ms = 0;
    txn->claims_count = 0;
    op->error = op->run(op, &txn->base);
    if (txn->in_savepoint && txn->stop == PG_ON)
        (void)savepoint_keep(&txn->base);
    txn->in_savepoint = false;
    if (txn->implausible && txn->stop == PG_ON) {
        op->error = STK_STORE;
        op->why = "a row of Stockade's tables holds impossible values (stockade check)";
    }
    op->found_locked |= txn->found_locked;
}
