/* SPDX-License-Identifier: Apache-2.0 */
/* The inside, shared by redlock.c (the provider) and round.c (one call). */
#ifndef STOCKADE_FENCE_LEASE_REDLOCK_REDLOCK_IMPL_H
#define STOCKADE_FENCE_LEASE_REDLOCK_REDLOCK_IMPL_H

#include "fence/base/heap.h"
#include "fence/lease/provider_impl.h"
#include "fence/lease/redlock/ballot.h"
#include "fence/lease/redlock/news_votes.h"
#include "fence/lease/redlock/redlock.h"

/* One of the masters, and what its callbacks need to find the way home. */
struct redlock_master {
    struct redlock *redlock;
    struct lease_provider *provider;
    int number;
};

struct redlock {
    struct lease_provider base;
    struct redlock_surroundings env;
    struct redlock_master masters[BALLOT_MASTERS_MAX];
    int count;
    struct list rounds; /* under way, answered or not */
    struct heap pauses; /* rounds that try again later */
    bool closing;
    uint64_t calls, failures, news;

    struct news_votes news_votes;
    void (*on_news)(void *context, const struct lease_news *news);
    void *news_context;
    int first_open; /* masters whose first attempt has not ended */
    void (*first)(void *context);
    void *first_context;
    int handles; /* masters, alarm and the one who closes */
    void (*closed)(void *context);
    void *closed_context;
};

/* round.c. Begins a call; true: it is answered already. */
bool round_begin(struct redlock *redlock, struct lease_call *call);
/* Goes on with the rounds whose pause is over; then sets the alarm. */
void rounds_go_on(struct redlock *redlock);
/* Answers those that pause; the others are answered by what their masters say while they close. */
void rounds_close(struct redlock *redlock);

#endif
