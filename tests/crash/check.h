/* SPDX-License-Identifier: Apache-2.0 */
/* What must be true of a disk after the power went, whatever was lost:
 *
 * - The store opens, by itself.
 * - What was acknowledged is there; what was in flight is there whole or not at all, each client's
 *   in order (P4, P5): values, rows, fences and receipts as the model has them.
 * - The same requests sent again get what they got, or would have got, the first time, and what is
 *   there then is what is there when all went well (P6).
 * - A new grant's token lies above every token before, and the token before no longer fits (P1,
 *   P2).
 * - SQLite finds its file in order, and `stockade check`'s rules find nothing. */
#ifndef STOCKADE_TESTS_CRASH_CHECK_H
#define STOCKADE_TESTS_CRASH_CHECK_H

#include "tests/crash/run.h"

struct check {
    struct machine *machine;
    const struct expectation *expect;
    bool thorough; /* with Stockade's own audit, which takes as long as all the rest */
    int64_t opened_ms;
    size_t opened_at; /* out: the disk's events until the store was open */
    char why[RUN_WHY_MAX];
};

/* Mount the disk, which changes, and check it. False: `why` says what is wrong. */
bool check_disk(struct check *check, struct ramdisk *disk);

#endif
