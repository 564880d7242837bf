/* SPDX-License-Identifier: Apache-2.0 */
/* Undo: before an operation first changes a row, a copy of the whole row goes on the undo log (but
 * receipts, of which there may be many: they are logged one by one). Undoing puts things back,
 * newest first. That costs a copy of a hash per operation, which a twin can afford for being
 * obviously right. */
#include "tests/twins/memory_rows.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

enum { STOP_CALLS_MAX = 12 };

struct buf memory_copy(struct bytes bytes)
{
    struct buf buf = {0};
    buf_append_bytes(&buf, bytes);
    return buf;
}

static void content_free(struct content *content)
{
    buf_free(&content->owner);
    buf_free(&content->string);
    for (size_t i = 0; i < content->fields_count; i++) {
        buf_free(&content->fields[i].name);
        buf_free(&content->fields[i].value);
    }
    free(content->fields);
}

static struct content content_copy(const struct content *from)
{
    struct content copy = *from;

    copy.owner = memory_copy(buf_bytes(&from->owner));
    copy.string = memory_copy(buf_bytes(&from->string));
    copy.fields = mem_alloc((from->fields_count + 1) * sizeof *copy.fields);
    for (size_t i = 0; i < from->fields_count; i++) {
        copy.fields[i].name = memory_copy(buf_bytes(&from->fields[i].name));
        copy.fields[i].value = memory_copy(buf_bytes(&from->fields[i].value));
    }
    return copy;
}

static void receipt_free(struct kept_receipt *receipt)
{
    buf_free(&receipt->id);
    buf_free(&receipt->reply);
    free(receipt);
}

static void row_free(struct row *row)
{
    struct kept_receipt *receipt, *next;

    content_free(&row->now);
    HASH_ITER(hh, row->receipts, receipt, next)
    {
        HASH_DEL(row->receipts, receipt);
        receipt_free(receipt);
    }
    free((char *)(uintptr_t)row->name.data);
    free(row);
}

static struct undo *log_add(struct memory_rows *rows, enum undo_kind kind, struct row *row)
{
    check(rows->writes);
    if (rows->log_count == rows->log_room) {
        rows->log_room = rows->log_room * 2 + 64;
        rows->log = mem_realloc(rows->log, rows->log_room * sizeof *rows->log);
    }
    struct undo *undo = &rows->log[rows->log_count++];
    *undo = (struct undo){.kind = kind, .row = row};
    return undo;
}

int64_t memory_rows_add(struct memory_rows *rows, struct bytes name)
{
    struct row *row = mem_zalloc(sizeof *row);
    struct buf copy = memory_copy(name);
    row->name = buf_bytes(&copy);
    if (rows->count == rows->room) {
        rows->room = rows->room * 2 + 64;
        rows->by_id = mem_realloc(rows->by_id, rows->room * sizeof(struct row *));
    }
    rows->by_id[rows->count++] = row;
    row->now.resource.id = (int64_t)rows->count;
    HASH_ADD_KEYPTR(hh, rows->by_name, row->name.data, row->name.len, row);
    row->saved_in = rows->operation;
    log_add(rows, UNDO_MADE, row);
    return row->now.resource.id;
}

struct content *memory_rows_change(struct memory_rows *rows, int64_t id)
{
    check(id > 0 && (size_t)id <= rows->count && rows->by_id[id - 1] != NULL);
    struct row *row = rows->by_id[id - 1];
    if (row->saved_in != rows->operation)
        log_add(rows, UNDO_CHANGED, row)->before = content_copy(&row->now);
    row->saved_in = rows->operation;
    return &row->now;
}

struct content *memory_rows_read(struct memory_rows *rows, int64_t id)
{
    check(id >= 0 && (size_t)id <= rows->count && (id == 0 || rows->by_id[id - 1] != NULL));
    return id == 0 ? NULL : &rows->by_id[id - 1]->now;
}

void memory_rows_remove(struct memory_rows *rows, int64_t id)
{
    struct row *row = rows->by_id[id - 1];

    check(row->receipts == NULL);
    log_add(rows, UNDO_REMOVED, row);
    HASH_DEL(rows->by_name, row);
    rows->by_id[id - 1] = NULL;
}

struct globals *memory_rows_globals(struct memory_rows *rows)
{
    log_add(rows, UNDO_GLOBALS, NULL)->globals = rows->globals;
    return &rows->globals;
}

/* Receipts. */

struct kept_receipt *memory_receipt(const struct row *row, struct bytes id)
{
    struct kept_receipt *receipt;

    HASH_FIND(hh, row->receipts, id.data, id.len, receipt);
    return receipt;
}

static void put_in(struct row *row, struct kept_receipt *receipt)
{
    HASH_ADD_KEYPTR(hh, row->receipts, receipt->id.data, receipt->id.len, receipt);
}

struct kept_receipt *memory_receipt_add(struct memory_rows *rows, struct row *row, struct bytes id,
                                        const struct receipt *receipt)
{
    struct kept_receipt *kept = mem_zalloc(sizeof *kept);

    check(memory_receipt(row, id) == NULL);
    kept->receipt = *receipt;
    kept->id = memory_copy(id);
    kept->reply = memory_copy(receipt->reply);
    kept->receipt.reply = buf_bytes(&kept->reply);
    put_in(row, kept);
    log_add(rows, UNDO_RECEIPT_PUT, row)->receipt = kept;
    return kept;
}

void memory_receipt_remove(struct memory_rows *rows, struct row *row, struct kept_receipt *receipt)
{
    HASH_DEL(row->receipts, receipt);
    log_add(rows, UNDO_RECEIPT_REMOVED, row)->receipt = receipt;
}

/* Undoing. */

size_t memory_rows_savepoint(struct memory_rows *rows, bool writes)
{
    rows->operation++;
    rows->writes = writes;
    return rows->log_count;
}

static void undo_one(struct memory_rows *rows, struct undo *undo)
{
    struct row *row = undo->row;

    switch (undo->kind) {
    case UNDO_MADE:
        check(rows->by_id[--rows->count] == row && rows->by_name != NULL);
        HASH_DEL(rows->by_name, row);
        row_free(row);
        break;
    case UNDO_CHANGED:
        content_free(&row->now);
        row->now = undo->before;
        row->saved_in = 0;
        break;
    case UNDO_REMOVED:
        rows->by_id[row->now.resource.id - 1] = row;
        HASH_ADD_KEYPTR(hh, rows->by_name, row->name.data, row->name.len, row);
        break;
    case UNDO_RECEIPT_PUT:
        HASH_DEL(row->receipts, undo->receipt);
        receipt_free(undo->receipt);
        break;
    case UNDO_RECEIPT_REMOVED: put_in(row, undo->receipt); break;
    case UNDO_GLOBALS: rows->globals = undo->globals; break;
    }
}

void memory_rows_undo(struct memory_rows *rows, size_t savepoint)
{
    while (rows->log_count > savepoint)
        undo_one(rows, &rows->log[--rows->log_count]);
}

void memory_rows_commit(struct memory_rows *rows)
{
    while (rows->log_count > 0) {
        struct undo *undo = &rows->log[--rows->log_count];
        if (undo->kind == UNDO_CHANGED)
            content_free(&undo->before);
        else if (undo->kind == UNDO_REMOVED)
            row_free(undo->row);
        else if (undo->kind == UNDO_RECEIPT_REMOVED)
            receipt_free(undo->receipt);
    }
    if (rows->globals.retired_first == rows->globals.retired_count)
        rows->globals.retired_first = rows->globals.retired_count = 0;
}

/* xorshift64 */
static unsigned draw(struct memory_rows *rows, unsigned below)
{
    rows->chance ^= rows->chance << 13;
    rows->chance ^= rows->chance >> 7;
    rows->chance ^= rows->chance << 17;
    return (unsigned)(rows->chance % below);
}

static void rehearse(struct memory_rows *rows, struct store_op *op, bool writes)
{
    size_t savepoint = memory_rows_savepoint(rows, writes);

    rows->calls_until_stop = draw(rows, STOP_CALLS_MAX);
    (void)op->run(op, &rows->txn);
    rows->calls_until_stop = 0;
    rows->in_savepoint = rows->stopped = false;
    memory_rows_undo(rows, savepoint);
}

void memory_rows_run(struct memory_rows *rows, struct list *batch, bool writes, int64_t now_ms)
{
    rows->now_ms = now_ms;
    for (struct list *at = batch->next; at != batch; at = at->next)
        if (!rows->once && rows->calls_left == 0 && draw(rows, 2) == 0)
            rehearse(rows, list_entry(at, struct store_op, link), writes);
    for (struct list *at = batch->next; at != batch; at = at->next) {
        struct store_op *op = list_entry(at, struct store_op, link);
        size_t savepoint = memory_rows_savepoint(rows, writes);
        op->error = op->run(op, &rows->txn);
        rows->in_savepoint = false;
        if (op->error != STK_OK)
            memory_rows_undo(rows, savepoint);
    }
}

struct memory_rows *memory_rows_new(const struct store_txn_impl *impl)
{
    struct memory_rows *rows = mem_zalloc(sizeof *rows);
    rows->txn.impl = impl;
    rows->chance = 1;
    return rows;
}

void memory_rows_free(struct memory_rows *rows)
{
    memory_rows_commit(rows);
    HASH_CLEAR(hh, rows->by_name);
    for (size_t i = 0; i < rows->count; i++)
        if (rows->by_id[i] != NULL)
            row_free(rows->by_id[i]);
    free(rows->retired);
    free(rows->by_id);
    free(rows->log);
    free(rows);
}
