/* SPDX-License-Identifier: Apache-2.0 */
/* Hands calls on to the store behind the interface. No logic of its own. */
#include "store/store.h"

#include "store/store_impl.h"

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
