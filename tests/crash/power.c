/* SPDX-License-Identifier: Apache-2.0 */
/* Power losses: one run of clients is recorded, and its journal is cut off everywhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/crash/sweep.h"

enum {
    SEED = 1,
    ROUNDS = 14,
    PAUSE_MS = HOST_FORGET_MS + 1000,
    AGAIN_EVERY = 7,
    THOROUGH_EVERY = 8
};

/* How many images of each mode, beside those without chance. */
static const unsigned images_of[DISK_MODES] = {1, 1, 1, 2, 3};

struct recording {
    struct disk *disk, *before;
    struct run run;
    struct replay *replay;
};

static const int64_t start_ms = INT64_C(1700000000000);

static void recording_end(struct sweep *sweep, struct recording *recording)
{
    run_stop(&recording->run);
    crash_vfs_mount(sweep->vfs, NULL);
    recording->replay = replay_new(recording->disk, recording->before);
}

static void recording_free(struct recording *recording)
{
    replay_free(recording->replay);
    run_free(&recording->run);
    disk_free(recording->disk);
    disk_free(recording->before);
}

/* From an empty disk to a store that has seen most of what there is. */
static void record(struct sweep *sweep, struct recording *recording)
{
    struct run *run = &recording->run;

    recording->disk = disk_new();
    recording->disk->now_ms = start_ms;
    recording->before = disk_clone(recording->disk);
    crash_vfs_mount(sweep->vfs, recording->disk);
    run_start(run, sweep->vfs, SEED, false);
    run_rounds(run, 0, ROUNDS);
    run_reopen(run);
    run_rounds(run, ROUNDS, ROUNDS);
    run_pause(run, PAUSE_MS);
    run_rounds(run, 2 * ROUNDS, ROUNDS);
    recording_end(sweep, recording);
}

/* One image is tried. `disk` keeps the journal of the recovery. */
static bool try_image(struct sweep *sweep, const struct recording *recording, enum disk_mode mode,
                      unsigned k, struct check *check, struct disk **disk)
{
    struct expectation expect;

    run_expect(&recording->run, recording->replay->next, &expect);
    *disk = replay_image(recording->replay, mode, k);
    check->vfs = sweep->vfs;
    check->expect = &expect;
    bool fine = check_disk(check, *disk);
    check->expect = NULL;
    return fine;
}

static const char *event_name(const struct recording *recording, size_t n)
{
    return n < recording->disk->events_count ? disk_kind_name(recording->disk->events[n].kind)
                                             : "end";
}

static void try_all(struct sweep *sweep, struct recording *recording, const char *name)
{
    for (size_t n = 0; n <= recording->disk->events_count; n++) {
        replay_to(recording->replay, n);
        for (enum disk_mode mode = DISK_KEEP; mode < DISK_MODES; mode++)
            for (unsigned k = 1; k <= images_of[mode]; k++) {
                struct check check = {.thorough = (n + k) % THOROUGH_EVERY == 0};
                struct disk *disk;
                if (!replay_differs(recording->replay, mode) ||
                    !sweep_point(sweep, disk_mode_name(mode), "%s:%zu:%s:%u", name, n,
                                 disk_mode_name(mode), k))
                    continue;
                if (sweep->prints)
                    printf("the power goes during event %zu: %s\n", n, event_name(recording, n));
                (void)try_image(sweep, recording, mode, k, &check, &disk);
                sweep_report(sweep, check.why);
                disk_free(disk);
            }
    }
}

void sweep_write(struct sweep *sweep)
{
    struct recording recording;

    record(sweep, &recording);
    if (sweep_point(sweep, "run", "write:run"))
        sweep_report(sweep, recording.run.why);
    if (recording.run.why[0] == '\0')
        try_all(sweep, &recording, "write");
    recording_free(&recording);
}

/* All points of the recovery of one image. `outer` is its name. */
static void try_recovery(struct sweep *sweep, const struct recording *recording, size_t n,
                         enum disk_mode mode)
{
    static const enum disk_mode inner_modes[] = {DISK_KEEP, DISK_DROP, DISK_TORN};
    struct expectation expect;
    struct check first = {0};
    struct disk *disk, *before = replay_image(recording->replay, mode, 1);
    struct replay *recovery = NULL;

    run_expect(&recording->run, n, &expect);
    if (try_image(sweep, recording, mode, 1, &first, &disk))
        recovery = replay_new(disk, before);
    for (size_t m = 0; recovery != NULL && m < first.opened_at; m++) {
        replay_to(recovery, m);
        for (size_t i = 0; i < 3; i++) {
            struct check check = {.vfs = sweep->vfs, .expect = &expect};
            if (!replay_differs(recovery, inner_modes[i]) ||
                !sweep_point(sweep, "again", "again:%zu:%s:%zu:%s", n, disk_mode_name(mode), m,
                             disk_mode_name(inner_modes[i])))
                continue;
            struct disk *image = replay_image(recovery, inner_modes[i], 1);
            (void)check_disk(&check, image);
            sweep_report(sweep, check.why);
            disk_free(image);
        }
    }
    replay_free(recovery);
    disk_free(disk);
    disk_free(before);
}

void sweep_again(struct sweep *sweep)
{
    static const enum disk_mode modes[] = {DISK_KEEP, DISK_DROP, DISK_TORN};
    struct recording recording;

    record(sweep, &recording);
    for (size_t n = 0; n <= recording.disk->events_count; n += AGAIN_EVERY) {
        enum disk_mode mode = modes[n / AGAIN_EVERY % 3];
        replay_to(recording.replay, n);
        if (replay_differs(recording.replay, mode))
            try_recovery(sweep, &recording, n, mode);
    }
    recording_free(&recording);
}
