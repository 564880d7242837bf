/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that refuses, and memory that runs out: a short run of clients again and again, each time
 * with the next call failing, once or from then on. Whatever fails, nobody gets a wrong answer, and
 * after a loss of power what was acknowledged is there. */
#include <stdio.h>
#include <string.h>

#include "tests/crash/sweep.h"

enum { SEED = 2, ROUNDS = 3, THOROUGH_EVERY = 6 };

/* A fault of one kind: at the first-th call, or from it on. */
struct fault {
    bool memory, lasting, full;
    int64_t first;
};

static const int64_t start_ms = INT64_C(1700000000000);

/* The run, with what is to fail set up already. */
static void go(struct run *run, const struct sweep *sweep)
{
    run_start(run, sweep->vfs, NULL, sweep->seed != 0 ? sweep->seed : SEED, true);
    run_rounds(run, 0, ROUNDS);
    run_reopen(run);
    run_rounds(run, ROUNDS, ROUNDS);
}

/* When the power goes, and what it leaves. A daemon whose store is lost just ends; one that closes
 * it all the same must not do harm. */
static const struct {
    enum disk_mode mode;
    bool closed;
    const char *words;
} ends[] = {
    {DISK_DROP, false, "nothing of what was not synced"},
    {DISK_KEEP, false, "all"},
    {DISK_DROP, true, "the store closed, and nothing of what was not synced"},
    {DISK_SOME, true, "the store closed, and some of what was not synced"},
};

enum { ENDS = sizeof ends / sizeof *ends };

/* Tries those ends whose bit is set. */
static void check_what_is_left(struct run *run, struct crash_vfs *vfs, struct disk *disk,
                               const struct disk *before, unsigned which, char why[RUN_WHY_MAX])
{
    struct replay *replay = replay_new(disk, before);
    struct expectation expect = run->now;
    struct disk *images[ENDS] = {NULL};
    bool thorough = disk->events_count % THOROUGH_EVERY == 0;

    for (unsigned i = 0; i < ENDS; i++) {
        if (ends[i].closed)
            run_stop(run);
        replay_to(replay, disk->events_count);
        if ((which & 1u << i) != 0)
            images[i] = replay_image(replay, ends[i].mode, 1);
    }
    for (unsigned i = 0; i < ENDS; i++) {
        struct check check = {.vfs = vfs, .expect = &expect, .thorough = thorough};
        if (images[i] != NULL && why[0] == '\0' && !check_disk(&check, images[i]))
            snprintf(why, RUN_WHY_MAX, "then, with %s: %.1900s", ends[i].words, check.why);
        disk_free(images[i]);
    }
    replay_free(replay);
}

/* Returns how many calls there were. */
static int64_t try_fault(struct sweep *sweep, const struct fault *fault, char why[RUN_WHY_MAX])
{
    struct disk *disk = disk_new(), *before;
    struct run run;

    disk->now_ms = start_ms;
    before = disk_clone(disk);
    crash_vfs_mount(sweep->vfs, disk);
    if (fault->memory)
        memory_fail(fault->first, fault->lasting);
    else
        crash_vfs_fail(sweep->vfs, (struct vfs_faults){.first = fault->first,
                                                       .lasting = fault->lasting,
                                                       .full = fault->full});
    go(&run, sweep);
    int64_t calls = fault->memory ? memory_calls() : crash_vfs_faults(sweep->vfs)->calls;
    if (sweep->prints && fault->first <= calls)
        printf("%s failed; %d operations were refused%s\n",
               fault->memory ? "memory" : crash_vfs_faults(sweep->vfs)->hit, run.failed,
               run.host == NULL      ? ", the store did not open"
               : host_lost(run.host) ? ", the store was lost"
                                     : "");
    memory_sites_end();
    memory_fail(0, false);
    crash_vfs_fail(sweep->vfs, (struct vfs_faults){0});
    snprintf(why, RUN_WHY_MAX, "%s", run.why);
    unsigned which = fault->memory ? 1u << fault->first % 2
                                   : 1u << 0 | 1u << 1 | (fault->first % 2 ? 1u << 2 : 1u << 3);
    check_what_is_left(&run, sweep->vfs, disk, before, which, why);
    run_free(&run);
    crash_vfs_mount(sweep->vfs, NULL);
    disk_free(disk);
    disk_free(before);
    return calls;
}

static void try_one(struct sweep *sweep, const struct fault *fault, const char *variant)
{
    const char *name = fault->memory ? "memory" : "io";
    char kind[32], why[RUN_WHY_MAX];

    snprintf(kind, sizeof kind, "%s %s", name, variant);
    if (!sweep_point(sweep, kind, "%s:%lld:%s", name, (long long)fault->first, variant))
        return;
    try_fault(sweep, fault, why);
    sweep_report(sweep, why);
}

void sweep_io(struct sweep *sweep)
{
    static const struct fault kinds[] = {
        {0}, {.lasting = true}, {.full = true}, {.full = true, .lasting = true}};
    static const char *const variants[] = {"once", "lasting", "full-once", "full-lasting"};

    for (int i = 0; i < 4; i++) {
        char why[RUN_WHY_MAX];
        struct fault fault = kinds[i];
        fault.first = INT64_MAX; /* that none is: how many are there? */
        int64_t calls = try_fault(sweep, &fault, why);
        for (fault.first = 1; fault.first <= calls; fault.first++)
            try_one(sweep, &fault, variants[i]);
    }
}

void sweep_memory(struct sweep *sweep)
{
    char why[RUN_WHY_MAX];

    memory_sites_begin();
    int64_t calls = try_fault(sweep, &(struct fault){.memory = true}, why);
    for (int lasting = 0; lasting < 2; lasting++)
        for (int64_t call = 1; call <= calls; call++)
            if (sweep->every || sweep->only != NULL || memory_is_new(call, lasting ? 1 : 2))
                try_one(sweep, &(struct fault){.memory = true, .lasting = lasting, .first = call},
                        lasting ? "lasting" : "once");
}
