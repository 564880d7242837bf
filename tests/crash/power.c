/* SPDX-License-Identifier: Apache-2.0 */
/* Power losses: one run of clients is recorded, and its journal is cut off everywhere. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/crash/sweep.h"
#include "tests/support/version_1.h"

enum {
    SEED = 8,
    ROUNDS = 14,
    PAUSE_MS = HOST_FORGET_MS + 1000,
    AGAIN_EVERY = 7,
    THOROUGH_EVERY = 8,
    WAL_HEADER = 32, /* bytes */
};

/* How many images of each mode, beside those without chance. */
static const unsigned images_of[RAMDISK_MODES] = {1, 1, 1, 2, 3};

struct recording {
    struct ramdisk *disk, *before;
    struct run run;
    struct replay *replay;
};

static const int64_t start_ms = INT64_C(1700000000000);

static void recording_end(struct sweep *sweep, struct recording *recording)
{
    run_stop(&recording->run);
    machine_mount(sweep->machine, NULL);
    recording->replay = replay_new(recording->disk, recording->before);
}

static void recording_free(struct recording *recording)
{
    replay_free(recording->replay);
    run_free(&recording->run);
    ramdisk_free(recording->disk);
    ramdisk_free(recording->before);
}

/* From an empty disk to a store that has seen most of what there is. */
static void record(struct sweep *sweep, struct recording *recording)
{
    struct run *run = &recording->run;

    recording->disk = ramdisk_new();
    recording->disk->now_ms = start_ms;
    recording->before = ramdisk_clone(recording->disk);
    machine_mount(sweep->machine, recording->disk);
    run_start(run, sweep->machine, NULL, sweep->seed != 0 ? sweep->seed : SEED, false);
    run_rounds(run, 0, ROUNDS);
    run_reopen(run);
    run_rounds(run, ROUNDS, ROUNDS);
    run_pause(run, PAUSE_MS);
    run_rounds(run, 2 * ROUNDS, ROUNDS);
    recording_end(sweep, recording);
}

/* Check one image. The caller frees `disk`, whose journal is that of the recovery. */
static bool try_image(struct sweep *sweep, const struct recording *recording,
                      enum ramdisk_mode mode, unsigned k, struct check *check,
                      struct ramdisk **disk)
{
    struct expectation expect;

    run_expect(&recording->run, recording->replay->next, &expect);
    *disk = replay_image(recording->replay, mode, k);
    check->machine = sweep->machine;
    check->expect = &expect;
    bool fine = check_disk(check, *disk);
    check->expect = NULL;
    return fine;
}

static const char *event_name(const struct recording *recording, size_t n)
{
    return n < recording->disk->events_count ? ramdisk_kind_name(recording->disk->events[n].kind)
                                             : "end";
}

static void try_all(struct sweep *sweep, struct recording *recording, const char *name)
{
    for (size_t n = 0; n <= recording->disk->events_count; n++) {
        replay_to(recording->replay, n);
        for (enum ramdisk_mode mode = RAMDISK_KEEP; mode < RAMDISK_MODES; mode++)
            for (unsigned k = 1; k <= images_of[mode]; k++) {
                struct check check = {.thorough = (n + k) % THOROUGH_EVERY == 0};
                struct ramdisk *disk;
                if (!replay_differs(recording->replay, mode) ||
                    !sweep_point(sweep, ramdisk_mode_name(mode), "%s:%zu:%s:%u", name, n,
                                 ramdisk_mode_name(mode), k))
                    continue;
                if (sweep->prints)
                    printf("the power goes during event %zu: %s\n", n, event_name(recording, n));
                (void)try_image(sweep, recording, mode, k, &check, &disk);
                sweep_report(sweep, check.why);
                ramdisk_free(disk);
            }
    }
}

/* Print what the run did. */
static void tell(const struct recording *recording)
{
    size_t wals = 0, ops[OP_KINDS] = {0}, events[RAMDISK_SYNC_FOLDER + 1] = {0};

    for (int i = 0; i < MODEL_SLOTS; i++)
        for (size_t k = 0; k < recording->run.steps_count[i]; k++)
            ops[recording->run.steps[i][k].op.kind]++;
    for (size_t n = 0; n < recording->disk->events_count; n++) {
        const struct ramdisk_event *event = &recording->disk->events[n];
        events[event->kind]++;
        wals += event->kind == RAMDISK_WRITE && event->at == 0 && event->len == WAL_HEADER;
    }
    printf("write: a run of");
    for (int i = 0; i < OP_KINDS; i++)
        printf(" %zu %s%s", ops[i], op_name((enum op_kind)i), i + 1 < OP_KINDS ? "," : ";");
    for (int i = 0; i <= RAMDISK_SYNC_FOLDER; i++)
        if (events[i] > 0)
            printf(" %zu %s", events[i], ramdisk_kind_name((enum ramdisk_kind)i));
    printf("; %zu times a WAL begun\n", wals);
}

void sweep_write(struct sweep *sweep)
{
    struct recording recording;

    record(sweep, &recording);
    if (sweep->skip == 0)
        tell(&recording);
    if (sweep_point(sweep, "run", "write:run"))
        sweep_report(sweep, recording.run.why);
    if (recording.run.why[0] == '\0')
        try_all(sweep, &recording, "write");
    recording_free(&recording);
}

/* Let the power go at every point of the recovery of one image. */
static void try_recovery(struct sweep *sweep, const struct recording *recording, size_t n,
                         enum ramdisk_mode mode)
{
    static const enum ramdisk_mode inner_modes[] = {RAMDISK_KEEP, RAMDISK_DROP, RAMDISK_TORN};
    struct expectation expect;
    struct check first = {0};
    struct ramdisk *disk, *before = replay_image(recording->replay, mode, 1);
    struct replay *recovery = NULL;

    run_expect(&recording->run, n, &expect);
    if (try_image(sweep, recording, mode, 1, &first, &disk))
        recovery = replay_new(disk, before);
    for (size_t m = 0; recovery != NULL && m < first.opened_at; m++) {
        replay_to(recovery, m);
        for (size_t i = 0; i < 3; i++) {
            struct check check = {.machine = sweep->machine, .expect = &expect};
            if (!replay_differs(recovery, inner_modes[i]) ||
                !sweep_point(sweep, "again", "again:%zu:%s:%zu:%s", n, ramdisk_mode_name(mode), m,
                             ramdisk_mode_name(inner_modes[i])))
                continue;
            struct ramdisk *image = replay_image(recovery, inner_modes[i], 1);
            (void)check_disk(&check, image);
            sweep_report(sweep, check.why);
            ramdisk_free(image);
        }
    }
    replay_free(recovery);
    ramdisk_free(disk);
    ramdisk_free(before);
}

void sweep_again(struct sweep *sweep)
{
    static const enum ramdisk_mode modes[] = {RAMDISK_KEEP, RAMDISK_DROP, RAMDISK_TORN};
    struct recording recording;

    record(sweep, &recording);
    for (size_t n = 0; n <= recording.disk->events_count; n += AGAIN_EVERY) {
        enum ramdisk_mode mode = modes[n / AGAIN_EVERY % 3];
        replay_to(recording.replay, n);
        if (replay_differs(recording.replay, mode))
            try_recovery(sweep, &recording, n, mode);
    }
    recording_free(&recording);
}

/* What the last daemon of schema version 1 left. */
static const char version_1_rows[] =
    "UPDATE stockade_meta SET value = 7 WHERE key = 'session';"
    "UPDATE stockade_meta SET value = 40 WHERE key = 'floor';"
    "INSERT INTO stockade_resource VALUES"
    "  (1, CAST('box:0' AS BLOB), 50, 1, 2, 2, 30000, 6, 11, 0, CAST('o7' AS BLOB)),"
    "  (2, CAST('sku:0' AS BLOB), 45, 2, 1, 0, 30000, 5, 0, 0, CAST('o8' AS BLOB)),"
    "  (3, CAST('sku:1' AS BLOB), 41, 3, 0, 0, 30000, 1, 0, 0, CAST('o9' AS BLOB)),"
    "  (5, CAST('tmp:1' AS BLOB), 60, 1, 0, 1, 30000, 7, 0, 0, CAST('o6' AS BLOB));"
    "INSERT INTO stockade_hash VALUES(1, CAST('n' AS BLOB), CAST('12' AS BLOB));"
    "INSERT INTO stockade_string VALUES(2, CAST('700' AS BLOB));";

static struct ramdisk *old_disk(struct sweep *sweep)
{
    struct ramdisk *making = ramdisk_new();
    sqlite3 *db;

    making->now_ms = start_ms;
    machine_mount(sweep->machine, making);
    check(sqlite3_open(HOST_PATH, &db) == SQLITE_OK);
    check(sqlite3_exec(db, version_1, NULL, NULL, NULL) == SQLITE_OK);
    check(sqlite3_exec(db, version_1_rows, NULL, NULL, NULL) == SQLITE_OK);
    check(sqlite3_close(db) == SQLITE_OK);
    machine_mount(sweep->machine, NULL);
    struct ramdisk *disk = ramdisk_clone(making);
    ramdisk_free(making);
    return disk;
}

void sweep_migrate(struct sweep *sweep)
{
    struct model_slot old[MODEL_SLOTS] = {0};
    struct recording recording = {.disk = old_disk(sweep)};

    old[0].resources[BOX] = (struct model_resource){MODEL_LIVE, 50, 2, 7, start_ms, 0};
    old[0].resources[SKU] = (struct model_resource){MODEL_RELEASED, 45, 0, 8, start_ms, 0};
    old[1].resources[SKU] = (struct model_resource){MODEL_REVOKED, 41, 0, 9, start_ms, 0};
    old[1].resources[TMP] = (struct model_resource){MODEL_LIVE, 60, 1, 6, start_ms, 0};
    old[0].has_n = old[0].has_sku = true;
    old[0].n = 12;
    old[0].sku = 700;
    recording.before = ramdisk_clone(recording.disk);
    machine_mount(sweep->machine, recording.disk);
    recording.run.ids = 100;
    run_start(&recording.run, sweep->machine, old, sweep->seed != 0 ? sweep->seed : SEED, false);
    run_rounds(&recording.run, 0, 3);
    recording_end(sweep, &recording);
    if (sweep_point(sweep, "run", "migrate:run"))
        sweep_report(sweep, recording.run.why);
    if (recording.run.why[0] == '\0')
        try_all(sweep, &recording, "migrate");
    recording_free(&recording);
}
