/* SPDX-License-Identifier: Apache-2.0 */
/* SQL over the users' own tables, inside the store's transaction: one statement, its parameters,
 * and rows that are handed out as they come. A store may do without it.
 *
 * Whatever the statement does, Stockade's own objects, other files, PRAGMAs and transactions are
 * out of its reach, and a row of a guarded table changes only where txn_present has named its
 * resource in this operation. */
#ifndef STOCKADE_STORE_SQL_H
#define STOCKADE_STORE_SQL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/err.h"

struct store_txn;

#define SQL_WHY_MAX 256 /* bytes of an explanation */

enum sql_type { SQL_NULL, SQL_INTEGER, SQL_FLOAT, SQL_TEXT, SQL_BLOB };

struct sql_value {
    enum sql_type type;
    int64_t integer;
    double real;
    struct bytes bytes; /* text (UTF-8) or blob */
};

enum sql_right {
    SQL_MAY_READ,   /* SELECT, VALUES, EXPLAIN */
    SQL_MAY_WRITE,  /* and INSERT, UPDATE, DELETE, REPLACE */
    SQL_MAY_DEFINE, /* and CREATE, ALTER, DROP, REINDEX, ANALYZE */
};

struct sql_call {
    struct bytes statement;
    const struct sql_value *params;
    size_t params_count;
    enum sql_right right;
    bool own_hidden; /* not even Stockade's own views, which name all resources, may be read */
    int64_t time_limit_ms; /* for all SQL of the operation together; then it is interrupted */

    /* Called once, before the first row, for a statement that gives columns. */
    void (*columns)(void *context, const char *const *names, size_t count);
    /* Called for each row; the values live until it returns. False: enough, fail with `why`. */
    bool (*row)(void *context, const struct sql_value *values, size_t count);
    void *context;

    int64_t changes;           /* out: rows, without those that triggers changed */
    int64_t last_insert_rowid; /* out: the operation's, by this statement or one before; 0: none */
    char why[SQL_WHY_MAX];     /* out, where it is refused: text behind the code */
};

/* Run a statement. STK_OK; STK_STORE: the store failed; anything else: the statement is refused, as
 * `why` says. It may have changed something before: undo the operation or its mark. If it has ended
 * the transaction itself, every later call of the operation fails, and the operation must return an
 * error. */
enum stk_error txn_sql(struct store_txn *txn, struct sql_call *call);

/* The tokens that this operation has presented and the caller has judged: guards let rows of these
 * resources pass. Borrowed until the operation ends. */
struct claim {
    struct bytes resource;
    int64_t token;
    struct bytes value; /* of a lock, as it was presented for the token; empty: a token was */
};
/* txn_present(txn, claims, count), in txn.h, hands them over. */

/* A guard: the rows of `table` belong to the resource `prefix` followed by the value of `column`.
 * `token`: the column to which a statement that inserts or updates a row assigns the token; empty:
 * it is presented. Borrowed. */
struct table_guard {
    struct bytes table, column, prefix, token;
};
/* Refusals as with txn_sql: an error and a line in `why`. */
enum stk_error txn_guard_create(struct store_txn *txn, const struct table_guard *guard,
                                char why[SQL_WHY_MAX]);
enum stk_error txn_guard_drop(struct store_txn *txn, struct bytes table, char why[SQL_WHY_MAX]);
/* Call `each` for every guard; `flaw` says in words how it is not as it was made, or no longer on
 * what it was put on; empty: it is whole. */
typedef void (*txn_each_guard)(void *context, const struct table_guard *guard, struct bytes flaw);
enum stk_error txn_guards(struct store_txn *txn, txn_each_guard each, void *context);

#endif
