/* SPDX-License-Identifier: Apache-2.0 */
/* A lease provider, as its implementers see it. Embed `struct lease_provider` first in a struct of
 * your own, which malloc gave you, point `impl` at your table, and keep the promises of provider.h.
 */
#ifndef STOCKADE_FENCE_LEASE_PROVIDER_IMPL_H
#define STOCKADE_FENCE_LEASE_PROVIDER_IMPL_H

#include "fence/lease/provider.h"

struct lease_provider_impl {
    const char *name;
    bool relies_on_store; /* see lease_provider_relies_on_store */
    bool own_clock;       /* its leases end by the very clock of its callers */
    /* True: it has been answered already. False: it will be, with lease_answered. */
    bool (*ask)(struct lease_provider *provider, struct lease_call *call);
    /* Somebody listens to lease_tell from now on. NULL where nothing has to be done for it. */
    void (*watch)(struct lease_provider *provider);
    /* Fill in `up`, `detail`, `reconnects` and `watching`. */
    void (*health)(const struct lease_provider *provider, struct lease_health *health);
    /* Answer what is under way, and call lease_provider_closed when nothing of it is left. */
    void (*close)(struct lease_provider *provider);
    /* See lease_on_first_attempt. NULL where there is nothing to reach. */
    void (*on_first_attempt)(struct lease_provider *provider, void (*ended)(void *context),
                             void *context);
};

struct lease_provider {
    const struct lease_provider_impl *impl;
    /* The rest is kept by provider.c. */
    void (*on_news)(void *context, const struct lease_news *news); /* NULL: nobody watches */
    void *news_context;
    void (*closed)(void *context);
    void *closed_context;
    uint64_t calls, failures, news;
};

/* Give a call its answer, which has come after `ask` had returned. */
void lease_answered(struct lease_provider *provider, struct lease_call *call);
/* Pass news on, where somebody watches. */
void lease_tell(struct lease_provider *provider, const struct lease_news *news);
/* Free the provider, and say so. */
void lease_provider_closed(struct lease_provider *provider);

/* Fill in the answer, and return true, so that an `ask` can end with it. The lease lives `ttl_ms`
 * from some moment after it was asked for. */
bool lease_answer(struct lease_call *call, enum lease_answer answer, int64_t token, int64_t ttl_ms);
bool lease_answer_down(struct lease_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
