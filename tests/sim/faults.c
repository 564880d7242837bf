/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of fault does. A fault that lasts ends by an event of its own, or in the calm. */
#include "tests/sim/client.h"
#include "tests/sim/daemon.h"
#include "tests/sim/disk.h"
#include "tests/sim/redis.h"
#include "tests/sim/run.h"

#define RECOVERY_US 600000 /* connections to the lease service are made again */

static void trouble(struct world *world, int64_t ms)
{
    int64_t until_us = world->now_us + ms * 1000 + RECOVERY_US;
    if (until_us > world->trouble_us)
        world->trouble_us = until_us;
}

/* The lease service may have forgotten what it was asked to keep, or kept it for another time. */
static void amnesia(struct world *world, const struct fault *fault)
{
    int64_t until_us = world->now_us;

    if (fault->kind == FAULT_REDIS_DRIFT)
        until_us += fault->length_ms * 1000;
    else if (fault->kind != FAULT_REDIS_FLUSH && fault->kind != FAULT_REDIS_STALE &&
             fault->kind != FAULT_REDIS_BACK)
        return;
    if (until_us > world->amnesia_us)
        world->amnesia_us = until_us;
}

static void strike_redis(struct redis *redis, const struct fault *fault, bool begins)
{
    switch (fault->kind) {
    case FAULT_REDIS_DOWN: redis_set_down(redis, begins); break;
    case FAULT_REDIS_DRIFT:
        redis_set_rate(redis, begins ? fault->amount * fault->amount / 250 + 100 : 1000);
        break;
    case FAULT_REDIS_FLUSH: redis_flush(redis); break;
    case FAULT_REDIS_STALE:
        redis_break_links(redis);
        redis_go_back(redis);
        break;
    case FAULT_REDIS_BACK: redis_go_back(redis); break;
    default: break;
    }
}

/* Of several masters a fault strikes some neighbours: a minority, more, or all. */
static void strike_redises(struct world *world, const struct fault *fault, bool begins)
{
    int masters = world->plan->masters;
    int struck = 1 + (int)(fault->amount % masters);

    for (int i = 0; i < struck; i++)
        strike_redis(world->redises[(fault->at_ms + i) % masters], fault, begins);
}

static void end(void *context, struct event *event)
{
    struct world *world = context;
    const struct fault *fault = &world->plan->faults[event->value];

    switch (fault->kind) {
    case FAULT_SLOW: world->slow_net_per_mille = 0; break;
    case FAULT_LOST: world->lossy_per_mille = 0; break;
    case FAULT_DOUBLED: world->doubling_per_mille = 0; break;
    case FAULT_CUT: world->cutting_per_mille = 0; break;
    case FAULT_REDIS_DOWN:
    case FAULT_REDIS_DRIFT: strike_redises(world, fault, false); break;
    default: break;
    }
}

/* Weather between everybody, or trouble of the lease service, for a while. */
static bool begin_lasting(struct world *world, const struct fault *fault)
{
    switch (fault->kind) {
    case FAULT_SLOW: world->slow_net_per_mille = (int)fault->amount / 4; break;
    case FAULT_LOST: world->lossy_per_mille = (int)fault->amount / 5; break;
    case FAULT_DOUBLED: world->doubling_per_mille = (int)fault->amount / 3; break;
    case FAULT_CUT: world->cutting_per_mille = (int)fault->amount / 10; break;
    case FAULT_REDIS_DOWN:
    case FAULT_REDIS_DRIFT: strike_redises(world, fault, true); break;
    default: return false;
    }
    trouble(world, fault->length_ms);
    world_at(world, world->now_us + fault->length_ms * 1000, NULL, end, world)->value =
        fault - world->plan->faults;
    return true;
}

static void strike_disk(struct world *world, const struct fault *fault)
{
    switch (fault->kind) {
    case FAULT_DISK_FULL: disk_set_full(world->disk, fault->length_ms); break;
    case FAULT_DISK_REFUSES: disk_refuse_next(world->disk); break;
    case FAULT_DISK_UNSURE: disk_unsure_next(world->disk, fault->amount % 2 == 0); break;
    case FAULT_DISK_TORN: disk_tear_next(world->disk); break;
    default: break;
    }
}

/* By hours, ahead or back: nothing but dates may show it. */
static void set_wall(struct world *world, const struct fault *fault)
{
    int64_t hours = fault->at_ms % 3 == 0 ? -fault->amount : fault->amount;

    world->wall_ahead_us += hours * 3600 * 1000000;
    world_tell(world, "the wall clock is set by %lld hours", (long long)hours);
    world_count_fault(world, fault->kind);
}

static void strike(void *context, struct event *event)
{
    struct world *world = context;
    const struct fault *fault = &world->plan->faults[event->value];
    struct daemon *daemon = &world->daemons[fault->who % world->plan->daemons];
    struct client *client = world->clients[fault->who % world->plan->clients];

    if (fault->kind == FAULT_WALL_JUMP) {
        set_wall(world, fault);
        return;
    }
    if (fault->kind > FAULT_CUT)
        world_tell(world, "fault: %s (for %lld ms, amount %lld)", fault_name(fault->kind),
                   (long long)fault->length_ms, (long long)fault->amount);
    trouble(world, 0);
    amnesia(world, fault);
    switch (fault->kind) {
    case FAULT_DAEMON_CRASH:
        world->tally->faults[fault->kind] += daemon->up;
        daemon_crash(daemon, fault->length_ms / 3);
        return;
    case FAULT_DAEMON_DRAIN: daemon_drain(daemon, fault->length_ms / 3); return;
    case FAULT_DAEMON_PAUSE: daemon_pause(daemon, fault->length_ms); return;
    case FAULT_CLIENT_DEATH: client_die(client, fault->length_ms, fault->amount % 2 == 0); return;
    case FAULT_CLIENT_PAUSE:
        world_tell(world, "client %d pauses for %lld ms", client->number,
                   (long long)fault->length_ms);
        party_pause(world, &client->party, fault->length_ms * 1000);
        break;
    default:
        if (!begin_lasting(world, fault)) {
            strike_disk(world, fault);
            strike_redises(world, fault, true);
        }
    }
    if (fault->kind != FAULT_SLOW && fault->kind != FAULT_LOST && fault->kind != FAULT_DOUBLED &&
        fault->kind != FAULT_CUT)
        world_count_fault(world, fault->kind);
}

static void mark(void *context, struct event *event)
{
    struct world *world = context;

    for (int i = 0; i < world->plan->masters; i++)
        redis_mark(world->redises[i]);
    if (!world->calm)
        world_at(world, world->now_us + event->value, NULL, mark, world)->value = event->value;
}

static void calm(void *context, struct event *event)
{
    struct world *world = context;

    (void)event;
    world_tell(world, "from here on nothing fails any more");
    world->calm = true;
    world->slow_net_per_mille = world->lossy_per_mille = 0;
    world->doubling_per_mille = world->cutting_per_mille = 0;
    for (int i = 0; i < world->plan->masters; i++) {
        redis_set_down(world->redises[i], false);
        redis_set_rate(world->redises[i], 1000);
    }
    disk_set_full(world->disk, 0);
    world->wall_ahead_us = 0;
    trouble(world, 1000);
}

void faults_schedule(struct world *world)
{
    const struct plan *plan = world->plan;
    struct rng rng = rng_of(plan->seed, 'm', 0);
    int64_t every_us = rng_between(&rng, 20000, 2000000);

    for (int i = 0; i < plan->faults_count; i++)
        if (!plan->faults[i].left_out)
            world_at(world, plan->faults[i].at_ms * 1000, NULL, strike, world)->value = i;
    world_at(world, every_us, NULL, mark, world)->value = every_us;
    world_at(world, plan->faults_end_ms * 1000, NULL, calm, world);
}
