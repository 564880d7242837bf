/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/transaction.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "store/postgresql/statements.h"

enum {
    IDS_BLOCK = 1000, /* as the sequence counts */
    IDS_LOW = 64,
    MARKS_KEPT = 256, /* or fewer */
};

/* Loading. */

static enum value_type type_of(int64_t number)
{
    return number == VALUE_STRING || number == VALUE_HASH ? (enum value_type)number : VALUE_NONE;
}

/* What a row of the server says of a resource: PG_ROW. */
static void take_row(struct pg_txn *txn, const PGresult *result, int at)
{
    struct set *set = &txn->set;
    struct row *row = set_row(set, pg_value_bytes(&txn->pg, result, at, 1));
    struct content *now = &row->now;

    set_identify(set, row, pg_value_int64(&txn->pg, result, at, 0));
    now->exists = row->stored = true;
    now->resource = (struct resource){
        .id = row->new_id,
        .fence.token = pg_value_int64(&txn->pg, result, at, 2),
        .fence.state = (enum fence_state)pg_value_int64(&txn->pg, result, at, 3),
        .type = type_of(pg_value_int64(&txn->pg, result, at, 4)),
    };
    now->lease = (struct lease){
        .holds = pg_value_int64(&txn->pg, result, at, 5),
        .ttl_ms = pg_value_int64(&txn->pg, result, at, 6),
        .session = pg_value_int64(&txn->pg, result, at, 7),
        .connection = pg_value_int64(&txn->pg, result, at, 8),
        .anonymous = pg_value_bool(&txn->pg, result, at, 9),
        .owner = set_copy(set, pg_value_bytes(&txn->pg, result, at, 10)),
        .changed_ms = pg_value_int64(&txn->pg, result, at, 11),
        .receipts_gone = pg_value_int64(&txn->pg, result, at, 12),
        .change = pg_value_int64(&txn->pg, result, at, 17),
    };
    now->waited = row->was_waited = pg_value_bool(&txn->pg, result, at, 18);
    now->receipts_token = pg_value_int64(&txn->pg, result, at, 13);
    now->fields = pg_value_int64(&txn->pg, result, at, 14);
    row->string_known = pg_value_bool(&txn->pg, result, at, 15) ? KNOWN : UNKNOWN;
    row->string = set_copy(set, pg_value_bytes(&txn->pg, result, at, 16));
    row->known = KNOWN;
}

/* What is wanted, as parameters of the statements that ask for it. */
struct wishes {
    struct pg_array names, strings, hashes, field_ids, field_keys, receipt_ids, receipt_keys;
    struct pg_array hint_names[2], hint_keys[2]; /* of fields, of receipts */
};

static void add_part(struct pg_array *ids, struct pg_array *keys, const struct part *part)
{
    pg_array_int64(ids, part->row->new_id);
    pg_array_bytes(keys, part->key);
}

static void collect_hints(const struct set *set, struct wishes *wishes)
{
    for (int kind = 0; kind < 2; kind++) {
        pg_array_start(&wishes->hint_names[kind], PG_BYTEA);
        pg_array_start(&wishes->hint_keys[kind], PG_BYTEA);
    }
    for (size_t i = 0; i < set->hints_count; i++) {
        const struct hint *hint = &set->hints[i];
        pg_array_bytes(&wishes->hint_names[hint->kind == PART_RECEIPT], hint->row->name);
        pg_array_bytes(&wishes->hint_keys[hint->kind == PART_RECEIPT], hint->key);
    }
}

static void collect(const struct set *set, struct wishes *wishes)
{
    collect_hints(set, wishes);
    pg_array_start(&wishes->names, PG_BYTEA);
    pg_array_start(&wishes->strings, PG_INT8);
    pg_array_start(&wishes->hashes, PG_INT8);
    pg_array_start(&wishes->field_ids, PG_INT8);
    pg_array_start(&wishes->field_keys, PG_BYTEA);
    pg_array_start(&wishes->receipt_ids, PG_INT8);
    pg_array_start(&wishes->receipt_keys, PG_BYTEA);
    for (struct list *at = set->rows.next; at != &set->rows; at = at->next) {
        const struct row *row = list_entry(at, const struct row, link);
        if (row->known == WANTED)
            pg_array_bytes(&wishes->names, row->name);
        if (row->string_known == WANTED)
            pg_array_int64(&wishes->strings, row->new_id);
        if (row->fields == WANTED)
            pg_array_int64(&wishes->hashes, row->new_id);
    }
    for (struct list *at = set->parts.next; at != &set->parts; at = at->next) {
        const struct part *part = list_entry(at, const struct part, link);
        if (part->known != WANTED)
            continue;
        if (part->kind == PART_FIELD)
            add_part(&wishes->field_ids, &wishes->field_keys, part);
        else
            add_part(&wishes->receipt_ids, &wishes->receipt_keys, part);
    }
}

static void free_wishes(struct wishes *wishes)
{
    for (int kind = 0; kind < 2; kind++) {
        buf_free(&wishes->hint_names[kind].buf);
        buf_free(&wishes->hint_keys[kind].buf);
    }
    buf_free(&wishes->names.buf);
    buf_free(&wishes->strings.buf);
    buf_free(&wishes->hashes.buf);
    buf_free(&wishes->field_ids.buf);
    buf_free(&wishes->field_keys.buf);
    buf_free(&wishes->receipt_ids.buf);
    buf_free(&wishes->receipt_keys.buf);
}

static void ask(struct pg_txn *txn, enum pg_statement statement, struct pg_array *one,
                struct pg_array *two)
{
    struct pg_params params = {.count = 0};

    if (one->count == 0)
        return;
    pg_param_array(&params, one);
    if (two != NULL)
        pg_param_array(&params, two);
    pg_send(&txn->pg, statement, &params);
}

static void send_begin(struct pg_txn *txn, enum pg_statement lock)
{
    pg_send(&txn->pg, txn->kind == PG_READS ? PG_BEGIN_READ : PG_BEGIN, NULL);
    if (txn->kind != PG_READS)
        pg_send(&txn->pg, lock, NULL);
}

static void skip(struct pg_txn *txn)
{
    txn->pg.pq.PQclear(pg_take(&txn->pg));
}

static void take_begin(struct pg_txn *txn)
{
    skip(txn);
    if (txn->kind != PG_READS)
        skip(txn);
}

static void take_state(struct pg_txn *txn)
{
    PGresult *result = pg_take(&txn->pg);

    if (result != NULL && txn->pg.pq.PQntuples(result) == 1) {
        txn->floor = pg_value_int64(&txn->pg, result, 0, 0);
        txn->now_ms = pg_value_int64(&txn->pg, result, 0, 1);
        bool agrees =
            pg_clock_look(&txn->shared->clock,
                          &(struct pg_clock_look){.now_ms = txn->now_ms,
                                                  .number = pg_value_int64(&txn->pg, result, 0, 3),
                                                  .sent_ms = txn->pg.sent_ms,
                                                  .got_ms = clock_now_ms(&clock_monotonic)},
                          &txn->since_ms);
        txn->renamed = !agrees || pg_value_bool(&txn->pg, result, 0, 2);
    }
    txn->pg.pq.PQclear(result);
}

static void take_rows(struct pg_txn *txn)
{
    PGresult *result = pg_take(&txn->pg);

    for (int i = 0; i < txn->pg.pq.PQntuples(result); i++)
        take_row(txn, result, i);
    txn->pg.pq.PQclear(result);
}

static void take_strings(struct pg_txn *txn)
{
    PGresult *result = pg_take(&txn->pg);

    for (int i = 0; i < txn->pg.pq.PQntuples(result); i++) {
        struct row *row = set_row_by_id(&txn->set, pg_value_int64(&txn->pg, result, i, 0));
        row->string = set_copy(&txn->set, pg_value_bytes(&txn->pg, result, i, 1));
        row->string_known = KNOWN;
    }
    txn->pg.pq.PQclear(result);
}

/* A part, as its statement gives it. */
static void take_part(struct pg_txn *txn, struct part *part, const PGresult *result, int at)
{
    struct set *set = &txn->set;
    struct part_content *now = &part->now;

    now->exists = true;
    if (part->kind == PART_FIELD)
        now->value = set_copy(set, pg_value_bytes(&txn->pg, result, at, 2));
    else
        now->receipt = (struct receipt){
            .token = pg_value_int64(&txn->pg, result, at, 2),
            .fingerprint = (uint64_t)pg_value_int64(&txn->pg, result, at, 3),
            .resp3 = pg_value_bool(&txn->pg, result, at, 4),
            .written_ms = pg_value_int64(&txn->pg, result, at, 5),
            .reply = set_copy(set, pg_value_bytes(&txn->pg, result, at, 6)),
        };
    part->known = KNOWN;
}

/* What an operation has changed stays. */
static void take_parts(struct pg_txn *txn, enum part_kind kind)
{
    PGresult *result = pg_take(&txn->pg);

    for (int i = 0; i < txn->pg.pq.PQntuples(result); i++) {
        struct set *set = &txn->set;
        struct row *row = set_row_by_id(set, pg_value_int64(&txn->pg, result, i, 0));
        struct part *part = set_part(set, row, kind, pg_value_bytes(&txn->pg, result, i, 1));
        if (part->known != KNOWN)
            take_part(txn, part, result, i);
    }
    txn->pg.pq.PQclear(result);
}

/* The parts of hints, whose rows have come before: those that do not come are not there. Where the
 * row has not come, nothing is known of its parts. */
static void take_hinted(struct pg_txn *txn, enum part_kind kind)
{
    struct set *set = &txn->set;
    PGresult *result = pg_take(&txn->pg);

    for (size_t i = 0; result != NULL && i < set->hints_count; i++)
        if (set->hints[i].kind == kind && set->hints[i].row->stored)
            set_part(set, set->hints[i].row, kind, set->hints[i].key)->known = KNOWN;
    for (int i = 0; i < txn->pg.pq.PQntuples(result); i++) {
        struct row *row = set_row_by_id(set, pg_value_int64(&txn->pg, result, i, 0));
        if (row == NULL || !row->stored)
            continue;
        struct part *part = set_part(set, row, kind, pg_value_bytes(&txn->pg, result, i, 1));
        if (txn->pg.pq.PQgetisnull(result, i, kind == PART_FIELD ? 2 : 6))
            part->known = UNKNOWN;
        else
            take_part(txn, part, result, i);
    }
    txn->pg.pq.PQclear(result);
}

static void take_ids(struct pg_txn *txn)
{
    PGresult *result = pg_take(&txn->pg);

    if (result != NULL) {
        txn->next_id = pg_value_int64(&txn->pg, result, 0, 0);
        txn->ids_end = txn->next_id + IDS_BLOCK;
    }
    txn->pg.pq.PQclear(result);
}

/* Names that did not come: the row is locked, or there is none. */
static bool tell_locked(struct pg_txn *txn)
{
    struct set *set = &txn->set;
    struct pg_array names;
    struct pg_params params = {.count = 0};

    pg_array_start(&names, PG_BYTEA);
    for (struct list *at = set->rows.next; at != &set->rows; at = at->next) {
        struct row *row = list_entry(at, struct row, link);
        if (row->known != WANTED)
            continue;
        pg_array_bytes(&names, row->name);
        row->known = KNOWN;
    }
    if (names.count > 0 && txn->kind != PG_READS) {
        pg_param_array(&params, &names);
        pg_send(&txn->pg, PG_EXISTING, &params);
        pg_send(&txn->pg, PG_STATE, NULL); /* behind: a row that has gone has raised the floor */
        pg_sync(&txn->pg);
        PGresult *result = pg_take(&txn->pg);
        for (int i = 0; i < txn->pg.pq.PQntuples(result); i++)
            set_row(set, pg_value_bytes(&txn->pg, result, i, 0))->known = LOCKED;
        txn->pg.pq.PQclear(result);
        take_state(txn);
        (void)pg_end(&txn->pg);
    }
    buf_free(&names.buf);
    return txn->pg.conn != NULL && !txn->pg.failed;
}

/* What did not come of the rest is not there. */
static void settle(struct pg_txn *txn)
{
    struct set *set = &txn->set;

    for (struct list *at = set->rows.next; at != &set->rows; at = at->next) {
        struct row *row = list_entry(at, struct row, link);
        if (row->fields == WANTED)
            row->fields = KNOWN;
        if (row->string_known == WANTED)
            row->string_known = KNOWN;
    }
    for (struct list *at = set->parts.next; at != &set->parts; at = at->next) {
        struct part *part = list_entry(at, struct part, link);
        if (part->known == WANTED)
            part->known = KNOWN;
    }
}

static bool load(struct pg_txn *txn, bool ends)
{
    struct wishes wishes;
    struct pg *pg = &txn->pg;
    bool begins = !txn->begun, reads = txn->kind == PG_READS,
         ids = !reads && txn->ids_end - txn->next_id < IDS_LOW;

    collect(&txn->set, &wishes);
    if (begins)
        send_begin(txn, PG_FLOOR_SHARED);
    ask(txn, reads ? PG_FIND : PG_LOCK, &wishes.names, NULL);
    ask(txn, PG_FIELDS_OF, &wishes.hint_names[0], &wishes.hint_keys[0]);
    ask(txn, PG_RECEIPTS_OF, &wishes.hint_names[1], &wishes.hint_keys[1]);
    ask(txn, PG_STRINGS, &wishes.strings, NULL);
    ask(txn, PG_ALL_FIELDS, &wishes.hashes, NULL);
    ask(txn, PG_FIELDS, &wishes.field_ids, &wishes.field_keys);
    ask(txn, PG_RECEIPTS, &wishes.receipt_ids, &wishes.receipt_keys);
    pg_send(pg, PG_STATE, NULL);
    if (ids)
        pg_send(pg, PG_IDS, NULL);
    if (ends) {
        pg_send(pg, PG_COMMIT, NULL);
        pg_send(pg, PG_BARRIER, NULL);
    }
    pg_sync(pg);
    if (begins)
        take_begin(txn);
    if (wishes.names.count > 0)
        take_rows(txn);
    if (wishes.hint_names[0].count > 0)
        take_hinted(txn, PART_FIELD);
    if (wishes.hint_names[1].count > 0)
        take_hinted(txn, PART_RECEIPT);
    txn->set.hints_count = 0;
    if (wishes.strings.count > 0)
        take_strings(txn);
    if (wishes.hashes.count > 0)
        take_parts(txn, PART_FIELD);
    if (wishes.field_ids.count > 0)
        take_parts(txn, PART_FIELD);
    if (wishes.receipt_ids.count > 0)
        take_parts(txn, PART_RECEIPT);
    take_state(txn);
    if (ids)
        take_ids(txn);
    free_wishes(&wishes);
    bool done = pg_end(pg);
    txn->begun = pg->conn != NULL && (!ends || !done); /* after an error it was not ended */
    bool good = done && (!ends || !pg->warned) && tell_locked(txn);
    settle(txn);
    return good;
}

bool pg_load(struct pg_txn *txn)
{
    return load(txn, false);
}

bool pg_load_all(struct pg_txn *txn)
{
    return load(txn, true);
}

bool pg_begin_floor(struct pg_txn *txn)
{
    send_begin(txn, PG_FLOOR_ALONE);
    pg_send(&txn->pg, PG_STATE, NULL);
    pg_sync(&txn->pg);
    take_begin(txn);
    take_state(txn);
    txn->begun = txn->pg.conn != NULL;
    return pg_end(&txn->pg);
}

/* Writing. */

enum { COLUMNS = 18 };

/* Rows of a statement, column by column. */
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

/* Queues the statement, unless it has no rows. `dated`: the time is its last parameter. */
static void send_columns(struct pg_txn *txn, enum pg_statement statement, struct columns *columns,
                         bool dated)
{
    struct pg_params params = {.count = 0};

    for (size_t i = 0; i < columns->count; i++)
        pg_param_array(&params, &columns->of[i]);
    if (dated)
        pg_param_int64(&params, txn->now_ms);
    if (columns->rows > 0)
        pg_send(&txn->pg, statement, &params);
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
    pg_array_int64(&of[at++], lease->session);
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
        pg_array_int64(&columns.of[0], row->new_id);
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
        pg_array_int64(&columns.of[0], row->new_id);
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
        pg_array_int64(&columns.of[0], row->new_id);
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

/* In the order of their names, so that no two daemons wait for each other. */
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
        pg_array_int64(&columns.of[0], made[i]->new_id);
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
        pg_array_int64(&columns.of[0], row->new_id);
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
        pg_array_int64(&columns.of[0], part->row->new_id);
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

/* Queues all that has changed. What is there already comes first, in the hands of this transaction
 * anyway; what waits for others, new names, last. */
static void send_changes(struct pg_txn *txn)
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
    send_changes(txn);
    pg_sync(&txn->pg);
    if (!pg_end(&txn->pg))
        return false;
    set_written(&txn->set);
    txn->wrote = true;
    return true;
}

static void send_mark(struct pg_txn *txn, enum pg_statement statement, int64_t number)
{
    struct pg_params params = {.count = 0};

    pg_param_int64(&params, atomic_load(&txn->shared->session));
    pg_param_int64(&params, number);
    if (statement != PG_MARKS_PRUNE)
        pg_param_int64(&params, txn->now_ms);
    pg_send(&txn->pg, statement, &params);
}

/* A connection begins a transaction only when it knows what became of the one before. So its older
 * marks are of no use; another connection's are none of its business. */
static void send_marks(struct pg_txn *txn)
{
    txn->last_mark += PG_LANES;
    txn->mark = txn->last_mark + txn->lane;
    txn->mark_ms = txn->now_ms;
    if (txn->mark % MARKS_KEPT < PG_LANES)
        send_mark(txn, PG_MARKS_PRUNE, txn->mark);
    send_mark(txn, PG_MARK, txn->mark);
}

/* May the same succeed at once? */
static bool is_passing(const struct pg *pg)
{
    static const char *const states[] = {"23505", "40001", "40P01"};

    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(pg->sqlstate, states[i]) == 0)
            return true;
    return false;
}

/* A user's SQL may have left what outlives its transaction. */
static void send_clean(struct pg_txn *txn)
{
    if (txn->soiled) {
        pg_send(&txn->pg, PG_SQL_UNLOCK, NULL);
        pg_send(&txn->pg, PG_SQL_UNLISTEN, NULL);
    }
    txn->soiled = false;
}

void pg_roll_back(struct pg_txn *txn)
{
    struct pg *pg = &txn->pg;
    char why[STORE_WHY_MAX];

    set_clear(&txn->set);
    txn->wrote = txn->marked = false;
    if (txn->spoilt)
        pg_drop(pg);
    if (pg->conn != NULL && txn->begun) {
        memcpy(why, pg->why, sizeof why);
        pg_send(pg, PG_ROLLBACK, NULL);
        send_clean(txn);
        pg_sync(pg);
        if (pg_end(pg))
            memcpy(pg->why, why, sizeof why);
    }
    txn->begun = false;
}

void pg_commit_send(struct pg_txn *txn)
{
    bool changed = set_changed(&txn->set) || txn->wrote;

    check(txn->begun);
    txn->mark = 0;
    if (changed) {
        send_changes(txn);
        send_marks(txn);
    }
    pg_send(&txn->pg, PG_COMMIT, NULL);
    if (!changed)
        pg_send(&txn->pg, PG_BARRIER, NULL);
    send_clean(txn);
    pg_sync(&txn->pg);
}

enum pg_ended pg_commit_take(struct pg_txn *txn)
{
    struct pg *pg = &txn->pg;
    bool good = pg_end(pg);

    if (good && !pg->warned) {
        txn->begun = false;
        return PG_COMMITTED;
    }
    if (pg->conn != NULL && !good)
        return is_passing(pg) ? PG_AGAIN : PG_NOT;
    pg_drop(pg);
    txn->begun = false;
    return txn->mark != 0 ? PG_UNKNOWN : PG_NOT;
}

enum pg_ended pg_commit(struct pg_txn *txn)
{
    if (txn->spoilt) { /* of reads, only that refusal is told */
        pg_roll_back(txn);
        return txn->kind == PG_READS ? PG_COMMITTED : PG_NOT;
    }
    pg_commit_send(txn);
    return pg_commit_take(txn);
}

/* Who waits for an index entry of the same mark waits for the end of the transaction that made it,
 * the wait for its standby included. Our own commit is replicated behind it. */
enum pg_ended pg_outcome(struct pg_txn *txn, int64_t mark)
{
    struct pg *pg = &txn->pg;
    bool is_void = false;

    pg_send(pg, PG_BEGIN, NULL);
    send_mark(txn, PG_MARK_VOID, mark);
    pg_send(pg, PG_COMMIT, NULL);
    pg_sync(pg);
    skip(txn);
    PGresult *result = pg_take(pg);
    if (result != NULL)
        is_void = pg_value_bool(&txn->pg, result, 0, 0);
    bool known = result != NULL;
    txn->pg.pq.PQclear(result);
    bool good = pg_end(pg) && known && !pg->warned;
    if (!good && pg->conn != NULL)
        pg_drop(pg);
    if (!good)
        return PG_UNKNOWN;
    if (is_void && txn->now_ms - txn->mark_ms > PG_MARK_KEPT_MS / 2) {
        atomic_store(&txn->shared->lost, true);
        return PG_UNKNOWN;
    }
    return is_void ? PG_NOT : PG_COMMITTED;
}
