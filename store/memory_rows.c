/* SPDX-License-Identifier: Apache-2.0 */
/* Undo: before an operation first changes a row, a copy of the whole row goes on the undo log; a
 * row that the operation makes leaves an entry without one. Undoing puts the copies back, newest
 * first. That costs a copy of a hash per operation, which a twin can afford for being obviously
 * right. */
#include "store/memory_rows.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

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

static void row_free(struct row *row)
{
    content_free(&row->now);
    free((char *)(uintptr_t)row->name.data);
    free(row);
}

static struct undo *log_add(struct memory_rows *rows, struct row *row)
{
    if (rows->log_count == rows->log_room) {
        rows->log_room = rows->log_room * 2 + 64;
        rows->log = mem_realloc(rows->log, rows->log_room * sizeof *rows->log);
    }
    struct undo *undo = &rows->log[rows->log_count++];
    *undo = (struct undo){.row = row};
    row->saved_in = rows->operation;
    return undo;
}

int64_t memory_rows_add(struct memory_rows *rows, struct bytes name)
{
    check(rows->writes);
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
    log_add(rows, row)->made = true;
    return row->now.resource.id;
}

struct content *memory_rows_change(struct memory_rows *rows, int64_t id)
{
    check(rows->writes && id > 0 && (size_t)id <= rows->count);
    struct row *row = rows->by_id[id - 1];
    if (row->saved_in != rows->operation)
        log_add(rows, row)->before = content_copy(&row->now);
    return &row->now;
}

struct content *memory_rows_look(struct memory_rows *rows, int64_t id)
{
    check(id >= 0 && (size_t)id <= rows->count);
    return id == 0 ? NULL : &rows->by_id[id - 1]->now;
}

size_t memory_rows_mark(struct memory_rows *rows, bool writes)
{
    rows->operation++;
    rows->writes = writes;
    return rows->log_count;
}

void memory_rows_undo(struct memory_rows *rows, size_t mark)
{
    while (rows->log_count > mark) {
        struct undo *undo = &rows->log[--rows->log_count];
        struct row *row = undo->row;
        if (undo->made) {
            check(rows->by_id[--rows->count] == row && rows->by_name != NULL);
            HASH_DEL(rows->by_name, row);
            row_free(row);
        } else {
            content_free(&row->now);
            row->now = undo->before;
            row->saved_in = 0;
        }
    }
}

void memory_rows_commit(struct memory_rows *rows)
{
    while (rows->log_count > 0) {
        struct undo *undo = &rows->log[--rows->log_count];
        if (!undo->made)
            content_free(&undo->before);
    }
}

struct memory_rows *memory_rows_new(void)
{
    struct memory_rows *rows = mem_zalloc(sizeof *rows);
    rows->txn.impl = &memory_txn_impl;
    return rows;
}

void memory_rows_free(struct memory_rows *rows)
{
    memory_rows_commit(rows);
    HASH_CLEAR(hh, rows->by_name);
    for (size_t i = 0; i < rows->count; i++)
        row_free(rows->by_id[i]);
    free(rows->by_id);
    free(rows->log);
    free(rows);
}
