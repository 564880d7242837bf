/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives of txn.h on a SQLite connection: one struct for a connection's statements and for
 * what is known of the transaction under way. Writer and reader have one each.
 *
 * Statements are prepared at first use. A statement whose bytes were handed out stays open until
 * the next call, and only then is reset. A failure is remembered in `failed`, so that the
 * transaction is undone even where an operation overlooks it. */
#ifndef STOCKADE_STORE_SQLITE_TRANSACTION_H
#define STOCKADE_STORE_SQLITE_TRANSACTION_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/clock.h"
#include "store/sqlite/cache.h"
#include "store/sqlite/statements.h"
#include "store/store_impl.h"

struct transaction {
    struct store_txn base;
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    sqlite3_stmt *open;  /* bytes handed out are its own, until the next call */
    sqlite3_blob *over;  /* on the string that was overwritten last; SQLite then refuses to commit,
                          * to set marks and to change the schema */
    bool put_before;     /* a string, in this transaction */
    int64_t overwrites;  /* strings, ever: sqlite3_total_changes does not count them */
    struct cache *cache; /* the writer's; NULL: this is the reader's, which must not write */
    struct cache *names; /* a reader's, or NULL: ids of names, as of any time under this floor */
    int64_t names_floor;
    bool iterating; /* in a callback, which must leave the transaction alone */
    bool failed;    /* SQLite failed a statement: `code`, `reason` */
    int code;       /* SQLite's primary code of the last failure */
    char reason[STORE_WHY_MAX];
    struct store_reasons *reasons; /* borrowed; for operations that fail */
    struct buf owner;              /* of the lease read last: may go straight into the next put */
    bool floor_known;
    int64_t floor;             /* the store-wide one */
    struct store_clock *clock; /* of all transactions on the file */
    int64_t now_ms;            /* when it began */
    bool begun;                /* and not ended by us; SQLite may have ended it all the same */
    bool touched;              /* SQL has changed what sqlite3_total_changes does not count (DDL) */
    bool marked;
    size_t cache_mark;
    const struct claim *claims; /* presented by the operation under way */
    size_t claims_count;
    int64_t last_rowid;    /* that its SQL has inserted; 0: none */
    int64_t sql_ms;        /* that its SQL has taken */
    struct sql *sql;       /* sql.h */
    struct guards *guards; /* guards.h */
};

/* `db` and `clock` are borrowed; `cache` may be NULL. False: SQLite has no memory; free it all the
 * same. */
bool transaction_init(struct transaction *txn, sqlite3 *db, struct cache *cache,
                      struct store_clock *clock);
/* Finalizes the statements. */
void transaction_free(struct transaction *txn);
/* False: it could not begin. */
bool transaction_begin(struct transaction *txn, enum statement how);
/* SQLite has ended it by itself; every further call of the operation fails. */
bool transaction_is_gone(const struct transaction *txn);
/* An operation is over: its mark and its claims end. */
void transaction_leave(struct transaction *txn);
/* It has ended, one way or the other. */
void transaction_ended(struct transaction *txn);

/* For the parts of the transaction only. */

/* The statement, reset; NULL: it could not be prepared, which is recorded. */
sqlite3_stmt *transaction_statement(struct transaction *txn, enum statement which);
/* Runs a statement that gives no row. */
enum stk_error transaction_run(struct transaction *txn, enum statement which);
/* Steps a bound statement that changes rows, and resets it. */
enum stk_error transaction_change(struct transaction *txn, sqlite3_stmt *stmt);
/* Steps a bound statement to its next row. False: there is none, or it failed (`error`). */
bool transaction_row(struct transaction *txn, sqlite3_stmt *stmt, enum stk_error *error);
/* The string of `id`, which has as many bytes as `value`, becomes `value`: through SQLite's
 * incremental blob I/O, which takes half the time of a statement once it is open. `*done` false: it
 * is not worth it, or not the case after all, and nothing has changed. */
enum stk_error transaction_overwrite(struct transaction *txn, int64_t id, struct bytes value,
                                     bool *done);
/* Rows that were changed on the connection, ever. */
int64_t transaction_changes(const struct transaction *txn);
/* The first number of the first row; unchanged where there is no row. */
enum stk_error transaction_number(struct transaction *txn, sqlite3_stmt *stmt, int64_t *number);
/* What was handed out is gone. */
void transaction_release(struct transaction *txn);
/* The same; and nothing of the transaction's is under way in SQLite. */
void transaction_settle(struct transaction *txn);
/* Remembers SQLite's last error. Returns STK_STORE. */
enum stk_error transaction_fail(struct transaction *txn);
void transaction_bind(sqlite3_stmt *stmt, int at, struct bytes bytes);
/* Borrowed from the statement. */
struct bytes transaction_column(sqlite3_stmt *stmt, int at);

/* What SQLite was to make for us outside of a statement, it had no memory for. Returns STK_STORE.
 */
enum stk_error transaction_no_memory(struct transaction *txn);
/* The row is damaged, or was written by something that is not Stockade. Returns STK_STORE. */
enum stk_error transaction_implausible(struct transaction *txn);
/* The store's time (clock.c), within a transaction that writes: goes on with it as the file says,
 * when the file is opened, or when another process has committed. */
enum stk_error transaction_resume_clock(struct transaction *txn, bool opens);
/* Something was written: notes the time, if that is due. `*noted`: once it is committed, `note` is
 * the clock's. */
enum stk_error transaction_note_clock(struct transaction *txn, struct store_clock_note *note,
                                      bool *noted);
/* The store-wide floor, into txn->floor. */
enum stk_error transaction_floor(struct transaction *txn);

/* The primitives: resources.c, values.c, receipts.c, sweep.c. */
enum stk_error resources_find(struct store_txn *, struct bytes, struct resource *);
enum stk_error resources_make(struct store_txn *, struct bytes, struct resource *);
enum stk_error resources_fence_put(struct store_txn *, const struct resource *,
                                   const struct lease *);
enum stk_error resources_lease(struct store_txn *, const struct resource *, struct lease *);
enum stk_error resources_each_live(struct store_txn *, int64_t, txn_each_name, void *);
enum stk_error resources_each_key(struct store_txn *, int64_t, txn_each_name, void *);
enum stk_error resources_count_keys(struct store_txn *, int64_t *);
enum stk_error resources_count_live(struct store_txn *, int64_t *);
enum stk_error values_string(struct store_txn *, const struct resource *, bool *, struct bytes *);
enum stk_error values_string_of(struct store_txn *, struct bytes, bool *, struct bytes *);
enum stk_error values_string_put(struct store_txn *, struct resource *, struct bytes);
enum stk_error values_field(struct store_txn *, const struct resource *, struct bytes, bool *,
                            struct bytes *);
enum stk_error values_field_put(struct store_txn *, struct resource *, struct bytes, struct bytes);
enum stk_error values_field_remove(struct store_txn *, struct resource *, struct bytes, bool *);
enum stk_error values_each_field(struct store_txn *, const struct resource *, struct bytes,
                                 txn_each_field, void *);
enum stk_error values_count_fields(struct store_txn *, const struct resource *, int64_t *);
enum stk_error values_clear(struct store_txn *, struct resource *);
enum stk_error values_flush(struct store_txn *);
enum stk_error receipts_find(struct store_txn *, const struct resource *, struct bytes, bool *,
                             struct receipt *);
enum stk_error receipts_put(struct store_txn *, const struct resource *, struct bytes,
                            const struct receipt *);
enum stk_error receipts_remove(struct store_txn *, const struct resource *, struct bytes);
/* Logs the live token's end where it has receipts: `fence` is about to take its place. */
enum stk_error receipts_retire(struct transaction *txn, int64_t id, const struct fence *fence);
enum stk_error receipts_retire_all(struct transaction *txn);
/* Logs the end of a token that has receipts. */
enum stk_error receipts_log(struct transaction *txn, int64_t id, int64_t token);
enum stk_error sweep_receipts(struct store_txn *, int64_t, size_t, size_t *, bool *);
enum stk_error sweep_resources(struct store_txn *, int64_t, int64_t, size_t, int64_t *, size_t *,
                               bool *);
enum stk_error sweep_receipts_due(struct store_txn *, int64_t, bool *);
enum stk_error sweep_resources_due(struct store_txn *, int64_t, int64_t, size_t, int64_t *, bool *,
                                   bool *);

#endif
