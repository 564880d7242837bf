/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that refuses, and memory that runs out: a short run of clients again and again, each time
 * with the next call failing, once or from then on. Whatever fails, nobody gets a wrong answer, and
 * after a loss of power what was acknowledged is there. */
#include <stdio.h>
#include <string.h>

#include "tests/crash/sweep.h"

enum { SEED = 2, ROUNDS = 3 };

static const int64_t start_ms = INT64_C(1700000000000);

/* The run, with what is to fail set up already. */
static void go(struct run *run, struct crash_vfs *vfs)
{
    run_start(run, vfs, SEED, true);
    run_rounds(run, 0, ROUNDS);
    run_reopen(run);
    run_rounds(run, ROUNDS, ROUNDS);
}

/* What the power leaves at the run's end, with and without what was not synced. */
static void check_what_is_left(struct run *run, struct crash_vfs *vfs, struct disk *disk,
                               const struct disk *before, char why[RUN_WHY_MAX])
{
    struct replay *replay = replay_new(disk, before);
    struct expectation expect = run->now;
    static const enum disk_mode modes[] = {DISK_DROP, DISK_KEEP};

    replay_to(replay, disk->events_count);
    run_stop(run);
    for (int i = 0; i < 2 && why[0] == '\0'; i++) {
        struct check check = {.vfs = vfs, .expect = &expect};
        struct disk *image = replay_image(replay, modes[i], 1);
        if (!check_disk(&check, image))
            snprintf(why, RUN_WHY_MAX, "then, with %s of what was not synced: %.1900s",
                     i == 0 ? "nothing" : "all", check.why);
        disk_free(image);
    }
    replay_free(replay);
}

struct fault {
    bool memory, lasting, full;
    int64_t first;
};

/* Returns whether the fault was met: where not, the run is over before it. */
static bool try_fault(struct sweep *sweep, const struct fault *fault, char why[RUN_WHY_MAX])
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
    go(&run, sweep->vfs);
    bool met = fault->first <= (fault->memory ? memory_calls()
                                              : crash_vfs_faults(sweep->vfs)->calls);
    if (sweep->prints)
        printf("%s failed; %d operations were refused%s\n",
               fault->memory ? "memory" : crash_vfs_faults(sweep->vfs)->hit, run.failed,
               run.host == NULL        ? ", the store did not open"
               : host_lost(run.host) ? ", the store was lost"
                                       : "");
    memory_fail(0, false);
    crash_vfs_fail(sweep->vfs, (struct vfs_faults){0});
    snprintf(why, RUN_WHY_MAX, "%s", run.why);
    check_what_is_left(&run, sweep->vfs, disk, before, why);
    run_free(&run);
    crash_vfs_mount(sweep->vfs, NULL);
    disk_free(disk);
    disk_free(before);
    return met;
}

static void try_all(struct sweep *sweep, const char *name, struct fault fault, const char *variant)
{
    char kind[32], why[RUN_WHY_MAX];
    bool met = true;

    snprintf(kind, sizeof kind, "%s %s", name, variant);
    for (fault.first = 1; met; fault.first++) {
        if (sweep->only != NULL && fault.first > 100000)
            return;
        if (!sweep_point(sweep, kind, "%s:%lld:%s", name, (long long)fault.first, variant))
            continue;
        met = try_fault(sweep, &fault, why);
        sweep_report(sweep, why);
    }
}

void sweep_io(struct sweep *sweep)
{
    try_all(sweep, "io", (struct fault){0}, "once");
    try_all(sweep, "io", (struct fault){.lasting = true}, "lasting");
    try_all(sweep, "io", (struct fault){.full = true}, "once-full");
    try_all(sweep, "io", (struct fault){.full = true, .lasting = true}, "lasting-full");
}

void sweep_memory(struct sweep *sweep)
{
    try_all(sweep, "memory", (struct fault){.memory = true}, "once");
    try_all(sweep, "memory", (struct fault){.memory = true, .lasting = true}, "lasting");
}

void sweep_migrate(struct sweep *sweep)
{
    (void)sweep;
}
