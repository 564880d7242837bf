/* SPDX-License-Identifier: Apache-2.0 */
#include "store/reasons.h"

#include <string.h>

void reasons_init(struct store_reasons *reasons)
{
    pthread_mutex_init(&reasons->lock, NULL);
    reasons->count = 0;
}

void reasons_destroy(struct store_reasons *reasons)
{
    pthread_mutex_destroy(&reasons->lock);
}

void reasons_fail(struct store_reasons *reasons, struct store_op *op, const char *why)
{
    char text[STORE_WHY_MAX];
    size_t len = 0, i = 0;

    for (; why[len] != '\0' && len + 1 < sizeof text; len++)
        text[len] = why[len] >= ' ' && why[len] <= '~' ? why[len] : '?';
    text[len] = '\0';
    op->error = STK_STORE;
    pthread_mutex_lock(&reasons->lock);
    while (i < reasons->count && strcmp(reasons->texts[i], text) != 0)
        i++;
    if (i == reasons->count && i < STORE_REASONS_MAX)
        memcpy(reasons->texts[reasons->count++], text, len + 1);
    op->why = i < STORE_REASONS_MAX ? reasons->texts[i] : NULL;
    pthread_mutex_unlock(&reasons->lock);
}
