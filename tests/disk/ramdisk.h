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
#ifndef STOCKADE_TESTS_RAMDISK_H
#define STOCKADE_TESTS_RAMDISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RAMDISK_NAMES_MAX = 8, RAMDISK_SECTOR = 512 };

enum ramdisk_kind {
    RAMDISK_WRITE,
    RAMDISK_TRUNCATE,
    RAMDISK_SYNC,
    RAMDISK_SYNC_FAILED,
    RAMDISK_CREATE,
    RAMDISK_DELETE,
    RAMDISK_SYNC_FOLDER,
};

enum ramdisk_mode {
    RAMDISK_KEEP,
    RAMDISK_DROP,
    RAMDISK_LAST,
    RAMDISK_SOME,
    RAMDISK_TORN,
    RAMDISK_MODES
};

struct ramdisk_bytes {
    unsigned char *data; /* owned */
    size_t size, room;
};

struct ramdisk_event {
    enum ramdisk_kind kind;
    int inode, name; /* indexes */
    size_t at, len;  /* of a write; of a truncation `len` is the new size */
    unsigned char *data;
    int64_t at_ms;
};

struct ramdisk_name {
    char *text; /* owned */
    int inode;  /* -1: there is no such file now */
};

struct ramdisk {
    struct ramdisk_bytes *inodes; /* as a process sees them */
    int inodes_count;
    struct ramdisk_name names[RAMDISK_NAMES_MAX];
    int names_count;
    struct ramdisk_event *events;
    size_t events_count, events_room;
    int64_t now_ms; /* stamped on events */
};

struct ramdisk *ramdisk_new(void);
void ramdisk_free(struct ramdisk *disk);
/* Copy the files; the journal of the copy is empty. */
struct ramdisk *ramdisk_clone(const struct ramdisk *disk);
/* Return the index of a name, which is added where it is new. */
int ramdisk_name(struct ramdisk *disk, const char *text);
int ramdisk_create(struct ramdisk *disk, int name);
void ramdisk_delete(struct ramdisk *disk, int name);
void ramdisk_write(struct ramdisk *disk, int inode, const void *data, size_t len, size_t at);
void ramdisk_truncate(struct ramdisk *disk, int inode, size_t size);
void ramdisk_sync(struct ramdisk *disk, int inode, bool failed);
void ramdisk_sync_folder(struct ramdisk *disk);

const char *ramdisk_mode_name(enum ramdisk_mode mode);
const char *ramdisk_kind_name(enum ramdisk_kind kind);

/* Walks along a journal. */
struct replay {
    const struct ramdisk *journal;
    struct ramdisk *certain; /* what no loss of power can take away */
    size_t next;             /* event */
    size_t *pending;         /* events that are not certain */
    bool *doubtful;          /* beside it: a sync of it failed */
    size_t pending_count, pending_room;
    int names_room;
};

/* Replay a journal. `base` is the disk before its first event. */
struct replay *replay_new(const struct ramdisk *journal, const struct ramdisk *base);
void replay_free(struct replay *replay);
/* Go forward to where the events before `n` have been answered. */
void replay_to(struct replay *replay, size_t n);
/* Return what is left where the power goes during the next event, or after the last one. The caller
 * owns the image. */
struct ramdisk *replay_image(const struct replay *replay, enum ramdisk_mode mode, uint64_t seed);
/* Does the mode make a difference here? */
bool replay_differs(const struct replay *replay, enum ramdisk_mode mode);

/* A stream of numbers from a seed. */
static inline uint64_t dice(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

#endif
