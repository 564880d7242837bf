/* SPDX-License-Identifier: Apache-2.0 */
/* An audit: one read transaction, in which SQLite checks its pages, indexes and foreign keys, and
 * we check the schema's text, the guards, and the rows of our own tables against each other. Damage
 * that keeps one question from being answered is a finding of its own; the others are still asked.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/bytes.h"
#include "store/sqlite/audit_rules.h"
#include "store/sqlite/copy.h"
#include "store/sqlite/guards.h"
#include "store/sqlite/operation.h"
#include "store/sqlite/schema.h"

enum {
    TEXT_MAX = 400,
    SUBJECT_MAX = 160,
    LIKE_IT_MAX = 100, /* findings of one kind that are told one by one */
    WATCH_EVERY = 200000,
};

struct audit {
    struct audit_call *call;
    sqlite3 *db;
    int64_t version; /* of the file's schema */
    bool interrupted;
};

static const struct rule {
    const char *kind;
    int64_t since;
    const char *sql;
} rules[] = {
#define X(kind, since, sql) {kind, since, sql},
    AUDIT_RULE_MAP(X)
#undef X
};

__attribute__((format(printf, 3, 4))) static void tell(struct audit *audit, const char *kind,
                                                       const char *format, ...)
{
    char text[TEXT_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *at = text; *at != '\0'; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
    audit->call->findings++;
    audit->call->found(audit->call->watch.context, kind, text);
}

/* Says what SQLite could not do, unless it was stopped. */
static void tell_failure(struct audit *audit, const char *what)
{
    int code = sqlite3_errcode(audit->db);

    if (code == SQLITE_INTERRUPT)
        audit->interrupted = true;
    else if (!audit->interrupted)
        tell(audit, "sqlite", "%s cannot be checked: %s", what, sqlite3_errmsg(audit->db));
}

/* A column for people: an id, or a name in which bytes that are not plain ASCII are \xNN. */
static const char *subject(sqlite3_stmt *stmt, char out[SUBJECT_MAX])
{
    struct bytes name = transaction_column(stmt, 0);
    char *end = out;

    if (sqlite3_column_type(stmt, 0) == SQLITE_INTEGER) {
        snprintf(out, SUBJECT_MAX, "resource %lld", (long long)sqlite3_column_int64(stmt, 0));
        return out;
    }
    for (size_t i = 0; i < name.len; i++) {
        unsigned char byte = (unsigned char)name.data[i];
        bool plain = byte >= ' ' && byte <= '~' && byte != '\\';
        if (end - out > SUBJECT_MAX - 10) {
            strcpy(end, "...");
            return out;
        }
        end += plain ? sprintf(end, "%c", byte) : sprintf(end, "\\x%02x", byte);
    }
    *end = '\0';
    return out;
}

/* Runs a statement; each row is a finding: column 0 what it is about (or NULL), column 1 what is
 * wrong. `what` is what it looks at. */
static void ask(struct audit *audit, const char *kind, const char *what, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    char name[SUBJECT_MAX];
    int64_t more = 0;
    int told = 0;

    if (audit->interrupted)
        return;
    if (sqlite3_prepare_v2(audit->db, sql, -1, &stmt, NULL) != SQLITE_OK) {
        tell_failure(audit, what);
        return;
    }
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(stmt, 1);
        if (++told > LIKE_IT_MAX)
            more++;
        else if (sqlite3_column_type(stmt, 0) == SQLITE_NULL)
            tell(audit, kind, "%s", text != NULL ? text : "a value is NULL");
        else
            tell(audit, kind, "%s: %s", subject(stmt, name),
                 text != NULL ? text : "a value is NULL");
    }
    if (sqlite3_finalize(stmt) != SQLITE_OK)
        tell_failure(audit, what);
    if (more > 0) {
        tell(audit, kind, "%lld more like the last one", (long long)more);
        audit->call->findings += more - 1;
    }
}

/* SQLite's findings: lines of text, several to a row, some below a headline. */
static void ask_integrity(struct audit *audit)
{
    sqlite3_stmt *stmt = NULL;

    if (sqlite3_prepare_v2(audit->db, "PRAGMA integrity_check", -1, &stmt, NULL) != SQLITE_OK) {
        tell_failure(audit, "the file");
        return;
    }
    while (sqlite3_step(stmt) == SQLITE_ROW)
        for (const char *line = (const char *)sqlite3_column_text(stmt, 0); line != NULL;) {
            int len = (int)strcspn(line, "\n");
            if (len > 0 && strncmp(line, "***", 3) != 0 && strcmp(line, "ok") != 0)
                tell(audit, "sqlite", "%.*s", len, line);
            line = line[len] == '\0' ? NULL : line + len + 1;
        }
    if (sqlite3_finalize(stmt) != SQLITE_OK)
        tell_failure(audit, "the file");
}

static void ask_sqlite(struct audit *audit)
{
    ask_integrity(audit);
    ask(audit, "sqlite", "foreign keys",
        "SELECT NULL, 'table ' || \"table\" || ', row ' || ifnull(rowid, '?') || ': refers to"
        " nothing in ' || parent FROM pragma_foreign_key_check");
}

/* For each (type, name, sql) of `rows`, which it finalizes: tells where the other database has it
 * not, or otherwise, with a text that takes type and name. */
static void compare(struct audit *audit, sqlite3_stmt *rows, sqlite3 *other, const char *gone,
                    const char *altered)
{
    sqlite3_stmt *stmt = NULL;

    if (sqlite3_prepare_v2(other,
                           "SELECT sql = ?3 FROM sqlite_schema WHERE type = ?1 AND name = ?2", -1,
                           &stmt, NULL) != SQLITE_OK)
        tell_failure(audit, "the schema");
    while (stmt != NULL && sqlite3_step(rows) == SQLITE_ROW) {
        for (int i = 0; i < 3; i++)
            sqlite3_bind_value(stmt, i + 1, sqlite3_column_value(rows, i));
        bool there = sqlite3_step(stmt) == SQLITE_ROW;
        const char *type = (const char *)sqlite3_column_text(rows, 0);
        const char *name = (const char *)sqlite3_column_text(rows, 1);
        if (!there)
            tell(audit, "schema", "the %s %s %s", type, name, gone);
        else if (altered != NULL && sqlite3_column_int(stmt, 0) == 0)
            tell(audit, "schema", "the %s %s %s", type, name, altered);
        sqlite3_reset(stmt);
    }
    sqlite3_finalize(stmt);
    sqlite3_finalize(rows);
}

/* Is all there, as it was made, and nothing else? What guards are made of is on the users' own
 * tables; that it is whole is the guards' question. */
static void compare_schemas(struct audit *audit, sqlite3 *fresh)
{
    static const char made[] = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL";
    static const char ours[] =
        "SELECT type, name, sql FROM sqlite_schema AS s WHERE sql IS NOT NULL"
        " AND (tbl_name LIKE 'stockade\\_%' ESCAPE '\\' OR (name LIKE 'stockade\\_%' ESCAPE '\\'"
        " AND NOT EXISTS(SELECT 1 FROM stockade_guard AS g WHERE g.name = s.tbl_name)))";
    sqlite3_stmt *rows;

    if (sqlite3_prepare_v2(fresh, made, -1, &rows, NULL) != SQLITE_OK)
        tell(audit, "sqlite", "no schema to compare with: %s", sqlite3_errmsg(fresh));
    else
        compare(audit, rows, audit->db, "is gone", "was altered");
    if (sqlite3_prepare_v2(audit->db, ours, -1, &rows, NULL) != SQLITE_OK)
        tell_failure(audit, "the schema");
    else
        compare(audit, rows, fresh, "is not Stockade's", NULL);
}

static void ask_schema(struct audit *audit)
{
    sqlite3 *fresh = NULL;

    if (sqlite3_open(":memory:", &fresh) == SQLITE_OK && schema_make(fresh) == SQLITE_OK)
        compare_schemas(audit, fresh);
    else
        tell(audit, "sqlite", "no schema to compare with: %s", sqlite3_errmsg(fresh));
    sqlite3_close(fresh);
}

struct guard_count {
    struct audit *audit;
    const struct guards *guards;
};

static void judge_guard(void *context, struct bytes table, struct bytes column, struct bytes prefix,
                        bool broken)
{
    const struct guard_count *count = context;
    const char *flaw = broken ? guards_flaw(count->guards, table.data) : NULL;

    (void)column;
    (void)prefix;
    count->audit->call->guards++;
    if (broken)
        tell(count->audit, "guard", "table %.*s: %s", (int)table.len, table.data,
             flaw != NULL ? flaw : "broken");
}

static void ask_guards(struct audit *audit)
{
    struct transaction txn;

    if (audit->interrupted)
        return;
    if (operations_init(&txn, audit->db, NULL, NULL) &&
        guards_open(&txn, audit->call->store, NULL) && guards_check(&txn, GUARDS_OWN) == STK_OK) {
        struct guard_count count = {audit, txn.guards};
        (void)guards_each(&txn.base, judge_guard, &count);
    } else {
        tell_failure(audit, "the guards");
    }
    operations_free(&txn);
}

static void count_rows(struct audit *audit)
{
    struct audit_call *call = audit->call;

    /* What cannot be counted has been told. */
    (void)db_int64(audit->db, "SELECT count(*) FROM stockade_resource", &call->resources);
    (void)db_int64(audit->db, "SELECT count(*) FROM stockade_resource WHERE type <> 0",
                   &call->values);
    if (audit->version >= 2)
        (void)db_int64(audit->db, "SELECT count(*) FROM stockade_receipt", &call->receipts);
}

static int watch_instructions(void *context)
{
    const struct maintenance_watch *watch = context;
    return watch->step != NULL && !watch->step(watch->context, "checking", 0, 0);
}

bool store_audit(struct audit_call *call, char *why, size_t why_size)
{
    struct audit audit = {.call = call, .db = copy_source(call->store, why, why_size)};

    if (audit.db == NULL)
        return false;
    if (!schema_recognise(audit.db, call->store, &audit.version, why, why_size)) {
        db_close(audit.db);
        return false;
    }
    sqlite3_progress_handler(audit.db, WATCH_EVERY, watch_instructions, &call->watch);
    ask_sqlite(&audit);
    if (audit.version == schema_version())
        ask_schema(&audit);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].since <= audit.version)
            ask(&audit, rules[i].kind, rules[i].kind, rules[i].sql);
    if (audit.version >= 2)
        ask_guards(&audit);
    count_rows(&audit);
    sqlite3_progress_handler(audit.db, 0, NULL, NULL);
    db_close(audit.db);
    if (audit.interrupted)
        snprintf(why, why_size, "interrupted");
    return !audit.interrupted;
}
