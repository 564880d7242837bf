/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated daemon: the product's engine, a store over the shared disk, a lease provider, a clock
 * of its own. It crashes between any two events, stops in order, pauses, and starts again. */
#ifndef STOCKADE_TESTS_SIM_DAEMON_H
#define STOCKADE_TESTS_SIM_DAEMON_H

#include "fence/base/clock.h"
#include "fence/lease/redlock/redlock.h"
#include "proxy/engine/engine.h"
#include "tests/sim/world.h"

/* Every fourth seed has an audit, of which all is to be on its disk before a reply leaves. That
 * takes so long at most, and is gone of the TTL that the reply tells. */
enum { AUDITED_SEEDS = 4, AUDIT_MAX_US = 4000 };

enum { DAEMON_HISTORY_MAX = 100 }; /* entries: few, so that some make room */

struct daemon {
    struct world *world;
    int number;
    struct party party;
    bool up;
    struct clock clock;
    int64_t clock_ms, rate_ppm; /* where its clock began, how fast it runs */
    struct rng rng;
    struct chance chance;
    struct store *store;
    struct lease_provider *provider;
    struct lease_provider *masters[MASTERS_MAX]; /* behind it, or the provider itself */
    struct {
        struct redlock_timer timer;
        int64_t fires_us; /* the last time that was set */
        struct clock clock;
        bool over;          /* nothing pauses any more */
    } redlock;              /* where the provider is one */
    uint64_t audit_tickets; /* handed out */
    bool audit_busy;        /* they are about to be synced */
    struct engine *engine;
    int64_t timer_us; /* the engine's next turn is scheduled for; -1: it is not */
    int64_t started_us;
    int64_t pauses_us; /* that it has slept in all */
};

void daemons_new(struct world *world);
void daemons_free(struct world *world);
/* After anything that happened to the engine. */
void daemon_turn(struct daemon *daemon);
void daemon_pause(struct daemon *daemon, int64_t ms);
/* kill -9; it comes back after `ms`. */
void daemon_crash(struct daemon *daemon, int64_t ms);
/* SIGTERM, and its end after `ms`. */
void daemon_drain(struct daemon *daemon, int64_t ms);
/* The machine's power goes in `us`; 0: right after the event under way. All daemons die. */
void daemon_power_off(struct world *world, int64_t us);

#endif
