/* SPDX-License-Identifier: Apache-2.0 */
/* The working set of a transaction: in memory, the rows that its operations are about, as they are
 * in the database or as the operations have left them. Operations run on it without a trip to the
 * server; their changes are written at the end, in one trip.
 *
 *   unknown ─▶ wanted ─▶ known: there or missing ─▶ changed by operations ─▶ written
 *                    └─▶ locked: another transaction has the row; operations that need it wait
 *
 * - Changes can be undone down to a savepoint, as long as nothing was written since.
 * - All memory belongs to the set, and lives until the set is cleared; so do bytes that it hands
 *   out.
 *
 * Nothing here speaks to a server: a store fills the set and writes it (in PostgreSQL: load.c,
 * changes.c). */
#ifndef STOCKADE_STORE_WORKING_SET_H
#define STOCKADE_STORE_WORKING_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/list.h"
#include "fence/base/table.h"
#include "store/store.h"
#include "store/txn.h"

/* An entry of the set's table, found by its kind and key. */
struct item {
    struct table_node node;
    struct bytes key;
};

/* Bytes of the name of a resource or a field, or of an ID, which has its user's name, too. */
#define SET_KEY_MAX (2 * RESOURCE_NAME_MAX)

enum known { UNKNOWN, WANTED, KNOWN, LOCKED };

/* The part of a row that operations may change. */
struct content {
    bool exists;
    bool put_fence; /* fence and lease are to be written */
    bool put_value; /* the string is to be written, or that there is none */
    bool put_type;  /* type, number of fields and receipts_token are to be written */
    bool cleared;   /* all fields in the database are to be removed, but for those that are put */
    struct resource resource; /* without the fence's floor */
    struct lease lease;
    bool waited;            /* somebody at another daemon waits for the end of the lease */
    int64_t receipts_token; /* the newest one under which a receipt was written; 0: none */
    int64_t fields;
    struct bytes string; /* to be written */
};

/* A resource. */
struct row {
    struct item by_name, by_id;
    struct list link; /* in the set's order */
    struct bytes name;
    enum known known;
    bool stored;             /* the row is in the database */
    bool implausible;        /* there it says what cannot be */
    bool was_waited;         /* content.waited as it is in the database */
    enum known fields;       /* are all of its fields here? */
    enum known string_known; /* a large string is not read along with the row */
    struct bytes string;     /* as it is in the database */
    int64_t id;              /* that it has, or will have when it is made; 0: none yet */
    size_t asked_by;         /* the number of the operation that asked for it last */
    bool busy;               /* an operation in a transaction of its own is about it */
    size_t blocked_by;       /* the number of the first operation that waits for it; 0: none */
    struct content now;
    struct part *parts; /* those of its fields and receipts that are here */
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

/* A field or receipt that is likely to be asked for, of a row that is not known yet. `key` is
 * borrowed until the set is loaded. */
struct hint {
    struct row *row;
    enum part_kind kind;
    struct bytes key;
};

/* A token that has receipts has ended: to be written, so that the receipts are removed one day. */
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
/* Forget everything; the memory is used again. */
void set_clear(struct set *set);

/* Return the row of a name, added to the set where it is not there yet. */
struct row *set_row(struct set *set, struct bytes name);
/* Return the row of an id, or NULL. */
struct row *set_row_by_id(const struct set *set, int64_t id);
/* Note the id of a row. */
void set_identify(struct set *set, struct row *row, int64_t id);
/* Return a field or a receipt, added to the set where it is not there yet. */
struct part *set_part(struct set *set, struct row *row, enum part_kind kind, struct bytes key);
/* Have something loaded by the next load, if it is not known. */
void set_want(enum known *known);
/* Have all loaded that the operation says it is likely to ask for. */
void set_hint(struct set *set, const struct store_op *op);

/* Return a copy, or fresh memory, that lives as long as the set's. */
struct bytes set_copy(struct set *set, struct bytes bytes);
void *set_alloc(struct set *set, size_t size);

/* Note how it was, for an undo, and return it to be changed. */
struct content *set_change(struct set *set, struct row *row);
struct part_content *set_change_part(struct set *set, struct part *part);
void set_retire(struct set *set, int64_t resource, int64_t token);

struct set_savepoint {
    size_t journal, retired;
};
struct set_savepoint set_savepoint(const struct set *set);
/* Undo all changes since the savepoint. */
void set_undo(struct set *set, struct set_savepoint savepoint);
/* Are there changes that are not written yet? */
bool set_changed(const struct set *set);
/* Note that all changes are written: they cannot be undone here any more. */
void set_written(struct set *set);
/* Take everything as unknown again, since the database may differ by now. Bytes that were handed
 * out stay. */
void set_forget(struct set *set);

#endif
