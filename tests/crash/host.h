/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon on the crash disk: tests/twins/world.h with `local:` leases, over a SQLite store whose
 * disk is the VFS's and whose clock is the disk's. */
#ifndef STOCKADE_TESTS_CRASH_HOST_H
#define STOCKADE_TESTS_CRASH_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "tests/disk/fault_vfs.h"
#include "tests/disk/ramdisk_vfs.h"

/* The VFS has it in memory. But parts of Stockade look for the file by themselves, so an empty one
 * lies in the folder that the program works in. */
#define HOST_PATH "crash.db"

enum {
    HOST_CLIENTS = 4,
    HOST_CHECKPOINT_PAGES = 48, /* so that a short run sees checkpoints, and a WAL begun anew */
    HOST_RECEIPTS_KEEP_MS = 600 * 1000,
    HOST_FORGET_MS = 1200 * 1000,
};

/* What the daemon runs on, for the whole life of the process: a disk that can fail. */
struct machine {
    struct ramdisk_vfs *ramdisk;
    struct fault_vfs *faults;
};

struct machine *machine_new(void);
/* It has this disk from now on; NULL: none. Nothing fails, and what a run meets does not depend on
 * what ran before it in this process. */
void machine_mount(struct machine *machine, struct ramdisk *disk);
struct ramdisk *machine_disk(const struct machine *machine);

/* One whole reply, borrowed. */
typedef void (*host_reply)(void *context, int client, struct bytes reply);

struct host;

/* NULL: the store would not open, and `why` says why. */
struct host *host_open(struct machine *machine, host_reply reply, void *context, char *why,
                       size_t why_size);
/* Where the store is lost, what waits in the engine stays there, and its memory with it. */
void host_close(struct host *host);
void host_send(struct host *host, int client, struct bytes request);
/* Turn everything until nothing moves any more, or the store is lost. */
void host_settle(struct host *host);
bool host_lost(const struct host *host);
/* Let time pass at once; all settles. */
void host_pass(struct host *host, int64_t ms);
/* Copy as much of the WAL into the file as can be, as another program would. */
void host_checkpoint(void);

#endif
