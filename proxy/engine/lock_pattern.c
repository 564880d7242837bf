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
    patterns->all = mem_alloc(count * sizeof *patterns->all);
    for (size_t i = 0; i < count; i++) {
        const char *star = strchr(texts[i], '*');
        check(star != NULL);
        patterns->all[i] = (struct lock_pattern){.text = mem_strdup(texts[i]),
                                                 .before = (size_t)(star - texts[i]),
                                                 .behind = strlen(star + 1)};
    }
}

void lock_patterns_free(struct lock_patterns *patterns)
{
    for (size_t i = 0; i < patterns->count; i++)
        free(patterns->all[i].text);
    free(patterns->all);
    *patterns = (struct lock_patterns){0};
}

static bool fits(const struct lock_pattern *pattern, struct bytes key, struct bytes *resource)
{
    size_t before = pattern->before, behind = pattern->behind;

    if (key.len <= before + behind || (before > 0 && key.data[0] != pattern->text[0]) ||
        memcmp(key.data, pattern->text, before) != 0 ||
        memcmp(key.data + key.len - behind, pattern->text + before + 1, behind) != 0)
        return false;
    *resource = (struct bytes){key.data + before, key.len - before - behind};
    return true;
}

bool lock_patterns_match(const struct lock_patterns *patterns, struct bytes key,
                         struct bytes *resource)
{
    for (size_t i = 0; i < patterns->count; i++)
        if (fits(&patterns->all[i], key, resource))
            return true;
    return false;
}
