/* SPDX-License-Identifier: Apache-2.0 */
#include "store/reasons.h"

#include <string.h>

#include "fence/base/clock.h"

void reasons_init(struct store_reasons *reasons)
{
    pthread_mutex_init(&reasons->lock, NULL);
    reasons->count = 0;
}

void reasons_destroy(struct store_reasons *reasons)
{
    pthread_mutex_destroy(&reasons->lock);
}

/* Return a place for a new text, STORE_REASONS_MAX if there is none. The lock is held. */
static size_t room(struct store_reasons *reasons, int64_t now_ms)
{
    if (reasons->count < STORE_REASONS_MAX)
        return reasons->count++;
    for (size_t i = 0; i < STORE_REASONS_MAX; i++)
        if (now_ms - reasons->all[i].given_ms > STORE_REASONS_KEPT_MS)
            return i;
    return STORE_REASONS_MAX;
}

void reasons_fail(struct store_reasons *reasons, struct store_op *op, const char *why)
{
    char text[STORE_WHY_MAX];
    size_t len = 0, i = 0;
    int64_t now_ms = clock_now_ms(&clock_monotonic);

    for (; why[len] != '\0' && len + 1 < sizeof text; len++)
        text[len] = why[len] >= ' ' && why[len] <= '~' ? why[len] : '?';
    text[len] = '\0';
    op->error = STK_STORE;
    pthread_mutex_lock(&reasons->lock);
    while (i < reasons->count && strcmp(reasons->all[i].text, text) != 0)
        i++;
    if (i == reasons->count && (i = room(reasons, now_ms)) < STORE_REASONS_MAX)
        memcpy(reasons->all[i].text, text, len + 1);
    op->why = NULL;
    if (i < STORE_REASONS_MAX) {
        reasons->all[i].given_ms = now_ms;
        op->why = reasons->all[i].text;
    }
    pthread_mutex_unlock(&reasons->lock);
}
