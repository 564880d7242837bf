/* SPDX-License-Identifier: Apache-2.0 */
/* SQL in a rig's store: one statement, and its result as text to compare with. */
#ifndef STOCKADE_TESTS_STORE_SQL_RIG_H
#define STOCKADE_TESTS_STORE_SQL_RIG_H

#include "store/sql.h"
#include "tests/unit/store/rig.h"

/* A statement to run with sql_body, as an operation or as a part of one. */
struct ask {
    struct sql_call call; /* filled in; the callbacks are sql_body's */
    struct claim claim;   /* presented, where it has a resource */
    size_t rows_max;      /* 0: all; more are refused */
    size_t columns_told, rows;
    enum stk_error error;        /* how sql_do ended */
    char names[256], text[4096]; /* of columns, between commas; the result, see below */
};

struct ask ask_of(enum sql_right right, const char *statement);
/* Runs it in the operation; the refusal is returned. */
enum stk_error sql_body(struct store_txn *txn, void *ask);

/* One operation with one statement, on the reader (SQL_MAY_READ) or the writer. Rows: "1,'text';",
 * blobs as x'00', floats with a point. A refusal: "CODE why". Static storage. */
const char *sql_ask(struct rig *rig, const char *statement);
const char *sql_change(struct rig *rig, const char *statement);
const char *sql_define(struct rig *rig, const char *statement);
/* As it says in the struct; fills in ask->text. */
const char *sql_do(struct rig *rig, struct ask *ask);
/* The text begins with `begin` and has `part` somewhere. */
void sql_expect(const char *text, const char *begin, const char *part);

#endif
