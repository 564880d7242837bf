/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/tables.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "store/postgresql/changes.h"
#include "store/postgresql/load.h"

bool pg_may_use_tables(struct pg_txn *txn)
{
    if (txn->stop != PG_ON)
        return false;
    if (txn->kind == PG_BATCH || (txn->kind == PG_READS && !txn->direct)) {
        (void)pg_stop(txn, txn->kind == PG_BATCH ? PG_NEEDS_OWN : PG_MISSING);
        return false;
    }
    if ((txn->begun || pg_load(txn)) && pg_write(txn))
        return true;
    (void)pg_stop(txn, PG_FAILED);
    return false;
}

/* Run one statement, and return its rows. NULL: the operation has stopped. */
static PGresult *query_within(struct pg_txn *txn, enum pg_statement statement,
                              const struct pg_params *params, int limit_ms)
{
    pg_send(txn->pg, statement, params);
    pg_sync_within(txn->pg, limit_ms);
    PGresult *result = pg_take(txn->pg);
    if (!pg_end(txn->pg)) {
        txn->pg->pq.PQclear(result);
        result = NULL;
    }
    if (result == NULL)
        (void)pg_stop(txn, PG_FAILED);
    return result;
}

static PGresult *query(struct pg_txn *txn, enum pg_statement statement,
                       const struct pg_params *params)
{
    return query_within(txn, statement, params, txn->pg->timeout_ms);
}

static enum stk_error run(struct pg_txn *txn, enum pg_statement statement,
                          const struct pg_params *params)
{
    PGresult *result = query(txn, statement, params);
    bool good = result != NULL;

    txn->pg->pq.PQclear(result);
    txn->wrote = true;
    return good ? STK_OK : STK_STORE;
}

static enum stk_error number(struct pg_txn *txn, enum pg_statement statement,
                             const struct pg_params *params, int64_t *value)
{
    PGresult *result = query(txn, statement, params);
    bool good = result != NULL;

    if (good)
        *value = pg_value_int64(txn->pg, result, 0, 0);
    txn->pg->pq.PQclear(result);
    return good ? STK_OK : STK_STORE;
}

static enum stk_error truth(struct pg_txn *txn, enum pg_statement statement,
                            const struct pg_params *params, bool *value)
{
    PGresult *result = query(txn, statement, params);
    bool good = result != NULL;

    if (good)
        *value = pg_value_bool(txn->pg, result, 0, 0);
    txn->pg->pq.PQclear(result);
    return good ? STK_OK : STK_STORE;
}

/* Lists. */

static enum stk_error each_name(struct store_txn *base, enum pg_statement statement, int64_t after,
                                txn_each_name each, void *context)
{
    struct pg_txn *txn = pg_txn_of(base);
    bool more = true;

    if (!pg_may_use_tables(txn))
        return STK_STORE;
    while (more) {
        struct pg_params params = {.count = 0};
        pg_param_int64(&params, after);
        PGresult *result = query(txn, statement, &params);
        if (result == NULL)
            return STK_STORE;
        int rows = txn->pg->pq.PQntuples(result);
        more = rows == PG_PAGE_MAX;
        for (int i = 0; i < rows; i++) {
            after = pg_value_int64(txn->pg, result, i, 0);
            if (!each(context, after, pg_value_bytes(txn->pg, result, i, 1),
                      (enum value_type)pg_value_int64(txn->pg, result, i, 2))) {
                more = false;
                break;
            }
        }
        txn->pg->pq.PQclear(result);
    }
    return STK_OK;
}

enum stk_error pg_each_live(struct store_txn *txn, int64_t after, txn_each_name each, void *context)
{
    return each_name(txn, PG_EACH_LIVE, after, each, context);
}

enum stk_error pg_each_key(struct store_txn *txn, int64_t after, txn_each_name each, void *context)
{
    return each_name(txn, PG_EACH_KEY, after, each, context);
}

enum stk_error pg_count_keys(struct store_txn *base, int64_t *count)
{
    struct pg_txn *txn = pg_txn_of(base);
    return pg_may_use_tables(txn) ? number(txn, PG_COUNT_KEYS, NULL, count) : STK_STORE;
}

enum stk_error pg_count_live(struct store_txn *base, int64_t *count)
{
    struct pg_txn *txn = pg_txn_of(base);
    return pg_may_use_tables(txn) ? number(txn, PG_COUNT_LIVE, NULL, count) : STK_STORE;
}

enum stk_error pg_each_field(struct pg_txn *txn, int64_t id, struct bytes from, txn_each_field each,
                             void *context)
{
    struct buf next = {0};
    bool more = true, good = true;

    buf_append_bytes(&next, from);
    while (more && good) {
        struct pg_params params = {.count = 0};
        pg_param_int64(&params, id);
        pg_param_bytes(&params, buf_bytes(&next));
        PGresult *result = query(txn, PG_EACH_FIELD, &params);
        good = result != NULL;
        int rows = txn->pg->pq.PQntuples(result);
        size_t bytes = 0;
        bool goes_on = true;
        for (int i = 0; i < rows && good && goes_on; i++) {
            struct bytes value = pg_value_bytes(txn->pg, result, i, 1);
            bytes += value.len;
            goes_on = each(context, pg_value_bytes(txn->pg, result, i, 0), value);
        }
        more = goes_on && (rows == PG_PAGE_MAX || bytes >= PG_PAGE_BYTES_MAX);
        if (more) { /* go on at the next name that there can be */
            buf_clear(&next);
            buf_append_bytes(&next, pg_value_bytes(txn->pg, result, rows - 1, 0));
            buf_append(&next, "", 1);
        }
        txn->pg->pq.PQclear(result);
    }
    buf_free(&next);
    return good ? STK_OK : STK_STORE;
}

enum stk_error pg_each_receipt(struct store_txn *base, const struct resource *resource,
                               txn_each_receipt each, void *context)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct pg_params params = {.count = 0};

    if (!pg_may_use_tables(txn))
        return STK_STORE;
    pg_param_int64(&params, resource->id);
    PGresult *result = query(txn, PG_EACH_RECEIPT, &params);
    if (result == NULL)
        return STK_STORE;
    for (int i = 0; i < txn->pg->pq.PQntuples(result); i++) {
        const struct receipt receipt = {
            .token = pg_value_int64(txn->pg, result, i, 1),
            .fingerprint = (uint64_t)pg_value_int64(txn->pg, result, i, 2),
            .resp3 = pg_value_bool(txn->pg, result, i, 3),
            .written_ms = pg_value_int64(txn->pg, result, i, 4),
            .reply = pg_value_bytes(txn->pg, result, i, 5),
        };
        if (!each(context, pg_value_bytes(txn->pg, result, i, 0), &receipt))
            break;
    }
    txn->pg->pq.PQclear(result);
    return STK_OK;
}

/* Clean-up. A row that somebody has locked is left for the next time. */

enum stk_error pg_receipts_due(struct store_txn *base, int64_t before_ms, bool *due)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct pg_params params = {.count = 0};

    pg_param_int64(&params, before_ms);
    return pg_may_use_tables(txn) ? truth(txn, PG_RETIRED_DUE, &params, due) : STK_STORE;
}

/* Of the tokens that were retired before `before_ms`, take the first one: remove up to `max` of its
 * receipts, and its entry where none are left. `*found` false: there is none, or it is locked. */
static enum stk_error sweep_token(struct pg_txn *txn, int64_t before_ms, size_t max, bool *found,
                                  size_t *removed)
{
    struct pg_params params = {.count = 0}, entry = {.count = 0};
    pg_param_int64(&params, before_ms);
    PGresult *result = query(txn, PG_RETIRED_FIRST, &params);

    *removed = 0;
    if (result == NULL)
        return STK_STORE;
    *found = txn->pg->pq.PQntuples(result) == 1;
    if (*found) {
        pg_param_int64(&entry, pg_value_int64(txn->pg, result, 0, 0));
        params.count = 0;
        pg_param_int64(&params, pg_value_int64(txn->pg, result, 0, 1));
        pg_param_int64(&params, pg_value_int64(txn->pg, result, 0, 2));
    }
    txn->pg->pq.PQclear(result);
    if (!*found)
        return STK_OK;
    if (truth(txn, PG_RECEIPTS_GONE, &params, found) != STK_OK)
        return STK_STORE;
    if (!*found) /* somebody has the row locked */
        return STK_OK;
    pg_param_int64(&params, (int64_t)max);
    result = query(txn, PG_RECEIPTS_REMOVE, &params);
    if (result == NULL)
        return STK_STORE;
    *removed = (size_t)strtoull(txn->pg->pq.PQcmdTuples(result), NULL, 10);
    txn->pg->pq.PQclear(result);
    txn->wrote = true;
    return *removed == max ? STK_OK : run(txn, PG_RETIRED_REMOVE, &entry);
}

enum stk_error pg_sweep_receipts(struct store_txn *base, int64_t before_ms, size_t max,
                                 size_t *removed, bool *more)
{
    struct pg_txn *txn = pg_txn_of(base);
    bool found = true;
    size_t left = max, gone = 0;

    *removed = 0;
    *more = false;
    if (!pg_may_use_tables(txn))
        return STK_STORE;
    while (found && left > 0) {
        if (sweep_token(txn, before_ms, left, &found, &gone) != STK_OK)
            return STK_STORE;
        *removed += gone;
        left -= gone < left ? gone + 1 : gone;
    }
    *more = found;
    return STK_OK;
}

static enum stk_error find_end(struct pg_txn *txn, int64_t after, size_t max, int64_t *end)
{
    struct pg_params params = {.count = 0};

    pg_param_int64(&params, after);
    pg_param_int64(&params, (int64_t)max);
    return number(txn, PG_SWEEP_END, &params, end);
}

/* A look costs a trip, however many rows it is at, so it goes so many times further than a removal
 * would. */
enum { LOOKS_FURTHER = 32 };

enum stk_error pg_resources_due(struct store_txn *base, int64_t before_ms, int64_t live_before_ms,
                                size_t max, int64_t *after, bool *due, bool *more)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct pg_params params = {.count = 0};
    int64_t end = 0;

    *due = *more = false;
    if (!pg_may_use_tables(txn) || find_end(txn, *after, max * LOOKS_FURTHER, &end) != STK_OK)
        return STK_STORE;
    pg_param_int64(&params, *after);
    pg_param_int64(&params, end);
    pg_param_int64(&params, live_before_ms);
    pg_param_int64(&params, before_ms);
    if (truth(txn, PG_SWEEP_DUE, &params, due) != STK_OK)
        return STK_STORE;
    *more = end != 0;
    if (!*due)
        *after = end;
    return STK_OK;
}

/* Remove the old resources between two ids, and raise the floor to their tokens. */
static enum stk_error remove_resources(struct pg_txn *txn, int64_t after, int64_t end,
                                       int64_t before_ms, int64_t live_before_ms, size_t *removed)
{
    struct pg_params params = {.count = 0}, floor = {.count = 0};

    pg_param_int64(&params, after);
    pg_param_int64(&params, end);
    pg_param_int64(&params, live_before_ms);
    pg_param_int64(&params, txn->now_ms);
    if (run(txn, PG_SWEEP_RETIRE, &params) != STK_OK)
        return STK_STORE;
    params.count--;
    pg_param_int64(&params, before_ms);
    PGresult *result = query(txn, PG_SWEEP_REMOVE, &params);
    if (result == NULL)
        return STK_STORE;
    *removed = (size_t)pg_value_int64(txn->pg, result, 0, 0);
    pg_param_int64(&floor, pg_value_int64(txn->pg, result, 0, 1));
    txn->pg->pq.PQclear(result);
    return *removed > 0 ? run(txn, PG_FLOOR_RAISE, &floor) : STK_OK;
}

enum stk_error pg_sweep_resources(struct store_txn *base, int64_t before_ms, int64_t live_before_ms,
                                  size_t max, int64_t *after, size_t *removed, bool *more)
{
    struct pg_txn *txn = pg_txn_of(base);
    int64_t end = 0;

    *removed = 0;
    *more = false;
    if (txn->stop != PG_ON)
        return STK_STORE;
    if (txn->kind != PG_OWN)
        return pg_stop(txn, PG_NEEDS_OWN);
    /* The operation has begun with the floor shared: run it again, with the floor to itself. */
    if (txn->begun && !txn->has_floor)
        return pg_stop(txn, PG_FLOOR);
    if (!txn->begun && !pg_begin_floor(txn))
        return pg_stop(txn, PG_FAILED);
    if (find_end(txn, *after, max, &end) != STK_OK)
        return STK_STORE;
    if (end != 0 &&
        remove_resources(txn, *after, end, before_ms, live_before_ms, removed) != STK_OK)
        return STK_STORE;
    *after = end;
    *more = end != 0;
    return STK_OK;
}

/* Lock the next rows, up to the first one that somebody else has locked; `*end` becomes the id of
 * the last one before it. If the very first one is locked, the operation stops, to wait for it. */
static enum stk_error lock_rows(struct pg_txn *txn, int64_t after, size_t max, int64_t *end,
                                struct pg_array *ids)
{
    struct pg_params params = {.count = 0};

    pg_param_int64(&params, after);
    pg_param_int64(&params, *end);
    pg_param_int64(&params, (int64_t)max);
    PGresult *result = query(txn, PG_FLUSH_LOCK, &params);
    if (result == NULL)
        return STK_STORE;
    bool locked = false;
    buf_free(&ids->buf);
    pg_array_start(ids, PG_INT8);
    for (int i = 0; i < txn->pg->pq.PQntuples(result) && !locked; i++) {
        locked = !txn->pg->pq.PQgetisnull(result, i, 1);
        if (!locked)
            pg_array_int64(ids, pg_value_int64(txn->pg, result, i, 0));
        else if (i > 0)
            *end = pg_value_int64(txn->pg, result, i - 1, 0);
        else
            set_row(&txn->set, pg_value_bytes(txn->pg, result, 0, 1))->known = LOCKED;
    }
    txn->pg->pq.PQclear(result);
    return locked && ids->count == 0 ? pg_stop(txn, PG_LOCKED) : STK_OK;
}

static enum stk_error flush_rows(struct pg_txn *txn, struct pg_array *ids)
{
    static const struct {
        enum pg_statement statement;
        bool dated;
    } steps[] = {{PG_FLUSH_RETIRE, true}, {PG_FLUSH_FIELDS, false}, {PG_FLUSH_RESOURCES, true}};
    struct pg_params params = {.count = 0};

    pg_param_array(&params, ids);
    pg_param_int64(&params, txn->now_ms);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        params.count = steps[i].dated ? 2 : 1;
        if (run(txn, steps[i].statement, &params) != STK_OK)
            return STK_STORE;
    }
    return STK_OK;
}

enum stk_error pg_flush(struct store_txn *base, size_t max, struct flush_walk *walk)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct pg_params params = {.count = 0};
    struct pg_array ids = {.count = 0};
    int64_t end = 0;

    if (!pg_may_use_tables(txn) ||
        (walk->until == 0 && number(txn, PG_FLUSH_UNTIL, NULL, &walk->until) != STK_OK))
        return STK_STORE;
    pg_param_int64(&params, walk->after);
    pg_param_int64(&params, walk->until);
    pg_param_int64(&params, (int64_t)max);
    enum stk_error error = number(txn, PG_FLUSH_END, &params, &end);
    /* Lock the first row by itself: while we wait for it, we have no others locked. */
    if (error == STK_OK)
        error = lock_rows(txn, walk->after, 1, &end, &ids);
    if (error == STK_OK && ids.count > 0)
        error = lock_rows(txn, walk->after, max, &end, &ids);
    if (error == STK_OK && ids.count > 0)
        error = flush_rows(txn, &ids);
    buf_free(&ids.buf);
    if (error != STK_OK)
        return error;
    walk->after = end;
    walk->more = end < walk->until;
    set_forget(&txn->set);
    return STK_OK;
}

/* Heads of audits, kept as in the SQLite store. A restore is seen by the identity. */
enum stk_error pg_audit_head(struct store_txn *base, struct bytes chain, int64_t lines,
                             struct bytes hash, bool *restored)
{
    struct pg_txn *txn = pg_txn_of(base);
    struct pg_params params = {.count = 0};
    bool same = false;

    *restored = false;
    if (!pg_may_use_tables(txn))
        return STK_STORE;
    pg_param_bytes(&params, chain);
    PGresult *result = query(txn, PG_AUDIT, &params);
    if (result == NULL)
        return STK_STORE;
    if (txn->pg->pq.PQntuples(result) == 1) {
        *restored = pg_value_bool(txn->pg, result, 0, 2);
        same = pg_value_int64(txn->pg, result, 0, 0) == lines &&
               bytes_equal(pg_value_bytes(txn->pg, result, 0, 1), hash);
    }
    txn->pg->pq.PQclear(result);
    if (same && !*restored)
        return STK_OK;
    pg_param_int64(&params, lines);
    pg_param_bytes(&params, hash);
    return run(txn, PG_AUDIT_PUT, &params);
}

/* Guards. */

static enum stk_error change_guard(struct pg_txn *txn, enum pg_statement statement,
                                   const struct pg_params *params, char why[SQL_WHY_MAX])
{
    if (!pg_may_use_tables(txn))
        return STK_STORE;
    /* It looks at all keys for those that cannot be guarded. */
    PGresult *result = query_within(txn, statement, params, PG_LONG_TIMEOUT_MS);
    if (result == NULL)
        return STK_STORE;
    bool refused = !txn->pg->pq.PQgetisnull(result, 0, 0);
    if (refused)
        pg_value_text(txn->pg, result, 0, 0, why, SQL_WHY_MAX);
    txn->pg->pq.PQclear(result);
    txn->wrote = true;
    return refused ? STK_ERR : STK_OK;
}

enum stk_error pg_guard_create(struct store_txn *base, const struct table_guard *guard,
                               char why[SQL_WHY_MAX])
{
    struct pg_params params = {.count = 0};

    pg_param_bytes(&params, guard->table);
    pg_param_bytes(&params, guard->column);
    pg_param_bytes(&params, guard->prefix);
    pg_param_bytes(&params, guard->token);
    return change_guard(pg_txn_of(base), PG_GUARD_CREATE, &params, why);
}

enum stk_error pg_guard_drop(struct store_txn *base, struct bytes table, char why[SQL_WHY_MAX])
{
    struct pg_params params = {.count = 0};

    pg_param_bytes(&params, table);
    return change_guard(pg_txn_of(base), PG_GUARD_DROP, &params, why);
}

enum stk_error pg_guards(struct store_txn *base, txn_each_guard each, void *context)
{
    struct pg_txn *txn = pg_txn_of(base);

    if (!pg_may_use_tables(txn))
        return STK_STORE;
    PGresult *result = query(txn, PG_GUARDS, NULL);
    if (result == NULL)
        return STK_STORE;
    for (int i = 0; i < txn->pg->pq.PQntuples(result); i++)
        each(context,
             &(struct table_guard){.table = pg_value_bytes(txn->pg, result, i, 0),
                                   .column = pg_value_bytes(txn->pg, result, i, 1),
                                   .prefix = pg_value_bytes(txn->pg, result, i, 2),
                                   .token = pg_value_bytes(txn->pg, result, i, 3)},
             pg_value_bytes(txn->pg, result, i, 4));
    txn->pg->pq.PQclear(result);
    return STK_OK;
}

enum stk_error pg_savepoint(struct pg_txn *txn, enum pg_statement statement)
{
    /* The server undoes what was written since, so the set may differ from the database now. */
    if (statement == PG_SAVEPOINT_UNDO)
        set_forget(&txn->set);
    if (!pg_may_use_tables(txn))
        return STK_STORE;
    bool wrote = txn->wrote;
    enum stk_error error = run(txn, statement, NULL);
    txn->wrote = wrote;
    return error;
}
