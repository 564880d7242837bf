/* SPDX-License-Identifier: Apache-2.0 */
/* The course of a run: faults as planned, then calm, in which everybody has to finish. */
#include "tests/sim/run.h"

#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include "tests/sim/client.h"
#include "tests/sim/daemon.h"
#include "tests/sim/disk.h"
#include "tests/sim/oracle.h"
#include "tests/sim/redis.h"

#define CHECK_EVERY_US 50000
/* Far more than a run takes: then somebody asks on and on. */
#define EVENTS_MAX 500000
#define CPU_S_MAX  10

static void check_live(void *context, struct event *event)
{
    struct world *world = context;

    (void)event;
    oracle_live(world->oracle);
    world_at(world, world->now_us + CHECK_EVERY_US, NULL, check_live, world);
}

static bool all_done(const struct world *world)
{
    for (int i = 0; i < world->plan->clients; i++)
        if (!world->clients[i]->done)
            return false;
    return true;
}

static void carry_out(struct world *world)
{
    int64_t end_us = world->plan->end_ms * 1000;
    int events = 0;

    while (world->broken == PROMISE_NONE && !(world->calm && all_done(world)) &&
           world_step(world, end_us))
        if (++events > EVENTS_MAX)
            world_break(world, P8_LIVE, "%d events and no end", EVENTS_MAX);
    if (world->broken != PROMISE_NONE)
        return;
    for (int i = 0; i < world->plan->clients; i++)
        if (!world->clients[i]->done)
            world_break(world, P8_LIVE, "client %d is not done %lld ms after the last fault", i,
                        (long long)(world->plan->end_ms - world->plan->faults_end_ms));
    oracle_committed(world->oracle);
    oracle_end(world->oracle);
}

static void world_open(struct world *world)
{
    digest_start(&world->digest);
    /* From which the store has the digits of a token that goes on from the time. */
    sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, (int)(world->plan->seed | 1), NULL);
    sqlite3_randomness(0, NULL);
    world_tell(world, "seed %llu: %d daemons, %d clients, leases by %s, stored by %s",
               (unsigned long long)world->plan->seed, world->plan->daemons, world->plan->clients,
               provider_name(world->plan->provider),
               world->plan->disk == DISK_SQLITE ? "SQLite" : "memory");
    world->oracle = oracle_new(world);
    for (int i = 0; i < world->plan->masters; i++)
        world->redises[i] = redis_new(world, i);
    world->disk = disk_new(world);
    daemons_new(world);
    clients_new(world);
    faults_schedule(world);
    world_at(world, CHECK_EVERY_US, NULL, check_live, world);
}

static void world_close(struct world *world)
{
    daemons_free(world);
    links_free(world);
    world_free_events(world);
    clients_free(world);
    disk_free(world->disk);
    for (int i = 0; i < world->plan->masters; i++)
        redis_free(world->redises[i]);
    oracle_free(world->oracle);
}

/* Where a broken invariant in the product ends up, which would otherwise end the process: the run
 * is lost, and so is its memory. */
static sigjmp_buf aborted;

static void on_abort(int signal)
{
    siglongjmp(aborted, signal);
}

/* What stops the run from outside: a broken invariant, or no end. */
static const int stops[] = {SIGABRT, SIGSEGV, SIGVTALRM};

static void stops_set(const struct sigaction *action)
{
    const struct itimerval limit = {.it_value.tv_sec =
                                        action->sa_handler == on_abort ? CPU_S_MAX : 0};

    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        sigaction(stops[i], action, NULL);
    setitimer(ITIMER_VIRTUAL, &limit, NULL);
}

struct outcome_of_run run_plan(const struct plan *plan, struct tally *tally, struct buf *story)
{
    struct world world = {.plan = plan, .tally = tally, .story = story};
    struct outcome_of_run outcome = {.broken = SANE};

    stops_set(&(struct sigaction){.sa_handler = on_abort, .sa_flags = SA_NODEFER});
    int signal = sigsetjmp(aborted, 1);
    if (signal == 0) {
        world_open(&world);
        carry_out(&world);
        outcome.broken = world.broken;
        memcpy(outcome.why, world.why, sizeof outcome.why);
        outcome.digest = world.digest.hash;
        for (int i = 0; i < plan->clients; i++) {
            outcome.rounds[i] = world.clients[i]->round;
            memcpy(outcome.round_starts_us[i], world.clients[i]->round_starts_us,
                   sizeof outcome.round_starts_us[i]);
        }
        world_close(&world);
    } else {
        snprintf(outcome.why, sizeof outcome.why, "the product %s: %s",
                 signal == SIGVTALRM ? "hangs" : "ended the process", strsignal(signal));
    }
    outcome.end_ms = world.now_us / 1000;
    tally->virtual_ms += (uint64_t)outcome.end_ms;
    stops_set(&(struct sigaction){.sa_handler = SIG_DFL});
    return outcome;
}
