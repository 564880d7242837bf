/* SPDX-License-Identifier: Apache-2.0 */
/* The guards of a file, as one connection knows them: the function that their triggers call, what
 * guards there are, and whether they are as they were made.
 *
 * Guards live in the file, so any program can lose one (DROP TRIGGER, DROP TABLE, ALTER TABLE). The
 * writer checks them whenever the schema may have changed: when the file is opened, after a foreign
 * commit that changed the schema, after its own changes, after a roll-back. A guard that is not as
 * it was made is broken: that is logged, and nobody may write to its table until it is restored.
 * The same check looks at Stockade's own tables: a trigger on one of them runs within our own
 * statements, so while there is one nothing at all is written. */
#ifndef STOCKADE_STORE_SQLITE_GUARDS_H
#define STOCKADE_STORE_SQLITE_GUARDS_H

#include "fence/base/log.h"
#include "store/sqlite/transaction.h"

struct guards;

/* Make txn->guards, and prepare its connection for guarded tables. `path` and `log` are borrowed.
 * False: SQLite failed. */
bool guards_open(struct transaction *txn, const char *path, const struct log *log);
/* After the connection's statements are finalized; may be NULL. */
void guards_free(struct guards *guards);

enum guards_news {
    GUARDS_NO_NEWS, /* a transaction begins */
    GUARDS_FOREIGN, /* the same, and another program has committed */
    GUARDS_OWN,     /* this connection may have changed the schema: call it after DDL */
};

/* Check them again where there is reason to. For the writer, inside its transaction. */
enum stk_error guards_check(struct transaction *txn, enum guards_news news);
/* Have the next guards_check read everything anew where our own change was not committed yet: the
 * transaction, or a part of it, was rolled back. */
void guards_invalidate(struct guards *guards);

/* What of Stockade's own objects another program has changed so that nothing may be written, in
 * words; NULL: nothing. */
const char *guards_harm(const struct guards *guards);

/* Is there a guard on this table, whole or broken? */
bool guards_has(const struct guards *guards, const char *table);
/* Say in some words why it is broken; the text lives until the next check. NULL: it is not. */
const char *guards_flaw(const struct guards *guards, const char *table);
/* The same of the first one that is broken, and its table. */
const char *guards_first_flaw(const struct guards *guards, const char **table);

/* The primitives of sql.h that end in the same words, with their contracts. Creating the same guard
 * again restores one that is broken. */
enum stk_error guards_create(struct store_txn *, const struct table_guard *, char why[SQL_WHY_MAX]);
enum stk_error guards_drop(struct store_txn *, struct bytes, char why[SQL_WHY_MAX]);
enum stk_error guards_each(struct store_txn *, txn_each_guard, void *);

#endif
