/* SPDX-License-Identifier: Apache-2.0 */
/* malloc, realloc and free, and a count beside them. What was taken before `begin` may be given
 * back after it, so the count can be negative. */
#include "store/sqlite/sql_memory.h"

#include <malloc.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdlib.h>

/* The count has to be found from inside malloc, so it is the thread's. */
static _Thread_local struct {
    int64_t taken, max; /* max 0: not counting */
    bool exhausted;
} budget;

/* Is there room for `more` bytes? */
static bool afford(int64_t more)
{
    if (budget.max == 0 || budget.taken + more <= budget.max)
        return true;
    budget.exhausted = true;
    return false;
}

static void *take(int size)
{
    if (!afford(size))
        return NULL;
    void *memory = malloc((size_t)size);
    budget.taken += (int64_t)malloc_usable_size(memory);
    return memory;
}

static void give_back(void *memory)
{
    budget.taken -= (int64_t)malloc_usable_size(memory);
    free(memory);
}

static void *take_again(void *old, int size)
{
    int64_t before = (int64_t)malloc_usable_size(old);
    if (!afford(size - before))
        return NULL;
    void *memory = realloc(old, (size_t)size);
    if (memory != NULL)
        budget.taken += (int64_t)malloc_usable_size(memory) - before;
    return memory;
}

static int size_of(void *memory)
{
    return (int)malloc_usable_size(memory);
}

static int round_up(int size)
{
    return (size + 7) & ~7;
}

static int start(void *context)
{
    (void)context;
    return SQLITE_OK;
}

static void stop(void *context)
{
    (void)context;
}

void sql_memory_install(void)
{
    static const struct sqlite3_mem_methods methods = {
        .xMalloc = take,
        .xFree = give_back,
        .xRealloc = take_again,
        .xSize = size_of,
        .xRoundup = round_up,
        .xInit = start,
        .xShutdown = stop,
    };
    (void)sqlite3_config(SQLITE_CONFIG_MALLOC, &methods);
}

void sql_memory_begin(size_t max)
{
    budget.taken = 0;
    budget.max = (int64_t)max;
    budget.exhausted = false;
}

bool sql_memory_exceeds(size_t bytes)
{
    return budget.max != 0 && budget.taken > (int64_t)bytes;
}

bool sql_memory_exhausted(void)
{
    return budget.exhausted;
}

void sql_memory_end(void)
{
    budget.max = 0;
    budget.exhausted = false;
}
