/* SPDX-License-Identifier: Apache-2.0 */
/* Four parts: the triggers; how they find a row again; whose triggers they would fire; the column.
 */
#include "store/sqlite/guard_column.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/bytes.h"
#include "fence/base/mem.h"
#include "store/sqlite/db.h"

/* The triggers. */

/* Ask the function; `takes`: and be let through by it with the UPDATE that comes next. */
static char *question(const struct guard *guard, enum guard_moment moment)
{
    bool inserts = moment == GUARD_BEFORE_INSERT || moment == GUARD_INSERTED;
    /* There SQLite shows -1 for a key that it is going to make. Nobody holds that row's token. */
    bool unknown = moment == GUARD_BEFORE_INSERT && guard->numbered;
    char *key = unknown ? sqlite3_mprintf("nullif(NEW.\"%w\", -1)", guard->column)
                        : sqlite3_mprintf("NEW.\"%w\"", guard->column);
    char *was = inserts ? sqlite3_mprintf("%s, NULL", key != NULL ? key : "")
                        : sqlite3_mprintf("OLD.\"%w\", OLD.\"%w\"", guard->column, guard->token);
    char *sql = NULL;

    if (key != NULL && was != NULL)
        sql = sqlite3_mprintf(
            "SELECT CASE WHEN stockade_assigned(%Q, %Q, %s, %s, NEW.\"%w\", r.token, r.state, "
            "(SELECT value FROM stockade_meta WHERE key = 'file'), %d) "
            "THEN 1 ELSE RAISE(ABORT, 'GUARDED stockade_assigned is not Stockade''s') END "
            "FROM (SELECT 1) LEFT JOIN stockade_resource AS r "
            "ON r.name = CAST(%Q || NEW.\"%w\" AS BLOB);",
            guard->token, guard->prefix, key, was, guard->token,
            moment == GUARD_INSERTED || moment == GUARD_UPDATED, guard->prefix, guard->column);
    sqlite3_free(key);
    sqlite3_free(was);
    return sql;
}

/* Take the token out of the row, and see that it is out: OR IGNORE would keep quiet about a
 * constraint that is in the way, and a new column may be called rowid. */
static char *taking(const struct guard *guard)
{
    return sqlite3_mprintf(" UPDATE \"%w\" SET \"%w\" = NULL WHERE %s AND \"%w\" IS NOT NULL;"
                           " SELECT CASE WHEN EXISTS(SELECT 1 FROM \"%w\" WHERE %s AND \"%w\" IS "
                           "NULL) THEN 1 ELSE RAISE(ABORT, 'GUARDED the token cannot be taken out "
                           "of its row: a CHECK or a trigger is in the way, or GUARD LIST tells "
                           "what else') END;",
                           guard->table, guard->token, guard->row, guard->token, guard->table,
                           guard->row, guard->token);
}

char *guard_column_trigger(const struct guard *guard, enum guard_moment moment, const char *name)
{
    static const char *const events[] = {
        [GUARD_BEFORE_INSERT] = "BEFORE INSERT",
        [GUARD_INSERTED] = "AFTER INSERT",
        [GUARD_BEFORE_UPDATE] = "BEFORE UPDATE",
        [GUARD_UPDATED] = "AFTER UPDATE",
    };
    bool takes = moment == GUARD_INSERTED || moment == GUARD_UPDATED;
    char *when = moment == GUARD_UPDATED
                     ? sqlite3_mprintf(" WHEN NEW.\"%w\" IS NOT NULL", guard->token)
                     : sqlite3_mprintf("");
    char *ask = question(guard, moment), *take = takes ? taking(guard) : sqlite3_mprintf("");
    char *sql = NULL;

    if (when != NULL && ask != NULL && take != NULL)
        sql = sqlite3_mprintf("CREATE TRIGGER \"%w\" %s ON \"%w\"%s BEGIN %s%s END", name,
                              events[moment], guard->table, when, ask, take);
    sqlite3_free(when);
    sqlite3_free(ask);
    sqlite3_free(take);
    return sql;
}

/* How they find a row again. */

struct columns {
    struct buf keys;          /* "k" = NEW."k" for each column of the primary key */
    size_t keys_count;        /* how many that are */
    bool is_integer;          /* one of them is an INTEGER */
    bool is_key;              /* and is the guard's */
    bool rowid, _rowid_, oid; /* a column has this name, so it is not the row's number */
};

static void look_at_column(const struct guard *guard, const char *name, const char *type, bool key,
                           struct columns *columns)
{
    columns->rowid |= sqlite3_stricmp(name, "rowid") == 0;
    columns->_rowid_ |= sqlite3_stricmp(name, "_rowid_") == 0;
    columns->oid |= sqlite3_stricmp(name, "oid") == 0;
    if (!key)
        return;
    char *same = sqlite3_mprintf("%s\"%w\" = NEW.\"%w\"", columns->keys_count > 0 ? " AND " : "",
                                 name, name);
    if (same != NULL)
        buf_append_text(&columns->keys, same);
    sqlite3_free(same);
    columns->keys_count++;
    columns->is_integer = sqlite3_stricmp(type, "INTEGER") == 0;
    columns->is_key = sqlite3_stricmp(name, guard->column) == 0;
}

/* Choose what tells one row from all others. */
static const char *choose(const struct columns *columns, bool without_rowid)
{
    if (without_rowid || (columns->keys_count == 1 && columns->is_integer))
        return columns->keys.data;
    return !columns->rowid     ? "rowid = NEW.rowid"
           : !columns->_rowid_ ? "_rowid_ = NEW._rowid_"
           : !columns->oid     ? "oid = NEW.oid"
                               : NULL;
}

int guard_column_look(sqlite3 *db, struct guard *guard, char why[SQL_WHY_MAX])
{
    /* (A table that is gone has no columns.) */
    static const char sql[] =
        "SELECT c.name, c.type, c.pk > 0, t.wr FROM pragma_table_list AS t,"
        " pragma_table_xinfo(t.name, 'main') AS c"
        " WHERE t.schema = 'main' AND t.name = ?1 COLLATE NOCASE ORDER BY c.pk, c.cid";
    struct columns columns = {.keys_count = 0};
    bool without_rowid = false;
    sqlite3_stmt *stmt;
    int code = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);

    why[0] = '\0';
    if (code != SQLITE_OK)
        return code;
    sqlite3_bind_text(stmt, 1, guard->table, -1, SQLITE_STATIC);
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        const char *type = (const char *)sqlite3_column_text(stmt, 1);
        without_rowid = sqlite3_column_int(stmt, 3) != 0;
        if (name != NULL && type != NULL)
            look_at_column(guard, name, type, sqlite3_column_int(stmt, 2) != 0, &columns);
    }
    code = sqlite3_finalize(stmt);
    buf_append(&columns.keys, "", 1);
    const char *row = choose(&columns, without_rowid);
    if (row == NULL)
        text_print(why, SQL_WHY_MAX,
                   "table %.100s has columns named rowid, _rowid_ and oid, so that its rows cannot "
                   "be told apart: guard it without TOKEN",
                   guard->table);
    free(guard->row);
    guard->row = mem_strdup(row != NULL ? row : "0");
    guard->numbered =
        !without_rowid && columns.keys_count == 1 && columns.is_integer && columns.is_key;
    buf_free(&columns.keys);
    return code;
}

/* Whose triggers they would fire. */

enum { WORD_MAX = 600 }; /* longer names are none that a guard has */

struct word {
    char text[WORD_MAX];
    bool quoted;
};

static const char *skip_blanks(const char *at)
{
    for (;;) {
        size_t len = strspn(at, " \t\r\n\f");
        at += len;
        if (at[0] == '-' && at[1] == '-') {
            at += strcspn(at, "\n");
        } else if (at[0] == '/' && at[1] == '*') {
            const char *end = strstr(at + 2, "*/");
            at = end != NULL ? end + 2 : at + strlen(at);
        } else {
            return at;
        }
    }
}

static bool is_in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || (unsigned char)c >= 0x80;
}

/* Read one word, name or sign of SQL; return what comes after it. At the end it is empty. */
static const char *read_word(const char *at, struct word *word)
{
    static const char opening[] = "\"'`[", closing[] = "\"'`]";
    size_t used = 0;

    at = skip_blanks(at);
    const char *quote = *at != '\0' ? strchr(opening, *at) : NULL;
    word->quoted = quote != NULL;
    if (word->quoted) {
        char end = closing[quote - opening];
        for (at++; *at != '\0'; at++) {
            if (*at == end && (end == ']' || at[1] != end))
                break;
            at += *at == end;
            if (used < WORD_MAX - 1)
                word->text[used++] = *at;
        }
        at += *at != '\0';
    } else {
        do
            if (*at != '\0' && used < WORD_MAX - 1)
                word->text[used++] = *at;
        while (*at != '\0' && is_in_word(*at++) && is_in_word(*at));
    }
    word->text[used] = '\0';
    return at;
}

static bool is_word(const struct word *word, const char *text)
{
    return !word->quoted && sqlite3_stricmp(word->text, text) == 0;
}

/* Does the trigger that is made by `sql` fire at an UPDATE of this column? The schema has it from
 * its name on, after CREATE TRIGGER. What is not understood does. */
static bool fires_at(const char *sql, const char *column)
{
    struct word word;

    for (int i = 0; i < 3; i++)
        sql = read_word(sql, &word);
    sql = read_word(sql, &word);
    if (is_word(&word, "BEFORE") || is_word(&word, "AFTER"))
        sql = read_word(sql, &word);
    if (is_word(&word, "INSERT") || is_word(&word, "DELETE"))
        return false;
    sql = read_word(sql, &word);
    if (!is_word(&word, "OF"))
        return true;
    while (word.text[0] != '\0' && !is_word(&word, "ON")) {
        sql = read_word(sql, &word);
        if (sqlite3_stricmp(word.text, column) == 0)
            return true;
        sql = read_word(sql, &word);
    }
    return false;
}

int guard_column_intruder(sqlite3 *db, const struct guard *guard, char name[SQL_WHY_MAX])
{
    sqlite3_stmt *stmt;
    int code = sqlite3_prepare_v2(db,
                                  "SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger'"
                                  " AND tbl_name = ?1 COLLATE NOCASE"
                                  " AND name NOT LIKE 'stockade^_guard^_%' ESCAPE '^'",
                                  -1, &stmt, NULL);

    name[0] = '\0';
    if (code != SQLITE_OK)
        return code;
    sqlite3_bind_text(stmt, 1, guard->table, -1, SQLITE_STATIC);
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        const char *found = (const char *)sqlite3_column_text(stmt, 0);
        const char *sql = (const char *)sqlite3_column_text(stmt, 1);
        if (name[0] == '\0' && found != NULL && sql != NULL && fires_at(sql, guard->token))
            text_print(name, SQL_WHY_MAX, "%s", found);
    }
    return sqlite3_finalize(stmt);
}

/* The column. */

/* What a new column could break: queries of all columns, INSERTs without a list of them. Each gives
 * a statement to compile, and what it is about. */
static const char probes[] =
    "SELECT printf('SELECT 1 FROM main.\"%w\"', name), 'view ' || name"
    " FROM main.sqlite_schema WHERE type = 'view'"
    " UNION ALL SELECT printf('DELETE FROM main.\"%w\"', tbl_name), 'a trigger of ' || tbl_name"
    " FROM main.sqlite_schema WHERE type = 'trigger'"
    " UNION ALL SELECT printf('INSERT INTO main.\"%w\" DEFAULT VALUES', tbl_name),"
    " 'a trigger of ' || tbl_name FROM main.sqlite_schema WHERE type = 'trigger'"
    " UNION ALL SELECT printf('UPDATE main.\"%w\" SET %s', tbl_name, (SELECT group_concat("
    "printf('\"%w\" = \"%w\"', c.name, c.name)) FROM pragma_table_info(s.tbl_name, 'main') AS c)),"
    " 'a trigger of ' || tbl_name FROM main.sqlite_schema AS s WHERE type = 'trigger'";

static bool compiles(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    bool does = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK;

    sqlite3_finalize(stmt);
    return does;
}

/* Note in `works` which of them compile; where it is full already, say which one no longer does. */
static int probe(sqlite3 *db, struct buf *works, bool again, char why[SQL_WHY_MAX])
{
    sqlite3_stmt *stmt;
    size_t at = 0;
    int code = sqlite3_prepare_v2(db, probes, -1, &stmt, NULL);

    if (code != SQLITE_OK)
        return code;
    while (why[0] == '\0' && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *sql = (const char *)sqlite3_column_text(stmt, 0);
        const char *what = (const char *)sqlite3_column_text(stmt, 1);
        char does = sql != NULL && what != NULL && compiles(db, sql) ? 'y' : 'n';
        if (!again)
            buf_append(works, &does, 1);
        else if (at < works->len && works->data[at] == 'y' && does == 'n')
            text_print(why, SQL_WHY_MAX,
                       "one more column would break %.60s: %.100s: name the columns "
                       "there",
                       what != NULL ? what : "", sqlite3_errmsg(db));
        at++;
    }
    return sqlite3_finalize(stmt);
}

static int add(sqlite3 *db, const struct guard *guard, char why[SQL_WHY_MAX])
{
    struct buf works = {0};
    char *sql = sqlite3_mprintf("ALTER TABLE main.\"%w\" ADD COLUMN \"%w\" INTEGER", guard->table,
                                guard->token);
    int code = sql != NULL ? probe(db, &works, false, why) : SQLITE_NOMEM;

    if (code == SQLITE_OK)
        code = db_exec(db, sql);
    if (code == SQLITE_OK)
        code = probe(db, &works, true, why);
    sqlite3_free(sql);
    buf_free(&works);
    return code;
}

/* Will the column do that is there? */
static int judge(sqlite3 *db, const struct guard *guard, bool fits, char why[SQL_WHY_MAX])
{
    int64_t used = 0;
    char *sql = sqlite3_mprintf("SELECT EXISTS(SELECT 1 FROM main.\"%w\" WHERE \"%w\" IS NOT NULL)",
                                guard->table, guard->token);
    int code = sql == NULL ? SQLITE_NOMEM : fits ? db_int64(db, sql, &used) : SQLITE_OK;

    sqlite3_free(sql);
    if (!fits)
        text_print(why, SQL_WHY_MAX,
                   "column %.60s of %.80s cannot take tokens: it has to be an INTEGER that may be "
                   "NULL, outside of the primary key, without a default, and not computed",
                   guard->token, guard->table);
    else if (used != 0)
        text_print(why, SQL_WHY_MAX,
                   "column %.60s of %.80s has values: one that takes tokens is empty", guard->token,
                   guard->table);
    return code;
}

int guard_column_prepare(sqlite3 *db, struct guard *guard, bool *added, char why[SQL_WHY_MAX])
{
    sqlite3_stmt *stmt;
    int code = sqlite3_prepare_v2(
        db,
        "SELECT name, type LIKE '%int%' AND \"notnull\" = 0 AND dflt_value IS NULL AND pk = 0"
        " AND hidden = 0 FROM pragma_table_xinfo(?1, 'main') WHERE name = ?2 COLLATE NOCASE",
        -1, &stmt, NULL);
    bool there = false, fits = false;

    *added = false;
    why[0] = '\0';
    if (code != SQLITE_OK)
        return code;
    sqlite3_bind_text(stmt, 1, guard->table, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 2, guard->token, -1, SQLITE_STATIC);
    if (sqlite3_step(stmt) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        there = name != NULL;
        fits = sqlite3_column_int(stmt, 1) != 0 && sqlite3_stricmp(name, guard->column) != 0;
        if (there)
            memcpy(guard->token, name, strlen(guard->token)); /* in another case */
    }
    code = sqlite3_finalize(stmt);
    if (code != SQLITE_OK)
        return code;
    if (there)
        return judge(db, guard, fits, why);
    *added = true;
    return add(db, guard, why);
}

int guard_column_drop(sqlite3 *db, const struct guard *guard)
{
    char *sql =
        sqlite3_mprintf("ALTER TABLE main.\"%w\" DROP COLUMN \"%w\"", guard->table, guard->token);
    int code = sql != NULL ? db_exec(db, sql) : SQLITE_NOMEM;

    sqlite3_free(sql);
    return code == SQLITE_ERROR ? SQLITE_OK : code;
}
