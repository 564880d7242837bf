/* SPDX-License-Identifier: Apache-2.0 */
/* The users' SQL on a connection of the store: txn_sql, and what keeps it in its place. Shared by
 * sql.c (a call), sql_authorizer.c (what a statement may touch) and sql_cache.c.
 *
 * Limits that SQLite has per connection, and the authorizer's verdicts, hold while `active`, and
 * never for Stockade's own statements. */
#ifndef STOCKADE_STORE_SQLITE_SQL_H
#define STOCKADE_STORE_SQLITE_SQL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/sql.h"

#define SQL_LENGTH_MAX        ((16 << 20) + (64 << 10)) /* bytes of a row: 16 MiB and keys */
#define SQL_LIKE_PATTERN_MAX  256 /* bytes: matching takes text times pattern */
#define SQL_PARAMS_MAX        32766
#define SQL_TRIGGER_DEPTH_MAX 100
/* Of memory, bytes: beyond the first a statement is interrupted, beyond the second SQLite is told
 * that there is none, which may cost the transaction. */
#define SQL_MEMORY_MAX      (128 << 20)
#define SQL_MEMORY_HARD_MAX (256 << 20)

#define SQL_CACHED_MAX           64          /* statements */
#define SQL_CACHED_STATEMENT_MAX (16 << 10)  /* bytes of text of one */
#define SQL_CACHED_MEMORY_MAX    (256 << 10) /* bytes that SQLite needs for one */

#define SQL_NOT_DDL "DDL needs no token but an administrator: send it as a bare SQL"

struct transaction;

struct sql_cached {
    char *text; /* owned; NULL: the place is free */
    size_t len;
    uint64_t used; /* when: larger is later */
    sqlite3_stmt *stmt;
};

struct sql {
    struct transaction *txn; /* whose part it is */
    sqlite3 *db;
    struct sql_cached cache[SQL_CACHED_MAX];
    uint64_t uses;
    struct sql_value *values; /* of a row; room for values_max */
    size_t values_max;

    /* Of the call under way. */
    bool active;
    enum sql_right right;
    bool defines; /* it is DDL */
    int64_t limit_ms, begun_ms, deadline_ms;
    bool starved;           /* it was interrupted for the memory it takes */
    enum stk_error refusal; /* the authorizer's; `why` explains it */
    char *why;              /* the call's, SQL_WHY_MAX bytes */
};

/* Sets the transaction's connection up. The caller owns what it gets and frees it before closing.
 * NULL: SQLite has no memory. */
struct sql *sql_new(struct transaction *txn);
void sql_free(struct sql *sql);
/* txn_sql */
enum stk_error sql_run(struct store_txn *txn, struct sql_call *call);

/* For the parts. */

/* Fills in `why`, with `error` as the refusal; the first one counts. Returns `error`. */
enum stk_error sql_refuse(struct sql *sql, enum stk_error error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The callback for sqlite3_set_authorizer; the context is the struct sql. */
int sql_authorize(void *context, int action, const char *a, const char *b, const char *file,
                  const char *inside);
/* The prepared statement of this very text, or NULL. */
sqlite3_stmt *sql_cache_find(struct sql *sql, struct bytes text);
/* Keeps the statement, which is reset, for later, or finalizes it. */
void sql_cache_keep(struct sql *sql, struct bytes text, sqlite3_stmt *stmt);
void sql_cache_clear(struct sql *sql);

#endif
