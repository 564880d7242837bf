/* SPDX-License-Identifier: Apache-2.0 */
/* The memory store's data: rows with their values and receipts, the log of retired tokens, and how
 * to undo what was done to them. The row of an id is at id - 1; where one was removed, nothing is.
 */
#ifndef STOCKADE_TESTS_TWINS_MEMORY_ROWS_H
#define STOCKADE_TESTS_TWINS_MEMORY_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <uthash.h>

#include "store/store.h"
#include "store/txn.h"

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

struct kept_receipt {
    struct receipt receipt; /* `reply` is in the buffer */
    struct buf id, reply;
    UT_hash_handle hh;
};

struct row {
    struct bytes name; /* owned */
    struct content now;
    struct kept_receipt *receipts; /* by id */
    uint64_t saved_in;             /* the operation that has put it on the log */
    UT_hash_handle hh;
};

/* The end of a token that has receipts. */
struct retired {
    int64_t resource, token, retired_ms;
};

/* What concerns no single row. Entries of the log of retired tokens are numbered from 1. */
struct globals {
    int64_t floor;
    size_t retired_first, retired_count; /* the log is what lies between, as places */
};

enum undo_kind {
    UNDO_MADE,
    UNDO_CHANGED,
    UNDO_REMOVED,
    UNDO_RECEIPT_PUT,
    UNDO_RECEIPT_REMOVED,
    UNDO_GLOBALS,
};

struct undo {
    enum undo_kind kind;
    struct row *row;
    union {
        struct content before;
        struct kept_receipt *receipt;
        struct globals globals;
    };
};

struct memory_rows {
    struct store_txn txn;
    struct row *by_name;
    struct row **by_id;
    size_t count, room;
    struct undo *log;
    size_t log_count, log_room;
    struct globals globals;
    struct retired *retired;
    size_t retired_room;
    uint64_t operation;
    int64_t now_ms; /* of the batch */
    bool writes, in_savepoint;
    size_t savepoint;
    int calls_left; /* until one fails; 0: none does */
    bool failed;    /* it has come to that */
    uint64_t chance;
    unsigned calls_until_stop; /* of an operation that is only rehearsed; 0: it is not stopped */
    bool stopped;
    bool once; /* nothing is rehearsed */
};

/* The primitives of txn.h on a struct memory_rows: memory_txn.c. */
extern const struct store_txn_impl memory_txn_impl;

/* No rows yet; transactions on them run `impl`. */
struct memory_rows *memory_rows_new(const struct store_txn_impl *impl);
void memory_rows_free(struct memory_rows *rows);
/* Begin an operation, or a part of one, and return a savepoint down to which its changes can be
 * undone. A write by an operation that does not say `writes` is a bug. */
size_t memory_rows_savepoint(struct memory_rows *rows, bool writes);
/* Undo all that was done since the savepoint; 0: since the last commit. */
void memory_rows_undo(struct memory_rows *rows, size_t savepoint);
void memory_rows_commit(struct memory_rows *rows);

/* Run the operations of a batch at this time. Each has its error after; what a failed one did is
 * undone. Each is rehearsed before, now and then, as in a shared database where something is not at
 * hand or others come in between: it runs on what there was before the batch, may be stopped at any
 * call, and nothing of it counts. */
void memory_rows_run(struct memory_rows *rows, struct list *batch, bool writes, int64_t now_ms);

/* Add a row, and return its id. */
int64_t memory_rows_add(struct memory_rows *rows, struct bytes name);
/* Return the content of the row of this id, which is about to be changed. */
struct content *memory_rows_change(struct memory_rows *rows, int64_t id);
/* Return the content only to be read, or NULL for id 0. */
struct content *memory_rows_read(struct memory_rows *rows, int64_t id);
/* Remove a row that has no receipts. */
void memory_rows_remove(struct memory_rows *rows, int64_t id);
/* Return what concerns no single row, which is about to be changed. */
struct globals *memory_rows_globals(struct memory_rows *rows);

/* Return the receipt of an id, or NULL. */
struct kept_receipt *memory_receipt(const struct row *row, struct bytes id);
struct kept_receipt *memory_receipt_add(struct memory_rows *rows, struct row *row, struct bytes id,
                                        const struct receipt *receipt);
void memory_receipt_remove(struct memory_rows *rows, struct row *row, struct kept_receipt *receipt);

/* Return a copy that the caller owns. */
struct buf memory_copy(struct bytes bytes);

#endif
