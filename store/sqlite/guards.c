/* SPDX-License-Identifier: Apache-2.0 */
/* Three parts: what a guard consists of in the file; the check that it is still so; making and
 * dropping guards. */
#include "store/sqlite/guards.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/sqlite/db.h"
#include "store/sqlite/guard_column.h"
#include "store/sqlite/guard_function.h"
#include "store/sqlite/schema.h"

enum { FLAW_MAX = 160, NAME_MAX_BYTES = 512 };

struct watched {
    struct guard guard;
    char flaw[FLAW_MAX]; /* empty: it is whole */
};

/* What other programs have changed of Stockade's own objects. */
struct changes {
    int count;
    bool harm;
    char first[STORE_WHY_MAX]; /* in words; if one harms, that */
};

struct guards {
    const char *path; /* borrowed, for the log */
    const struct log *log;
    struct guard_witness witness;
    int64_t version; /* SQLite's number of the schema at the last check; 0: there was none */
    bool unsettled;  /* the last check saw changes of our own, which are not committed yet */
    bool stale;      /* whatever the version, check again */
    struct watched *list;
    size_t count;
    struct changes changes;
};

/* What a guard consists of: five triggers and an index, each a pure function of the guard, so that
 * comparing the text of the schema shows whether a guard is as it was made. Why these:
 *
 * - AFTER INSERT and AFTER UPDATE judge the row as it is now: keys that SQLite makes are known only
 *   then. BEFORE UPDATE and BEFORE DELETE judge the row as it was; the latter sees REPLACE, too.
 * - BEFORE INSERT adds no safety. It refuses INSERT OR IGNORE and ON CONFLICT DO NOTHING where the
 *   row exists, which would otherwise look as if it had been allowed. A key that SQLite will make
 *   reads NULL or -1 there, and a computed one may be computed from that, so those rows are judged
 *   by AFTER INSERT alone.
 * - Names in a trigger's body mean objects of the trigger's own file, whatever else the connection
 *   has attached or shadowed: the token is looked up where the row is, in the same transaction.
 * - RAISE makes SQLite keep what it needs to undo the whole statement, and it refuses the row where
 *   another program has put a function of this name that does not complain.
 * - The index holds no row. But SQLite lets nobody write into a table that has an index on an
 *   expression through incremental blob I/O, which fires no triggers.
 *
 * A guard by column (guard_column.h) has other triggers at INSERT and UPDATE, by the same names. */
static const struct {
    const char *name, *when, *row; /* row NULL: the index */
} parts[] = {
    {"insert", "BEFORE INSERT", "NEW"}, {"inserted", "AFTER INSERT", "NEW"},
    {"update", "BEFORE UPDATE", "OLD"}, {"updated", "AFTER UPDATE", "NEW"},
    {"delete", "BEFORE DELETE", "OLD"}, {"blob", NULL, NULL},
};

enum { PART_BEFORE_INSERT = 0, PART_DELETE = 4, PARTS = sizeof parts / sizeof *parts };
_Static_assert((int)GUARD_BEFORE_INSERT == PART_BEFORE_INSERT &&
                   (int)GUARD_UPDATED == PART_DELETE - 1,
               "the triggers of guards by column stand in the same order");

static bool is_by_column(const struct guard *guard)
{
    return guard->token[0] != '\0';
}

static char *trigger_sql(const struct guard *guard, size_t which, const char *name)
{
    const char *row = parts[which].row;
    char *condition = which == PART_BEFORE_INSERT
                          ? sqlite3_mprintf(" WHEN NEW.\"%w\" IS NOT NULL AND NEW.\"%w\" <> -1",
                                            guard->column, guard->column)
                          : sqlite3_mprintf("");
    if (condition == NULL)
        return NULL;
    char *sql = sqlite3_mprintf(
        "CREATE TRIGGER \"%w\" %s ON \"%w\"%s BEGIN SELECT CASE WHEN stockade_guard(%Q, %s.\"%w\", "
        "(SELECT token FROM stockade_resource WHERE name = CAST(%Q || %s.\"%w\" AS BLOB) "
        "AND state = 1), (SELECT value FROM stockade_meta WHERE key = 'file')) "
        "THEN 1 ELSE RAISE(ABORT, 'GUARDED stockade_guard is not Stockade''s') END; END",
        name, parts[which].when, guard->table, condition, guard->prefix, row, guard->column,
        guard->prefix, row, guard->column);

    sqlite3_free(condition);
    return sql;
}

struct part {
    const char *type; /* "trigger" or "index"; static */
    char *name, *sql; /* owned: part_free; `sql` is as the schema keeps it */
};

/* Make the text of one part. False: a guard of this kind has no such part. Where there is no
 * memory `sql` is NULL. */
static bool part_make(const struct guard *guard, size_t which, struct part *part)
{
    check(which < PARTS);
    if (which == PART_BEFORE_INSERT && guard->generated)
        return false;
    /* The word comes before the table's name: no two guards share a name. */
    part->name = sqlite3_mprintf("stockade_guard_%s_%s", parts[which].name, guard->table);
    part->type = parts[which].row != NULL ? "trigger" : "index";
    part->sql = NULL;
    if (part->name != NULL && which < PART_DELETE && is_by_column(guard))
        part->sql = guard_column_trigger(guard, (enum guard_moment)which, part->name);
    else if (part->name != NULL && parts[which].row != NULL)
        part->sql = trigger_sql(guard, which, part->name);
    else if (part->name != NULL)
        part->sql =
            sqlite3_mprintf("CREATE INDEX \"%w\" ON \"%w\"(1) WHERE 0", part->name, guard->table);
    return true;
}

static void part_free(struct part *part)
{
    sqlite3_free(part->name);
    sqlite3_free(part->sql);
}

/* The check. */

/* Look for it among the transaction's claims, which the caller judged before it presented them. */
static bool presented(void *context, struct bytes file, struct bytes resource, int64_t token)
{
    const struct transaction *txn = context;

    (void)file; /* this connection has only one */
    for (size_t i = 0; i < txn->claims_count; i++)
        if (txn->claims[i].token == token && bytes_equal(txn->claims[i].resource, resource))
            return true;
    return false;
}

bool guards_open(struct transaction *txn, const char *path, const struct log *log)
{
    struct guards *guards = mem_zalloc(sizeof *guards);
    int64_t recursive = 0;

    txn->guards = guards;
    guards->path = path;
    guards->log = log;
    guards->witness = (struct guard_witness){
        .presented = presented,
        .context = txn,
        .how = "FENCEDALL n resource token ... SQL statement",
    };
    /* Nothing turns the pragma off again: users' SQL has none. */
    return guard_function_add(txn->db, &guards->witness, NULL) == SQLITE_OK &&
           db_exec(txn->db, "PRAGMA recursive_triggers = ON") == SQLITE_OK &&
           db_int64(txn->db, "PRAGMA recursive_triggers", &recursive) == SQLITE_OK &&
           recursive == 1;
}

static void guard_free(struct guard *guard)
{
    free(guard->table);
    free(guard->column);
    free(guard->prefix);
    free(guard->token);
    free(guard->row);
}

static void list_free(struct watched *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        guard_free(&list[i].guard);
    free(list);
}

void guards_free(struct guards *guards)
{
    if (guards == NULL)
        return;
    list_free(guards->list, guards->count);
    free(guards);
}

static char *column_text(sqlite3_stmt *stmt, int at)
{
    const unsigned char *text = sqlite3_column_text(stmt, at);
    return mem_strdup(text != NULL ? (const char *)text : "");
}

/* `hidden` is 2 or 3 for computed columns. */
#define GUARDS_SELECT                                                                              \
    "SELECT name, key, prefix, EXISTS(SELECT 1 FROM pragma_table_xinfo(g.name, 'main') AS c"       \
    " WHERE c.name = g.key AND c.hidden > 1), "

/* Read the registry into a new list. */
static bool read_list(sqlite3 *db, struct watched **list, size_t *count)
{
    static const char sql[] =
        GUARDS_SELECT "ifnull((SELECT token FROM main.stockade_token_column AS t"
                      " WHERE t.name = g.name), '') FROM main.stockade_guard AS g ORDER BY name";
    /* A file of an earlier version, which is looked at but not brought up to date. */
    static const char earlier[] = GUARDS_SELECT "'' FROM main.stockade_guard AS g ORDER BY name";
    sqlite3_stmt *stmt;
    int64_t known = 0;

    if (db_int64(db, "SELECT count(*) FROM main.sqlite_schema WHERE name = 'stockade_token_column'",
                 &known) != SQLITE_OK ||
        sqlite3_prepare_v2(db, known != 0 ? sql : earlier, -1, &stmt, NULL) != SQLITE_OK)
        return false;
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        *list = mem_realloc(*list, (*count + 1) * sizeof **list);
        (*list)[(*count)++] = (struct watched){
            .guard = {.table = column_text(stmt, 0),
                      .column = column_text(stmt, 1),
                      .prefix = column_text(stmt, 2),
                      .generated = sqlite3_column_int(stmt, 3) != 0,
                      .token = column_text(stmt, 4)},
        };
    }
    return sqlite3_finalize(stmt) == SQLITE_OK;
}

/* Compare one part with what `stmt` finds of it. */
static bool check_part(sqlite3_stmt *stmt, struct watched *watched, const struct part *part)
{
    sqlite3_bind_text(stmt, 1, part->type, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 2, part->name, -1, SQLITE_STATIC);
    if (sqlite3_step(stmt) != SQLITE_ROW) {
        sqlite3_snprintf(FLAW_MAX, watched->flaw, "its %s %s is gone", part->type, part->name);
    } else {
        const char *table = (const char *)sqlite3_column_text(stmt, 0);
        const char *sql = (const char *)sqlite3_column_text(stmt, 1);
        if (table != NULL && sqlite3_stricmp(table, watched->guard.table) != 0)
            sqlite3_snprintf(FLAW_MAX, watched->flaw,
                             "its %s %s is on table %.48s: that is what was guarded, and is called "
                             "so now",
                             part->type, part->name, table);
        else if (table == NULL || sql == NULL || strcmp(sql, part->sql) != 0)
            sqlite3_snprintf(FLAW_MAX, watched->flaw, "its %s %s was altered", part->type,
                             part->name);
    }
    return sqlite3_reset(stmt) == SQLITE_OK;
}

/* What a guard by column looks like depends on the table; and it suffers no trigger that would run
 * at its own UPDATE. */
static bool check_column(sqlite3 *db, struct watched *watched)
{
    char why[SQL_WHY_MAX], intruder[SQL_WHY_MAX];

    if (!is_by_column(&watched->guard))
        return true;
    if (guard_column_look(db, &watched->guard, why) != SQLITE_OK ||
        guard_column_intruder(db, &watched->guard, intruder) != SQLITE_OK)
        return false;
    if (why[0] != '\0')
        text_print(watched->flaw, FLAW_MAX, "%s", why);
    else if (intruder[0] != '\0')
        text_print(watched->flaw, FLAW_MAX, GUARD_INTRUDER_WHY, intruder);
    return true;
}

/* Find the flaws of every guard in the list. */
static bool find_flaws(sqlite3 *db, struct watched *list, size_t count)
{
    static const char sql[] = "SELECT tbl_name, sql FROM main.sqlite_schema"
                              " WHERE type = ?1 AND name = ?2";
    sqlite3_stmt *stmt;
    bool fine = true;

    for (size_t i = 0; i < count; i++)
        if (!check_column(db, &list[i]))
            return false;
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
        return false;
    for (size_t i = 0; i < count; i++)
        for (size_t which = 0; fine && which < PARTS && list[i].flaw[0] == '\0'; which++) {
            struct part part;
            if (!part_make(&list[i].guard, which, &part))
                continue;
            fine = part.sql != NULL && check_part(stmt, &list[i], &part);
            part_free(&part);
        }
    return sqlite3_finalize(stmt) == SQLITE_OK && fine;
}

static struct watched *find(struct watched *list, size_t count, const char *table)
{
    for (size_t i = 0; i < count; i++)
        if (sqlite3_stricmp(list[i].guard.table, table) == 0)
            return &list[i];
    return NULL;
}

/* Log what differs from the last check. */
static void report(const struct guards *guards, struct watched *list, size_t count, bool foreign)
{
    char table[128];

    for (size_t i = 0; i < count; i++) {
        const struct watched *now = &list[i];
        const struct watched *before = find(guards->list, guards->count, now->guard.table);
        bool was_broken = before != NULL && before->flaw[0] != '\0';

        log_quoted(bytes_of(now->guard.table), table, sizeof table);
        if (now->flaw[0] != '\0' && !was_broken)
            log_error(guards->log,
                      "store %s: the guard of table %s is broken: %s; writes to it stop here until "
                      "GUARD CREATE with its column and prefix restores it",
                      guards->path, table, now->flaw);
        else if (now->flaw[0] == '\0' && was_broken)
            log_info(guards->log, "store %s: the guard of table %s is whole again", guards->path,
                     table);
        else if (before == NULL && foreign)
            log_info(guards->log, "store %s: another program has guarded table %s", guards->path,
                     table);
    }
    for (size_t i = 0; foreign && i < guards->count; i++)
        if (find(list, count, guards->list[i].guard.table) == NULL)
            log_warn(guards->log, "store %s: another program has removed the guard of table %s",
                     guards->path,
                     log_quoted(bytes_of(guards->list[i].guard.table), table, sizeof table));
}

static void note_change(void *context, const struct schema_change *change)
{
    struct changes *changes = context;

    if (changes->count++ == 0 || (change->harms && !changes->harm))
        schema_explain_change(change, changes->first, sizeof changes->first);
    changes->harm |= change->harms;
}

/* Look what others have changed, and log it where that is news. Our own changes go round these
 * objects (sql_authorizer.c). */
static bool check_own(struct transaction *txn)
{
    struct guards *guards = txn->guards;
    struct changes now = {.count = 0}, *before = &guards->changes;
    int64_t version = 0;

    /* `stockade check` also looks at files that no daemon has brought up to date. */
    if (db_int64(txn->db, "PRAGMA main.user_version", &version) != SQLITE_OK)
        return false;
    if (version < 2 || version > schema_version())
        version = schema_version();
    if (schema_compare(txn->db, version, note_change, &now) != SQLITE_OK)
        return false;
    if (now.harm && (!before->harm || strcmp(now.first, before->first) != 0))
        log_error(guards->log, "store %s takes no writes: %s", guards->path, now.first);
    else if (now.count > 0 && (now.count != before->count || strcmp(now.first, before->first) != 0))
        log_warn(guards->log, "store %s: %s; of Stockade's own objects %d differ: stockade check",
                 guards->path, now.first, now.count);
    else if (now.count == 0 && before->count > 0)
        log_info(guards->log, "store %s: Stockade's own objects are as they were made again",
                 guards->path);
    *before = now;
    return true;
}

enum stk_error guards_check(struct transaction *txn, enum guards_news news)
{
    struct guards *guards = txn->guards;
    struct watched *list = NULL;
    size_t count = 0;
    int64_t version = 0;

    if (guards == NULL)
        return STK_OK;
    guards->unsettled = news == GUARDS_OWN;
    if (news == GUARDS_NO_NEWS && !guards->stale)
        return STK_OK;
    if (db_int64(txn->db, "PRAGMA main.schema_version", &version) != SQLITE_OK)
        return transaction_fail(txn);
    /* Our own change may be one of the registry alone. */
    if (version == guards->version && !guards->stale && news != GUARDS_OWN)
        return STK_OK;
    if ((news != GUARDS_OWN || guards->version == 0) && !check_own(txn))
        return transaction_fail(txn);
    if (guards->changes.harm) /* the registry may be what has gone; look again the next time */
        return STK_OK;
    if (!read_list(txn->db, &list, &count) || !find_flaws(txn->db, list, count)) {
        list_free(list, count);
        return transaction_fail(txn);
    }
    bool foreign = news == GUARDS_FOREIGN && guards->version != 0 && version != guards->version;
    if (foreign)
        log_warn(guards->log,
                 "store %s: another program has changed the schema (stockade restore does)",
                 guards->path);
    report(guards, list, count, foreign);
    list_free(guards->list, guards->count);
    guards->list = list;
    guards->count = count;
    guards->version = version;
    guards->stale = false;
    return STK_OK;
}

void guards_invalidate(struct guards *guards)
{
    if (guards != NULL && guards->unsettled)
        guards->stale = true;
}

const char *guards_harm(const struct guards *guards)
{
    return guards != NULL && guards->changes.harm ? guards->changes.first : NULL;
}

bool guards_has(const struct guards *guards, const char *table)
{
    return guards != NULL && find(guards->list, guards->count, table) != NULL;
}

const char *guards_flaw(const struct guards *guards, const char *table)
{
    const struct watched *watched =
        guards != NULL ? find(guards->list, guards->count, table) : NULL;
    return watched != NULL && watched->flaw[0] != '\0' ? watched->flaw : NULL;
}

const char *guards_first_flaw(const struct guards *guards, const char **table)
{
    for (size_t i = 0; guards != NULL && i < guards->count; i++)
        if (guards->list[i].flaw[0] != '\0') {
            *table = guards->list[i].guard.table;
            return guards->list[i].flaw;
        }
    return NULL;
}

enum stk_error guards_each(struct store_txn *base, txn_each_guard each, void *context)
{
    const struct guards *guards = transaction_of(base)->guards;

    for (size_t i = 0; guards != NULL && i < guards->count; i++) {
        const struct watched *watched = &guards->list[i];
        each(context,
             &(struct table_guard){.table = bytes_of(watched->guard.table),
                                   .column = bytes_of(watched->guard.column),
                                   .prefix = bytes_of(watched->guard.prefix),
                                   .token = bytes_of(watched->guard.token)},
             bytes_of(watched->flaw));
    }
    return STK_OK;
}

/* Making and dropping guards: whole or not at all, inside the writer's transaction. */

/* A guard to make or remove, and where to say why not. */
struct task {
    struct transaction *txn;
    struct guard guard; /* its strings are owned */
    bool registered;
    bool added; /* the guard has made the column for tokens */
    char *why;  /* SQL_WHY_MAX bytes */
};

__attribute__((format(printf, 2, 3))) static enum stk_error refuse(struct task *task,
                                                                   const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(task->why, SQL_WHY_MAX, format, args);
    va_end(args);
    return STK_ERR;
}

/* After a statement that failed: was it what was asked for, or the store? */
static enum stk_error failed(struct task *task)
{
    sqlite3 *db = task->txn->db;

    switch (sqlite3_errcode(db)) {
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT: return refuse(task, "%s", sqlite3_errmsg(db));
    default: return transaction_fail(task->txn);
    }
}

/* Run a statement made by sqlite3_mprintf, and free it. */
static enum stk_error run(struct task *task, char *sql)
{
    if (sql == NULL)
        return transaction_no_memory(task->txn);
    int code = db_exec(task->txn->db, sql);
    sqlite3_free(sql);
    return code == SQLITE_OK ? STK_OK : failed(task);
}

static char *name_new(struct bytes name)
{
    char *text = mem_zalloc(name.len + 1);
    if (name.len > 0)
        memcpy(text, name.data, name.len);
    return text;
}

/* Run a query with `name` (and `table`) as parameters. Its row, if there is one, replaces `name`
 * and sets `second`, which is NULL otherwise. Both are owned. */
static enum stk_error look_up(struct task *task, const char *sql, const char *table, char **name,
                              char **second)
{
    sqlite3_stmt *stmt;

    *second = NULL;
    if (sqlite3_prepare_v2(task->txn->db, sql, -1, &stmt, NULL) != SQLITE_OK)
        return failed(task);
    sqlite3_bind_text(stmt, 1, *name, -1, SQLITE_STATIC);
    if (table != NULL)
        sqlite3_bind_text(stmt, 2, table, -1, SQLITE_STATIC);
    if (sqlite3_step(stmt) == SQLITE_ROW) {
        const char *found = (const char *)sqlite3_column_text(stmt, 0);
        const char *other = (const char *)sqlite3_column_text(stmt, 1);
        /* NULL for lack of memory, which is what finalizing then says. */
        if (found != NULL && other != NULL) {
            free(*name);
            *name = mem_strdup(found);
            *second = mem_strdup(other);
        }
    }
    if (sqlite3_finalize(stmt) == SQLITE_OK)
        return STK_OK;
    free(*second);
    *second = NULL;
    return failed(task);
}

static bool begins_with(const char *name, const char *word)
{
    return sqlite3_strnicmp(name, word, (int)strlen(word)) == 0;
}

/* Is it a table of the users' own, with that column, which SQL changes row by row? */
static enum stk_error judge_table(struct task *task)
{
    struct guard *guard = &task->guard;
    char *type, *hidden;
    enum stk_error error = look_up(task,
                                   "SELECT name, type FROM pragma_table_list"
                                   " WHERE schema = 'main' AND name = ?1 COLLATE NOCASE",
                                   NULL, &guard->table, &type);
    if (error != STK_OK)
        return error;
    if (type == NULL)
        return refuse(task, "there is no table %.100s", guard->table);
    bool ordinary = strcmp(type, "table") == 0;
    error = ordinary ? STK_OK : refuse(task, "%.100s is a %s, not a table", guard->table, type);
    free(type);
    if (error != STK_OK)
        return error;
    if (begins_with(guard->table, "sqlite_") || begins_with(guard->table, "stockade_"))
        return refuse(task, "%.100s is not one of your own tables", guard->table);
    error = look_up(task,
                    "SELECT name, hidden FROM pragma_table_xinfo(?2, 'main')"
                    " WHERE name = ?1 COLLATE NOCASE",
                    guard->table, &guard->column, &hidden);
    if (error != STK_OK)
        return error;
    if (hidden == NULL)
        return refuse(task, "table %.100s has no column %.100s", guard->table, guard->column);
    guard->generated = hidden[0] > '1';
    free(hidden);
    return STK_OK;
}

/* Is the table registered, and with what? The same again restores a broken guard. */
static enum stk_error judge_registry(struct task *task)
{
    const struct guard *guard = &task->guard;
    sqlite3_stmt *stmt;
    enum stk_error error = STK_OK;

    if (sqlite3_prepare_v2(task->txn->db,
                           "SELECT key, prefix, key = ?2 COLLATE NOCASE AND prefix = ?3"
                           " AND ifnull(t.token, '') = ?4 COLLATE NOCASE, ifnull(t.added, 0)"
                           " FROM main.stockade_guard AS g LEFT JOIN main.stockade_token_column"
                           " AS t ON t.name = g.name WHERE g.name = ?1",
                           -1, &stmt, NULL) != SQLITE_OK)
        return failed(task);
    sqlite3_bind_text(stmt, 1, guard->table, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 2, guard->column, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 3, guard->prefix, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 4, guard->token, -1, SQLITE_STATIC);
    task->registered = sqlite3_step(stmt) == SQLITE_ROW;
    if (task->registered) {
        task->added = sqlite3_column_int(stmt, 3) != 0;
        bool same = sqlite3_column_int(stmt, 2) != 0;
        if (!same || guards_flaw(task->txn->guards, guard->table) == NULL)
            error = refuse(task,
                           "table %.80s is guarded already, by column %.60s and prefix %.60s; "
                           "GUARD DROP it first",
                           guard->table, (const char *)sqlite3_column_text(stmt, 0),
                           (const char *)sqlite3_column_text(stmt, 1));
    }
    if (sqlite3_finalize(stmt) != SQLITE_OK)
        return failed(task);
    return error;
}

/* Refuse rows whose key names no resource: they could never be changed again. */
static enum stk_error judge_rows(struct task *task)
{
    const struct guard *guard = &task->guard;
    int64_t count = 0;
    char *sql = sqlite3_mprintf(
        "SELECT count(*) FROM main.\"%w\" WHERE typeof(\"%w\") NOT IN ('integer', 'text')"
        " OR length(CAST(%Q || \"%w\" AS BLOB)) NOT BETWEEN 1 AND %d",
        guard->table, guard->column, guard->prefix, guard->column, RESOURCE_NAME_MAX);

    if (sql == NULL)
        return transaction_no_memory(task->txn);
    int code = db_int64(task->txn->db, sql, &count);
    sqlite3_free(sql);
    if (code != SQLITE_OK)
        return failed(task);
    if (count == 0)
        return STK_OK;
    return refuse(task,
                  "%lld rows of %.100s have a %.60s that names no resource: it must be an integer "
                  "or text, with the prefix 1 to %d bytes long",
                  (long long)count, guard->table, guard->column, RESOURCE_NAME_MAX);
}

/* Remove the parts that there are, or make them all. */
static enum stk_error each_part(struct task *task, bool make)
{
    enum stk_error error = STK_OK;
    struct guard guard = task->guard;

    if (!make)
        guard.generated = false; /* all that there may ever have been */
    for (size_t which = 0; which < PARTS && error == STK_OK; which++) {
        struct part part;
        if (!part_make(&guard, which, &part))
            continue;
        if (part.sql == NULL)
            error = transaction_no_memory(task->txn);
        else
            error = run(task, make ? sqlite3_mprintf("%s", part.sql)
                                   : sqlite3_mprintf("DROP %s IF EXISTS main.\"%w\"", part.type,
                                                     part.name));
        part_free(&part);
    }
    return error;
}

/* Have the column for tokens ready; after its old triggers, if there are any, have gone. */
static enum stk_error take_column(struct task *task)
{
    struct guard *guard = &task->guard;
    char intruder[SQL_WHY_MAX];
    bool added;

    if (guard->generated)
        return refuse(task,
                      "column %.60s is computed, and a statement has to name its row: guard the "
                      "table without TOKEN",
                      guard->column);
    if (guard_column_prepare(task->txn->db, guard, &added, task->why) != SQLITE_OK)
        return failed(task);
    if (task->why[0] != '\0')
        return STK_ERR;
    task->added |= added;
    if (guard_column_look(task->txn->db, guard, task->why) != SQLITE_OK ||
        guard_column_intruder(task->txn->db, guard, intruder) != SQLITE_OK)
        return failed(task);
    if (task->why[0] != '\0')
        return STK_ERR;
    if (intruder[0] != '\0')
        return refuse(task, GUARD_INTRUDER_WHY, intruder);
    return run(task, sqlite3_mprintf("REPLACE INTO main.stockade_token_column VALUES(%Q, %Q, %d)",
                                     guard->table, guard->token, task->added));
}

static enum stk_error create(struct task *task)
{
    const struct guard *guard = &task->guard;
    enum stk_error error = judge_table(task);

    if (error == STK_OK)
        error = judge_registry(task);
    if (error == STK_OK)
        error = judge_rows(task);
    if (error == STK_OK && task->registered)
        error = each_part(task, false);
    if (error == STK_OK && is_by_column(guard))
        error = take_column(task);
    if (error == STK_OK)
        error = run(task, sqlite3_mprintf("REPLACE INTO main.stockade_guard VALUES(%Q, %Q, %Q)",
                                          guard->table, guard->column, guard->prefix));
    return error == STK_OK ? each_part(task, true) : error;
}

/* A column that the guard has made goes with it. */
static enum stk_error drop_column(struct task *task)
{
    struct guard *guard = &task->guard;
    char *name = mem_strdup(guard->table), *token;
    enum stk_error error =
        look_up(task,
                "SELECT c.name, t.token FROM main.stockade_token_column AS t"
                " JOIN pragma_table_xinfo(t.name, 'main') AS c ON c.name = t.token COLLATE NOCASE"
                " WHERE t.name = ?1 AND t.added",
                NULL, &name, &token);

    free(name);
    if (error == STK_OK && token != NULL) {
        free(guard->token);
        guard->token = token;
        if (guard_column_drop(task->txn->db, guard) != SQLITE_OK)
            error = failed(task);
    }
    if (error != STK_OK)
        return error;
    return run(task, sqlite3_mprintf("DELETE FROM main.stockade_token_column WHERE name = %Q",
                                     guard->table));
}

static enum stk_error drop(struct task *task)
{
    struct guard *guard = &task->guard;
    char *key;
    enum stk_error error =
        look_up(task, "SELECT name, key FROM main.stockade_guard WHERE name = ?1", NULL,
                &guard->table, &key);
    if (error != STK_OK)
        return error;
    if (key == NULL)
        return refuse(task, "table %.100s is not guarded", guard->table);
    free(key);
    error = each_part(task, false);
    if (error == STK_OK)
        error = drop_column(task);
    if (error != STK_OK)
        return error;
    return run(task,
               sqlite3_mprintf("DELETE FROM main.stockade_guard WHERE name = %Q", guard->table));
}

/* Make a change as a whole or not at all, also where the operation goes on after a refusal. */
static enum stk_error as_a_whole(struct task *task, enum stk_error (*change)(struct task *))
{
    struct transaction *txn = task->txn;

    check(txn->cache != NULL && txn->guards != NULL);
    transaction_settle(txn);
    txn->touched = true;
    if (db_exec(txn->db, "SAVEPOINT stockade_guard") != SQLITE_OK)
        return transaction_fail(txn);
    enum stk_error error = change(task);
    if (error == STK_STORE)
        return error;
    if (db_exec(txn->db, error == STK_OK
                             ? "RELEASE stockade_guard"
                             : "ROLLBACK TO stockade_guard; RELEASE stockade_guard") != SQLITE_OK)
        return transaction_fail(txn);
    return error == STK_OK ? guards_check(txn, GUARDS_OWN) : error;
}

static bool is_text(struct bytes text)
{
    return text.len <= NAME_MAX_BYTES &&
           (text.len == 0 || memchr(text.data, '\0', text.len) == NULL);
}

static enum stk_error perform(struct store_txn *base, const struct table_guard *guard,
                              char why[SQL_WHY_MAX], enum stk_error (*change)(struct task *))
{
    struct task task = {.txn = transaction_of(base), .why = why};

    if (!is_text(guard->table) || !is_text(guard->column) || !is_text(guard->prefix) ||
        !is_text(guard->token))
        return refuse(&task, "names and prefixes have at most %d bytes and no zero bytes",
                      NAME_MAX_BYTES);
    task.guard.table = name_new(guard->table);
    task.guard.column = name_new(guard->column);
    task.guard.prefix = name_new(guard->prefix);
    task.guard.token = name_new(guard->token);
    enum stk_error error = as_a_whole(&task, change);
    guard_free(&task.guard);
    return error;
}

enum stk_error guards_create(struct store_txn *txn, const struct table_guard *guard,
                             char why[SQL_WHY_MAX])
{
    return perform(txn, guard, why, create);
}

enum stk_error guards_drop(struct store_txn *txn, struct bytes table, char why[SQL_WHY_MAX])
{
    return perform(txn, &(struct table_guard){.table = table}, why, drop);
}
