/* SPDX-License-Identifier: Apache-2.0 */
/* In front of Stockade's own allocator for SQLite (sql_memory.h), which stays in use: one that has
 * nothing to give when it is told so. */
#include <sqlite3.h>

#include "fence/base/check.h"
#include "store/sqlite/sql_memory.h"
#include "tests/crash/sweep.h"

static struct {
    struct sqlite3_mem_methods below;
    int64_t calls, first;
    bool lasting;
} memory;

static bool fails(void)
{
    memory.calls++;
    return memory.first != 0 && (memory.lasting ? memory.calls >= memory.first
                                                : memory.calls == memory.first);
}

static void *take(int size)
{
    return fails() ? NULL : memory.below.xMalloc(size);
}

static void *take_again(void *old, int size)
{
    return fails() ? NULL : memory.below.xRealloc(old, size);
}

void memory_install(void)
{
    struct sqlite3_mem_methods methods;

    sqlite3_config(SQLITE_CONFIG_SINGLETHREAD); /* as we are, and it is quicker */
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    sql_memory_install();
    check(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &memory.below) == SQLITE_OK);
    methods = memory.below;
    methods.xMalloc = take;
    methods.xRealloc = take_again;
    check(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK);
    check(sqlite3_initialize() == SQLITE_OK);
}

void memory_fail(int64_t first, bool lasting)
{
    memory.calls = 0;
    memory.first = first;
    memory.lasting = lasting;
}

int64_t memory_calls(void)
{
    return memory.calls;
}
