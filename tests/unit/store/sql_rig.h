/* SPDX-License-Identifier: Apache-2.0 */
/* Run SQL in a rig's store, and get its result as text. */
#ifndef STOCKADE_TESTS_STORE_SQL_RIG_H
#define STOCKADE_TESTS_STORE_SQL_RIG_H

#include "store/sql.h"
#include "tests/unit/store/rig.h"

/* A statement to run with sql_body, as an operation or as a part of one. */
struct ask {
    struct sql_call call; /* its callbacks are sql_body's */
    struct claim claim;   /* presented, where it has a resource */
    size_t rows_max;      /* 0: all; more are refused */
    size_t columns_calls, rows;
    enum stk_error error;        /* how sql_do ended */
    char names[256], text[4096]; /* of columns, between commas; the result, see below */
};

struct ask ask_of(enum sql_right right, const char *statement);
/* Run it in the operation. Return how it ended. */
enum stk_error sql_body(struct store_txn *txn, void *ask);

/* Run one statement in an operation of its own, on the reader (SQL_MAY_READ) or the writer. Rows:
 * "1,'text';", blobs as x'00', floats with a point. A refusal: "CODE why". Static storage. */
const char *sql_ask(struct rig *rig, const char *statement);
const char *sql_change(struct rig *rig, const char *statement);
const char *sql_define(struct rig *rig, const char *statement);
/* The same for a statement with all that the struct can say; the result is in ask->text, too. */
const char *sql_do(struct rig *rig, struct ask *ask);
/* Expect a text that begins with `begin` and contains `part`. */
void sql_expect(const char *text, const char *begin, const char *part);

#endif
