/* SPDX-License-Identifier: Apache-2.0 */
/* The writer's cache of fences is large, since daemons run for long. A sweep opens thousands of
 * stores and would spend most of its time on getting memory for that cache. So the linker puts
 * these functions in between (crash.mk): a cache that was given back is emptied and used again. */
#include <stddef.h>

#include "store/sqlite/cache.h"

struct cache *__real_cache_new(size_t max);
struct cache *__wrap_cache_new(size_t max);
void __wrap_cache_free(struct cache *cache);

static struct cache *spare;

/* Of whatever size: it is not filled. */
struct cache *__wrap_cache_new(size_t max)
{
    struct cache *cache = spare;

    spare = NULL;
    return cache != NULL ? cache : __real_cache_new(max);
}

void __real_cache_free(struct cache *cache);

void __wrap_cache_free(struct cache *cache)
{
    if (spare != NULL || cache == NULL) {
        __real_cache_free(cache);
        return;
    }
    cache_undo(cache, 0);
    cache_clear(cache);
    spare = cache;
}
