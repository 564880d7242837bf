/* SPDX-License-Identifier: Apache-2.0 */
/* P8: nobody waits for longer than they have to, nobody is overtaken at their daemon, and clients
 * are told in bounded time that a lease service is away. */
#include "tests/sim/daemon.h"
#include "tests/sim/oracle_impl.h"
#include "tests/sim/redis.h"

/* From a free lock to a grant: a poll each second, a call that times out, the store. */
#define FREE_MAX_US 2500000
/* Messages that were sent while something was wrong have arrived by then. */
#define STRAGGLERS_US 2000000
/* For an answer, besides the WAIT asked for: some calls of the lease service that time out one
 * after the other, and a slow disk. */
#define ANSWER_MAX_US 6000000

/* Is the call waiting in its daemon's line? */
static bool waits(const struct world *world, const struct call *call)
{
    return call->verb == VERB_ACQUIRE && call->wait_ms > 0 && call->link->conn.session != NULL &&
           world->now_us < call->arrived_us + call->wait_ms * 995;
}

void oracle_line(struct oracle *oracle, const struct call *call, int64_t token)
{
    struct world *world = oracle->world;

    /* An owner that enters again holds the lease already, and waits for nobody. */
    if (call->owner >= 0 || token <= call->tokens_then[0])
        return;
    oracle_check(oracle, P8_LIVE);
    for (const struct call *other = oracle->waiting; other != NULL; other = other->waiting)
        if (waits(world, other) && other->link->daemon == call->link->daemon &&
            other->resources[0] == call->resources[0] && other->arrival < call->arrival &&
            other->owner < 0)
            world_break(world, P8_LIVE,
                        "client %d got %s at daemon %d before client %d, who came first",
                        call->client, resource_names[call->resources[0]], call->link->daemon,
                        other->client);
}

/* Did anybody ask for it to end before now? Its owner can, by an ACQUIREALL: entering again
 * shortens nothing, but an ACQUIREALL renews what it has for its own TTL. */
static bool was_shortened(const struct oracle *oracle, const struct grant *grant)
{
    int64_t now_us = oracle->world->now_us;

    for (const struct call *call = oracle->calls; call != NULL; call = call->next) {
        bool renews = call->verb == VERB_RENEW && call->tokens[0] == grant->token;
        bool enters = call->verb == VERB_ACQUIRE_ALL && grant->owner >= 0 &&
                      call->owner == grant->owner && call->arrived_us > grant->asked_us;
        bool over = call->arrived_us + call->ttl_ms * 990 <= now_us;
        for (int i = 0; over && (renews || enters) && i < call->count; i++)
            if (call->resources[i] == grant->resource)
                return true;
    }
    return false;
}

/* Until when something was wrong that explains why a lease is gone before its time. A single Redis
 * that keeps its state and its clock keeps its locks, whatever else goes wrong; several may lose
 * them where a minority is in trouble. */
static int64_t excused_us(const struct world *world)
{
    return world->plan->provider == PROVIDER_REDIS ? world->amnesia_us : world->trouble_us;
}

void oracle_alone(struct oracle *oracle, const struct grant *known, const struct grant *grant)
{
    struct world *world = oracle->world;

    /* In the store a lease passes on in the commit that ends it, which cannot be told from here. */
    if (world->plan->provider == PROVIDER_LOCAL)
        return;
    if (known->token >= grant->token || world->now_us >= known->until_us ||
        oracle->seen[known->resource].retired >= known->token ||
        known->told_us < excused_us(world) + STRAGGLERS_US || was_shortened(oracle, known))
        return;
    world_break(world, P8_LIVE, "client %d has %s for %lld ms still, and client %d gets it",
                known->client, resource_names[known->resource],
                (long long)(known->until_us - world->now_us) / 1000, grant->client);
}

/* Return since when a quorum of the masters has no lock; -1: there is no such quorum. */
static int64_t free_since_us(const struct world *world, const char *name)
{
    int64_t since_us[MASTERS_MAX];
    int count = 0, quorum = world->plan->masters / 2 + 1;

    for (int i = 0; i < world->plan->masters; i++) {
        int64_t us = redis_free_since_us(world->redises[i], name);
        if (us < 0)
            continue;
        int at = count++;
        for (; at > 0 && since_us[at - 1] > us; at--)
            since_us[at] = since_us[at - 1];
        since_us[at] = us;
    }
    return count < quorum ? -1 : since_us[quorum - 1];
}

/* A turn that is not taken passes on after a second. */
static int64_t free_max_us(const struct world *world)
{
    return FREE_MAX_US + (world->plan->queue_per_mille > 0 ? world->plan->clients * 1100000 : 0);
}

/* The lock is free and the service can be reached: has the client waited for too long? */
static void judge_wait(struct oracle *oracle, const struct call *call)
{
    struct world *world = oracle->world;
    const struct daemon *daemon = &world->daemons[call->link->daemon];
    int64_t since_us = free_since_us(world, resource_names[call->resources[0]]);

    if (since_us < 0)
        return;
    if (since_us < world->trouble_us)
        since_us = world->trouble_us;
    if (since_us < call->arrived_us)
        since_us = call->arrived_us;
    oracle_check(oracle, P8_LIVE);
    if (world->now_us - since_us > free_max_us(world) &&
        daemon->pauses_us == call->arrived_pauses_us)
        world_break(world, P8_LIVE, "client %d waits for %s, which is free since %lld ms",
                    call->client, resource_names[call->resources[0]],
                    (long long)(world->now_us - since_us) / 1000);
}

static void judge_answer(struct oracle *oracle, const struct call *call)
{
    struct world *world = oracle->world;
    const struct daemon *daemon = &world->daemons[call->link->daemon];
    int64_t slept_us = daemon->pauses_us - call->arrived_pauses_us;
    int64_t age_us = world->now_us - call->arrived_us - slept_us;
    char text[300];

    oracle_check(oracle, P8_LIVE);
    if (age_us <= ANSWER_MAX_US + call->wait_ms * 1005)
        return;
    call_describe(call, text, sizeof text);
    world_break(world, P8_LIVE, "client %d has no answer from daemon %d since %lld ms: %s",
                call->client, call->link->daemon, (long long)age_us / 1000, text);
}

void oracle_live(struct oracle *oracle)
{
    struct world *world = oracle->world;

    for (const struct call *call = oracle->waiting; call != NULL; call = call->waiting) {
        if (call->link->conn.session == NULL ||
            party_is_paused(world, &world->daemons[call->link->daemon].party))
            continue;
        judge_answer(oracle, call);
        if (world->plan->provider != PROVIDER_LOCAL && waits(world, call))
            judge_wait(oracle, call);
    }
}
