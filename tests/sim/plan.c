/* SPDX-License-Identifier: Apache-2.0 */
/* From a seed to a plan. Quiet runs and wild ones, few and many at once, each seed its own mixture:
 * a fault that is in every run hides what happens without it. */
#include "tests/sim/plan.h"

#include "tests/sim/chance.h"

#define REDLOCK_PER_MILLE 300 /* of the runs on Redis */

static const char *const fault_names[FAULT_KINDS] = {
#define X(name, text) [FAULT_##name] = (text),
    FAULT_MAP(X)
#undef X
};

const char *fault_name(enum fault_kind kind)
{
    return fault_names[kind];
}

const char *promise_name(enum promise promise)
{
    static const char *const names[PROMISES] = {"nothing",    "P1 fenced", "P2 rising", "P3 issued",
                                                "P4 durable", "P5 atomic", "P6 once",   "P8 live",
                                                "history",    "good sense"};
    return names[promise];
}

static void add_fault(struct plan *plan, struct rng *rng, enum fault_kind kind)
{
    struct fault *fault = &plan->faults[plan->faults_count++];

    fault->kind = kind;
    fault->at_ms = rng_between(rng, 100, plan->faults_end_ms - 100);
    fault->length_ms = rng_between(rng, 1, 10) * rng_between(rng, 1, 10) * rng_between(rng, 1, 30);
    fault->amount = rng_between(rng, 1, 1000);
    fault->who = (int)rng_below(rng, kind == FAULT_CLIENT_PAUSE || kind == FAULT_CLIENT_DEATH
                                         ? plan->clients
                                         : plan->daemons);
}

const char *provider_name(enum provider_kind provider)
{
    return (const char *const[]){"Redis", "local:", "Redlock"}[provider];
}

/* Some kinds of fault, some of each. */
static void make_faults(struct plan *plan, struct rng *rng)
{
    int64_t kinds_per_mille = rng_between(rng, 0, 600);

    for (int kind = 0; kind < FAULT_KINDS; kind++) {
        bool lease_service = kind >= FAULT_LOST && kind <= FAULT_REDIS_DRIFT;
        if (!rng_per_mille(rng, kinds_per_mille) ||
            (lease_service && plan->provider == PROVIDER_LOCAL))
            continue;
        for (int64_t count = rng_between(rng, 1, 4); count > 0; count--)
            if (plan->faults_count < FAULTS_MAX)
                add_fault(plan, rng, (enum fault_kind)kind);
    }
}

/* Each of these draws from random numbers of its own, so that the rest of a seed's plan stays as it
 * was. */
static void choose_masters(struct plan *plan)
{
    struct rng rng = rng_of(plan->seed, 'Q', 0);

    plan->masters = 1;
    if (plan->provider != PROVIDER_REDIS || !rng_per_mille(&rng, REDLOCK_PER_MILLE))
        return;
    plan->provider = PROVIDER_REDLOCK;
    plan->masters = rng_per_mille(&rng, 800) ? 5 : 3;
}

static void choose_queue(struct plan *plan)
{
    struct rng rng = rng_of(plan->seed, 'L', 0);
    plan->queue_per_mille = rng_per_mille(&rng, 500) ? 0 : (int)rng_between(&rng, 100, 900);
}

static void choose_looks(struct plan *plan)
{
    struct rng rng = rng_of(plan->seed, 'H', 0);
    plan->looks_per_mille = rng_per_mille(&rng, 700) ? 0 : (int)rng_between(&rng, 100, 900);
}

static void choose_again(struct plan *plan)
{
    struct rng rng = rng_of(plan->seed, 'A', 0);
    plan->again_per_mille = rng_per_mille(&rng, 500) ? 0 : (int)rng_between(&rng, 10, 500);
}

void plan_of_seed(struct plan *plan, uint64_t seed)
{
    struct rng rng = rng_of(seed, 'P', 0);

    *plan = (struct plan){.seed = seed};
    plan->daemons = (int)rng_between(&rng, 1, DAEMONS_MAX);
    plan->clients = (int)rng_between(&rng, 4, rng_per_mille(&rng, 300) ? CLIENTS_MAX : 8);
    plan->provider = rng_per_mille(&rng, 850) ? PROVIDER_REDIS : PROVIDER_LOCAL;
    choose_masters(plan);
    choose_queue(plan);
    choose_looks(plan);
    choose_again(plan);
    plan->disk = rng_per_mille(&rng, 900) ? DISK_MEMORY : DISK_SQLITE;
    plan->faults_end_ms = rng_between(&rng, 2000, rng_per_mille(&rng, 200) ? 15000 : 5000);
    plan->end_ms = plan->faults_end_ms + 120000;
    plan->ttl_max_ms = rng_per_mille(&rng, 500) ? 500 : 3000;
    plan->forget_ms = rng_per_mille(&rng, 300) ? rng_between(&rng, 1, 2000) : 0;
    plan->batch_max = rng_per_mille(&rng, 500) ? 1 : 100;
    plan->logs = (int)rng_between(&rng, 1, 3);
    for (int i = 0; i < 8; i++)
        plan->weights[i] = rng_per_mille(&rng, 300) ? 0 : (int)rng_between(&rng, 1, 10);
    plan->weights[0] += 2;
    plan->quick_per_mille = (int)rng_between(&rng, 0, 1000);
    make_faults(plan, &rng);
}
