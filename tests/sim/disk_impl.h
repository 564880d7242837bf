/* SPDX-License-Identifier: Apache-2.0 */
/* The disk's inside: what its two kinds have to do. */
#ifndef STOCKADE_TESTS_SIM_DISK_IMPL_H
#define STOCKADE_TESTS_SIM_DISK_IMPL_H

#include "store/clock.h"
#include "store/txn.h"
#include "tests/sim/disk.h"
#include "tests/twins/memory_rows.h"

struct fault_vfs;
struct ramdisk;
struct ramdisk_vfs;
struct sqlite3;
struct sqlite3_stmt;

enum disk_fault { DISK_FAULT_NONE, DISK_FAULT_REFUSES, DISK_FAULT_UNSURE, DISK_FAULT_TORN };

struct disk {
    struct world *world;
    struct rng rng;
    struct clock machine; /* of the one that has it, and all daemons on it */
    int64_t openings;
    int64_t full_until_us;
    enum disk_fault next;
    bool power_follows;       /* an unsure commit */
    struct memory_rows *rows; /* DISK_MEMORY */
    struct store_clock clock; /* DISK_MEMORY: the store's */
    struct buf text;          /* handed out by disk_read */
    /* DISK_SQLITE */
    struct ramdisk_vfs *vfs;
    struct fault_vfs *faults;              /* in front of it */
    struct ramdisk *ramdisk, *at_power_on; /* now, and when the power came back last */
    struct rng power;                      /* decides what a loss of it leaves */
    struct sqlite3 *reader;                /* the oracle's, or NULL */
    struct sqlite3_stmt *reads;
};

/* One daemon's. */
struct handle {
    struct store base;
    struct disk *disk;
    int number; /* the daemon's */
    struct party *party;
    void (*wake)(void *context);
    void *context;
    struct list writes, reads, done;
    size_t writes_count, reads_count;
    bool writes_due, reads_due, wake_due;
    bool cut_off, lost;
    int64_t opening;
    struct store_stats stats;
    struct store *inner; /* DISK_SQLITE */
};

/* Runs the operations of a batch in one transaction, as far as there is no fault; each has its
 * error after. False: the outcome is unknown, nobody is to be answered. */
bool memory_batch(struct handle *handle, struct list *batch, bool writes);

/* A commit's outcome is unknown now. */
void disk_was_unsure(struct disk *disk);

bool sqlite_open(struct handle *handle);
bool sqlite_batch(struct handle *handle, struct list *batch, bool writes);
void sqlite_shut(struct handle *handle);
void sqlite_power_off(struct disk *disk);
void sqlite_disk_new(struct disk *disk);
void sqlite_disk_free(struct disk *disk);
bool sqlite_read(struct disk *disk, const char *name, struct stored *stored);

#endif
