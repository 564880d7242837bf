/* SPDX-License-Identifier: Apache-2.0 */
/* The disk: one store's durable state, which the daemons share, and each daemon's own store object
 * over it. Two kinds: the product's memory rows, fast; and the product's real SQLite store over a
 * file system of ours (tests/disk). Both commit in steps that are events of the simulation.
 *
 * Faults: no room for a while, a commit that fails cleanly, one whose outcome nobody knows (it is
 * there afterwards, or it is not), the power going off within a commit. */
#ifndef STOCKADE_TESTS_SIM_DISK_H
#define STOCKADE_TESTS_SIM_DISK_H

#include "store/store.h"
#include "tests/sim/world.h"

struct disk *disk_new(struct world *world);
void disk_free(struct disk *disk);

/* The store of daemon `number`: its steps belong to `party`, `wake` is called when something is
 * finished. NULL: it cannot be opened now. Ends with store_close. */
struct store *disk_open(struct disk *disk, int number, struct party *party,
                        void (*wake)(void *context), void *context);
/* From now on nothing of it reaches the disk: what is queued fails, what comes later is refused. */
void disk_cut_off(struct store *store);

void disk_set_full(struct disk *disk, int64_t ms);
void disk_refuse_next(struct disk *disk);
/* The next commit's outcome will be unknown to the daemon that does it. Then the power goes soon,
 * before much else is written, or it does not. */
void disk_unsure_next(struct disk *disk, bool power_follows);
/* The power goes off within the next commit: daemon_power_off is called. */
void disk_tear_next(struct disk *disk);
/* The power is off, and all daemons are down: what was not synced is gone, in part or in whole. */
void disk_power_off(struct disk *disk);

/* What is durable of a resource, seen without the engine. */
struct stored {
    bool exists;
    int64_t token;
    bool live;
    int64_t number;   /* of the hash field "sold"; 0: none */
    const char *text; /* the string; borrowed until the next call */
    size_t len;
};
/* False: it cannot be read now. */
bool disk_read(struct disk *disk, const char *name, struct stored *stored);

#endif
