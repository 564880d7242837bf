/* SPDX-License-Identifier: Apache-2.0 */
/* A disk in memory, and what a loss of power may leave of it.
 *
 * Everything that changes the disk is an event in its journal. From the journal, an image can be
 * made of what is there when the power goes during event n: what was synced before is certain; of
 * the rest, event n with it, any part may have reached the platter, in any order:
 *
 *   KEEP   all of it (what a killed process leaves: the system still writes what it has)
 *   DROP   nothing
 *   LAST   all but the last write, which is torn
 *   SOME   each write whole or not at all, as the seed says
 *   TORN   each 512 byte sector of each write as the seed says: there, not there, or (seldom)
 *          rubbish
 *
 * A sync that failed makes nothing certain, and neither does a later one for what came before it:
 * systems call pages clean that they could not write. Names (files made and deleted) are certain
 * once their folder is synced, and until then come back in order. A write never harms bytes
 * outside of its range, which SQLite's default build counts on too. */
#ifndef STOCKADE_TESTS_CRASH_DISK_H
#define STOCKADE_TESTS_CRASH_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DISK_NAMES_MAX = 8, DISK_SECTOR = 512 };

enum disk_kind {
    DISK_WRITE,
    DISK_TRUNCATE,
    DISK_SYNC,
    DISK_SYNC_FAILED,
    DISK_CREATE,
    DISK_DELETE,
    DISK_SYNC_FOLDER,
};

enum disk_mode { DISK_KEEP, DISK_DROP, DISK_LAST, DISK_SOME, DISK_TORN, DISK_MODES };

struct disk_bytes {
    unsigned char *data; /* owned */
    size_t size, room;
};

struct disk_event {
    enum disk_kind kind;
    int inode, name; /* indexes */
    size_t at, len;  /* of a write; of a truncation `len` is the new size */
    unsigned char *data;
    int64_t at_ms;
};

struct disk_name {
    char *text; /* owned */
    int inode;  /* -1: there is no such file now */
};

struct disk {
    struct disk_bytes *inodes; /* as a process sees them */
    int inodes_count;
    struct disk_name names[DISK_NAMES_MAX];
    int names_count;
    struct disk_event *events;
    size_t events_count, events_room;
    int64_t now_ms; /* stamped on events */
};

struct disk *disk_new(void);
void disk_free(struct disk *disk);
/* The same files, with an empty journal. */
struct disk *disk_clone(const struct disk *disk);
/* The index of a name: existing or new. */
int disk_name(struct disk *disk, const char *text);
int disk_create(struct disk *disk, int name);
void disk_delete(struct disk *disk, int name);
void disk_write(struct disk *disk, int inode, const void *data, size_t len, size_t at);
void disk_truncate(struct disk *disk, int inode, size_t size);
void disk_sync(struct disk *disk, int inode, bool failed);
void disk_sync_folder(struct disk *disk);

const char *disk_mode_name(enum disk_mode mode);
const char *disk_kind_name(enum disk_kind kind);

/* Walks along a journal. */
struct replay {
    const struct disk *journal;
    struct disk *certain; /* what no loss of power can take away */
    size_t next;          /* event */
    size_t *pending;      /* events that are not certain */
    bool *doubtful;       /* beside it: a sync of it failed */
    size_t pending_count, pending_room;
    int names_room;
};

/* `base`: the disk before the journal's first event. */
struct replay *replay_new(const struct disk *journal, const struct disk *base);
void replay_free(struct replay *replay);
/* Forward to where the events before `n` have been answered. */
void replay_to(struct replay *replay, size_t n);
/* What is left where the power goes during the next event (which, at the journal's end, is none).
 * The caller owns the image. */
struct disk *replay_image(const struct replay *replay, enum disk_mode mode, uint64_t seed);
/* Does the mode make a difference here? */
bool replay_differs(const struct replay *replay, enum disk_mode mode);

/* A stream of numbers from a seed. */
static inline uint64_t dice(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

#endif
