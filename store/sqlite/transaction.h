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

#include "store/sqlite/cache.h"
#include "store/store_impl.h"

#define STATEMENT_MAP(X)                                                                           \
    X(BEGIN_WRITE, "BEGIN IMMEDIATE")                                                              \
    X(BEGIN_READ, "BEGIN")                                                                         \
    X(COMMIT, "COMMIT")                                                                            \
    X(ROLLBACK, "ROLLBACK")                                                                        \
    X(DATA_VERSION, "PRAGMA data_version")                                                         \
    X(FLOOR, "SELECT value FROM stockade_meta WHERE key = 'floor'")                                \
    X(FIND, "SELECT id, token, state, type FROM stockade_resource WHERE name = ?1")                \
    X(MAKE, "INSERT OR IGNORE INTO stockade_resource(name) VALUES(?1)")                            \
    X(TYPE, "UPDATE stockade_resource SET type = ?2 WHERE id = ?1")                                \
    X(FENCE, "UPDATE stockade_resource SET token = ?2, state = ?3, holds = ?4, ttl_ms = ?5,"       \
             " session = ?6, connection = ?7, anonymous = ?8, owner = ?9"                          \
             " WHERE id = ?1 AND token <= ?2")                                                     \
    X(LEASE, "SELECT holds, ttl_ms, session, connection, anonymous, owner"                         \
             " FROM stockade_resource WHERE id = ?1")                                              \
    X(EACH_LIVE, "SELECT id, name, type FROM stockade_resource"                                    \
                 " WHERE id > ?1 AND state = 1 ORDER BY id")                                       \
    X(EACH_KEY, "SELECT id, name, type FROM stockade_resource"                                     \
                " WHERE id > ?1 AND type <> 0 ORDER BY id")                                        \
    X(COUNT_LIVE, "SELECT count(*) FROM stockade_resource WHERE state = 1")                        \
    X(COUNT_KEYS, "SELECT count(*) FROM stockade_resource WHERE type <> 0")                        \
    X(STRING, "SELECT value FROM stockade_string WHERE id = ?1")                                   \
    X(STRING_PUT, "REPLACE INTO stockade_string(id, value) VALUES(?1, ?2)")                        \
    X(STRING_CLEAR, "DELETE FROM stockade_string WHERE id = ?1")                                   \
    X(FIELD, "SELECT value FROM stockade_hash WHERE id = ?1 AND field = ?2")                       \
    X(FIELD_PUT, "REPLACE INTO stockade_hash(id, field, value) VALUES(?1, ?2, ?3)")                \
    X(FIELD_REMOVE, "DELETE FROM stockade_hash WHERE id = ?1 AND field = ?2")                      \
    X(FIELD_ANY, "SELECT EXISTS(SELECT 1 FROM stockade_hash WHERE id = ?1)")                       \
    X(EACH_FIELD, "SELECT field, value FROM stockade_hash"                                         \
                  " WHERE id = ?1 AND field >= ?2 ORDER BY field")                                 \
    X(COUNT_FIELDS, "SELECT count(*) FROM stockade_hash WHERE id = ?1")                            \
    X(HASH_CLEAR, "DELETE FROM stockade_hash WHERE id = ?1")                                       \
    X(FLUSH_STRINGS, "DELETE FROM stockade_string")                                                \
    X(FLUSH_HASHES, "DELETE FROM stockade_hash")                                                   \
    X(FLUSH_RESOURCES, "UPDATE stockade_resource SET type = 0, holds = 0,"                         \
                       " state = CASE state WHEN 1 THEN 3 ELSE state END"                          \
                       " WHERE type <> 0 OR state = 1")

enum statement {
#define X(name, sql) STATEMENT_##name,
    STATEMENT_MAP(X)
#undef X
        STATEMENTS
};

struct transaction {
    struct store_txn base;
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    sqlite3_stmt *open;  /* bytes handed out are its own, until the next call */
    struct cache *cache; /* the writer's; NULL: this is the reader's, which must not write */
    bool iterating;      /* in a callback, which must leave the transaction alone */
    bool failed;         /* SQLite failed a statement: `code`, `reason` */
    int code;            /* SQLite's primary code of the last failure */
    char reason[160];
    struct buf owner; /* of the lease read last: may go straight into the next put */
    bool floor_known;
    int64_t floor; /* the store-wide one */
    int64_t now_ms; /* when it began */
    bool marked;
    const struct claim *claims; /* presented by the operation under way */
    size_t claims_count;
    struct sql *sql;       /* sql.h */
    struct guards *guards; /* guards.h */
};

/* `db` is borrowed; `cache` may be NULL. */
void transaction_init(struct transaction *txn, sqlite3 *db, struct cache *cache);
/* Finalizes the statements. */
void transaction_free(struct transaction *txn);

/* For the parts of the transaction only. */

/* The statement, reset; NULL: it could not be prepared, which is recorded. */
sqlite3_stmt *transaction_statement(struct transaction *txn, enum statement which);
/* Runs a statement that gives no row. */
enum stk_error transaction_run(struct transaction *txn, enum statement which);
/* Steps a bound statement that changes rows, and resets it. */
enum stk_error transaction_change(struct transaction *txn, sqlite3_stmt *stmt);
/* Steps a bound statement to its next row. False: there is none, or it failed (`error`). */
bool transaction_row(struct transaction *txn, sqlite3_stmt *stmt, enum stk_error *error);
/* The first number of the first row; unchanged where there is no row. */
enum stk_error transaction_number(struct transaction *txn, sqlite3_stmt *stmt, int64_t *number);
/* Closes what is open: what was handed out is gone. */
void transaction_settle(struct transaction *txn);
/* Remembers SQLite's last error. Returns STK_STORE. */
enum stk_error transaction_fail(struct transaction *txn);
void transaction_bind(sqlite3_stmt *stmt, int at, struct bytes bytes);
/* Borrowed from the statement. */
struct bytes transaction_column(sqlite3_stmt *stmt, int at);

/* The primitives: resources.c and values.c. */
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

#endif
