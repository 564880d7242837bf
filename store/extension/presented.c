/* SPDX-License-Identifier: Apache-2.0 */
/* A list that only grows within a transaction, so a savepoint is a length. */
#include "store/extension/presented.h"

#include <string.h>

struct presented_mark {
    int savepoint;
    size_t count;
};

static bool witness_presented(void *context, struct bytes file, struct bytes resource,
                              int64_t token)
{
    return presented_has(context, file, resource, token);
}

/* Asked anew each time: the program may turn it off between two statements. SQLite compiles a
 * PRAGMA each time that it runs, so there is nothing to gain by keeping the statement. */
static bool witness_recursive(void *context)
{
    const struct presented *presented = context;
    sqlite3_stmt *stmt;
    bool on = false;

    if (sqlite3_prepare_v2(presented->db, "PRAGMA recursive_triggers", -1, &stmt, NULL) !=
        SQLITE_OK)
        return false;
    if (sqlite3_step(stmt) == SQLITE_ROW)
        on = sqlite3_column_int(stmt, 0) != 0;
    sqlite3_finalize(stmt);
    return on;
}

struct presented *presented_new(sqlite3 *db)
{
    struct presented *presented = sqlite3_malloc64(sizeof *presented);

    if (presented == NULL)
        return NULL;
    *presented = (struct presented){.owners = 1, .db = db};
    presented->witness = (struct guard_witness){
        .presented = witness_presented,
        .recursive = witness_recursive,
        .context = presented,
        .how = "BEGIN IMMEDIATE, then SELECT stockade_present(resource, token)",
    };
    return presented;
}

void presented_share(struct presented *presented)
{
    presented->owners++;
}

void presented_release(void *context)
{
    struct presented *presented = context;

    if (--presented->owners > 0)
        return;
    presented_clear(presented);
    sqlite3_free(presented->items);
    sqlite3_free(presented->marks);
    sqlite3_free(presented);
}

int presented_add(struct presented *presented, struct bytes file, struct bytes resource,
                  int64_t token)
{
    if (presented->count == presented->room) {
        size_t room = presented->room * 2 + 8;
        void *items = sqlite3_realloc64(presented->items, room * sizeof *presented->items);
        if (items == NULL)
            return SQLITE_NOMEM;
        presented->items = items;
        presented->room = room;
    }
    struct presented_item *item = sqlite3_malloc64(sizeof *item + file.len + resource.len);
    if (item == NULL)
        return SQLITE_NOMEM;
    char *at = (char *)(item + 1);
    if (file.len > 0)
        memcpy(at, file.data, file.len);
    if (resource.len > 0)
        memcpy(at + file.len, resource.data, resource.len);
    *item = (struct presented_item){token, {at, file.len}, {at + file.len, resource.len}};
    presented->items[presented->count++] = item;
    return SQLITE_OK;
}

static bool same(struct bytes a, struct bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

bool presented_has(const struct presented *presented, struct bytes file, struct bytes resource,
                   int64_t token)
{
    /* The last one first: rows often change right after their token was presented. */
    for (size_t i = presented->count; i > 0; i--) {
        const struct presented_item *item = presented->items[i - 1];
        if (item->token == token && same(item->resource, resource) && same(item->file, file))
            return true;
    }
    return false;
}

static void shorten(struct presented *presented, size_t count)
{
    while (presented->count > count)
        sqlite3_free(presented->items[--presented->count]);
}

void presented_clear(struct presented *presented)
{
    shorten(presented, 0);
    presented->marks_count = 0;
}

/* A released savepoint takes those inside it along. */
void presented_release_to(struct presented *presented, int savepoint)
{
    while (presented->marks_count > 0 &&
           presented->marks[presented->marks_count - 1].savepoint >= savepoint)
        presented->marks_count--;
}

int presented_savepoint(struct presented *presented, int savepoint)
{
    presented_release_to(presented, savepoint); /* its number is used again */
    if (presented->marks_count == presented->marks_room) {
        size_t room = presented->marks_room * 2 + 8;
        void *marks = sqlite3_realloc64(presented->marks, room * sizeof *presented->marks);
        if (marks == NULL)
            return SQLITE_NOMEM;
        presented->marks = marks;
        presented->marks_room = room;
    }
    presented->marks[presented->marks_count++] =
        (struct presented_mark){savepoint, presented->count};
    return SQLITE_OK;
}

void presented_rollback_to(struct presented *presented, int savepoint)
{
    presented_release_to(presented, savepoint + 1);
    /* A savepoint that the table was not told of is older than all that was presented. */
    size_t marks = presented->marks_count;
    bool known = marks > 0 && presented->marks[marks - 1].savepoint == savepoint;
    shorten(presented, known ? presented->marks[marks - 1].count : 0);
}
