/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and views, as a list of steps: step i brings version i to version i+1, so a fresh file
 * takes them all. A step, once released, is never edited: a change is a new step.
 *
 * Stockade's names start with stockade_; all other names in the file are the users'. Names, owners
 * and values are blobs (compared as bytes). The views are the public face, for people and reports:
 * tables may change with a new version, views only grow. */
#include "store/sqlite/schema.h"

#include <stdio.h>
#include <string.h>

#include "store/sqlite/db.h"
#include "store/sqlite/place.h"

static const char *const steps[] = {
    /* A resource's id keys its data. It is given to no other resource while the row is there; the
     * row with the largest id must not be deleted, or SQLite would give that id again. Readers
     * find a name that they have met before by its id alone.
     * state, type: as enum fence_state and enum value_type. */
    "CREATE TABLE stockade_meta("
    "  key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "INSERT INTO stockade_meta VALUES('session', 0), ('floor', 0);"
    "CREATE TABLE stockade_resource("
    "  id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE,"
    "  token INTEGER NOT NULL DEFAULT 0, state INTEGER NOT NULL DEFAULT 0,"
    "  type INTEGER NOT NULL DEFAULT 0, holds INTEGER NOT NULL DEFAULT 0,"
    "  ttl_ms INTEGER NOT NULL DEFAULT 0, session INTEGER NOT NULL DEFAULT 0,"
    "  connection INTEGER NOT NULL DEFAULT 0, anonymous INTEGER NOT NULL DEFAULT 0,"
    "  owner BLOB NOT NULL DEFAULT x'');"
    /* For SCAN and DBSIZE; written when a key comes or goes. (The same for live fences would cost
     * every grant and release a third more, so LEASES goes through the table.) */
    "CREATE INDEX stockade_keys ON stockade_resource(id, type) WHERE type <> 0;"
    "CREATE TABLE stockade_string("
    "  id INTEGER PRIMARY KEY, value BLOB NOT NULL);"
    "CREATE TABLE stockade_hash("
    "  id INTEGER NOT NULL, field BLOB NOT NULL, value BLOB NOT NULL,"
    "  PRIMARY KEY(id, field)) WITHOUT ROWID;"
    "CREATE VIEW stockade_fences(resource, token, state, owner, holds, ttl_ms) AS"
    "  SELECT CAST(name AS TEXT), token,"
    "    CASE state WHEN 1 THEN 'live' WHEN 2 THEN 'released' WHEN 3 THEN 'revoked' END,"
    "    CAST(owner AS TEXT), holds, ttl_ms"
    "  FROM stockade_resource WHERE state <> 0;"
    "CREATE VIEW stockade_values(key, value) AS"
    "  SELECT CAST(name AS TEXT), CAST(value AS TEXT)"
    "  FROM stockade_string JOIN stockade_resource USING(id);"
    "CREATE VIEW stockade_fields(key, field, value) AS"
    "  SELECT CAST(name AS TEXT), CAST(field AS TEXT), CAST(value AS TEXT)"
    "  FROM stockade_hash JOIN stockade_resource USING(id);",

    /* Dates (milliseconds since 1970), receipts, guards. */
    "ALTER TABLE stockade_resource ADD COLUMN changed_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE stockade_resource ADD COLUMN receipts_gone INTEGER NOT NULL DEFAULT 0;"
    "UPDATE stockade_resource SET changed_ms = unixepoch() * 1000;"
    "CREATE TABLE stockade_receipt("
    "  resource INTEGER NOT NULL, id BLOB NOT NULL, token INTEGER NOT NULL,"
    "  fingerprint INTEGER NOT NULL, resp3 INTEGER NOT NULL, written_ms INTEGER NOT NULL,"
    "  reply BLOB NOT NULL, PRIMARY KEY(resource, id)) WITHOUT ROWID;"
    "CREATE INDEX stockade_receipt_token ON stockade_receipt(resource, token);"
    /* Tokens with receipts, in the order in which they were retired: which receipts are old is
     * known without looking for them. */
    "CREATE TABLE stockade_retired("
    "  number INTEGER PRIMARY KEY, resource INTEGER NOT NULL, token INTEGER NOT NULL,"
    "  retired_ms INTEGER NOT NULL);"
    /* What guards there are; what they are made of says guards.c. A guard asks for the file's
     * own mark, since tokens presented for another file count for nothing here. */
    "CREATE TABLE stockade_guard("
    "  name TEXT PRIMARY KEY COLLATE NOCASE, key TEXT NOT NULL, prefix TEXT NOT NULL)"
    "  WITHOUT ROWID;"
    "INSERT INTO stockade_meta VALUES('file', randomblob(16));"
    "CREATE VIEW stockade_receipts(resource, id, token, written, reply) AS"
    "  SELECT CAST(name AS TEXT), CAST(stockade_receipt.id AS TEXT), stockade_receipt.token,"
    "    datetime(written_ms / 1000, 'unixepoch'), CAST(reply AS TEXT)"
    "  FROM stockade_receipt JOIN stockade_resource ON stockade_resource.id = resource;"
    "CREATE VIEW stockade_guards(\"table\", \"column\", prefix) AS"
    "  SELECT name, key, prefix FROM stockade_guard;",

    /* From here on changed_ms and retired_ms are of the store's time: struct store_clock_note. What
     * seems to lie in the future counts from now. */
    "CREATE TABLE stockade_clock("
    "  number INTEGER PRIMARY KEY CHECK(number = 1), boot TEXT NOT NULL,"
    "  offset_ms INTEGER NOT NULL, reached_ms INTEGER NOT NULL, wall_ms INTEGER NOT NULL,"
    "  start_ms INTEGER NOT NULL);"
    "INSERT INTO stockade_clock VALUES(1, '', 0, 0, 0, 0);"
    "UPDATE stockade_resource SET changed_ms = 0 WHERE changed_ms > unixepoch() * 1000;"
    "UPDATE stockade_retired SET retired_ms = 0 WHERE retired_ms > unixepoch() * 1000;"
    "DELETE FROM stockade_meta WHERE key IN ('retired_cap', 'retired_cap_ms');",

    /* Heads of audits: heads.c. `file` is the file's own mark when it was noted. */
    "CREATE TABLE stockade_audit("
    "  chain TEXT PRIMARY KEY, lines INTEGER NOT NULL, hash TEXT NOT NULL, file BLOB NOT NULL)"
    "  WITHOUT ROWID;",

    /* Which guards are by column: guard_column.h. `added`: the guard has made the column, and takes
     * it along when it goes. */
    "CREATE TABLE stockade_token_column("
    "  name TEXT PRIMARY KEY COLLATE NOCASE, token TEXT NOT NULL, added INTEGER NOT NULL)"
    "  WITHOUT ROWID;"
    "DROP VIEW stockade_guards;"
    "CREATE VIEW stockade_guards(\"table\", \"column\", prefix, token_column) AS"
    "  SELECT g.name, key, prefix, token FROM stockade_guard AS g"
    "  LEFT JOIN stockade_token_column AS t ON t.name = g.name;",
};

#define SCHEMA_VERSION ((int64_t)(sizeof steps / sizeof *steps))

/* Added to the version of a file whose rows have gone to another store. */
#define VERSION_GONE 1000000

/* Set while the file is still empty. A write of one row costs one page in the WAL: small pages. */
static const char fresh_setup[] = "PRAGMA page_size = 1024;";
/* The writer copies the WAL back itself, after its commits. */
static const char wal_setup[] = "PRAGMA wal_autocheckpoint = 0;"
                                "PRAGMA journal_size_limit = 268435456;";

enum kind { KIND_FAILED, KIND_FRESH, KIND_OURS, KIND_REFUSED };

/* A file without objects: nothing at all yet, or what another program has begun. */
static enum kind recognise_empty(sqlite3 *db, const char *path, char *why, size_t why_size)
{
    int64_t version = 0, wide = 0;

    if (db_int64(db, "PRAGMA user_version", &version) != SQLITE_OK ||
        db_int64(db, "SELECT encoding <> 'UTF-8' FROM pragma_encoding", &wide) != SQLITE_OK)
        return KIND_FAILED;
    if (version == 0 && wide == 0)
        return KIND_FRESH;
    snprintf(why, why_size,
             "%s is a database that another program has begun%s; it was left alone: remove it if "
             "nobody needs it, or name another file",
             path, wide != 0 ? ", with text in UTF-16, where a store has UTF-8" : "");
    return KIND_REFUSED;
}

/* Say what the file is; KIND_REFUSED has filled in `why`, KIND_FAILED left the reason in `db`. */
static enum kind recognise(sqlite3 *db, const char *path, int64_t *version, char *why,
                           size_t why_size)
{
    int64_t application = 0, objects = 0;

    if (db_int64(db, "PRAGMA application_id", &application) != SQLITE_OK ||
        db_int64(db, "SELECT count(*) FROM sqlite_schema", &objects) != SQLITE_OK)
        return KIND_FAILED;
    if (application == 0 && objects == 0)
        return recognise_empty(db, path, why, why_size);
    if (application != SCHEMA_APPLICATION_ID) {
        snprintf(why, why_size, "%s is another program's database; it was left alone", path);
        return KIND_REFUSED;
    }
    *version = -1;
    if (db_int64(db, "PRAGMA user_version", version) != SQLITE_OK)
        return KIND_FAILED;
    if (*version > VERSION_GONE)
        *version -= VERSION_GONE;
    if (*version >= 1 && *version <= SCHEMA_VERSION)
        return KIND_OURS;
    if (*version > SCHEMA_VERSION)
        snprintf(why, why_size,
                 "%s has schema version %lld, newer than this program's %lld: "
                 "run the newer stockaded",
                 path, (long long)*version, (long long)SCHEMA_VERSION);
    else
        snprintf(why, why_size, "%s is damaged: it has no schema version", path);
    return KIND_REFUSED;
}

bool schema_recognise(sqlite3 *db, const char *path, int64_t *version, char *why, size_t why_size)
{
    *version = 0;
    switch (recognise(db, path, version, why, why_size)) {
    case KIND_FRESH:
    case KIND_OURS: return true;
    case KIND_REFUSED: return false;
    default: return db_explain(db, path, why, why_size);
    }
}

int64_t schema_version(void)
{
    return SCHEMA_VERSION;
}

static bool journal_is_wal(sqlite3 *db, char *why, size_t why_size, const char *path)
{
    sqlite3_stmt *stmt;
    bool wal = false;

    if (sqlite3_prepare_v2(db, "PRAGMA journal_mode = WAL", -1, &stmt, NULL) != SQLITE_OK)
        return db_explain(db, path, why, why_size);
    if (sqlite3_step(stmt) == SQLITE_ROW)
        wal = strcmp((const char *)sqlite3_column_text(stmt, 0), "wal") == 0;
    if (sqlite3_finalize(stmt) != SQLITE_OK)
        return db_explain(db, path, why, why_size);
    if (!wal)
        snprintf(why, why_size, "%s cannot have a write-ahead log there", path);
    return wal;
}

static int take_steps(sqlite3 *db, int64_t from, int64_t to)
{
    int code = SQLITE_OK;

    for (int64_t at = from; at < to && code == SQLITE_OK; at++)
        code = db_exec(db, steps[at]);
    return code;
}

/* What other programs have changed: each object is compared with one in a store that was just made,
 * by its text.
 *
 * A trigger runs within our own statements, a unique index or another table refuses rows that ours
 * does not. The rest (views, other indexes) only costs time, or misleads people. */

/* Objects (type, name, tbl_name, sql, whether the index is unique) of one database... */
#define OBJECTS                                                                                    \
    "SELECT type, name, tbl_name, sql, type = 'index' AND EXISTS(SELECT 1 FROM"                    \
    " pragma_index_list(s.tbl_name) AS i WHERE i.name = s.name AND i.\"unique\")"                  \
    " FROM sqlite_schema AS s WHERE sql IS NOT NULL"
/* ...that are on our tables, or named like ours. What guards are made of is on the users' own
 * tables; guards.c sees whether that is whole. */
#define ON_OURS " AND (tbl_name LIKE 'stockade\\_%' ESCAPE '\\')"
#define LIKE_OURS                                                                                  \
    " AND (tbl_name LIKE 'stockade\\_%' ESCAPE '\\' OR (name LIKE 'stockade\\_%' ESCAPE '\\'"      \
    " AND NOT EXISTS(SELECT 1 FROM stockade_guard AS g WHERE g.name = s.tbl_name)))"

static bool is_own(const char *table)
{
    return sqlite3_strlike("stockade\\_%", table, '\\') == 0;
}

/* Find those of `from` that `to` does not have, or, with `altered`, has otherwise. */
static int compare(sqlite3 *from, const char *objects, sqlite3 *to, const char *gone,
                   const char *altered, schema_each_change *each, void *context)
{
    sqlite3_stmt *rows = NULL, *stmt = NULL;
    int code = sqlite3_prepare_v2(from, objects, -1, &rows, NULL);

    if (code == SQLITE_OK)
        code = sqlite3_prepare_v2(
            to, "SELECT sql = ?3 FROM sqlite_schema WHERE type = ?1 AND name = ?2", -1, &stmt,
            NULL);
    while (code == SQLITE_OK && (code = sqlite3_step(rows)) == SQLITE_ROW) {
        sqlite3_bind_value(stmt, 1, sqlite3_column_value(rows, 0));
        sqlite3_bind_value(stmt, 2, sqlite3_column_value(rows, 1));
        sqlite3_bind_value(stmt, 3, sqlite3_column_value(rows, 3));
        int found = sqlite3_step(stmt);
        struct schema_change change = {
            .type = (const char *)sqlite3_column_text(rows, 0),
            .name = (const char *)sqlite3_column_text(rows, 1),
            .table = (const char *)sqlite3_column_text(rows, 2),
            .how = found == SQLITE_ROW ? altered : gone,
        };
        bool differs = found != SQLITE_ROW || sqlite3_column_int(stmt, 0) == 0;
        code = found == SQLITE_ROW || found == SQLITE_DONE ? SQLITE_OK : found;
        if (change.type == NULL || change.name == NULL || change.table == NULL) {
            code = SQLITE_NOMEM;
        } else if (code == SQLITE_OK && differs && change.how != NULL) {
            change.harms =
                is_own(change.table) &&
                (strcmp(change.type, "trigger") == 0 || sqlite3_column_int(rows, 4) != 0 ||
                 (strcmp(change.type, "table") == 0 && altered != NULL));
            each(context, &change);
        }
        sqlite3_reset(stmt);
    }
    sqlite3_finalize(stmt);
    sqlite3_finalize(rows);
    return code == SQLITE_DONE ? SQLITE_OK : code;
}

int schema_compare(sqlite3 *db, int64_t version, schema_each_change *each, void *context)
{
    sqlite3 *fresh = NULL;
    int64_t guards = 0;
    int code = sqlite3_open(":memory:", &fresh);

    if (code == SQLITE_OK)
        code = take_steps(fresh, 0, version);
    if (code == SQLITE_OK)
        code = compare(fresh, OBJECTS, db, "is gone", "was altered", each, context);
    if (code == SQLITE_OK)
        code = db_int64(db,
                        "SELECT count(*) FROM sqlite_schema WHERE type = 'table'"
                        " AND name = 'stockade_guard'",
                        &guards);
    if (code == SQLITE_OK)
        code = compare(db, guards != 0 ? OBJECTS LIKE_OURS : OBJECTS ON_OURS, fresh,
                       "is not Stockade's", NULL, each, context);
    sqlite3_close(fresh);
    return code;
}

void schema_explain_change(const struct schema_change *change, char *why, size_t why_size)
{
    bool foreign = strcmp(change->type, "trigger") == 0 || strcmp(change->type, "index") == 0;

    if (foreign && strcmp(change->how, "is gone") != 0)
        text_print(why, why_size, "the %s %.64s on %.32s %s: remove it (DROP %s)", change->type,
                   change->name, change->table, change->how,
                   change->type[0] == 't' ? "TRIGGER" : "INDEX");
    else
        text_print(why, why_size, "the %s %.64s %s: undo that, or restore a backup", change->type,
                   change->name, change->how);
}

struct harm {
    bool found;
    char why[160];
};

static void note_harm(void *context, const struct schema_change *change)
{
    struct harm *harm = context;

    if (!change->harms || harm->found)
        return;
    harm->found = true;
    schema_explain_change(change, harm->why, sizeof harm->why);
}

bool schema_is_ours(sqlite3 *db, int64_t version, const char *path, char *why, size_t why_size)
{
    struct harm harm = {.found = false};

    if (schema_compare(db, version, note_harm, &harm) != SQLITE_OK)
        return db_explain(db, path, why, why_size);
    if (harm.found)
        text_print(why, why_size, "%s was changed by another program: %s", path, harm.why);
    return !harm.found;
}

/* Within a transaction: bring the schema from `version` to ours, and count an opening unless
 * `opening` is NULL. */
static bool migrate(sqlite3 *db, int64_t version, int64_t *opening)
{
    char sql[96];

    if (version == SCHEMA_VERSION && opening == NULL)
        return true;

    if (version == 0) {
        snprintf(sql, sizeof sql, "PRAGMA application_id = %lld", (long long)SCHEMA_APPLICATION_ID);
        if (db_exec(db, sql) != SQLITE_OK)
            return false;
    }
    if (take_steps(db, version, SCHEMA_VERSION) != SQLITE_OK)
        return false;
    snprintf(sql, sizeof sql, "PRAGMA user_version = %lld", (long long)SCHEMA_VERSION);
    return db_exec(db, sql) == SQLITE_OK &&
           (opening == NULL || db_int64(db,
                                        "UPDATE stockade_meta SET value = value + 1"
                                        " WHERE key = 'session' RETURNING value",
                                        opening) == SQLITE_OK);
}

bool schema_mark(sqlite3 *db, struct transfer_mark *mark)
{
    sqlite3_stmt *stmt;

    *mark = (struct transfer_mark){.part = TRANSFER_NONE};
    if (sqlite3_prepare_v2(db, "SELECT key, value FROM stockade_meta WHERE key GLOB 'move_*'", -1,
                           &stmt, NULL) != SQLITE_OK)
        return false;
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        const char *key = (const char *)sqlite3_column_text(stmt, 0);
        const char *value = (const char *)sqlite3_column_text(stmt, 1);
        if (value == NULL)
            continue;
        if (strcmp(key, "move_part") == 0)
            mark->part = (enum transfer_part)sqlite3_column_int(stmt, 1);
        else if (strcmp(key, "move_id") == 0)
            text_print(mark->id, sizeof mark->id, "%s", value);
        else if (strcmp(key, "move_where") == 0)
            text_print(mark->where, sizeof mark->where, "%s", value);
    }
    return sqlite3_finalize(stmt) == SQLITE_OK;
}

int schema_mark_put(sqlite3 *db, const struct transfer_mark *mark)
{
    int code = db_exec(db, "DELETE FROM stockade_meta WHERE key GLOB 'move_*'");
    bool gone = mark->part == TRANSFER_GONE;
    char *sql = sqlite3_mprintf("INSERT INTO stockade_meta VALUES('move_part', %d),"
                                " ('move_id', %Q), ('move_where', %Q)",
                                mark->part, mark->id, mark->where);

    if (sql == NULL)
        return SQLITE_NOMEM;
    if (code == SQLITE_OK && mark->part != TRANSFER_NONE)
        code = db_exec(db, sql);
    sqlite3_free(sql);
    sql = sqlite3_mprintf("PRAGMA user_version = %lld", SCHEMA_VERSION + (gone ? VERSION_GONE : 0));
    if (sql == NULL)
        return SQLITE_NOMEM;
    if (code == SQLITE_OK)
        code = db_exec(db, sql);
    sqlite3_free(sql);
    return code;
}

bool schema_is_closed(sqlite3 *db, const char *path, char *why, size_t why_size)
{
    struct transfer_mark mark;
    return schema_mark(db, &mark) && transfer_is_closed(&mark, path, why, why_size);
}

bool schema_prepare(sqlite3 *db, const char *path, int64_t *opening, char *why, size_t why_size)
{
    int64_t version = 0;
    enum kind kind = recognise(db, path, &version, why, why_size);

    if (kind == KIND_REFUSED)
        return false;
    if (kind == KIND_FAILED || (kind == KIND_FRESH && db_exec(db, fresh_setup) != SQLITE_OK))
        return db_explain(db, path, why, why_size);
    if (!journal_is_wal(db, why, why_size, path))
        return false;
    if (db_exec(db, wal_setup) != SQLITE_OK || db_exec(db, "BEGIN IMMEDIATE") != SQLITE_OK)
        return db_explain(db, path, why, why_size);
    /* Again, under the lock: another daemon may have been quicker. */
    version = 0;
    kind = recognise(db, path, &version, why, why_size);
    if (kind == KIND_REFUSED)
        return false;
    if (kind == KIND_OURS && !schema_is_ours(db, version, path, why, why_size))
        return false;
    if (kind == KIND_OURS && opening != NULL &&
        (!place_has_log(db, path, why, why_size) || schema_is_closed(db, path, why, why_size)))
        return false;
    if (kind == KIND_FAILED || !migrate(db, version, opening) || db_exec(db, "COMMIT") != SQLITE_OK)
        return db_explain(db, path, why, why_size);
    return true;
}
