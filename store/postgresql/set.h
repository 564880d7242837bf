/* SPDX-License-Identifier: Apache-2.0 */
/* The working set of a transaction: the rows that its operations are about, as they are in the
 * database or as the operations have left them, in memory. Operations run on it without a trip to
 * the server; what they changed is written at the end, in one trip.
 *
 *   unknown ─▶ wanted ─▶ known: there or missing ─▶ changed by operations ─▶ written
 *                    └─▶ locked: another transaction has it, so what needs it has to wait
 *
 * - What an operation does can be undone down to a savepoint, as long as nothing was written since.
 * - All memory is the set's, and lives until it is cleared: bytes that are handed out do, too.
 *
 * Nothing here speaks to a server: transaction.h fills a set and writes it. */
#ifndef STOCKADE_STORE_POSTGRESQL_SET_H
#define STOCKADE_STORE_POSTGRESQL_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/list.h"
#include "fence/base/table.h"
#include "store/store.h"
#include "store/txn.h"

/* Something that is found by its kind and key. */
struct item {
    struct table_node node;
    struct bytes key;
};

enum known { UNKNOWN, WANTED, KNOWN, LOCKED };

/* What an operation may change of a resource. */
struct content {
    bool exists;
    bool put_fence;           /* to be written: fence and lease; */
    bool put_value;           /* the string, or that there is none; */
    bool put_type;            /* type, number of fields, receipts_token */
    bool cleared;             /* its fields in the database are to go, but for those that are put */
    struct resource resource; /* the fence's floor is left out */
    struct lease lease;
    bool waited;            /* somebody at another daemon waits for the end of the lease */
    int64_t receipts_token; /* the newest one under which a receipt was written; 0: none */
    int64_t fields;
    struct bytes string; /* that is to be written */
};

/* A resource. */
struct row {
    struct item by_name, by_id;
    struct list link; /* in the set's order */
    struct bytes name;
    enum known known;
    bool stored;             /* it is in the database */
    bool was_waited;         /* there: as content.waited */
    enum known fields;       /* all of them */
    enum known string_known; /* a large one is not read along */
    struct bytes string;     /* that is in the database */
    int64_t id;              /* that it has, or will have when it is made; 0: none yet */
    size_t asked_by;         /* the operation that has asked for it last */
    bool busy;               /* an operation in a transaction of its own is about it */
    size_t blocked_by;       /* the first operation that waits for it; 0: none */
    struct content now;
    struct part *parts; /* its fields and receipts that are here */
};

/* A field's value or a receipt. */
struct part_content {
    bool exists, put;
    struct bytes value; /* a receipt's reply is in the receipt */
    struct receipt receipt;
};

enum part_kind { PART_FIELD = 'f', PART_RECEIPT = 'r' };

struct part {
    struct item item;
    struct list link;
    struct part *next; /* of its row */
    struct row *row;
    enum part_kind kind;
    struct bytes key;
    enum known known;
    struct part_content now;
};

/* A part that is likely to be asked for; its row is not known yet. Borrowed, until it is loaded. */
struct hint {
    struct row *row;
    enum part_kind kind;
    struct bytes key;
};

/* The end of a token that has receipts. */
struct retired {
    int64_t resource, token;
};

struct set {
    struct table items;
    struct list rows, parts;  /* in the order in which they were first asked for */
    struct set_block *blocks; /* the memory */
    struct set_saved *journal;
    size_t journal_count, journal_room;
    struct retired *retired;
    size_t retired_count, retired_room;
    struct hint *hints;
    size_t hints_count, hints_room;
};

void set_init(struct set *set);
void set_free(struct set *set);
/* Forget everything. */
void set_clear(struct set *set);

/* Return the row of this name or id, added where it is not there yet. */
struct row *set_row(struct set *set, struct bytes name);
/* Return the row of an id, or NULL. */
struct row *set_row_by_id(const struct set *set, int64_t id);
/* The row's id is known from now on. */
void set_identify(struct set *set, struct row *row, int64_t id);
/* Return a field or a receipt, added where it is not there yet. */
struct part *set_part(struct set *set, struct row *row, enum part_kind kind, struct bytes key);
/* Something is to be loaded. */
void set_want(enum known *known);
/* What an operation says that it is likely to ask for is to be loaded. */
void set_hint(struct set *set, const struct store_op *op);

/* Return a copy of the set's own. */
struct bytes set_copy(struct set *set, struct bytes bytes);
void *set_alloc(struct set *set, size_t size);

/* Return what is about to be changed. */
struct content *set_change(struct set *set, struct row *row);
struct part_content *set_change_part(struct set *set, struct part *part);
void set_retire(struct set *set, int64_t resource, int64_t token);

struct set_savepoint {
    size_t journal, retired;
};
struct set_savepoint set_savepoint(const struct set *set);
/* Undo what was done since. */
void set_undo(struct set *set, struct set_savepoint savepoint);
/* Has anything changed that is not written yet? */
bool set_changed(const struct set *set);
/* What was changed is written: it cannot be undone here any more. */
void set_written(struct set *set);
/* What is in the database may differ from now on: everything is unknown again. What was handed out
 * stays. */
void set_forget(struct set *set);

#endif
