/* SPDX-License-Identifier: Apache-2.0 */
/* Stockade's own rows, taken out of one store and put into another: what `stockade move` is made
 * of, and backup and restore of a store in PostgreSQL. A kind of store implements a table of
 * functions; store_transfer() pumps from one to the other.
 *
 *   open ─▶ { begin ─▶ facts, each | clear, put..., set, mark ─▶ commit | undo }* ─▶ close
 *
 * What makes sense in one store only is made to fit on the way: ids of resources move behind all
 * that the other store has given out, dates keep their age by the other store's clock, and leases
 * were granted in an earlier opening than any there. */
#ifndef STOCKADE_STORE_TRANSFER_H
#define STOCKADE_STORE_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "store/maintenance.h"

/* The tables, each with its columns: i int8, s int2, b boolean, t text, y bytea (Y: or NULL);
 * r: the id of a resource, d: a date, o: the opening under which a lease was granted.
 *
 * RESOURCES: id, name, token, state, type, anonymous, holds, ttl_ms, opening, connection,
 *   changed_ms, receipts_gone, the token if it is live and has receipts (else 0), how many fields,
 *   owner, string
 * FIELDS: resource, field, value
 * RECEIPTS: resource, id, token, fingerprint, resp3, written_ms, reply
 * RETIRED: resource, token, retired_ms; in the order in which they were retired
 * HEADS: chain, lines, hash */
#define TRANSFER_TABLE_MAP(X)                                                                      \
    X(RESOURCES, "ryissbiioidiiiyY")                                                               \
    X(FIELDS, "ryy")                                                                               \
    X(RECEIPTS, "ryiibiy")                                                                         \
    X(RETIRED, "rid")                                                                              \
    X(HEADS, "tit")

enum transfer_table {
#define X(name, columns) TRANSFER_##name,
    TRANSFER_TABLE_MAP(X)
#undef X
        TRANSFER_TABLES
};

#define TRANSFER_COLUMNS_MAX 16

struct transfer_cell {
    bool is_null;
    int64_t number;
    struct bytes bytes; /* of t and y; borrowed */
};

/* A store's part in a move. On disk as a number: never renumber. */
enum transfer_part {
    TRANSFER_NONE = 0,
    TRANSFER_COMING = 1, /* the other store's rows are to come: it takes nothing until then */
    TRANSFER_CAME = 2,   /* they have come */
    TRANSFER_GONE = 3,   /* its own have gone to the other store: it takes nothing any more */
};

#define TRANSFER_WHERE_MAX 400

struct transfer_mark {
    enum transfer_part part;
    char id[33];                    /* of the move, the same in both stores */
    char where[TRANSFER_WHERE_MAX]; /* the other store, for people */
};

/* Of the store, in the transaction. */
struct transfer_facts {
    int64_t opening, floor;
    int64_t token; /* the largest one */
    int64_t now_ms;
    int64_t ids;  /* no resource's id that was given out, or may be meanwhile, is larger */
    int64_t rows; /* all that `each` would give */
    int64_t resources;
    bool strange; /* a copy of a store, whose floor is still to be raised */
    struct transfer_mark mark;
};

enum transfer_use {
    TRANSFER_READ, /* begin: what is read is of one moment */
    TRANSFER_HOLD, /* begin: nobody changes anything until the end; to read, and to mark */
    TRANSFER_FILL, /* the same, to put; the store is made where there is none */
};

/* Take a row. False: stop; `why` says what is wrong. */
typedef bool transfer_row(void *context, const struct transfer_cell *cells);

struct transfer {
    const struct transfer_impl *impl;
    struct maintenance_watch watch;
    char label[TRANSFER_WHERE_MAX]; /* its URI, without a password */
    char same[128];                 /* two stores with the same text here are one store */
    char left[200];                 /* names of users' tables beside its own; empty: none known */
    bool made;                      /* the store was not there before */
    char why[MAINTENANCE_WHY_MAX];
};

struct transfer_impl {
    bool (*begin)(struct transfer *transfer);
    bool (*facts)(struct transfer *transfer, struct transfer_facts *facts);
    bool (*each)(struct transfer *transfer, enum transfer_table table, transfer_row *row,
                 void *context);
    /* Remove all rows of Stockade's own but HEADS. */
    bool (*clear)(struct transfer *transfer);
    /* Rows of one table after the other, in the order of the enum. */
    bool (*put)(struct transfer *transfer, enum transfer_table table,
                const struct transfer_cell *cells);
    /* End all leases. `*count`: how many there were. */
    bool (*revoke)(struct transfer *transfer, int64_t *count);
    /* Write down the opening and the floor, after all rows have been put. */
    bool (*set)(struct transfer *transfer, int64_t opening, int64_t floor);
    bool (*mark)(struct transfer *transfer, const struct transfer_mark *mark);
    bool (*commit)(struct transfer *transfer);
    void (*undo)(struct transfer *transfer);
    void (*close)(struct transfer *transfer);
};

/* Open the store of a path, or of libpq's URI. NULL: `why` has one line. End it with impl->close,
 * which undoes what was not committed. */
struct transfer *transfer_sqlite(const char *path, enum transfer_use use,
                                 struct maintenance_watch watch, char *why, size_t why_size);
struct transfer *transfer_postgresql(const char *uri, enum transfer_use use,
                                     struct maintenance_watch watch, char *why, size_t why_size);

/* Return the table's columns, a letter for each, as listed above. */
const char *transfer_columns(enum transfer_table table);
/* Is a column of this letter text or bytes? Else it is a number. */
static inline bool transfer_is_bytes(char column)
{
    return column == 't' || column == 'y' || column == 'Y';
}
/* Copy all rows, within both transactions. Set the floor of `to`, and its opening to one that
 * neither store has had. False: to->why says what is wrong, also where `from` has failed. */
bool transfer_rows(struct transfer *from, const struct transfer_facts *source, struct transfer *to,
                   const struct transfer_facts *target, int64_t floor);
/* Does it take nothing, because of a move? Then `why` says so. */
bool transfer_is_closed(const struct transfer_mark *mark, const char *label, char *why,
                        size_t why_size);

#endif
