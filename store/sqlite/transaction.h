/* SPDX-License-Identifier: Apache-2.0 */
/* One connection's transaction: Stockade's own statements, run by name, what is known of the
 * transaction under way, and why it failed. Everything that reads or writes rows stands on this
 * file: resources, values, receipts, guards, SQL. What an operation may call is put together on top
 * of them, in operation.c.
 *
 * - A statement is prepared when it is first used. One whose bytes were handed out stays open until
 *   the next call and is reset only then.
 * - A failure of SQLite is remembered in `failed`, so that the transaction is undone even where the
 *   operation ignores the error.
 * - SQLite can end a transaction by itself (transaction_is_gone). Statements are refused then: they
 *   would commit one by one.
 *
 * Special way: the open blob. Overwriting a string by one of the same length goes through SQLite's
 * incremental blob I/O (transaction_overwrite), which takes half the time of a statement. While a
 * blob is open SQLite refuses to commit, to set savepoints and to change the schema, so
 * transaction_settle() closes it first.
 *
 * The writer and each reader have one, and whoever runs on that thread owns all of it. */
#ifndef STOCKADE_STORE_SQLITE_TRANSACTION_H
#define STOCKADE_STORE_SQLITE_TRANSACTION_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/clock.h"
#include "store/reasons.h"
#include "store/sqlite/cache.h"
#include "store/sqlite/statements.h"
#include "store/store.h"
#include "store/txn.h"

enum statement {
#define X(name, sql) STATEMENT_##name,
    STATEMENT_MAP(X)
#undef X
        STATEMENTS
};

/* The fence of a resource as it was put last, in a put that has changed it; id 0: none has. */
struct told {
    int64_t id;
    struct fence fence;
};

struct transaction {
    struct store_txn base;

    /* The connection. */
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    sqlite3_stmt *open;  /* its bytes were handed out and live until the next call */
    sqlite3_blob *blob;  /* on the string that was overwritten last */
    int64_t overwrites;  /* of strings, ever: sqlite3_total_changes does not count them */
    struct cache *cache; /* the writer's; NULL: a reader's transaction, which must not write */
    struct cache *names; /* a reader's, or NULL: the ids of names, valid under this floor */
    int64_t names_floor;
    struct sql *sql;               /* sql.h */
    struct guards *guards;         /* guards.h; NULL until guards_open */
    struct store_clock *clock;     /* shared by all transactions on the file */
    struct store_reasons *reasons; /* borrowed; for operations that fail */
    struct told told;              /* the last fence that was committed */

    /* The transaction under way. */
    bool begun;      /* and not ended by us; SQLite may have ended it by itself */
    bool failed;     /* SQLite failed a statement: `code` and `reason` say why */
    bool iterating;  /* in a callback, which must leave the transaction alone */
    bool string_put; /* a string was put in it */
    int code;        /* SQLite's primary code of the last failure */
    char reason[STORE_WHY_MAX];
    int64_t now_ms; /* when it began */
    bool floor_known;
    int64_t floor; /* the store-wide one */
    struct told put;

    /* The operation under way. */
    bool touched; /* it has changed what sqlite3_total_changes does not count (DDL) */
    bool in_savepoint;
    size_t cache_savepoint;
    struct told put_savepoint;
    struct buf owner;           /* of the lease read last: may go straight into the next put */
    const struct claim *claims; /* presented by it */
    size_t claims_count;
    int64_t last_rowid; /* that its SQL has inserted; 0: none */
    int64_t sql_ms;     /* that its SQL has taken */
};

static inline struct transaction *transaction_of(struct store_txn *txn)
{
    return (struct transaction *)txn;
}

/* Begin with BEGIN_WRITE or BEGIN_READ. `version`, unless it is NULL, differs from an earlier one
 * where another connection has committed in between. False: it could not begin. */
bool transaction_begin(struct transaction *txn, enum statement how, int64_t *version);
/* SQLite has ended the transaction by itself; every further call of the operation fails. */
bool transaction_is_gone(const struct transaction *txn);
/* Commit. What the caches remember of the transaction is there to stay. */
enum stk_error transaction_commit(struct transaction *txn);
/* Note that the transaction has ended without a commit. */
void transaction_ended(struct transaction *txn);
/* Finalize the statements. */
void transaction_free(struct transaction *txn);

/* Statements. */

/* Return the statement, reset. NULL: it could not be prepared, which is remembered; to step NULL
 * is to fail. */
sqlite3_stmt *transaction_statement(struct transaction *txn, enum statement which);
/* The same, with its first parameter bound, or the first two. `key` outlives the step. */
sqlite3_stmt *transaction_statement_for(struct transaction *txn, enum statement which, int64_t id);
sqlite3_stmt *transaction_statement_key(struct transaction *txn, enum statement which, int64_t id,
                                        struct bytes key);
sqlite3_stmt *transaction_statement_pair(struct transaction *txn, enum statement which, int64_t id,
                                         int64_t number);
/* The first two, and the time as the third. */
sqlite3_stmt *transaction_statement_dated(struct transaction *txn, enum statement which,
                                          int64_t after, int64_t until);
/* Run a statement that gives no row. */
enum stk_error transaction_run(struct transaction *txn, enum statement which);
/* Step a bound statement that changes rows, and reset it. */
enum stk_error transaction_change(struct transaction *txn, sqlite3_stmt *stmt);
/* Step a bound statement to its next row. False: there is none, or it failed (`error`). */
bool transaction_row(struct transaction *txn, sqlite3_stmt *stmt, enum stk_error *error);
/* Take the first number of the first row; `number` is unchanged where there is no row. */
enum stk_error transaction_number(struct transaction *txn, sqlite3_stmt *stmt, int64_t *number);
/* Bind bytes that outlive the step. */
void transaction_bind(sqlite3_stmt *stmt, int at, struct bytes bytes);
/* Return a column's bytes, borrowed from the statement. */
struct bytes transaction_column(sqlite3_stmt *stmt, int at);
/* Count the rows that were changed on the connection, ever. */
int64_t transaction_changes(const struct transaction *txn);
/* Reset the statement whose bytes were handed out, which end with it. */
void transaction_release(struct transaction *txn);
/* The same, and closes the open blob: nothing of ours is under way in SQLite then. */
void transaction_settle(struct transaction *txn);
/* Overwrite the string of `id` by one of the same length. `*done` false: nothing has changed, for
 * it is not worth while, or the row has no string of that length. */
enum stk_error transaction_overwrite(struct transaction *txn, int64_t id, struct bytes value,
                                     bool *done);

/* Failures. All return STK_STORE. */

/* Remember SQLite's last error. */
enum stk_error transaction_fail(struct transaction *txn);
/* SQLite had no memory for something that is no statement. */
enum stk_error transaction_no_memory(struct transaction *txn);
/* The row is damaged, or was written by something that is not Stockade. */
enum stk_error transaction_implausible(struct transaction *txn);

/* What the file says of itself. */

/* Read the store-wide floor into txn->floor. */
enum stk_error transaction_floor(struct transaction *txn);
/* Go on with the store's time (store/clock.h) as the file has it: when the file is opened (was that
 * noted under another boot?), or when another process has committed. Within a transaction that
 * writes. */
enum stk_error transaction_open_clock(struct transaction *txn, bool *rebooted);
enum stk_error transaction_follow_clock(struct transaction *txn);
/* Note the store's time beside what was written, if that is due. `*noted`: once it is committed,
 * `note` is the clock's. */
enum stk_error transaction_note_clock(struct transaction *txn, struct store_clock_note *note,
                                      bool *noted);

#endif
