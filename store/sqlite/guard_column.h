/* SPDX-License-Identifier: Apache-2.0 */
/* What a guard by column has besides: the column to which a statement that inserts or updates a row
 * assigns the token, and the triggers that judge it and leave NULL behind.
 *
 * SQLite's triggers cannot change the row that is about to be written. So it is written with the
 * token in it, and the guard's AFTER trigger takes that out, by an UPDATE of this one column,
 * before the statement ends. Invariants:
 *
 * - BEFORE triggers decide, AFTER triggers only take out: what is written was judged, whatever
 * keeps an AFTER trigger from running (RAISE(IGNORE) or RAISE(FAIL) in another one that runs before
 * it).
 * - A row at rest has NULL there. One that has a token all the same takes only a statement that
 *   assigns another: one that assigns nothing could not be told from one that assigns the same.
 * - To take a token out is nothing that others may do: the function lets the guard's own UPDATE
 *   through, once, right after it has judged that very token (guard_function.c).
 * - The own UPDATE fires the user's triggers, too, unless these say UPDATE OF other columns: tables
 *   with others are not guarded by column, since each would run twice.
 *
 * It fails as SQLite fails. */
#ifndef STOCKADE_STORE_SQLITE_GUARD_COLUMN_H
#define STOCKADE_STORE_SQLITE_GUARD_COLUMN_H

#include <sqlite3.h>
#include <stdbool.h>

#include "store/sql.h"

/* Names as the schema spells them. */
struct guard {
    char *table, *column, *prefix; /* owned, or borrowed for the length of a call */
    bool generated;                /* the column is: its value is computed */
    char *token;                   /* the same; empty: tokens are presented */
    /* Of a guard by column: how its triggers find the row again, as SQL, owned; and whether
     * SQLite makes up the key of a row that is inserted without one. */
    char *row;
    bool numbered;
};

/* Set `row` and `numbered` by the table as it is; `why` says what keeps its rows from being found
 * again, or is empty. SQLITE_OK or SQLite's code. */
int guard_column_look(sqlite3 *db, struct guard *guard, char why[SQL_WHY_MAX]);

enum guard_moment { GUARD_BEFORE_INSERT, GUARD_INSERTED, GUARD_BEFORE_UPDATE, GUARD_UPDATED };
/* Return the trigger `name` as SQL, for sqlite3_free. NULL: no memory. */
char *guard_column_trigger(const struct guard *guard, enum guard_moment moment, const char *name);

/* Have the column ready, and set `token` to how it is spelt: add it, or find that the one that is
 * there will do. Within a savepoint, which a refusal (`why`) undoes. */
int guard_column_prepare(sqlite3 *db, struct guard *guard, bool *added, char why[SQL_WHY_MAX]);
/* Drop the column that was added, unless a view or trigger of the user's reads it. */
int guard_column_drop(sqlite3 *db, const struct guard *guard);

/* Find a trigger of the user's that would fire at the guard's own UPDATE: its name goes into
 * `name`, which is empty where there is none. */
int guard_column_intruder(sqlite3 *db, const struct guard *guard, char name[SQL_WHY_MAX]);
/* What to do about it, for a message with the name. */
#define GUARD_INTRUDER_WHY                                                                         \
    "trigger %.60s would run twice, also at the guard's own UPDATE: say UPDATE OF its columns"

#endif
