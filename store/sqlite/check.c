/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade check` of a store in SQLite, in one read transaction: SQLite checks its pages, indexes
 * and foreign keys; we check the schema's text, the guards, and the rows of our own tables against
 * each other. Damage that keeps one question from being answered is a finding of its own; the
 * others are still asked. */
#include <stdio.h>
#include <string.h>

#include "store/check.h"
#include "store/sqlite/copy.h"
#include "store/sqlite/guards.h"
#include "store/sqlite/operation.h"
#include "store/sqlite/schema.h"

enum { WATCH_EVERY = 200000 }; /* of SQLite's instructions */

struct check {
    struct check_call *call;
    sqlite3 *db;
    int64_t version; /* of the file's schema */
    bool interrupted;
};

/* Each rule is SQL that finds the rows of Stockade's own tables at fault. It gives a row for each:
 * what it is about (a name or an id; NULL: nothing in particular), and what is wrong with it. */
static const struct rule {
    const char *kind;
    int64_t since; /* the version of the schema that it needs */
    const char *sql;
} rules[] = {
    {"schema", 1,
     "SELECT NULL, 'stockade_meta has no usable ' || k.column1 || ': ' || quote(m.value)"
     " FROM (VALUES('session', 1), ('floor', 0)) AS k LEFT JOIN stockade_meta AS m"
     " ON m.key = k.column1 WHERE typeof(m.value) IS NOT 'integer'"
     " OR m.value NOT BETWEEN k.column2 AND " CHECK_TOKEN_MAX},
    {"schema", 2,
     "SELECT NULL, 'stockade_meta has no usable mark of the file'"
     " WHERE (SELECT typeof(value) || length(value) FROM stockade_meta WHERE key = 'file')"
     " IS NOT 'blob16'"},
    {"schema", 3,
     "SELECT NULL, 'stockade_clock has ' || count(*) || ' rows that can be used, not 1'"
     " FROM stockade_clock WHERE typeof(boot) = 'text' AND typeof(offset_ms) = 'integer'"
     " AND typeof(reached_ms) = 'integer' AND typeof(wall_ms) = 'integer'"
     " AND typeof(start_ms) = 'integer' HAVING count(*) <> 1"},
    {"schema", 4,
     "SELECT NULL, 'the head of audit ' || quote(chain) || ' is line ' || quote(lines) || ', '"
     " || quote(hash) FROM stockade_audit WHERE typeof(lines) <> 'integer' OR lines < 1"
     " OR length(chain) <> 32 OR length(hash) <> 64 OR typeof(file) <> 'blob'"},
    {"fence", 1,
     "SELECT id, 'its name is ' || typeof(name) || ' of ' || length(name) || ' bytes'"
     " FROM stockade_resource WHERE typeof(name) <> 'blob' OR length(name) NOT BETWEEN 1 AND 512"
     " OR id <= 0"},
    {"fence", 1,
     "SELECT name, count(*) || ' resources have this name' FROM stockade_resource"
     " GROUP BY name HAVING count(*) > 1"},
    {"fence", 1,
     "SELECT name, 'its token is ' || quote(token) || ', not one of 1 to " CHECK_TOKEN_MAX "'"
     " FROM stockade_resource WHERE typeof(token) <> 'integer'"
     " OR token NOT BETWEEN 0 AND " CHECK_TOKEN_MAX},
    {"fence", 1,
     "SELECT name, 'its state is ' || quote(state) || ', and its token ' || quote(token)"
     " FROM stockade_resource WHERE typeof(state) <> 'integer' OR state NOT BETWEEN 0 AND 3"
     " OR (state = 0) <> (token = 0)"},
    {"fence", 1,
     "SELECT name, 'it is held ' || quote(holds) || ' times in state ' || quote(state)"
     " FROM stockade_resource WHERE typeof(holds) <> 'integer'"
     " OR (state = 1 AND holds < 1) OR (state <> 1 AND holds <> 0)"},
    {"fence", 1,
     "SELECT name, 'its lease has a TTL of ' || quote(ttl_ms) || ' ms, connection '"
     " || quote(connection) || ', and ' || typeof(owner) || ' of ' || length(owner)"
     " || ' bytes for an owner' FROM stockade_resource"
     " WHERE typeof(ttl_ms) <> 'integer' OR ttl_ms NOT BETWEEN 0 AND 86400000"
     " OR typeof(connection) <> 'integer' OR anonymous NOT IN (0, 1)"
     " OR typeof(owner) <> 'blob' OR length(owner) > 512"},
    {"fence", 1,
     "SELECT name, 'it was granted in session ' || quote(session) || ', which has not been'"
     " FROM stockade_resource WHERE typeof(session) <> 'integer' OR session < 0"
     " OR session > (SELECT value FROM stockade_meta WHERE key = 'session')"},
    {"fence", 2,
     "SELECT name, 'its fence changed at ' || quote(changed_ms)"
     " FROM stockade_resource WHERE typeof(changed_ms) <> 'integer' OR changed_ms < 0"},
    {"fence", 2,
     "SELECT name, 'receipts up to token ' || quote(receipts_gone) || ' are gone, and its token"
     " is ' || quote(token) FROM stockade_resource WHERE typeof(receipts_gone) <> 'integer'"
     " OR receipts_gone < 0 OR receipts_gone > max(token,"
     " (SELECT value FROM stockade_meta WHERE key = 'floor'))"},
    {"value", 1,
     "SELECT name, 'its type is ' || quote(type) || ', and it has '"
     " || (SELECT count(*) FROM stockade_string AS s WHERE s.id = r.id) || ' strings and '"
     " || (SELECT count(*) FROM stockade_hash AS h WHERE h.id = r.id) || ' fields'"
     " FROM stockade_resource AS r WHERE typeof(type) <> 'integer' OR type NOT BETWEEN 0 AND 2"
     " OR (type = 1) <> EXISTS(SELECT 1 FROM stockade_string AS s WHERE s.id = r.id)"
     " OR (type = 2) <> EXISTS(SELECT 1 FROM stockade_hash AS h WHERE h.id = r.id)"},
    {"value", 1,
     "SELECT id, 'a string of a resource that is not there' FROM stockade_string"
     " WHERE id NOT IN (SELECT id FROM stockade_resource)"},
    {"value", 1,
     "SELECT id, count(*) || ' fields of a resource that is not there' FROM stockade_hash"
     " WHERE id NOT IN (SELECT id FROM stockade_resource) GROUP BY id"},
    {"value", 1,
     "SELECT id, 'its string is ' || typeof(value) FROM stockade_string"
     " WHERE typeof(value) <> 'blob'"},
    {"value", 1,
     "SELECT id, 'a field is ' || typeof(field) || ' of ' || length(field) || ' bytes, its"
     " value ' || typeof(value) FROM stockade_hash WHERE typeof(field) <> 'blob'"
     " OR length(field) NOT BETWEEN 1 AND 512 OR typeof(value) <> 'blob'"},
    {"receipt", 2,
     "SELECT resource, count(*) || ' receipts of a resource that is not there'"
     " FROM stockade_receipt WHERE resource NOT IN (SELECT id FROM stockade_resource)"
     " GROUP BY resource"},
    {"receipt", 2,
     "SELECT r.name, 'a receipt of token ' || quote(t.token) || ', and its token is '"
     " || quote(r.token) FROM stockade_receipt AS t JOIN stockade_resource AS r"
     " ON r.id = t.resource WHERE typeof(t.token) <> 'integer'"
     " OR t.token NOT BETWEEN 1 AND r.token"},
    {"receipt", 2,
     "SELECT resource, 'a receipt with an ID that is ' || typeof(id) || ' of ' || length(id)"
     " || ' bytes and a reply that is ' || typeof(reply) || ', written at ' || quote(written_ms)"
     " FROM stockade_receipt WHERE typeof(id) <> 'blob' OR length(id) NOT BETWEEN 1 AND 512"
     " OR typeof(reply) <> 'blob' OR typeof(fingerprint) <> 'integer' OR resp3 NOT IN (0, 1)"
     " OR typeof(written_ms) <> 'integer' OR written_ms < 0"},
    {"receipt", 2,
     "SELECT r.name, 'receipts of token ' || t.token || ', which has ended, would never be"
     " removed' FROM (SELECT DISTINCT resource, token FROM stockade_receipt) AS t"
     " JOIN stockade_resource AS r ON r.id = t.resource"
     " WHERE (r.state <> 1 OR t.token <> r.token) AND (t.resource, t.token) NOT IN"
     " (SELECT resource, token FROM stockade_retired)"},
    /* A resource that was forgotten may still be named here, one that never was may not. */
    {"receipt", 2,
     "SELECT resource, 'token ' || quote(token) || ' of it ended at ' || quote(retired_ms)"
     " || ', as if it had been granted' FROM stockade_retired"
     " WHERE resource NOT BETWEEN 1 AND (SELECT ifnull(max(id), 0) FROM stockade_resource)"
     " OR typeof(token) <> 'integer' OR token NOT BETWEEN 1 AND " CHECK_TOKEN_MAX
     " OR typeof(retired_ms) <> 'integer' OR retired_ms < 0"},
};

/* Report what SQLite could not do, unless it was stopped. */
static void report_failure(struct check *check, const char *what)
{
    int code = sqlite3_errcode(check->db);

    if (code == SQLITE_INTERRUPT)
        check->interrupted = true;
    else if (!check->interrupted)
        check_report(check->call, "sqlite", "%s cannot be checked: %s", what,
                     sqlite3_errmsg(check->db));
}

static struct check_subject subject(sqlite3_stmt *stmt)
{
    switch (sqlite3_column_type(stmt, 0)) {
    case SQLITE_NULL: return (struct check_subject){.about = CHECK_ABOUT_NOTHING};
    case SQLITE_INTEGER:
        return (struct check_subject){.about = CHECK_ABOUT_ID, .id = sqlite3_column_int64(stmt, 0)};
    default:
        return (struct check_subject){.about = CHECK_ABOUT_NAME,
                                      .name = transaction_column(stmt, 0)};
    }
}

/* Run a rule's statement. `what` says what it examines. */
static void run_rule(struct check *check, const char *kind, const char *what, const char *sql)
{
    struct check_answer answer = {.call = check->call, .kind = kind};
    sqlite3_stmt *stmt = NULL;

    if (check->interrupted)
        return;
    if (sqlite3_prepare_v2(check->db, sql, -1, &stmt, NULL) != SQLITE_OK) {
        report_failure(check, what);
        return;
    }
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(stmt, 1);
        check_answer_row(&answer, subject(stmt), bytes_of(text != NULL ? text : "a value is NULL"));
    }
    if (sqlite3_finalize(stmt) != SQLITE_OK)
        report_failure(check, what);
    check_answer_end(&answer);
}

/* SQLite's findings: lines of text, several to a row, some below a headline. */
static void check_integrity(struct check *check)
{
    sqlite3_stmt *stmt = NULL;

    if (sqlite3_prepare_v2(check->db, "PRAGMA integrity_check", -1, &stmt, NULL) != SQLITE_OK) {
        report_failure(check, "the file");
        return;
    }
    while (sqlite3_step(stmt) == SQLITE_ROW)
        for (const char *line = (const char *)sqlite3_column_text(stmt, 0); line != NULL;) {
            int len = (int)strcspn(line, "\n");
            if (len > 0 && strncmp(line, "***", 3) != 0 && strcmp(line, "ok") != 0)
                check_report(check->call, "sqlite", "%.*s", len, line);
            line = line[len] == '\0' ? NULL : line + len + 1;
        }
    if (sqlite3_finalize(stmt) != SQLITE_OK)
        report_failure(check, "the file");
}

static void check_sqlite(struct check *check)
{
    check_integrity(check);
    run_rule(check, "sqlite", "foreign keys",
             "SELECT NULL, 'table ' || \"table\" || ', row ' || ifnull(rowid, '?') || ': refers to"
             " nothing in ' || parent FROM pragma_foreign_key_check");
}

static void report_change(void *context, const struct schema_change *change)
{
    check_report(((struct check *)context)->call, "schema", "the %s %s %s", change->type,
                 change->name, change->how);
}

/* Is everything there, as it was made, and nothing else? */
static void check_schema(struct check *check)
{
    if (schema_compare(check->db, check->version, report_change, check) != SQLITE_OK)
        report_failure(check, "the schema");
}

static void judge_guard(void *context, const struct table_guard *guard, struct bytes flaw)
{
    struct check *check = context;

    check->call->guards++;
    if (flaw.len > 0)
        check_report(check->call, "guard", "table %.*s: %.*s", (int)guard->table.len,
                     guard->table.data, (int)flaw.len, flaw.data);
}

static void check_guards(struct check *check)
{
    struct transaction txn;

    if (check->interrupted)
        return;
    if (operations_init(&txn, check->db, NULL, NULL) &&
        guards_open(&txn, check->call->store, NULL) && guards_check(&txn, GUARDS_OWN) == STK_OK)
        (void)guards_each(&txn.base, judge_guard, check);
    else
        report_failure(check, "the guards");
    operations_free(&txn);
}

static void count_rows(struct check *check)
{
    struct check_call *call = check->call;

    /* What cannot be counted has been reported. */
    (void)db_int64(check->db, "SELECT count(*) FROM stockade_resource", &call->resources);
    (void)db_int64(check->db, "SELECT count(*) FROM stockade_resource WHERE type <> 0",
                   &call->values);
    if (check->version >= 2)
        (void)db_int64(check->db, "SELECT count(*) FROM stockade_receipt", &call->receipts);
}

static int watch_instructions(void *context)
{
    return !check_goes_on(context);
}

bool store_sqlite_check(struct check_call *call, char *why, size_t why_size)
{
    struct check check = {.call = call, .db = copy_source(call->store, "store", why, why_size)};

    if (check.db == NULL)
        return false;
    if (!schema_recognise(check.db, call->store, &check.version, why, why_size)) {
        db_close(check.db);
        return false;
    }
    sqlite3_progress_handler(check.db, WATCH_EVERY, watch_instructions, &call->watch);
    check_sqlite(&check);
    check_schema(&check);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].since <= check.version)
            run_rule(&check, rules[i].kind, rules[i].kind, rules[i].sql);
    if (check.version >= 2)
        check_guards(&check);
    count_rows(&check);
    sqlite3_progress_handler(check.db, 0, NULL, NULL);
    db_close(check.db);
    if (check.interrupted)
        snprintf(why, why_size, "interrupted");
    return !check.interrupted;
}
