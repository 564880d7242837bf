/* SPDX-License-Identifier: Apache-2.0 */
/* What can be said of an SQL statement without the database: its kind, by its first word, and
 * whether its text keeps within bounds. It understands comments, strings and quoted names as SQLite
 * does, and no more: the database itself will find what else is wrong. */
#ifndef STOCKADE_STORE_SQL_TEXT_H
#define STOCKADE_STORE_SQL_TEXT_H

#include <stdbool.h>

#include "fence/base/bytes.h"

enum sql_kind {
    SQL_QUERY,      /* SELECT, VALUES, TABLE, EXPLAIN, WITH (which may lead to a change) */
    SQL_CHANGE,     /* INSERT, UPDATE, DELETE, REPLACE, MERGE */
    SQL_DEFINITION, /* CREATE, ALTER, DROP, REINDEX, ANALYZE */
    SQL_OTHER,      /* PRAGMA, ATTACH, BEGIN, VACUUM, ... or no SQL at all */
};

/* Refusals that are the same in every kind of store. */
#define SQL_NO_STATEMENT "there is no statement"
#define SQL_NOT_DDL      "DDL needs no token but an administrator: send it as a bare SQL"
#define SQL_NO_TOKEN     "a write needs a token: FENCEDALL n resource token ... SQL ..."

#define SQL_STATEMENT_MAX (1 << 20) /* bytes */
/* Selects in one statement. SQLite's compiler goes one level deeper for each that stands inside
 * another, and names (WITH) nest without parentheses: thousands would run through the stack. */
#define SQL_SELECTS_MAX 500

enum sql_kind sql_kind(struct bytes statement);
/* NULL: the text is within bounds; otherwise says what is wrong with it. Static storage. */
const char *sql_text_refuses(struct bytes statement);
/* Is there nothing but blanks, comments and semicolons? */
bool sql_text_is_blank(struct bytes rest);
/* Does it have this word anywhere, quoted or not, in letters of either case? `word` is of more than
 * one character, and its last one occurs there as it is. */
bool sql_text_has(struct bytes statement, const char *word);

#endif
