/* SPDX-License-Identifier: Apache-2.0 */
/* Leave out faults, clients, rounds of clients, and what else can go, as long as the same promise
 * breaks. Greedy: large pieces first, then smaller ones, over and over until nothing more can go.
 */
#include <string.h>
#include <time.h>

#include "tests/sim/run.h"

#define SHRINK_RUNS_MAX  1500
#define SHRINK_CPU_S_MAX 6

struct shrinking {
    struct plan *plan;
    struct outcome_of_run *outcome;
    int runs;
    clock_t until;
};

/* Does the plan with this change still break the same promise? Then it is the plan. */
static bool keeps(struct shrinking *shrinking, const struct plan *tried)
{
    struct tally tally = {0};

    if (shrinking->runs >= SHRINK_RUNS_MAX || clock() > shrinking->until)
        return false;
    shrinking->runs++;
    struct outcome_of_run outcome = run_plan(tried, &tally, NULL);
    if (outcome.broken != shrinking->outcome->broken)
        return false;
    *shrinking->plan = *tried;
    *shrinking->outcome = outcome;
    memcpy(shrinking->plan->round_starts_us, outcome.round_starts_us,
           sizeof outcome.round_starts_us);
    return true;
}

/* The flags of one kind of piece, from number `first` on; `used` of them mean something. */
static bool leave_out_some(struct shrinking *shrinking, bool *(*flag)(struct plan *plan, int i),
                           int first, int used)
{
    bool changed = false;

    for (int chunk = used; chunk >= 1; chunk /= 2)
        for (int from = 0; from < used; from += chunk) {
            struct plan tried = *shrinking->plan;
            bool any = false;
            for (int i = from; i < from + chunk && i < used; i++) {
                any |= !*flag(&tried, first + i);
                *flag(&tried, first + i) = true;
            }
            changed |= any && keeps(shrinking, &tried);
        }
    return changed;
}

static bool *fault_flag(struct plan *plan, int i)
{
    return &plan->faults[i].left_out;
}

static bool *client_flag(struct plan *plan, int i)
{
    return &plan->client_left_out[i];
}

static bool *round_flag(struct plan *plan, int i)
{
    return &plan->round_left_out[i / ROUNDS_MAX][i % ROUNDS_MAX];
}

static bool leave_out_rounds(struct shrinking *shrinking)
{
    bool changed = false;

    for (int client = 0; client < shrinking->plan->clients; client++) {
        int used = shrinking->outcome->rounds[client];
        if (!shrinking->plan->client_left_out[client])
            changed |= leave_out_some(shrinking, round_flag, client * ROUNDS_MAX,
                                      used < ROUNDS_MAX ? used : ROUNDS_MAX);
    }
    return changed;
}

/* What makes a run simpler as a whole. */
static void simplify(struct shrinking *shrinking)
{
    struct plan tried = *shrinking->plan;

    tried.calm_messages = true;
    (void)keeps(shrinking, &tried);
    tried = *shrinking->plan;
    tried.batch_max = 1;
    (void)keeps(shrinking, &tried);
    tried = *shrinking->plan;
    for (tried.daemons = 1; tried.daemons < shrinking->plan->daemons; tried.daemons++)
        if (keeps(shrinking, &tried))
            break;
    tried = *shrinking->plan;
    tried.disk = DISK_MEMORY;
    (void)keeps(shrinking, &tried);
    tried = *shrinking->plan;
    tried.logs = 1;
    (void)keeps(shrinking, &tried);
}

int shrink(struct plan *plan, struct outcome_of_run *outcome)
{
    struct shrinking shrinking = {plan, outcome, 0, clock() + SHRINK_CPU_S_MAX * CLOCKS_PER_SEC};
    bool changed = true;

    memcpy(plan->round_starts_us, outcome->round_starts_us, sizeof plan->round_starts_us);
    simplify(&shrinking);
    while (changed && shrinking.runs < SHRINK_RUNS_MAX) {
        changed = leave_out_some(&shrinking, client_flag, 0, plan->clients);
        changed |= leave_out_some(&shrinking, fault_flag, 0, plan->faults_count);
        changed |= leave_out_rounds(&shrinking);
    }
    return shrinking.runs;
}
