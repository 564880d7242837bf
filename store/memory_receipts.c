/* SPDX-License-Identifier: Apache-2.0 */
/* Receipts and sweeps of the memory store: sqlite/receipts.c and sqlite/sweep.c in plain C, with
 * the same rules. */
#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/memory_rows.h"

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

/* When the first entry's token ended, as far as the clock can be believed. */
static int64_t date_first(struct memory_rows *rows)
{
    const struct globals *globals = &rows->globals;
    size_t number = globals->retired_first + 1;
    int64_t at_ms = rows->retired[globals->retired_first].retired_ms;

    if (number <= globals->cap && at_ms > globals->cap_ms)
        at_ms = globals->cap_ms;
    if (at_ms <= rows->now_ms)
        return at_ms;
    struct globals *changed = memory_rows_globals(rows);
    changed->cap = changed->retired_count;
    changed->cap_ms = rows->now_ms;
    return rows->now_ms;
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
    const struct globals *globals = &rows->globals;

    check(max > 0);
    *removed = 0;
    *more = false;
    for (size_t left = max, gone;; left -= gone < left ? gone + 1 : gone) {
        bool none = globals->retired_first == globals->retired_count;
        if (globals->cap != 0 && (none || globals->retired_first >= globals->cap))
            memory_rows_globals(rows)->cap = 0;
        if (none || date_first(rows) >= before_ms)
            return STK_OK;
        *more = left == 0;
        if (*more)
            return STK_OK;
        gone = remove_receipts(rows, left);
        *removed += gone;
    }
}

/* Whether the row may go; one that is abandoned and has receipts is revoked instead. */
static bool is_of_no_use(struct memory_rows *rows, const struct row *row, int64_t before_ms,
                         int64_t live_before_ms)
{
    bool live = row->now.resource.fence.state == FENCE_LIVE;

    if (row->now.resource.type != VALUE_NONE ||
        row->now.lease.changed_ms >= (live ? live_before_ms : before_ms))
        return false;
    if (row->receipts_count == 0)
        return true;
    if (live) {
        struct content *content = memory_rows_change(rows, row->now.resource.id);
        log_end(rows, content->resource.id, content->resource.fence.token);
        content->resource.fence.state = FENCE_REVOKED;
        content->lease.holds = 0;
        content->lease.changed_ms = rows->now_ms;
    }
    return false;
}

enum stk_error memory_sweep_resources(struct store_txn *txn, int64_t before_ms,
                                      int64_t live_before_ms, size_t max, int64_t *after,
                                      size_t *removed, bool *more)
{
    struct memory_rows *rows = of(txn);
    int64_t last = (int64_t)rows->count, end = 0, floor = rows->globals.floor;

    check(max > 0);
    *removed = 0;
    while (last > 0 && row_of(rows, last) == NULL)
        last--;
    for (int64_t id = *after + 1; id <= last && max > 0; id++) {
        const struct row *row = row_of(rows, id);
        if (row == NULL)
            continue;
        max--;
        end = id;
        if (!is_of_no_use(rows, row, before_ms, live_before_ms) || id == last)
            continue;
        if (row->now.resource.fence.token > floor)
            floor = row->now.resource.fence.token;
        memory_rows_remove(rows, id);
        ++*removed;
    }
    if (floor > rows->globals.floor)
        memory_rows_globals(rows)->floor = floor;
    *after = end;
    *more = end != 0;
    return STK_OK;
}
