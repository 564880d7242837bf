/* SPDX-License-Identifier: Apache-2.0 */
/* A lease provider, as its implementers see it: embed `struct lease_provider` first in your own
 * struct, point `impl` at your table, and keep the promises of provider.h. */
#ifndef STOCKADE_FENCE_LEASE_PROVIDER_IMPL_H
#define STOCKADE_FENCE_LEASE_PROVIDER_IMPL_H

#include "fence/lease/provider.h"

struct lease_provider_impl {
    const char *name;
    bool relies_on_store; /* see lease_provider_relies_on_store */
    bool own_clock;       /* its leases end by the very clock of its callers */
    /* True: it has answered at once, and lease_ask calls `done`. False: it will answer, and calls
     * `done` itself. */
    bool (*ask)(struct lease_provider *provider, struct lease_call *call);
    /* NULL where there is nobody to hear of. */
    void (*watch)(struct lease_provider *provider,
                  void (*on_news)(void *context, const struct lease_news *news), void *context);
    struct lease_health (*health)(const struct lease_provider *provider);
    void (*close)(struct lease_provider *provider, void (*closed)(void *context), void *context);
    /* See lease_on_first_attempt. NULL where there is nothing to reach. */
    void (*on_first_attempt)(struct lease_provider *provider, void (*ended)(void *context),
                             void *context);
};

struct lease_provider {
    const struct lease_provider_impl *impl;
};

/* Fills in the answer; returns true, so that an `ask` can end with it. The lease lives `ttl_ms`
 * from some moment after it was asked for. */
bool lease_answer(struct lease_call *call, enum lease_answer answer, int64_t token, int64_t ttl_ms);
bool lease_answer_down(struct lease_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
