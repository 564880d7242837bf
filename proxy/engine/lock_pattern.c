/* SPDX-License-Identifier: Apache-2.0 */
/* See lock_pattern.h. */
#include "proxy/engine/lock_pattern.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

bool lock_pattern_valid(const char *text, char *why, size_t why_size)
{
    const char *star = strchr(text, '*');

    if (star != NULL && strchr(star + 1, '*') == NULL && text[1] != '\0' &&
        strlen(text) <= LOCK_PATTERN_MAX)
        return true;
    text_print(why, why_size,
               "expected a pattern such as lock:*, with one * for the resource and something "
               "beside it, of at most %d bytes",
               LOCK_PATTERN_MAX);
    return false;
}

void lock_patterns_init(struct lock_patterns *patterns, const char *const *texts, size_t count)
{
    *patterns = (struct lock_patterns){.count = count};
    if (count == 0)
        return;
    patterns->texts = mem_alloc(count * sizeof *patterns->texts);
    for (size_t i = 0; i < count; i++)
        patterns->texts[i] = mem_strdup(texts[i]);
}

void lock_patterns_free(struct lock_patterns *patterns)
{
    for (size_t i = 0; i < patterns->count; i++)
        free(patterns->texts[i]);
    free(patterns->texts);
    *patterns = (struct lock_patterns){0};
}

static bool fits(const char *pattern, struct bytes key, struct bytes *resource)
{
    const char *star = strchr(pattern, '*');
    check(star != NULL);
    size_t before = (size_t)(star - pattern), behind = strlen(star + 1);

    if (key.len <= before + behind || memcmp(key.data, pattern, before) != 0 ||
        memcmp(key.data + key.len - behind, star + 1, behind) != 0)
        return false;
    *resource = (struct bytes){key.data + before, key.len - before - behind};
    return true;
}

bool lock_patterns_match(const struct lock_patterns *patterns, struct bytes key,
                         struct bytes *resource)
{
    for (size_t i = 0; i < patterns->count; i++)
        if (fits(patterns->texts[i], key, resource))
            return true;
    return false;
}
