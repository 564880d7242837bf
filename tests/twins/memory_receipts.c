/* SPDX-License-Identifier: Apache-2.0 */
/* Receipts and sweeps of the memory store: sqlite/receipts.c and the sweep of sqlite/resources.c in
 * plain C, with the same rules. */
#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/twins/memory_rows.h"

static struct memory_rows *of(struct store_txn *txn)
{
    return (struct memory_rows *)txn;
}

static struct row *row_of(const struct memory_rows *rows, int64_t id)
{
    return id > 0 && (size_t)id <= rows->count ? rows->by_id[id - 1] : NULL;
}

enum stk_error memory_receipt(struct store_txn *txn, const struct resource *resource,
                              struct bytes id, bool *found, struct receipt *receipt)
{
    const struct row *row = row_of(of(txn), resource->id);

    *found = false;
    if (row == NULL)
        return STK_OK;
    size_t place = memory_receipt_place(row, id, found);
    if (*found)
        *receipt = row->receipts[place]->receipt;
    return STK_OK;
}

static void log_end(struct memory_rows *rows, int64_t resource, int64_t token)
{
    struct globals *globals = memory_rows_globals(rows);

    if (globals->retired_count == rows->retired_room) {
        rows->retired_room = rows->retired_room * 2 + 64;
        rows->retired = mem_realloc(rows->retired, rows->retired_room * sizeof *rows->retired);
    }
    rows->retired[globals->retired_count++] = (struct retired){resource, token, rows->now_ms};
}

enum stk_error memory_receipt_put(struct store_txn *txn, const struct resource *resource,
                                  struct bytes id, const struct receipt *receipt)
{
    struct memory_rows *rows = of(txn);
    struct row *row = row_of(rows, resource->id);
    const struct fence *fence = &resource->fence;
    bool found;

    check(row != NULL);
    (void)memory_receipt_place(row, id, &found);
    if (!found)
        memory_receipt_add(rows, row, id, receipt);
    if (receipt->token != fence->token || fence->state != FENCE_LIVE)
        log_end(rows, resource->id, receipt->token);
    return STK_OK;
}

enum stk_error memory_receipt_drop(struct store_txn *txn, const struct resource *resource,
                                   struct bytes id)
{
    struct memory_rows *rows = of(txn);
    struct row *row = row_of(rows, resource->id);
    bool found;

    check(row != NULL);
    size_t place = memory_receipt_place(row, id, &found);
    if (found)
        memory_receipt_remove(rows, row, place);
    return STK_OK;
}

void memory_retire(struct memory_rows *rows, const struct row *row)
{
    const struct fence *fence = &row->now.resource.fence;

    if (fence->state != FENCE_LIVE)
        return;
    for (size_t i = 0; i < row->receipts_count; i++)
        if (row->receipts[i]->receipt.token == fence->token) {
            log_end(rows, row->now.resource.id, fence->token);
            return;
        }
}

static bool first_is_old(const struct memory_rows *rows, int64_t before_ms)
{
    const struct globals *globals = &rows->globals;

    return globals->retired_first < globals->retired_count &&
           rows->retired[globals->retired_first].retired_ms < before_ms;
}

enum stk_error memory_receipts_due(struct store_txn *txn, int64_t before_ms, bool *due)
{
    *due = first_is_old(of(txn), before_ms);
    return STK_OK;
}

static size_t remove_receipts(struct memory_rows *rows, size_t max)
{
    const struct retired *entry = &rows->retired[rows->globals.retired_first];
    struct row *row = row_of(rows, entry->resource);
    size_t removed = 0;

    if (row != NULL && row->now.lease.receipts_gone < entry->token)
        memory_rows_change(rows, entry->resource)->lease.receipts_gone = entry->token;
    for (size_t at = 0; row != NULL && at < row->receipts_count && removed < max;)
        if (row->receipts[at]->receipt.token == entry->token) {
            memory_receipt_remove(rows, row, at);
            removed++;
        } else {
            at++;
        }
    if (removed < max)
        memory_rows_globals(rows)->retired_first++;
    return removed;
}

enum stk_error memory_sweep_receipts(struct store_txn *txn, int64_t before_ms, size_t max,
                                     size_t *removed, bool *more)
{
    struct memory_rows *rows = of(txn);

    check(max > 0);
    *removed = 0;
    *more = false;
    for (size_t left = max, gone;; left -= gone < left ? gone + 1 : gone) {
        if (!first_is_old(rows, before_ms))
            return STK_OK;
        *more = left == 0;
        if (*more)
            return STK_OK;
        gone = remove_receipts(rows, left);
        *removed += gone;
    }
}

/* Unused, and for long. */
static bool is_old(const struct row *row, int64_t before_ms, int64_t live_before_ms)
{
    bool live = row->now.resource.fence.state == FENCE_LIVE;

    return row->now.resource.type == VALUE_NONE &&
           row->now.lease.changed_ms < (live ? live_before_ms : before_ms);
}

/* What to do about an old row: it goes; one that is abandoned and has receipts is revoked. */
static bool is_to_go(const struct row *row, int64_t last)
{
    return row->receipts_count == 0 && row->now.resource.id < last;
}

static bool is_to_be_revoked(const struct row *row)
{
    return row->receipts_count > 0 && row->now.resource.fence.state == FENCE_LIVE;
}

static void revoke(struct memory_rows *rows, const struct row *row)
{
    struct content *content = memory_rows_change(rows, row->now.resource.id);

    log_end(rows, content->resource.id, content->resource.fence.token);
    content->resource.fence.state = FENCE_REVOKED;
    content->lease.holds = 0;
    content->lease.changed_ms = rows->now_ms;
}

static int64_t last_id(const struct memory_rows *rows)
{
    int64_t last = (int64_t)rows->count;

    while (last > 0 && row_of(rows, last) == NULL)
        last--;
    return last;
}

/* The next row behind the id; NULL: there is none. */
static const struct row *row_after(const struct memory_rows *rows, int64_t id)
{
    while ((size_t)id < rows->count)
        if (rows->by_id[id++] != NULL)
            return rows->by_id[id - 1];
    return NULL;
}

enum stk_error memory_sweep_resources(struct store_txn *txn, int64_t before_ms,
                                      int64_t live_before_ms, size_t max, int64_t *after,
                                      size_t *removed, bool *more)
{
    struct memory_rows *rows = of(txn);
    int64_t last = last_id(rows), floor = rows->globals.floor, at = *after;
    const struct row *row;

    check(max > 0);
    *removed = 0;
    *after = 0;
    for (; max > 0 && (row = row_after(rows, at)) != NULL; max--) {
        *after = at = row->now.resource.id;
        if (!is_old(row, before_ms, live_before_ms))
            continue;
        if (is_to_be_revoked(row))
            revoke(rows, row);
        else if (is_to_go(row, last)) {
            if (row->now.resource.fence.token > floor)
                floor = row->now.resource.fence.token;
            memory_rows_remove(rows, at);
            ++*removed;
        }
    }
    if (floor > rows->globals.floor)
        memory_rows_globals(rows)->floor = floor;
    *more = *after != 0;
    return STK_OK;
}

enum stk_error memory_resources_due(struct store_txn *txn, int64_t before_ms,
                                    int64_t live_before_ms, size_t max, int64_t *after, bool *due,
                                    bool *more)
{
    const struct memory_rows *rows = of(txn);
    int64_t last = last_id(rows), at = *after, end = 0;
    const struct row *row;

    check(max > 0);
    *due = false;
    for (; max > 0 && (row = row_after(rows, at)) != NULL; max--) {
        end = at = row->now.resource.id;
        *due |= is_old(row, before_ms, live_before_ms) &&
                (is_to_be_revoked(row) || is_to_go(row, last));
    }
    *more = end != 0;
    if (!*due)
        *after = end;
    return STK_OK;
}
