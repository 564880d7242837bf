/* SPDX-License-Identifier: Apache-2.0 */
/* Hands calls on to the store behind the interface, and keeps the reasons of failures. */
#include "store/store.h"

#include <string.h>

#include "store/store_impl.h"

void store_op_fail(struct store_op *op, struct store_reasons *reasons, const char *why)
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

enum stk_error store_submit(struct store *store, struct store_op *op)
{
    return store->impl->submit(store, op);
}

bool store_flush(struct store *store)
{
    return store->impl->flush != NULL && store->impl->flush(store);
}

void store_collect(struct store *store)
{
    store->impl->collect(store);
}

bool store_step(struct store *store)
{
    return store->impl->step(store);
}

bool store_lost(const struct store *store)
{
    return store->impl->lost(store);
}

int64_t store_session(const struct store *store)
{
    return store->impl->session(store);
}

struct store_stats store_stats(const struct store *store)
{
    return store->impl->stats(store);
}

void store_close(struct store *store)
{
    store->impl->close(store);
}
