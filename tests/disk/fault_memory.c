/* SPDX-License-Identifier: Apache-2.0 */
/* See fault_memory.h. */
#include "tests/disk/fault_memory.h"

#include <execinfo.h>
#include <sqlite3.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/disk/ramdisk.h"

enum { STACK_MAX = 8 };

static struct {
    struct sqlite3_mem_methods below;
    int64_t calls, first;
    bool lasting;
    bool notes;      /* who calls */
    uint64_t *sites; /* of each call: a hash of its callers */
    size_t sites_count, sites_room;
} memory;

static void note_site(void)
{
    void *stack[STACK_MAX];
    int depth = backtrace(stack, STACK_MAX);
    uint64_t hash = 0;

    for (int i = 0; i < depth; i++) {
        hash ^= (uint64_t)(uintptr_t)stack[i];
        hash = dice(&hash);
    }
    if (memory.sites_count == memory.sites_room) {
        memory.sites_room = memory.sites_room * 2 + 1024;
        memory.sites = mem_realloc(memory.sites, memory.sites_room * sizeof *memory.sites);
    }
    memory.sites[memory.sites_count++] = hash;
}

static bool fails(void)
{
    if (memory.notes)
        note_site();
    memory.calls++;
    return memory.first != 0 &&
           (memory.lasting ? memory.calls >= memory.first : memory.calls == memory.first);
}

static void *take(int size)
{
    return fails() ? NULL : memory.below.xMalloc(size);
}

static void *take_again(void *old, int size)
{
    return fails() ? NULL : memory.below.xRealloc(old, size);
}

void fault_memory_install(void)
{
    struct sqlite3_mem_methods methods;

    check(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &memory.below) == SQLITE_OK);
    methods = memory.below;
    methods.xMalloc = take;
    methods.xRealloc = take_again;
    check(sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) == SQLITE_OK);
}

void fault_memory_set(int64_t first, bool lasting)
{
    memory.calls = 0;
    memory.first = first;
    memory.lasting = lasting;
}

int64_t fault_memory_calls(void)
{
    return memory.calls;
}

bool fault_memory_end(void)
{
    bool met = memory.first != 0 && memory.calls >= memory.first;

    fault_memory_set(0, false);
    return met;
}

void fault_memory_sites_begin(void)
{
    memory.notes = true;
    memory.sites_count = 0;
}

void fault_memory_sites_end(void)
{
    memory.notes = false;
}

bool fault_memory_is_new(int64_t call, size_t times)
{
    size_t at = (size_t)call - 1, before = 0;

    for (size_t i = 0; i < at && before < times; i++)
        before += memory.sites[i] == memory.sites[at];
    return before < times;
}
