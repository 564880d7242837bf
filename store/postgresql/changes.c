/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/changes.h"

#include <stdlib.h>

#include "fence/base/mem.h"
#include "store/postgresql/statements.h"

enum { COLUMNS = 18 };

/* The rows of a statement, as an array for each column. */
struct columns {
    struct pg_array of[COLUMNS];
    size_t count;
    size_t rows;
};

static void start_columns(struct columns *columns, const enum pg_type *types, size_t count)
{
    columns->count = count;
    columns->rows = 0;
    for (size_t i = 0; i < count; i++)
        pg_array_start(&columns->of[i], types[i]);
}

/* Queue the statement, unless it has no rows, and free the arrays. `dated`: its last parameter is
 * the time. */
static void send_columns(struct pg_txn *txn, enum pg_statement statement, struct columns *columns,
                         bool dated)
{
    struct pg_params params = {.count = 0};

    for (size_t i = 0; i < columns->count; i++)
        pg_param_array(&params, &columns->of[i]);
    if (dated)
        pg_param_int64(&params, txn->now_ms);
    if (columns->rows > 0)
        pg_send(txn->pg, statement, &params);
    for (size_t i = 0; i < columns->count; i++)
        buf_free(&columns->of[i].buf);
}

static void add_fence(struct pg_array *of, size_t at, const struct content *now)
{
    const struct fence *fence = &now->resource.fence;
    const struct lease *lease = &now->lease;

    pg_array_int64(&of[at++], fence->token);
    pg_array_int64(&of[at++], fence->state);
    pg_array_int64(&of[at++], lease->holds);
    pg_array_int64(&of[at++], lease->ttl_ms);
    pg_array_int64(&of[at++], lease->opening);
    pg_array_int64(&of[at++], lease->connection);
    pg_array_bool(&of[at++], lease->anonymous);
    pg_array_bytes(&of[at++], lease->owner);
    pg_array_int64(&of[at++], lease->changed_ms);
    pg_array_int64(&of[at++], lease->change);
    pg_array_bool(&of[at++], now->waited && fence->state == FENCE_LIVE);
    pg_array_int64(&of[at++], now->receipts_token);
    pg_array_int64(&of[at++], now->resource.type);
    pg_array_int64(&of[at], now->fields);
}

static void add_value(struct pg_array *array, const struct content *now)
{
    if (now->resource.type == VALUE_STRING)
        pg_array_bytes(array, now->string);
    else
        pg_array_null(array);
}

static void put_fences(struct pg_txn *txn)
{
    static const enum pg_type types[] = {PG_INT8, PG_INT8, PG_INT8, PG_INT8,  PG_INT8,
                                         PG_INT8, PG_INT8, PG_BOOL, PG_BYTEA, PG_INT8,
                                         PG_INT8, PG_BOOL, PG_INT8, PG_INT8,  PG_INT8};
    struct columns columns;

    start_columns(&columns, types, sizeof types / sizeof *types);
    for (struct list *at = txn->set.rows.next; at != &txn->set.rows; at = at->next) {
        const struct row *row = list_entry(at, const struct row, link);
        if (!row->stored || !row->now.put_fence)
            continue;
        pg_array_int64(&columns.of[0], row->id);
        add_fence(columns.of, 1, &row->now);
        columns.rows++;
    }
    send_columns(txn, PG_PUT_FENCES, &columns, false);
}

static void put_values(struct pg_txn *txn)
{
    static const enum pg_type types[] = {PG_INT8, PG_BYTEA, PG_INT8, PG_INT8, PG_INT8};
    struct columns columns;

    start_columns(&columns, types, sizeof types / sizeof *types);
    for (struct list *at = txn->set.rows.next; at != &txn->set.rows; at = at->next) {
        const struct row *row = list_entry(at, const struct row, link);
        if (!row->stored || !row->now.put_value)
            continue;
        pg_array_int64(&columns.of[0], row->id);
        add_value(&columns.of[1], &row->now);
        pg_array_int64(&columns.of[2], row->now.resource.type);
        pg_array_int64(&columns.of[3], row->now.fields);
        pg_array_int64(&columns.of[4], row->now.receipts_token);
        columns.rows++;
    }
    send_columns(txn, PG_PUT_VALUES, &columns, false);
}

static void put_types(struct pg_txn *txn)
{
    static const enum pg_type types[] = {PG_INT8, PG_INT8, PG_INT8, PG_INT8};
    struct columns columns;

    start_columns(&columns, types, sizeof types / sizeof *types);
    for (struct list *at = txn->set.rows.next; at != &txn->set.rows; at = at->next) {
        const struct row *row = list_entry(at, const struct row, link);
        const struct content *now = &row->now;
        if (!row->stored || !now->put_type || now->put_fence || now->put_value)
            continue;
        pg_array_int64(&columns.of[0], row->id);
        pg_array_int64(&columns.of[1], now->resource.type);
        pg_array_int64(&columns.of[2], now->fields);
        pg_array_int64(&columns.of[3], now->receipts_token);
        columns.rows++;
    }
    send_columns(txn, PG_PUT_TYPES, &columns, false);
}

static int by_name(const void *a, const void *b)
{
    return bytes_compare((*(const struct row *const *)a)->name,
                         (*(const struct row *const *)b)->name);
}

/* Make the new rows, in the order of their names, so that no two daemons wait for each other. */
static void make_rows(struct pg_txn *txn)
{
    static const enum pg_type types[] = {PG_INT8, PG_BYTEA, PG_INT8, PG_INT8,  PG_INT8, PG_INT8,
                                         PG_INT8, PG_INT8,  PG_BOOL, PG_BYTEA, PG_INT8, PG_INT8,
                                         PG_BOOL, PG_INT8,  PG_INT8, PG_INT8,  PG_INT8, PG_BYTEA};
    struct columns columns;
    const struct row **made = NULL;
    size_t count = 0, room = 0;

    for (struct list *at = txn->set.rows.next; at != &txn->set.rows; at = at->next) {
        const struct row *row = list_entry(at, const struct row, link);
        if (row->stored || !row->now.exists)
            continue;
        if (count == room) {
            room = room * 2 + 16;
            made = mem_realloc(made, room * sizeof *made);
        }
        made[count++] = row;
    }
    if (count > 1)
        qsort(made, count, sizeof *made, by_name);
    start_columns(&columns, types, sizeof types / sizeof *types);
    for (size_t i = 0; i < count; i++) {
        const struct content *now = &made[i]->now;
        pg_array_int64(&columns.of[0], made[i]->id);
        pg_array_bytes(&columns.of[1], made[i]->name);
        add_fence(columns.of, 2, now);
        pg_array_int64(&columns.of[16], now->lease.receipts_gone);
        add_value(&columns.of[17], now);
        columns.rows++;
    }
    send_columns(txn, PG_MAKE, &columns, false);
    free(made);
}

static void clear_fields(struct pg_txn *txn)
{
    static const enum pg_type types[] = {PG_INT8};
    struct columns columns;

    start_columns(&columns, types, 1);
    for (struct list *at = txn->set.rows.next; at != &txn->set.rows; at = at->next) {
        const struct row *row = list_entry(at, const struct row, link);
        if (!row->stored || !row->now.cleared)
            continue;
        pg_array_int64(&columns.of[0], row->id);
        columns.rows++;
    }
    send_columns(txn, PG_CLEAR_FIELDS, &columns, false);
}

static void put_parts(struct pg_txn *txn, enum part_kind kind, bool exists,
                      enum pg_statement statement)
{
    static const enum pg_type fields[] = {PG_INT8, PG_BYTEA, PG_BYTEA},
                              receipts[] = {PG_INT8, PG_BYTEA, PG_INT8, PG_INT8, PG_BOOL, PG_BYTEA};
    struct columns columns;

    start_columns(&columns, kind == PART_FIELD ? fields : receipts,
                  !exists              ? 2
                  : kind == PART_FIELD ? 3
                                       : 6);
    for (struct list *at = txn->set.parts.next; at != &txn->set.parts; at = at->next) {
        const struct part *part = list_entry(at, const struct part, link);
        const struct receipt *receipt = &part->now.receipt;
        if (part->kind != kind || !part->now.put || part->now.exists != exists)
            continue;
        pg_array_int64(&columns.of[0], part->row->id);
        pg_array_bytes(&columns.of[1], part->key);
        if (exists && kind == PART_FIELD) {
            pg_array_bytes(&columns.of[2], part->now.value);
        } else if (exists) {
            pg_array_int64(&columns.of[2], receipt->token);
            pg_array_int64(&columns.of[3], (int64_t)receipt->fingerprint);
            pg_array_bool(&columns.of[4], receipt->resp3);
            pg_array_bytes(&columns.of[5], receipt->reply);
        }
        columns.rows++;
    }
    send_columns(txn, statement, &columns, exists && kind == PART_RECEIPT);
}

static void retire(struct pg_txn *txn)
{
    static const enum pg_type types[] = {PG_INT8, PG_INT8};
    struct columns columns;

    start_columns(&columns, types, 2);
    for (size_t i = 0; i < txn->set.retired_count; i++, columns.rows++) {
        pg_array_int64(&columns.of[0], txn->set.retired[i].resource);
        pg_array_int64(&columns.of[1], txn->set.retired[i].token);
    }
    send_columns(txn, PG_RETIRE, &columns, true);
}

/* Rows that are there come first: this transaction has them locked. New names come last, since they
 * may have to wait for another transaction that makes them. */
void pg_send_changes(struct pg_txn *txn)
{
    put_fences(txn);
    put_values(txn);
    put_types(txn);
    clear_fields(txn);
    put_parts(txn, PART_FIELD, false, PG_REMOVE_FIELDS);
    put_parts(txn, PART_FIELD, true, PG_PUT_FIELDS);
    put_parts(txn, PART_RECEIPT, false, PG_REMOVE_RECEIPTS);
    put_parts(txn, PART_RECEIPT, true, PG_PUT_RECEIPTS);
    retire(txn);
    make_rows(txn);
}

bool pg_write(struct pg_txn *txn)
{
    if (!set_changed(&txn->set))
        return true;
    pg_send_changes(txn);
    pg_sync(txn->pg);
    if (!pg_end(txn->pg))
        return false;
    set_written(&txn->set);
    txn->wrote = true;
    return true;
}
