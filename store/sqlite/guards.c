/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at guards: the registry is read, and each part's text compared with the schema's. */
#include "store/sqlite/guards.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "store/sqlite/db.h"
#include "store/sqlite/guard_function.h"

enum { FLAW_MAX = 160 };

struct watched {
    struct guard guard;
    char flaw[FLAW_MAX]; /* empty: it is whole */
};

struct guards {
    const char *path; /* borrowed, for the log */
    const struct log *log;
    struct guard_witness witness;
    int64_t version; /* SQLite's number of the schema at the last look; 0: there was none */
    bool unsettled;  /* the last look saw changes of our own, which are not committed yet */
    bool doubted;    /* whatever the version, look again */
    struct watched *list;
    size_t count;
};

/* The transaction's claims: judged by the caller before they were presented. */
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

static void list_free(struct watched *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(list[i].guard.table);
        free(list[i].guard.column);
        free(list[i].guard.prefix);
    }
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

/* The registry, into a fresh list. */
static bool read_list(sqlite3 *db, struct watched **list, size_t *count)
{
    /* `hidden` is 2 or 3 for computed columns. */
    static const char sql[] =
        "SELECT name, key, prefix, EXISTS(SELECT 1 FROM pragma_table_xinfo(g.name, 'main') AS c"
        " WHERE c.name = g.key AND c.hidden > 1) FROM main.stockade_guard AS g ORDER BY name";
    sqlite3_stmt *stmt;

    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
        return false;
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        *list = mem_realloc(*list, (*count + 1) * sizeof **list);
        (*list)[(*count)++] = (struct watched){
            .guard = {.table = column_text(stmt, 0),
                      .column = column_text(stmt, 1),
                      .prefix = column_text(stmt, 2),
                      .generated = sqlite3_column_int(stmt, 3) != 0},
        };
    }
    return sqlite3_finalize(stmt) == SQLITE_OK;
}

/* Compares one part with what `stmt` finds of it. */
static bool look_at_part(sqlite3_stmt *stmt, struct watched *watched, const struct guard_part *part)
{
    sqlite3_bind_text(stmt, 1, part->type, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 2, part->name, -1, SQLITE_STATIC);
    if (sqlite3_step(stmt) != SQLITE_ROW) {
        sqlite3_snprintf(FLAW_MAX, watched->flaw, "its %s %s is gone", part->type, part->name);
    } else {
        const char *table = (const char *)sqlite3_column_text(stmt, 0);
        const char *sql = (const char *)sqlite3_column_text(stmt, 1);
        if (table == NULL || sqlite3_stricmp(table, watched->guard.table) != 0 || sql == NULL ||
            strcmp(sql, part->sql) != 0)
            sqlite3_snprintf(FLAW_MAX, watched->flaw, "its %s %s was altered", part->type,
                             part->name);
    }
    return sqlite3_reset(stmt) == SQLITE_OK;
}

/* Finds the flaws of every guard in the list. */
static bool find_flaws(sqlite3 *db, struct watched *list, size_t count)
{
    static const char sql[] = "SELECT tbl_name, sql FROM main.sqlite_schema"
                              " WHERE type = ?1 AND name = ?2";
    sqlite3_stmt *stmt;
    bool fine = true;

    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
        return false;
    for (size_t i = 0; i < count; i++)
        for (size_t which = 0; fine && which < GUARD_PARTS && list[i].flaw[0] == '\0'; which++) {
            struct guard_part part;
            if (!guard_part_make(&list[i].guard, which, &part))
                continue;
            fine = part.sql != NULL && look_at_part(stmt, &list[i], &part);
            guard_part_free(&part);
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

/* What differs from the last look. */
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

enum stk_error guards_look(struct transaction *txn, enum guards_news news)
{
    struct guards *guards = txn->guards;
    struct watched *list = NULL;
    size_t count = 0;
    int64_t version = 0;

    if (guards == NULL)
        return STK_OK;
    guards->unsettled = news == GUARDS_OWN;
    if (news == GUARDS_NO_NEWS && !guards->doubted)
        return STK_OK;
    if (db_int64(txn->db, "PRAGMA main.schema_version", &version) != SQLITE_OK)
        return transaction_fail(txn);
    /* Our own change may be one of the registry alone. */
    if (version == guards->version && !guards->doubted && news != GUARDS_OWN)
        return STK_OK;
    if (!read_list(txn->db, &list, &count) || !find_flaws(txn->db, list, count)) {
        list_free(list, count);
        return transaction_fail(txn);
    }
    bool foreign = news == GUARDS_FOREIGN && guards->version != 0 && version != guards->version;
    if (foreign)
        log_warn(guards->log, "store %s: another program has changed the schema", guards->path);
    report(guards, list, count, foreign);
    list_free(guards->list, guards->count);
    guards->list = list;
    guards->count = count;
    guards->version = version;
    guards->doubted = false;
    return STK_OK;
}

void guards_doubt(struct guards *guards)
{
    if (guards != NULL && guards->unsettled)
        guards->doubted = true;
}

bool guards_know(const struct guards *guards, const char *table)
{
    return guards != NULL && find(guards->list, guards->count, table) != NULL;
}

const char *guards_flaw(const struct guards *guards, const char *table)
{
    const struct watched *watched =
        guards != NULL ? find(guards->list, guards->count, table) : NULL;
    return watched != NULL && watched->flaw[0] != '\0' ? watched->flaw : NULL;
}

bool guards_broken(const struct guards *guards, const char *table)
{
    return guards_flaw(guards, table) != NULL;
}

enum stk_error guards_each(struct store_txn *base, txn_each_guard each, void *context)
{
    const struct guards *guards = ((struct transaction *)base)->guards;

    for (size_t i = 0; guards != NULL && i < guards->count; i++) {
        const struct watched *watched = &guards->list[i];
        each(context, bytes_of(watched->guard.table), bytes_of(watched->guard.column),
             bytes_of(watched->guard.prefix), watched->flaw[0] != '\0');
    }
    return STK_OK;
}
