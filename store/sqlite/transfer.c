/* SPDX-License-Identifier: Apache-2.0 */
/* Rows out of a store's file, or into one: store/transfer.h. What is put is one transaction of the
 * file's own, so whoever has it open sees it when it is committed, and a crash undoes it. */
#include "store/transfer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fence/base/mem.h"
#include "store/clock.h"
#include "store/sqlite/anew.h"
#include "store/sqlite/copy.h"
#include "store/sqlite/place.h"
#include "store/sqlite/schema.h"

enum {
    LOCK_TRIES_MAX = 10000, /* of a millisecond */
    PUTS = 2,               /* statements at most that put one row */
};

struct sqlite_transfer {
    struct transfer base;
    char *path; /* owned */
    enum transfer_use use;
    struct copy_patience patience;
    sqlite3 *db;
    sqlite3_stmt *puts[TRANSFER_TABLES][PUTS];
};

/* How rows are read, with the columns of transfer.h, and what puts them: ?1 is the first column. */
static const struct {
    const char *select, *puts[PUTS];
} sql_of[TRANSFER_TABLES] = {
    [TRANSFER_RESOURCES] =
        {"SELECT id, name, token, state, type, anonymous, holds, ttl_ms, session, connection,"
         " changed_ms, receipts_gone, CASE WHEN state = 1 AND EXISTS(SELECT 1 FROM"
         " stockade_receipt AS t WHERE t.resource = r.id AND t.token = r.token) THEN token ELSE 0"
         " END, (SELECT count(*) FROM stockade_hash AS h WHERE h.id = r.id), owner,"
         " (SELECT value FROM stockade_string AS s WHERE s.id = r.id)"
         " FROM stockade_resource AS r ORDER BY id",
         {"INSERT INTO stockade_resource(id, name, token, state, type, anonymous, holds, ttl_ms,"
          " session, connection, changed_ms, receipts_gone, owner) VALUES(?1, ?2, ?3, ?4, ?5, ?6,"
          " ?7, ?8, ?9, ?10, ?11, ?12, ?15)",
          "INSERT INTO stockade_string(id, value) SELECT ?1, ?16 WHERE ?16 IS NOT NULL"}},
    [TRANSFER_FIELDS] = {"SELECT id, field, value FROM stockade_hash",
                         {"INSERT INTO stockade_hash(id, field, value) VALUES(?1, ?2, ?3)"}},
    [TRANSFER_RECEIPTS] = {"SELECT resource, id, token, fingerprint, resp3, written_ms, reply"
                           " FROM stockade_receipt",
                           {"INSERT INTO stockade_receipt(resource, id, token, fingerprint, resp3,"
                            " written_ms, reply) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)"}},
    /* What was forgotten has no receipts. */
    [TRANSFER_RETIRED] = {"SELECT resource, token, retired_ms FROM stockade_retired"
                          " WHERE resource IN (SELECT id FROM stockade_resource) ORDER BY number",
                          {"INSERT INTO stockade_retired(resource, token, retired_ms)"
                           " VALUES(?1, ?2, ?3)"}},
    [TRANSFER_HEADS] = {"SELECT chain, lines, hash FROM stockade_audit",
                        {"INSERT INTO stockade_audit(chain, lines, hash, file)"
                         " VALUES(?1, ?2, ?3, x'')"}},
};

/* 64 MB: names come in no order, and what does not fit is written again and again. */
static const char cache_setup[] = "PRAGMA cache_size = -65536";

static struct sqlite_transfer *of(struct transfer *transfer)
{
    return (struct sqlite_transfer *)transfer;
}

static bool explain(struct sqlite_transfer *transfer)
{
    return copy_explain(&transfer->patience, transfer->db, transfer->path, transfer->base.why,
                        sizeof transfer->base.why);
}

static bool exec(struct sqlite_transfer *transfer, const char *sql)
{
    return db_exec(transfer->db, sql) == SQLITE_OK || explain(transfer);
}

static bool begin(struct transfer *base)
{
    struct sqlite_transfer *transfer = of(base);

    copy_try_often(transfer->db, &transfer->patience);
    return transfer->use == TRANSFER_READ || exec(transfer, "BEGIN IMMEDIATE");
}

/* The store's time now, which is not kept: whoever opens the store next goes on from the same note.
 * `rebooted`: that was made under another boot. */
static bool read_clock(struct sqlite_transfer *transfer, int64_t *now_ms, bool *rebooted)
{
    struct store_clock_note note = {.offset_ms = 0};
    struct store_clock clock;
    sqlite3_stmt *stmt;

    if (sqlite3_prepare_v2(transfer->db,
                           "SELECT boot, offset_ms, reached_ms, wall_ms, start_ms"
                           " FROM stockade_clock",
                           -1, &stmt, NULL) != SQLITE_OK)
        return false;
    if (sqlite3_step(stmt) == SQLITE_ROW) {
        const char *boot = (const char *)sqlite3_column_text(stmt, 0);
        text_print(note.boot, sizeof note.boot, "%s", boot != NULL ? boot : "");
        note.offset_ms = sqlite3_column_int64(stmt, 1);
        note.reached_ms = sqlite3_column_int64(stmt, 2);
        note.wall_ms = sqlite3_column_int64(stmt, 3);
        note.start_ms = sqlite3_column_int64(stmt, 4);
    }
    store_clock_init(&clock, NULL);
    *rebooted = store_clock_is_other_boot(&clock, &note);
    (void)store_clock_resume(&clock, &note);
    *now_ms = store_clock_now_ms(&clock);
    return sqlite3_finalize(stmt) == SQLITE_OK;
}

/* The users' own tables, which are not Stockade's to take along. */
static bool read_left(struct sqlite_transfer *transfer)
{
    static const char names[] = "SELECT group_concat(name, ', ') FROM (SELECT name FROM"
                                " sqlite_schema WHERE type = 'table' AND name NOT LIKE"
                                " 'stockade\\_%' ESCAPE '\\' AND name NOT LIKE 'sqlite\\_%'"
                                " ESCAPE '\\' ORDER BY name)";
    char *left = transfer->base.left;
    sqlite3_stmt *stmt;

    if (sqlite3_prepare_v2(transfer->db, names, -1, &stmt, NULL) != SQLITE_OK)
        return false;
    if (sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_type(stmt, 0) != SQLITE_NULL) {
        text_print(left, sizeof transfer->base.left, "%s", sqlite3_column_text(stmt, 0));
        for (char *at = left; *at != '\0'; at++)
            if (*at < ' ' || *at > '~')
                *at = '?';
    }
    return sqlite3_finalize(stmt) == SQLITE_OK;
}

/* Where a daemon's tokens would go on now: anew.h. */
static void raise_floor(struct transfer_facts *facts)
{
    struct store_clock clock;

    store_clock_init(&clock, NULL);
    int64_t floor = anew_floor(&clock, facts->token > facts->floor ? facts->token : facts->floor);
    if (floor != 0)
        facts->floor = floor;
}

static bool facts(struct transfer *base, struct transfer_facts *facts)
{
    struct sqlite_transfer *transfer = of(base);
    sqlite3 *db = transfer->db;
    struct place place;
    bool rebooted = false;

    *facts = (struct transfer_facts){.strange = false};
    bool read =
        db_int64(db, "SELECT value FROM stockade_meta WHERE key = 'session'", &facts->opening) ==
            SQLITE_OK &&
        db_int64(db, "SELECT value FROM stockade_meta WHERE key = 'floor'", &facts->floor) ==
            SQLITE_OK &&
        db_int64(db, "SELECT ifnull(max(token), 0) FROM stockade_resource", &facts->token) ==
            SQLITE_OK &&
        db_int64(db, "SELECT ifnull(max(id), 0) FROM stockade_resource", &facts->ids) ==
            SQLITE_OK &&
        db_int64(db,
                 "SELECT (SELECT count(*) FROM stockade_resource) + (SELECT count(*) FROM"
                 " stockade_hash) + (SELECT count(*) FROM stockade_receipt) + (SELECT count(*)"
                 " FROM stockade_retired) + (SELECT count(*) FROM stockade_audit)",
                 &facts->rows) == SQLITE_OK &&
        db_int64(db, "SELECT count(*) FROM stockade_resource", &facts->resources) == SQLITE_OK &&
        read_left(transfer) && schema_mark(db, &facts->mark) &&
        read_clock(transfer, &facts->now_ms, &rebooted) && place_look(db, &place) == SQLITE_OK;

    if (!read)
        return explain(transfer);
    facts->strange = place.other;
    if (rebooted && facts->rows > 0)
        raise_floor(facts);
    return true;
}

static struct transfer_cell cell(sqlite3_stmt *stmt, int at, char column)
{
    struct transfer_cell cell = {.is_null = sqlite3_column_type(stmt, at) == SQLITE_NULL};

    if (!transfer_is_bytes(column)) {
        cell.number = sqlite3_column_int64(stmt, at);
        return cell;
    }
    cell.bytes.data = sqlite3_column_blob(stmt, at);
    cell.bytes.len = (size_t)sqlite3_column_bytes(stmt, at);
    return cell;
}

static bool each(struct transfer *base, enum transfer_table table, transfer_row *row, void *context)
{
    struct sqlite_transfer *transfer = of(base);
    const char *columns = transfer_columns(table);
    struct transfer_cell cells[TRANSFER_COLUMNS_MAX];
    sqlite3_stmt *stmt;
    bool going = true;

    if (sqlite3_prepare_v2(transfer->db, sql_of[table].select, -1, &stmt, NULL) != SQLITE_OK)
        return explain(transfer);
    while (going && sqlite3_step(stmt) == SQLITE_ROW) {
        for (int i = 0; columns[i] != '\0'; i++)
            cells[i] = cell(stmt, i, columns[i]);
        going = row(context, cells);
    }
    if (sqlite3_finalize(stmt) != SQLITE_OK)
        return explain(transfer);
    return going;
}

static bool clear(struct transfer *base)
{
    return exec(of(base), "DELETE FROM stockade_resource; DELETE FROM stockade_string;"
                          "DELETE FROM stockade_hash; DELETE FROM stockade_receipt;"
                          "DELETE FROM stockade_retired");
}

static void bind(sqlite3_stmt *stmt, const char *columns, const struct transfer_cell *cells)
{
    int count = sqlite3_bind_parameter_count(stmt);

    for (int i = 0; columns[i] != '\0' && i < count; i++) {
        const struct bytes bytes = cells[i].bytes;
        const char *data = bytes.data != NULL ? bytes.data : "";
        if (cells[i].is_null)
            sqlite3_bind_null(stmt, i + 1);
        else if (columns[i] == 't')
            sqlite3_bind_text(stmt, i + 1, data, (int)bytes.len, SQLITE_STATIC);
        else if (transfer_is_bytes(columns[i]))
            sqlite3_bind_blob(stmt, i + 1, data, (int)bytes.len, SQLITE_STATIC);
        else
            sqlite3_bind_int64(stmt, i + 1, cells[i].number);
    }
}

static bool put(struct transfer *base, enum transfer_table table, const struct transfer_cell *cells)
{
    struct sqlite_transfer *transfer = of(base);

    for (int i = 0; i < PUTS && sql_of[table].puts[i] != NULL; i++) {
        sqlite3_stmt **stmt = &transfer->puts[table][i];
        if (*stmt == NULL &&
            sqlite3_prepare_v2(transfer->db, sql_of[table].puts[i], -1, stmt, NULL) != SQLITE_OK)
            return explain(transfer);
        bind(*stmt, transfer_columns(table), cells);
        int code = sqlite3_step(*stmt);
        (void)sqlite3_reset(*stmt);
        if (code != SQLITE_DONE)
            return explain(transfer);
    }
    return true;
}

static bool revoke(struct transfer *base, int64_t *count)
{
    struct sqlite_transfer *transfer = of(base);
    int64_t now_ms;
    bool rebooted;
    char sql[512];

    if (!read_clock(transfer, &now_ms, &rebooted))
        return explain(transfer);
    snprintf(sql, sizeof sql,
             "INSERT INTO stockade_retired(resource, token, retired_ms) SELECT id, token, %lld"
             " FROM stockade_resource AS r WHERE state = 1 AND EXISTS(SELECT 1 FROM"
             " stockade_receipt AS t WHERE t.resource = r.id AND t.token = r.token);"
             "UPDATE stockade_resource SET state = 3, holds = 0, changed_ms = %lld"
             " WHERE state = 1",
             (long long)now_ms, (long long)now_ms);
    if (!exec(transfer, sql))
        return false;
    *count = sqlite3_changes64(transfer->db);
    return true;
}

static bool set(struct transfer *base, int64_t opening, int64_t floor)
{
    struct sqlite_transfer *transfer = of(base);
    char sql[160];

    snprintf(sql, sizeof sql,
             "REPLACE INTO stockade_meta(key, value) VALUES('session', %lld), ('floor', %lld)",
             (long long)opening, (long long)floor);
    return exec(transfer, sql) && (place_disown(transfer->db) == SQLITE_OK || explain(transfer));
}

static bool mark(struct transfer *base, const struct transfer_mark *mark)
{
    struct sqlite_transfer *transfer = of(base);
    /* What is filled is a backup, unless a move ends in it. */
    bool here = mark->part == TRANSFER_CAME;
    return (schema_mark_put(transfer->db, mark) == SQLITE_OK &&
            (!here || place_note(transfer->db, transfer->db) == SQLITE_OK)) ||
           explain(transfer);
}

static bool commit(struct transfer *base)
{
    struct sqlite_transfer *transfer = of(base);

    return exec(transfer, "COMMIT") &&
           (!base->made || copy_sync_folder(transfer->path, base->why, sizeof base->why));
}

static void undo(struct transfer *base)
{
    if (sqlite3_get_autocommit(of(base)->db) == 0)
        (void)db_exec(of(base)->db, "ROLLBACK");
}

static void close_it(struct transfer *base)
{
    struct sqlite_transfer *transfer = of(base);

    for (int table = 0; table < TRANSFER_TABLES; table++)
        for (int i = 0; i < PUTS; i++)
            sqlite3_finalize(transfer->puts[table][i]);
    if (transfer->db != NULL) {
        undo(base);
        db_close(transfer->db);
    }
    free(transfer->path);
    free(transfer);
}

static const struct transfer_impl impl = {
    .begin = begin,
    .facts = facts,
    .each = each,
    .clear = clear,
    .put = put,
    .revoke = revoke,
    .set = set,
    .mark = mark,
    .commit = commit,
    .undo = undo,
    .close = close_it,
};

static bool has_rows(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && status.st_size > 0;
}

/* Is it one of this program's version? Older ones have fewer columns. */
static bool is_current(struct sqlite_transfer *transfer, char *why, size_t why_size)
{
    int64_t version;

    if (!schema_recognise(transfer->db, transfer->path, &version, why, why_size))
        return false;
    if (version != schema_version())
        text_print(why, why_size,
                   "%s has schema version %lld, and this program needs %lld: open it with this "
                   "version's stockaded once",
                   transfer->path, (long long)version, (long long)schema_version());
    return version == schema_version() &&
           schema_is_ours(transfer->db, version, transfer->path, why, why_size);
}

static bool open_it(struct sqlite_transfer *transfer, char *why, size_t why_size)
{
    if (transfer->use != TRANSFER_FILL) {
        transfer->db = copy_source(
            transfer->path, transfer->use == TRANSFER_READ ? "backup" : "store", why, why_size);
        if (transfer->db == NULL || !is_current(transfer, why, why_size))
            return false;
        if (transfer->use == TRANSFER_READ)
            return true;
        db_close(transfer->db);
    }
    transfer->base.made = !has_rows(transfer->path);
    transfer->db = db_open(transfer->path, DB_OFFLINE, why, why_size);
    if (transfer->db == NULL)
        return false;
    if (db_exec(transfer->db, cache_setup) != SQLITE_OK)
        return db_explain(transfer->db, transfer->path, why, why_size);
    return transfer->use == TRANSFER_HOLD ||
           (schema_prepare(transfer->db, transfer->path, NULL, why, why_size) &&
            place_has_log(transfer->db, transfer->path, why, why_size));
}

struct transfer *transfer_sqlite(const char *path, enum transfer_use use,
                                 struct maintenance_watch watch, char *why, size_t why_size)
{
    struct sqlite_transfer *transfer = mem_zalloc(sizeof *transfer);
    char *whole;
    struct stat status;

    transfer->base.impl = &impl;
    transfer->base.watch = watch;
    transfer->path = mem_strdup(path);
    transfer->use = use;
    transfer->patience = (struct copy_patience){.watch = watch, .tries = LOCK_TRIES_MAX};
    if (!open_it(transfer, why, why_size)) {
        close_it(&transfer->base);
        return NULL;
    }
    whole = realpath(path, NULL);
    text_print(transfer->base.label, sizeof transfer->base.label, "sqlite:%s",
               whole != NULL ? whole : path);
    free(whole);
    if (stat(path, &status) == 0)
        text_print(transfer->base.same, sizeof transfer->base.same, "file %lld/%lld",
                   (long long)status.st_dev, (long long)status.st_ino);
    return &transfer->base;
}
