/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that refuses, and memory that runs out: a short run of clients again and again, each time
 * with the next call failing, once or from then on. Whatever fails, nobody gets a wrong answer, and
 * after a loss of power what was acknowledged is there. */
#include <stdio.h>
#include <string.h>

#include "tests/crash/sweep.h"
#include "tests/disk/fault_memory.h"

enum { SEED = 2, ROUNDS = 3, THOROUGH_EVERY = 6 };

/* A fault of one kind: at the first-th call, or from it on. */
struct fault {
    bool memory, lasting, full;
    int64_t first;
};

static const int64_t start_ms = INT64_C(1700000000000);

/* Run the clients; what is to fail has been set already. */
static void go(struct run *run, const struct sweep *sweep)
{
    run_start(run, sweep->machine, NULL, sweep->seed != 0 ? sweep->seed : SEED, true);
    run_rounds(run, 0, ROUNDS);
    run_reopen(run);
    run_rounds(run, ROUNDS, ROUNDS);
}

/* What the loss of power leaves, and whether the daemon closed its store before. One whose store is
 * lost just ends, but closing it must do no harm. */
static const struct {
    enum ramdisk_mode mode;
    bool closed;
    const char *words;
} ends[] = {
    {RAMDISK_DROP, false, "nothing of what was not synced"},
    {RAMDISK_KEEP, false, "all"},
    {RAMDISK_DROP, true, "the store closed, and nothing of what was not synced"},
    {RAMDISK_SOME, true, "the store closed, and some of what was not synced"},
};

enum { ENDS = sizeof ends / sizeof *ends };

/* Try those ends whose bit is set. */
static void check_what_is_left(struct run *run, struct machine *machine, struct ramdisk *disk,
                               const struct ramdisk *before, unsigned which, char why[RUN_WHY_MAX])
{
    struct replay *replay = replay_new(disk, before);
    struct expectation expect = run->now;
    struct ramdisk *images[ENDS] = {NULL};
    bool thorough = disk->events_count % THOROUGH_EVERY == 0;

    for (unsigned i = 0; i < ENDS; i++) {
        if (ends[i].closed)
            run_stop(run);
        replay_to(replay, disk->events_count);
        if ((which & 1u << i) != 0)
            images[i] = replay_image(replay, ends[i].mode, 1);
    }
    for (unsigned i = 0; i < ENDS; i++) {
        struct check check = {.machine = machine, .expect = &expect, .thorough = thorough};
        if (images[i] != NULL && why[0] == '\0' && !check_disk(&check, images[i]))
            snprintf(why, RUN_WHY_MAX, "then, with %s: %.1900s", ends[i].words, check.why);
        ramdisk_free(images[i]);
    }
    replay_free(replay);
}

/* Run with one fault, then check what is left. Return how many calls there were. */
static int64_t try_fault(struct sweep *sweep, const struct fault *fault, char why[RUN_WHY_MAX])
{
    struct ramdisk *disk = ramdisk_new(), *before;
    struct run run;

    disk->now_ms = start_ms;
    before = ramdisk_clone(disk);
    machine_mount(sweep->machine, disk);
    if (fault->memory)
        fault_memory_set(fault->first, fault->lasting);
    else
        fault_vfs_set_any(
            sweep->machine->faults,
            (struct io_fault){.calls = fault->full ? FAULT_BIT(WRITE) : FAULT_BITS_ALL,
                              .passes = fault->first - 1,
                              .times = fault->lasting ? FAULT_FOR_EVER : 1,
                              .code = fault->full ? SQLITE_FULL : 0});
    go(&run, sweep);
    struct fault_counts counts = fault_vfs_counts(sweep->machine->faults);
    int64_t calls = fault->memory ? fault_memory_calls() : counts.calls;
    if (sweep->prints && fault->first <= calls)
        printf("%s failed; %d operations were refused%s\n", fault->memory ? "memory" : counts.hit,
               run.failed,
               run.host == NULL      ? ", the store did not open"
               : host_lost(run.host) ? ", the store was lost"
                                     : "");
    fault_memory_sites_end();
    fault_memory_set(0, false);
    fault_vfs_clear(sweep->machine->faults);
    snprintf(why, RUN_WHY_MAX, "%s", run.why);
    unsigned which = fault->memory ? 1u << fault->first % 2
                                   : 1u << 0 | 1u << 1 | (fault->first % 2 ? 1u << 2 : 1u << 3);
    check_what_is_left(&run, sweep->machine, disk, before, which, why);
    run_free(&run);
    machine_mount(sweep->machine, NULL);
    ramdisk_free(disk);
    ramdisk_free(before);
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
        fault.first = INT64_MAX; /* none fails: how many calls are there? */
        int64_t calls = try_fault(sweep, &fault, why);
        for (fault.first = 1; fault.first <= calls; fault.first++)
            try_one(sweep, &fault, variants[i]);
    }
}

void sweep_memory(struct sweep *sweep)
{
    char why[RUN_WHY_MAX];

    fault_memory_sites_begin();
    int64_t calls = try_fault(sweep, &(struct fault){.memory = true}, why);
    for (int lasting = 0; lasting < 2; lasting++)
        for (int64_t call = 1; call <= calls; call++)
            if (sweep->every || sweep->only != NULL || fault_memory_is_new(call, lasting ? 1 : 2))
                try_one(sweep, &(struct fault){.memory = true, .lasting = lasting, .first = call},
                        lasting ? "lasting" : "once");
}
