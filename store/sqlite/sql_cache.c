/* SPDX-License-Identifier: Apache-2.0 */
/* Statements by their text, the least recently used one making way. So few that looking at each
 * costs less than the statement's first row. SQLite compiles a kept statement anew by itself where
 * the schema has changed, and asks the authorizer again. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "store/sqlite/sql.h"

static void drop(struct sql_cached *cached)
{
    sqlite3_finalize(cached->stmt);
    free(cached->text);
    *cached = (struct sql_cached){.text = NULL};
}

sqlite3_stmt *sql_cache_find(struct sql *sql, struct bytes text)
{
    for (size_t i = 0; i < SQL_CACHED_MAX; i++) {
        struct sql_cached *cached = &sql->cache[i];
        if (cached->text == NULL || cached->len != text.len ||
            memcmp(cached->text, text.data, text.len) != 0)
            continue;
        cached->used = ++sql->uses;
        return cached->stmt;
    }
    return NULL;
}

void sql_cache_keep(struct sql *sql, struct bytes text, sqlite3_stmt *stmt)
{
    struct sql_cached *victim = &sql->cache[0];

    if (text.len > SQL_CACHED_STATEMENT_MAX ||
        sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_MEMUSED, 0) > SQL_CACHED_MEMORY_MAX) {
        sqlite3_finalize(stmt);
        return;
    }
    for (size_t i = 1; i < SQL_CACHED_MAX && victim->text != NULL; i++)
        if (sql->cache[i].text == NULL || sql->cache[i].used < victim->used)
            victim = &sql->cache[i];
    drop(victim);
    victim->text = mem_alloc(text.len);
    memcpy(victim->text, text.data, text.len);
    victim->len = text.len;
    victim->used = ++sql->uses;
    victim->stmt = stmt;
}

void sql_cache_clear(struct sql *sql)
{
    for (size_t i = 0; i < SQL_CACHED_MAX; i++)
        drop(&sql->cache[i]);
}
