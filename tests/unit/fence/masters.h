/* SPDX-License-Identifier: Apache-2.0 */
/* Redlock over in-memory masters, under a clock that the test turns. */
#ifndef STOCKADE_TESTS_MASTERS_H
#define STOCKADE_TESTS_MASTERS_H

#include "fence/lease/redlock/redlock.h"
#include "tests/twins/memory_lease.h"

#define MASTERS_MAX 5

/* One daemon, and what it has been told. */
struct client {
    struct masters *masters;
    struct lease_provider *provider;
    struct redlock_timer timer;
    int64_t fires_ms; /* -1: it is not set */
    int told;
    struct lease_news news; /* the last; its resource is not kept */
};

struct masters {
    struct clock clock;
    int64_t now_ms;
    uint32_t dice;
    struct chance chance;
    int count;
    struct lease_service *services[MASTERS_MAX];
    struct client clients[2];
};

/* Set up two daemons on `count` masters. */
struct masters *masters_new(int count);
void masters_free(struct masters *masters);
/* Let so much time pass, step by step: answers arrive, timers fire. */
void masters_pass(struct masters *masters, int64_t ms);

#endif
