/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives of txn.h over the memory store's rows, receipts and sweeps among them. Nothing
 * here fails unless store_memory_fail_call() asks for it: then the call has done nothing. */
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/twins/memory_rows.h"

static struct memory_rows *of(struct store_txn *txn)
{
    return (struct memory_rows *)txn;
}

/* Is this the call that is to fail? An operation that was stopped gets nothing more. */
static bool fails(struct store_txn *txn)
{
    struct memory_rows *rows = of(txn);

    rows->stopped |= rows->calls_until_stop > 0 && --rows->calls_until_stop == 0;
    if (rows->stopped)
        return true;
    rows->failed |= rows->calls_left == 1;
    return rows->calls_left > 0 && --rows->calls_left == 0;
}

static struct row *row_of(const struct memory_rows *rows, int64_t id)
{
    return id > 0 && (size_t)id <= rows->count ? rows->by_id[id - 1] : NULL;
}

static int64_t rows_now_ms(struct store_txn *txn)
{
    return of(txn)->now_ms;
}

static enum stk_error rows_savepoint(struct store_txn *txn)
{
    struct memory_rows *rows = of(txn);

    if (fails(txn))
        return STK_STORE;
    check(!rows->in_savepoint);
    rows->in_savepoint = true;
    rows->savepoint = memory_rows_savepoint(rows, rows->writes);
    return STK_OK;
}

static enum stk_error rows_savepoint_keep(struct store_txn *txn)
{
    struct memory_rows *rows = of(txn);

    if (fails(txn))
        return STK_STORE;
    check(rows->in_savepoint);
    rows->in_savepoint = false;
    return STK_OK;
}

static enum stk_error rows_savepoint_undo(struct store_txn *txn)
{
    struct memory_rows *rows = of(txn);

    if (fails(txn))
        return STK_STORE;
    check(rows->in_savepoint);
    rows->in_savepoint = false;
    memory_rows_undo(rows, rows->savepoint);
    return STK_OK;
}

static void find(const struct memory_rows *rows, struct bytes name, struct resource *resource)
{
    struct fence *fence = &resource->fence;
    int64_t floor = rows->globals.floor;
    struct row *row;

    HASH_FIND(hh, rows->by_name, name.data, name.len, row);
    *resource = row != NULL ? row->now.resource : (struct resource){.id = 0};
    fence->floor = floor > fence->token ? floor : fence->token;
}

static enum stk_error rows_resource(struct store_txn *txn, struct bytes name,
                                    struct resource *resource)
{
    if (fails(txn))
        return STK_STORE;
    find(of(txn), name, resource);
    return STK_OK;
}

static enum stk_error rows_resource_make(struct store_txn *txn, struct bytes name,
                                         struct resource *resource)
{
    struct memory_rows *rows = of(txn);

    if (fails(txn))
        return STK_STORE;
    if (resource->id == 0)
        find(rows, name, resource);
    if (resource->id != 0)
        return STK_OK;
    resource->id = memory_rows_add(rows, name);
    struct content *content = memory_rows_change(rows, resource->id);
    content->lease.changed_ms = rows->now_ms;
    content->lease.receipts_gone = rows->globals.floor;
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

/* Log the end of the live token where it has receipts. */
static void retire(struct memory_rows *rows, const struct row *row)
{
    const struct fence *fence = &row->now.resource.fence;

    if (fence->state != FENCE_LIVE)
        return;
    for (const struct kept_receipt *kept = row->receipts; kept != NULL; kept = kept->hh.next)
        if (kept->receipt.token == fence->token) {
            log_end(rows, row->now.resource.id, fence->token);
            return;
        }
}

static enum stk_error rows_fence_put(struct store_txn *txn, const struct resource *resource,
                                     const struct lease *lease)
{
    struct memory_rows *rows = of(txn);
    struct content *content = memory_rows_change(rows, resource->id);
    const struct fence *fence = &resource->fence;
    int64_t receipts_gone = content->lease.receipts_gone;

    if (fails(txn))
        return STK_STORE;
    check(fence->token >= 1 && fence->token <= TOKEN_MAX && fence->state != FENCE_NONE);
    check(fence->token >= content->resource.fence.token);
    if (fence->token > content->resource.fence.token || fence->state != FENCE_LIVE)
        retire(rows, rows->by_id[resource->id - 1]);
    content->resource.fence = *fence;
    struct buf owner = memory_copy(lease->owner); /* which may be the old one's bytes */
    buf_free(&content->owner);
    content->owner = owner;
    content->lease = *lease;
    content->lease.changed_ms = rows->now_ms;
    content->lease.receipts_gone = receipts_gone;
    return STK_OK;
}

static enum stk_error rows_lease(struct store_txn *txn, const struct resource *resource,
                                 struct lease *lease)
{
    const struct content *content = memory_rows_read(of(txn), resource->id);

    if (fails(txn))
        return STK_STORE;
    *lease = (struct lease){.receipts_gone = resource->fence.floor};
    if (content != NULL)
        *lease = content->lease;
    lease->change = lease->changed_ms;
    lease->age_ms = -1;
    lease->owner = content != NULL ? buf_bytes(&content->owner) : (struct bytes){"", 0};
    return STK_OK;
}

static bool is_live(const struct content *content)
{
    return content->resource.fence.state == FENCE_LIVE;
}

static bool is_key(const struct content *content)
{
    return content->resource.type != VALUE_NONE;
}

static enum stk_error each_name(struct memory_rows *rows, bool (*wanted)(const struct content *),
                                int64_t after, txn_each_name each, void *context)
{
    for (size_t at = after > 0 ? (size_t)after : 0; at < rows->count; at++) {
        const struct row *row = rows->by_id[at];
        if (row != NULL && wanted(&row->now) &&
            !each(context, row->now.resource.id, row->name, row->now.resource.type))
            break;
    }
    return STK_OK;
}

static enum stk_error rows_each_live(struct store_txn *txn, int64_t after, txn_each_name each,
                                     void *context)
{
    if (fails(txn))
        return STK_STORE;
    return each_name(of(txn), is_live, after, each, context);
}

static enum stk_error rows_each_key(struct store_txn *txn, int64_t after, txn_each_name each,
                                    void *context)
{
    if (fails(txn))
        return STK_STORE;
    return each_name(of(txn), is_key, after, each, context);
}

static bool count_one(void *context, int64_t id, struct bytes name, enum value_type type)
{
    (void)id, (void)name, (void)type;
    ++*(int64_t *)context;
    return true;
}

static enum stk_error rows_count_live(struct store_txn *txn, int64_t *count)
{
    if (fails(txn))
        return STK_STORE;
    *count = 0;
    return each_name(of(txn), is_live, 0, count_one, count);
}

static enum stk_error rows_count_keys(struct store_txn *txn, int64_t *count)
{
    if (fails(txn))
        return STK_STORE;
    *count = 0;
    return each_name(of(txn), is_key, 0, count_one, count);
}

static enum stk_error rows_string(struct store_txn *txn, const struct resource *resource,
                                  bool *found, struct bytes *value)
{
    const struct content *content = memory_rows_read(of(txn), resource->id);

    if (fails(txn))
        return STK_STORE;
    *found = content != NULL && content->resource.type == VALUE_STRING;
    if (*found)
        *value = buf_bytes(&content->string);
    return STK_OK;
}

static enum stk_error rows_string_put(struct store_txn *txn, struct resource *resource,
                                      struct bytes value)
{
    struct content *content = memory_rows_change(of(txn), resource->id);

    if (fails(txn))
        return STK_STORE;
    check(content->resource.type != VALUE_HASH);
    struct buf copy = memory_copy(value);
    buf_free(&content->string);
    content->string = copy;
    content->resource.type = resource->type = VALUE_STRING;
    return STK_OK;
}

/* The place of the first field that is not before `name`. */
static size_t field_place(const struct content *content, struct bytes name, bool *found)
{
    size_t low = 0, high = content->fields_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (bytes_compare(buf_bytes(&content->fields[middle].name), name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found =
        low < content->fields_count && bytes_equal(buf_bytes(&content->fields[low].name), name);
    return low;
}

static enum stk_error rows_field(struct store_txn *txn, const struct resource *resource,
                                 struct bytes field, bool *found, struct bytes *value)
{
    const struct content *content = memory_rows_read(of(txn), resource->id);

    if (fails(txn))
        return STK_STORE;
    *found = false;
    if (content == NULL)
        return STK_OK;
    size_t place = field_place(content, field, found);
    if (*found)
        *value = buf_bytes(&content->fields[place].value);
    return STK_OK;
}

static enum stk_error rows_field_put(struct store_txn *txn, struct resource *resource,
                                     struct bytes field, struct bytes value)
{
    struct content *content = memory_rows_change(of(txn), resource->id);
    bool found;

    if (fails(txn))
        return STK_STORE;
    check(content->resource.type != VALUE_STRING);
    size_t place = field_place(content, field, &found);
    struct buf copy = memory_copy(value);
    if (found) {
        buf_free(&content->fields[place].value);
    } else {
        size_t behind = content->fields_count - place;
        content->fields =
            mem_realloc(content->fields, (content->fields_count + 1) * sizeof *content->fields);
        memmove(&content->fields[place + 1], &content->fields[place],
                behind * sizeof *content->fields);
        content->fields[place].name = memory_copy(field);
        content->fields_count++;
    }
    content->fields[place].value = copy;
    content->resource.type = resource->type = VALUE_HASH;
    return STK_OK;
}

static enum stk_error rows_field_remove(struct store_txn *txn, struct resource *resource,
                                        struct bytes field, bool *found)
{
    if (fails(txn))
        return STK_STORE;
    *found = false;
    if (resource->id == 0)
        return STK_OK;
    struct content *content = memory_rows_change(of(txn), resource->id);
    size_t place = field_place(content, field, found);
    if (!*found)
        return STK_OK;
    buf_free(&content->fields[place].name);
    buf_free(&content->fields[place].value);
    content->fields_count--;
    memmove(&content->fields[place], &content->fields[place + 1],
            (content->fields_count - place) * sizeof *content->fields);
    if (content->fields_count == 0)
        content->resource.type = resource->type = VALUE_NONE;
    return STK_OK;
}

static enum stk_error rows_each_field(struct store_txn *txn, const struct resource *resource,
                                      struct bytes from, txn_each_field each, void *context)
{
    const struct content *content = memory_rows_read(of(txn), resource->id);
    bool found;

    if (fails(txn))
        return STK_STORE;
    if (content == NULL)
        return STK_OK;
    for (size_t at = field_place(content, from, &found); at < content->fields_count; at++)
        if (!each(context, buf_bytes(&content->fields[at].name),
                  buf_bytes(&content->fields[at].value)))
            break;
    return STK_OK;
}

static enum stk_error rows_count_fields(struct store_txn *txn, const struct resource *resource,
                                        int64_t *count)
{
    if (fails(txn))
        return STK_STORE;
    const struct content *content = memory_rows_read(of(txn), resource->id);
    *count = content != NULL ? (int64_t)content->fields_count : 0;
    return STK_OK;
}

static void clear_value(struct content *content)
{
    buf_free(&content->string);
    for (size_t i = 0; i < content->fields_count; i++) {
        buf_free(&content->fields[i].name);
        buf_free(&content->fields[i].value);
    }
    content->fields_count = 0;
    content->resource.type = VALUE_NONE;
}

static enum stk_error rows_value_clear(struct store_txn *txn, struct resource *resource)
{
    if (fails(txn))
        return STK_STORE;
    if (resource->id != 0)
        clear_value(memory_rows_change(of(txn), resource->id));
    resource->type = VALUE_NONE;
    return STK_OK;
}

static enum stk_error rows_flush(struct store_txn *txn, size_t max, struct flush_walk *walk)
{
    struct memory_rows *rows = of(txn);

    if (fails(txn))
        return STK_STORE;
    if (walk->until == 0)
        walk->until = (int64_t)rows->count;
    for (size_t left = max; walk->after < walk->until && left > 0; left--) {
        size_t at = (size_t)walk->after++;
        struct row *row = rows->by_id[at];
        if (row == NULL || (!is_live(&row->now) && !is_key(&row->now)))
            continue;
        retire(rows, row);
        struct content *content = memory_rows_change(rows, (int64_t)at + 1);
        clear_value(content);
        content->lease.holds = 0;
        if (is_live(content)) {
            content->resource.fence.state = FENCE_REVOKED;
            content->lease.changed_ms = rows->now_ms;
        }
    }
    walk->more = walk->after < walk->until;
    return STK_OK;
}

/* Receipts and sweeps, with the rules of sqlite/receipts.c and sqlite/resources.c. */

static enum stk_error rows_receipt(struct store_txn *txn, const struct resource *resource,
                                   struct bytes id, bool *found, struct receipt *receipt)
{
    const struct row *row = row_of(of(txn), resource->id);
    const struct kept_receipt *kept = row != NULL ? memory_receipt(row, id) : NULL;

    if (fails(txn))
        return STK_STORE;
    *found = kept != NULL;
    if (kept != NULL)
        *receipt = kept->receipt;
    return STK_OK;
}

static enum stk_error rows_receipt_put(struct store_txn *txn, const struct resource *resource,
                                       struct bytes id, const struct receipt *receipt)
{
    struct memory_rows *rows = of(txn);
    struct row *row = row_of(rows, resource->id);
    const struct fence *fence = &resource->fence;

    if (fails(txn))
        return STK_STORE;
    check(row != NULL);
    if (memory_receipt(row, id) == NULL)
        memory_receipt_add(rows, row, id, receipt)->receipt.written_ms = rows->now_ms;
    if (receipt->token != fence->token || fence->state != FENCE_LIVE)
        log_end(rows, resource->id, receipt->token);
    return STK_OK;
}

static enum stk_error rows_receipt_remove(struct store_txn *txn, const struct resource *resource,
                                          struct bytes id)
{
    struct memory_rows *rows = of(txn);
    struct row *row = row_of(rows, resource->id);

    if (fails(txn))
        return STK_STORE;
    check(row != NULL);
    struct kept_receipt *kept = memory_receipt(row, id);
    if (kept != NULL)
        memory_receipt_remove(rows, row, kept);
    return STK_OK;
}

static int newest_first(const struct kept_receipt *a, const struct kept_receipt *b)
{
    if (a->receipt.token != b->receipt.token)
        return a->receipt.token > b->receipt.token ? -1 : 1;
    return bytes_compare(buf_bytes(&b->id), buf_bytes(&a->id));
}

static enum stk_error rows_each_receipt(struct store_txn *txn, const struct resource *resource,
                                        txn_each_receipt each, void *context)
{
    struct row *row = row_of(of(txn), resource->id);

    if (fails(txn))
        return STK_STORE;
    if (row != NULL)
        HASH_SRT(hh, row->receipts, newest_first);
    for (struct kept_receipt *at = row != NULL ? row->receipts : NULL; at != NULL; at = at->hh.next)
        if (!each(context, buf_bytes(&at->id), &at->receipt))
            break;
    return STK_OK;
}

static bool first_is_old(const struct memory_rows *rows, int64_t before_ms)
{
    const struct globals *globals = &rows->globals;

    return globals->retired_first < globals->retired_count &&
           rows->retired[globals->retired_first].retired_ms < before_ms;
}

static enum stk_error rows_receipts_due(struct store_txn *txn, int64_t before_ms, bool *due)
{
    if (fails(txn))
        return STK_STORE;
    *due = first_is_old(of(txn), before_ms);
    return STK_OK;
}

static int by_id(const struct kept_receipt *a, const struct kept_receipt *b)
{
    return bytes_compare(buf_bytes(&a->id), buf_bytes(&b->id));
}

static size_t remove_receipts(struct memory_rows *rows, size_t max)
{
    const struct retired *entry = &rows->retired[rows->globals.retired_first];
    struct row *row = row_of(rows, entry->resource);
    struct kept_receipt *next;
    size_t removed = 0;

    if (row != NULL && row->now.lease.receipts_gone < entry->token)
        memory_rows_change(rows, entry->resource)->lease.receipts_gone = entry->token;
    if (row != NULL)
        HASH_SRT(hh, row->receipts, by_id);
    for (struct kept_receipt *at = row != NULL ? row->receipts : NULL; at != NULL; at = next) {
        next = at->hh.next;
        if (at->receipt.token == entry->token && removed < max) {
            memory_receipt_remove(rows, row, at);
            removed++;
        }
    }
    if (removed < max)
        memory_rows_globals(rows)->retired_first++;
    return removed;
}

static enum stk_error rows_sweep_receipts(struct store_txn *txn, int64_t before_ms, size_t max,
                                          size_t *removed, bool *more)
{
    struct memory_rows *rows = of(txn);

    if (fails(txn))
        return STK_STORE;
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
    return row->receipts == NULL && row->now.resource.id < last;
}

static bool is_to_be_revoked(const struct row *row)
{
    return row->receipts != NULL && row->now.resource.fence.state == FENCE_LIVE;
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

static enum stk_error rows_sweep_resources(struct store_txn *txn, int64_t before_ms,
                                           int64_t live_before_ms, size_t max, int64_t *after,
                                           size_t *removed, bool *more)
{
    struct memory_rows *rows = of(txn);
    int64_t last = last_id(rows), floor = rows->globals.floor, at = *after;
    const struct row *row;

    if (fails(txn))
        return STK_STORE;
    check(max > 0);
    *removed = 0;
    *after = 0;
    for (; max > 0 && (row = row_after(rows, at)) != NULL; max--) {
        *after = at = row->now.resource.id;
        if (!is_old(row, before_ms, live_before_ms))
            continue;
        if (is_to_be_revoked(row)) {
            revoke(rows, row);
        } else if (is_to_go(row, last)) {
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

static enum stk_error rows_resources_due(struct store_txn *txn, int64_t before_ms,
                                         int64_t live_before_ms, size_t max, int64_t *after,
                                         bool *due, bool *more)
{
    const struct memory_rows *rows = of(txn);
    int64_t last = last_id(rows), at = *after, end = 0;
    const struct row *row;

    if (fails(txn))
        return STK_STORE;
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

const struct store_txn_impl memory_txn_impl = {
    .now_ms = rows_now_ms,
    .savepoint = rows_savepoint,
    .savepoint_keep = rows_savepoint_keep,
    .savepoint_undo = rows_savepoint_undo,
    .resource = rows_resource,
    .resource_make = rows_resource_make,
    .fence_put = rows_fence_put,
    .lease = rows_lease,
    .each_live = rows_each_live,
    .each_key = rows_each_key,
    .count_keys = rows_count_keys,
    .count_live = rows_count_live,
    .string = rows_string,
    .string_put = rows_string_put,
    .field = rows_field,
    .field_put = rows_field_put,
    .field_remove = rows_field_remove,
    .each_field_from = rows_each_field,
    .count_fields = rows_count_fields,
    .value_clear = rows_value_clear,
    .receipt = rows_receipt,
    .receipt_put = rows_receipt_put,
    .receipt_remove = rows_receipt_remove,
    .each_receipt = rows_each_receipt,
    .sweep_receipts = rows_sweep_receipts,
    .sweep_resources = rows_sweep_resources,
    .receipts_due = rows_receipts_due,
    .resources_due = rows_resources_due,
    .flush = rows_flush,
};
