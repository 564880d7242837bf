/* SPDX-License-Identifier: Apache-2.0 */
/* The memory store's data: rows with their values, and how to undo what was done to them. Rows are
 * never deleted (but undone), so the row of an id is at id - 1. */
#ifndef STOCKADE_STORE_MEMORY_ROWS_H
#define STOCKADE_STORE_MEMORY_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <uthash.h>

#include "store/store_impl.h"

struct field {
    struct buf name, value;
};

/* What an operation can change in a row. */
struct content {
    struct resource resource;
    struct lease lease; /* `owner` is in the buffer */
    struct buf owner, string;
    struct field *fields; /* sorted by name */
    size_t fields_count;
};

struct row {
    struct bytes name; /* owned */
    struct content now;
    uint64_t saved_in; /* the operation that has put it on the log */
    UT_hash_handle hh;
};

struct undo {
    struct row *row;
    bool made; /* the row did not exist before; else: */
    struct content before;
};

struct memory_rows {
    struct store_txn txn;
    struct row *by_name;
    struct row **by_id;
    size_t count, room;
    struct undo *log;
    size_t log_count, log_room;
    uint64_t operation;
    bool writes;
};

/* The primitives, on a struct memory_rows. */
extern const struct store_txn_impl memory_txn_impl;

struct memory_rows *memory_rows_new(void);
void memory_rows_free(struct memory_rows *rows);
/* A new operation begins: what it changes can be undone down to the mark. A write by one that does
 * not say `writes` is a bug. */
size_t memory_rows_mark(struct memory_rows *rows, bool writes);
/* Undoes all that was done since the mark; 0: since the last commit. */
void memory_rows_undo(struct memory_rows *rows, size_t mark);
void memory_rows_commit(struct memory_rows *rows);

/* A new row; returns its id. */
int64_t memory_rows_add(struct memory_rows *rows, struct bytes name);
/* The content of the row of an id, about to be changed. */
struct content *memory_rows_change(struct memory_rows *rows, int64_t id);
/* The content to look at, or NULL for id 0. */
struct content *memory_rows_look(struct memory_rows *rows, int64_t id);
/* Owned by the caller. */
struct buf memory_copy(struct bytes bytes);

#endif
