/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/load.h"

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "store/postgresql/statements.h"

enum {
    IDS_BLOCK = 1000, /* as the sequence counts */
    IDS_LOW = 64,
};

static enum value_type type_of(int64_t number)
{
    return number == VALUE_STRING || number == VALUE_HASH ? (enum value_type)number : VALUE_NONE;
}

/* Could a fence be like that, and a type? Anything else is damage. */
static bool is_plausible(const struct pg_txn *txn, const PGresult *result, int at)
{
    int64_t token = pg_value_int64(txn->pg, result, at, 2),
            state = pg_value_int64(txn->pg, result, at, 3),
            type = pg_value_int64(txn->pg, result, at, 4);

    return token >= 0 && token <= TOKEN_MAX && state >= FENCE_NONE && state <= FENCE_REVOKED &&
           type >= VALUE_NONE && type <= VALUE_HASH;
}

/* Take a resource's row, with the columns of PG_ROW, into the set. */
static void take_row(struct pg_txn *txn, const PGresult *result, int at)
{
    struct set *set = &txn->set;
    struct row *row = set_row(set, pg_value_bytes(txn->pg, result, at, 1));
    struct content *now = &row->now;

    set_identify(set, row, pg_value_int64(txn->pg, result, at, 0));
    row->implausible = !is_plausible(txn, result, at);
    now->exists = row->stored = true;
    now->resource = (struct resource){
        .id = row->id,
        .fence.token = pg_value_int64(txn->pg, result, at, 2),
        .fence.state = (enum fence_state)pg_value_int64(txn->pg, result, at, 3),
        .type = type_of(pg_value_int64(txn->pg, result, at, 4)),
    };
    now->lease = (struct lease){
        .holds = pg_value_int64(txn->pg, result, at, 5),
        .ttl_ms = pg_value_int64(txn->pg, result, at, 6),
        .opening = pg_value_int64(txn->pg, result, at, 7),
        .connection = pg_value_int64(txn->pg, result, at, 8),
        .anonymous = pg_value_bool(txn->pg, result, at, 9),
        .owner = set_copy(set, pg_value_bytes(txn->pg, result, at, 10)),
        .changed_ms = pg_value_int64(txn->pg, result, at, 11),
        .receipts_gone = pg_value_int64(txn->pg, result, at, 12),
        .change = pg_value_int64(txn->pg, result, at, 16),
    };
    now->waited = row->was_waited = pg_value_bool(txn->pg, result, at, 17);
    now->receipts_token = pg_value_int64(txn->pg, result, at, 13);
    now->fields = pg_value_int64(txn->pg, result, at, 14);
    row->string_known = txn->pg->pq.PQgetisnull(result, at, 15) ? UNKNOWN : KNOWN;
    row->string = set_copy(set, pg_value_bytes(txn->pg, result, at, 15));
    row->known = KNOWN;
}

/* All of the set that is wanted, as parameters of the statements that ask for it. */
struct wanted {
    struct pg_array names, strings, hashes, field_ids, field_keys, receipt_ids, receipt_keys;
    struct pg_array hint_names[2], hint_keys[2]; /* of fields, of receipts */
};

static void add_part(struct pg_array *ids, struct pg_array *keys, const struct part *part)
{
    pg_array_int64(ids, part->row->id);
    pg_array_bytes(keys, part->key);
}

static void collect_hints(const struct set *set, struct wanted *wanted)
{
    for (int kind = 0; kind < 2; kind++) {
        pg_array_start(&wanted->hint_names[kind], PG_BYTEA);
        pg_array_start(&wanted->hint_keys[kind], PG_BYTEA);
    }
    for (size_t i = 0; i < set->hints_count; i++) {
        const struct hint *hint = &set->hints[i];
        pg_array_bytes(&wanted->hint_names[hint->kind == PART_RECEIPT], hint->row->name);
        pg_array_bytes(&wanted->hint_keys[hint->kind == PART_RECEIPT], hint->key);
    }
}

static void collect(const struct set *set, struct wanted *wanted)
{
    collect_hints(set, wanted);
    pg_array_start(&wanted->names, PG_BYTEA);
    pg_array_start(&wanted->strings, PG_INT8);
    pg_array_start(&wanted->hashes, PG_INT8);
    pg_array_start(&wanted->field_ids, PG_INT8);
    pg_array_start(&wanted->field_keys, PG_BYTEA);
    pg_array_start(&wanted->receipt_ids, PG_INT8);
    pg_array_start(&wanted->receipt_keys, PG_BYTEA);
    for (struct list *at = set->rows.next; at != &set->rows; at = at->next) {
        const struct row *row = list_entry(at, const struct row, link);
        if (row->known == WANTED)
            pg_array_bytes(&wanted->names, row->name);
        if (row->string_known == WANTED)
            pg_array_int64(&wanted->strings, row->id);
        if (row->fields == WANTED)
            pg_array_int64(&wanted->hashes, row->id);
    }
    for (struct list *at = set->parts.next; at != &set->parts; at = at->next) {
        const struct part *part = list_entry(at, const struct part, link);
        if (part->known != WANTED)
            continue;
        if (part->kind == PART_FIELD)
            add_part(&wanted->field_ids, &wanted->field_keys, part);
        else
            add_part(&wanted->receipt_ids, &wanted->receipt_keys, part);
    }
}

static void free_wanted(struct wanted *wanted)
{
    for (int kind = 0; kind < 2; kind++) {
        buf_free(&wanted->hint_names[kind].buf);
        buf_free(&wanted->hint_keys[kind].buf);
    }
    buf_free(&wanted->names.buf);
    buf_free(&wanted->strings.buf);
    buf_free(&wanted->hashes.buf);
    buf_free(&wanted->field_ids.buf);
    buf_free(&wanted->field_keys.buf);
    buf_free(&wanted->receipt_ids.buf);
    buf_free(&wanted->receipt_keys.buf);
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
    pg_send(txn->pg, statement, &params);
}

static void send_begin(struct pg_txn *txn, enum pg_statement lock)
{
    pg_send(txn->pg, txn->kind == PG_READS ? PG_BEGIN_READ : PG_BEGIN, NULL);
    if (txn->kind != PG_READS)
        pg_send(txn->pg, lock, NULL);
}

static void take_begin(struct pg_txn *txn)
{
    pg_skip(txn->pg, txn->kind == PG_READS ? 1 : 2);
}

/* Return what the column says that differs. */
static enum pg_differs differs(const struct pg *pg, const PGresult *result, int column)
{
    static const char *const names[] = {"",
#define X(name, sql, text) #name,
                                        PG_DIFFERS_MAP(X)
#undef X
    };
    struct bytes name = pg_value_bytes(pg, result, 0, column);
    size_t at = 0;

    while (!bytes_equal(name, bytes_of(names[at])))
        check(++at < sizeof names / sizeof *names);
    return (enum pg_differs)at;
}

static void take_state(struct pg_txn *txn)
{
    PGresult *result = pg_take(txn->pg);

    if (result != NULL && txn->pg->pq.PQntuples(result) == 1) {
        txn->floor = pg_value_int64(txn->pg, result, 0, 0);
        txn->now_ms = pg_value_int64(txn->pg, result, 0, 1);
        struct server_clock_look look = {.now_ms = txn->now_ms,
                                         .number = pg_value_int64(txn->pg, result, 0, 3),
                                         .sent_ms = txn->pg->sent_ms,
                                         .got_ms = clock_now_ms(&clock_monotonic)};
        bool agrees = server_clock_look(&txn->shared->clock, &look, &txn->since_ms);
        txn->differs = differs(txn->pg, result, 2);
        if (txn->differs == PG_SAME)
            pg_replication_found(txn->shared, pg_value_bool(txn->pg, result, 0, 5), look.sent_ms,
                                 look.got_ms);
        if (txn->differs == PG_SAME && !agrees)
            txn->differs = PG_CLOCK_DIFFERS;
        txn->ended = pg_value_int64(txn->pg, result, 0, 4);
    }
    txn->pg->pq.PQclear(result);
}

static void take_rows(struct pg_txn *txn)
{
    PGresult *result = pg_take(txn->pg);

    for (int i = 0; i < txn->pg->pq.PQntuples(result); i++)
        take_row(txn, result, i);
    txn->pg->pq.PQclear(result);
}

static void take_strings(struct pg_txn *txn)
{
    PGresult *result = pg_take(txn->pg);

    for (int i = 0; i < txn->pg->pq.PQntuples(result); i++) {
        struct row *row = set_row_by_id(&txn->set, pg_value_int64(txn->pg, result, i, 0));
        row->string = set_copy(&txn->set, pg_value_bytes(txn->pg, result, i, 1));
        row->string_known = KNOWN;
    }
    txn->pg->pq.PQclear(result);
}

/* Take a field or a receipt, with the columns of its statement, into the set. */
static void take_part(struct pg_txn *txn, struct part *part, const PGresult *result, int at)
{
    struct set *set = &txn->set;
    struct part_content *now = &part->now;

    now->exists = true;
    if (part->kind == PART_FIELD)
        now->value = set_copy(set, pg_value_bytes(txn->pg, result, at, 2));
    else
        now->receipt = (struct receipt){
            .token = pg_value_int64(txn->pg, result, at, 2),
            .fingerprint = (uint64_t)pg_value_int64(txn->pg, result, at, 3),
            .resp3 = pg_value_bool(txn->pg, result, at, 4),
            .written_ms = pg_value_int64(txn->pg, result, at, 5),
            .reply = set_copy(set, pg_value_bytes(txn->pg, result, at, 6)),
        };
    part->known = KNOWN;
}

/* Take the fields or receipts that were asked for. Those that are in the set already stay as they
 * are: operations may have changed them. */
static void take_parts(struct pg_txn *txn, enum part_kind kind)
{
    PGresult *result = pg_take(txn->pg);

    for (int i = 0; i < txn->pg->pq.PQntuples(result); i++) {
        struct set *set = &txn->set;
        struct row *row = set_row_by_id(set, pg_value_int64(txn->pg, result, i, 0));
        struct bytes key = pg_value_bytes(txn->pg, result, i, 1);
        row->implausible |= key.len > SET_KEY_MAX;
        if (row->implausible)
            continue;
        struct part *part = set_part(set, row, kind, key);
        if (part->known != KNOWN)
            take_part(txn, part, result, i);
    }
    txn->pg->pq.PQclear(result);
}

/* Take the fields or receipts of hints; their rows came before. A part that does not come is not
 * there, but where its row has not come either, nothing is known of it. */
static void take_hinted(struct pg_txn *txn, enum part_kind kind)
{
    struct set *set = &txn->set;
    PGresult *result = pg_take(txn->pg);

    for (size_t i = 0; result != NULL && i < set->hints_count; i++)
        if (set->hints[i].kind == kind && set->hints[i].row->stored)
            set_part(set, set->hints[i].row, kind, set->hints[i].key)->known = KNOWN;
    for (int i = 0; i < txn->pg->pq.PQntuples(result); i++) {
        struct row *row = set_row_by_id(set, pg_value_int64(txn->pg, result, i, 0));
        if (row == NULL || !row->stored)
            continue;
        struct part *part = set_part(set, row, kind, pg_value_bytes(txn->pg, result, i, 1));
        if (txn->pg->pq.PQgetisnull(result, i, kind == PART_FIELD ? 2 : 6))
            part->known = UNKNOWN;
        else
            take_part(txn, part, result, i);
    }
    txn->pg->pq.PQclear(result);
}

static void take_ids(struct pg_txn *txn)
{
    PGresult *result = pg_take(txn->pg);

    if (result != NULL) {
        txn->next_id = pg_value_int64(txn->pg, result, 0, 0);
        txn->ids_end = txn->next_id + IDS_BLOCK;
    }
    txn->pg->pq.PQclear(result);
}

/* For names whose row did not come, find out whether it is locked or not there. */
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
        pg_send(txn->pg, PG_EXISTING, &params);
        pg_send(txn->pg, PG_STATE, NULL); /* last: if a row was removed, the floor has risen */
        pg_sync(txn->pg);
        PGresult *result = pg_take(txn->pg);
        for (int i = 0; i < txn->pg->pq.PQntuples(result); i++)
            set_row(set, pg_value_bytes(txn->pg, result, i, 0))->known = LOCKED;
        txn->pg->pq.PQclear(result);
        take_state(txn);
        (void)pg_end(txn->pg);
    }
    buf_free(&names.buf);
    return txn->pg->conn != NULL && !txn->pg->failed;
}

/* Where all leases were ended at once, their rows do not say so: note it here. */
static void end_row(struct row *row, int64_t ended)
{
    struct fence *fence = &row->now.resource.fence;

    if (row->known != KNOWN || fence->state != FENCE_LIVE || fence->token > ended)
        return;
    fence->state = FENCE_REVOKED;
    row->now.lease.holds = 0;
}

/* Note of all that was asked for and did not come that it is not there. */
static void settle(struct pg_txn *txn)
{
    struct set *set = &txn->set;

    for (struct list *at = set->rows.next; at != &set->rows; at = at->next) {
        struct row *row = list_entry(at, struct row, link);
        end_row(row, txn->ended);
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
    struct wanted wanted;
    struct pg *pg = txn->pg;
    bool begins = !txn->begun, reads = txn->kind == PG_READS,
         ids = !reads && txn->ids_end - txn->next_id < IDS_LOW;

    collect(&txn->set, &wanted);
    if (begins)
        send_begin(txn, PG_FLOOR_SHARED);
    ask(txn, reads ? PG_FIND : PG_LOCK, &wanted.names, NULL);
    ask(txn, PG_FIELDS_OF, &wanted.hint_names[0], &wanted.hint_keys[0]);
    ask(txn, PG_RECEIPTS_OF, &wanted.hint_names[1], &wanted.hint_keys[1]);
    ask(txn, PG_STRINGS, &wanted.strings, NULL);
    ask(txn, PG_ALL_FIELDS, &wanted.hashes, NULL);
    ask(txn, PG_FIELDS, &wanted.field_ids, &wanted.field_keys);
    ask(txn, PG_RECEIPTS, &wanted.receipt_ids, &wanted.receipt_keys);
    pg_send(pg, PG_STATE, NULL);
    if (ids)
        pg_send(pg, PG_IDS, NULL);
    if (ends) {
        pg_send(pg, PG_COMMIT, NULL);
        pg_send(pg, PG_BARRIER, NULL);
        pg_sync_deciding(pg);
    } else {
        pg_sync(pg);
    }
    if (begins)
        take_begin(txn);
    if (wanted.names.count > 0)
        take_rows(txn);
    if (wanted.hint_names[0].count > 0)
        take_hinted(txn, PART_FIELD);
    if (wanted.hint_names[1].count > 0)
        take_hinted(txn, PART_RECEIPT);
    txn->set.hints_count = 0;
    if (wanted.strings.count > 0)
        take_strings(txn);
    if (wanted.hashes.count > 0)
        take_parts(txn, PART_FIELD);
    if (wanted.field_ids.count > 0)
        take_parts(txn, PART_FIELD);
    if (wanted.receipt_ids.count > 0)
        take_parts(txn, PART_RECEIPT);
    take_state(txn);
    if (ids)
        take_ids(txn);
    free_wanted(&wanted);
    bool done = pg_end(pg);
    txn->begun = pg->conn != NULL && (!ends || !done); /* after an error COMMIT was skipped */
    bool good = done && (!ends || pg->decision == PG_DECIDED) && tell_locked(txn);
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
    send_begin(txn, PG_FLOOR_EXCLUSIVE);
    pg_send(txn->pg, PG_STATE, NULL);
    pg_sync(txn->pg);
    take_begin(txn);
    take_state(txn);
    txn->begun = txn->pg->conn != NULL;
    return pg_end(txn->pg);
}
