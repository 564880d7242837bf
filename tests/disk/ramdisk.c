/* SPDX-License-Identifier: Apache-2.0 */
/* See ramdisk.h. An inode's number is its place in the list of all that were ever made, so a
 * journal means the same files on a clone of the disk that it began with. */
#include "tests/disk/ramdisk.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

/* Files. */

static void bytes_size(struct ramdisk_bytes *bytes, size_t size)
{
    if (size > bytes->room) {
        bytes->room = size * 2;
        bytes->data = mem_realloc(bytes->data, bytes->room);
    }
    if (size > bytes->size)
        memset(bytes->data + bytes->size, 0, size - bytes->size);
    bytes->size = size;
}

static void bytes_put(struct ramdisk_bytes *bytes, const void *data, size_t len, size_t at)
{
    if (at + len > bytes->size)
        bytes_size(bytes, at + len);
    memcpy(bytes->data + at, data, len);
}

static int inode_new(struct ramdisk *disk)
{
    disk->inodes =
        mem_realloc(disk->inodes, (size_t)(disk->inodes_count + 1) * sizeof *disk->inodes);
    disk->inodes[disk->inodes_count] = (struct ramdisk_bytes){0};
    return disk->inodes_count++;
}

struct ramdisk *ramdisk_new(void)
{
    return mem_zalloc(sizeof(struct ramdisk));
}

void ramdisk_free(struct ramdisk *disk)
{
    if (disk == NULL)
        return;
    for (int i = 0; i < disk->inodes_count; i++)
        free(disk->inodes[i].data);
    for (int i = 0; i < disk->names_count; i++)
        free(disk->names[i].text);
    for (size_t i = 0; i < disk->events_count; i++)
        free(disk->events[i].data);
    free(disk->inodes);
    free(disk->events);
    free(disk);
}

struct ramdisk *ramdisk_clone(const struct ramdisk *disk)
{
    struct ramdisk *clone = ramdisk_new();

    clone->now_ms = disk->now_ms;
    for (int i = 0; i < disk->inodes_count; i++) {
        const struct ramdisk_bytes *bytes = &disk->inodes[i];
        inode_new(clone);
        if (bytes->size > 0)
            bytes_put(&clone->inodes[i], bytes->data, bytes->size, 0);
    }
    for (int i = 0; i < disk->names_count; i++)
        clone->names[i] =
            (struct ramdisk_name){mem_strdup(disk->names[i].text), disk->names[i].inode};
    clone->names_count = disk->names_count;
    return clone;
}

int ramdisk_name(struct ramdisk *disk, const char *text)
{
    for (int i = 0; i < disk->names_count; i++)
        if (strcmp(disk->names[i].text, text) == 0)
            return i;
    check(disk->names_count < RAMDISK_NAMES_MAX);
    disk->names[disk->names_count] = (struct ramdisk_name){mem_strdup(text), -1};
    return disk->names_count++;
}

/* Events. */

static struct ramdisk_event *event_add(struct ramdisk *disk, enum ramdisk_kind kind, int inode)
{
    if (disk->events_count == disk->events_room) {
        disk->events_room = disk->events_room * 2 + 64;
        disk->events = mem_realloc(disk->events, disk->events_room * sizeof *disk->events);
    }
    struct ramdisk_event *event = &disk->events[disk->events_count++];
    *event =
        (struct ramdisk_event){.kind = kind, .inode = inode, .name = -1, .at_ms = disk->now_ms};
    return event;
}

static void apply(struct ramdisk *disk, const struct ramdisk_event *event)
{
    while (event->inode >= disk->inodes_count)
        inode_new(disk);
    if (event->kind == RAMDISK_WRITE)
        bytes_put(&disk->inodes[event->inode], event->data, event->len, event->at);
    else if (event->kind == RAMDISK_TRUNCATE)
        bytes_size(&disk->inodes[event->inode], event->len);
    else if (event->kind == RAMDISK_CREATE)
        disk->names[event->name].inode = event->inode;
    else if (event->kind == RAMDISK_DELETE)
        disk->names[event->name].inode = -1;
}

int ramdisk_create(struct ramdisk *disk, int name)
{
    int inode = inode_new(disk);

    event_add(disk, RAMDISK_CREATE, inode)->name = name;
    disk->names[name].inode = inode;
    return inode;
}

void ramdisk_delete(struct ramdisk *disk, int name)
{
    event_add(disk, RAMDISK_DELETE, disk->names[name].inode)->name = name;
    disk->names[name].inode = -1;
}

void ramdisk_write(struct ramdisk *disk, int inode, const void *data, size_t len, size_t at)
{
    struct ramdisk_event *event = event_add(disk, RAMDISK_WRITE, inode);

    event->at = at;
    event->len = len;
    event->data = mem_alloc(len);
    memcpy(event->data, data, len);
    apply(disk, event);
}

void ramdisk_truncate(struct ramdisk *disk, int inode, size_t size)
{
    struct ramdisk_event *event = event_add(disk, RAMDISK_TRUNCATE, inode);

    event->len = size;
    apply(disk, event);
}

void ramdisk_sync(struct ramdisk *disk, int inode, bool failed)
{
    event_add(disk, failed ? RAMDISK_SYNC_FAILED : RAMDISK_SYNC, inode);
}

void ramdisk_sync_folder(struct ramdisk *disk)
{
    event_add(disk, RAMDISK_SYNC_FOLDER, 0);
}

const char *ramdisk_mode_name(enum ramdisk_mode mode)
{
    static const char *const names[RAMDISK_MODES] = {"keep", "drop", "last", "some", "torn"};
    return names[mode];
}

const char *ramdisk_kind_name(enum ramdisk_kind kind)
{
    static const char *const names[] = {"write",  "truncate", "sync",       "failed sync",
                                        "create", "delete",   "folder sync"};
    return names[kind];
}

/* Replays. */

struct replay *replay_new(const struct ramdisk *journal, const struct ramdisk *base)
{
    struct replay *replay = mem_zalloc(sizeof *replay);

    replay->journal = journal;
    replay->certain = ramdisk_clone(base);
    for (int i = 0; i < journal->names_count; i++)
        (void)ramdisk_name(replay->certain, journal->names[i].text);
    return replay;
}

void replay_free(struct replay *replay)
{
    if (replay == NULL)
        return;
    ramdisk_free(replay->certain);
    free(replay->pending);
    free(replay->doubtful);
    free(replay);
}

static bool is_name(const struct ramdisk_event *event)
{
    return event->kind == RAMDISK_CREATE || event->kind == RAMDISK_DELETE;
}

/* What is pending, and a sync concerns: becomes certain, or, where it failed, doubtful; what is
 * doubtful is lost with the next sync. */
static void settle(struct replay *replay, const struct ramdisk_event *sync)
{
    size_t left = 0;

    for (size_t i = 0; i < replay->pending_count; i++) {
        const struct ramdisk_event *event = &replay->journal->events[replay->pending[i]];
        bool doubtful = replay->doubtful[i];
        bool meant = sync->kind == RAMDISK_SYNC_FOLDER
                         ? is_name(event)
                         : !is_name(event) && event->inode == sync->inode;
        if (meant && sync->kind == RAMDISK_SYNC_FAILED)
            doubtful = true;
        if (meant && sync->kind != RAMDISK_SYNC_FAILED) {
            if (!doubtful) /* else it is lost: what was written later must not be undone by it */
                apply(replay->certain, event);
            continue;
        }
        replay->pending[left] = replay->pending[i];
        replay->doubtful[left++] = doubtful;
    }
    replay->pending_count = left;
}

void replay_to(struct replay *replay, size_t n)
{
    check(n >= replay->next && n <= replay->journal->events_count);
    for (; replay->next < n; replay->next++) {
        const struct ramdisk_event *event = &replay->journal->events[replay->next];
        if (event->kind == RAMDISK_SYNC || event->kind == RAMDISK_SYNC_FAILED ||
            event->kind == RAMDISK_SYNC_FOLDER) {
            settle(replay, event);
            continue;
        }
        if (replay->pending_count == replay->pending_room) {
            replay->pending_room = replay->pending_room * 2 + 64;
            replay->pending =
                mem_realloc(replay->pending, replay->pending_room * sizeof *replay->pending);
            replay->doubtful = mem_realloc(replay->doubtful, replay->pending_room);
        }
        replay->pending[replay->pending_count] = replay->next;
        replay->doubtful[replay->pending_count++] = false;
    }
}

/* Some sectors of a write. */
static void apply_torn(struct ramdisk *disk, const struct ramdisk_event *event, uint64_t *state)
{
    struct ramdisk_bytes *bytes = &disk->inodes[event->inode];
    uint64_t odds = dice(state) % 4; /* of four: how many sectors arrive */

    for (size_t from = 0; from < event->len;) {
        size_t len = RAMDISK_SECTOR - (event->at + from) % RAMDISK_SECTOR;
        uint64_t fate = dice(state) % 32;
        if (len > event->len - from)
            len = event->len - from;
        if (fate == 0) {
            unsigned char rubbish[RAMDISK_SECTOR];
            for (size_t i = 0; i < len; i++)
                rubbish[i] = (unsigned char)dice(state);
            bytes_put(bytes, rubbish, len, event->at + from);
        } else if (fate % 4 <= odds) {
            bytes_put(bytes, event->data + from, len, event->at + from);
        }
        from += len;
    }
}

static bool is_last(const struct replay *replay, size_t i)
{
    return i + 1 == replay->pending_count + (replay->next < replay->journal->events_count);
}

/* The i-th event that is not certain; behind the pending ones, the one under way. */
static void meet_fate(const struct replay *replay, struct ramdisk *image, size_t i,
                      enum ramdisk_mode mode, uint64_t *state)
{
    size_t which = i < replay->pending_count ? replay->pending[i] : replay->next;
    const struct ramdisk_event *event = &replay->journal->events[which];
    bool last = is_last(replay, i);
    bool torn = mode == RAMDISK_TORN || (mode == RAMDISK_LAST && last);

    while (event->inode >= image->inodes_count)
        inode_new(image);
    if (torn && event->kind == RAMDISK_WRITE)
        apply_torn(image, event, state);
    else if (mode == RAMDISK_KEEP || (mode == RAMDISK_LAST && !last) || dice(state) % 2 == 0)
        apply(image, event);
}

struct ramdisk *replay_image(const struct replay *replay, enum ramdisk_mode mode, uint64_t seed)
{
    struct ramdisk *image = ramdisk_clone(replay->certain);
    bool under_way = replay->next < replay->journal->events_count;
    size_t count = replay->pending_count + under_way, names = 0;
    uint64_t state = seed * 2654435761u + replay->next;

    image->now_ms = under_way ? replay->journal->events[replay->next].at_ms
                    : replay->journal->events_count > 0 ? replay->journal->now_ms
                                                        : replay->certain->now_ms;
    if (mode == RAMDISK_DROP)
        return image;
    for (size_t i = 0; i < count; i++)
        names +=
            is_name(&replay->journal
                         ->events[i < replay->pending_count ? replay->pending[i] : replay->next]);
    /* Names come back in order: the first few of them. */
    if (mode != RAMDISK_KEEP && mode != RAMDISK_LAST)
        names = dice(&state) % (names + 1);
    for (size_t i = 0; i < count; i++) {
        size_t which = i < replay->pending_count ? replay->pending[i] : replay->next;
        const struct ramdisk_event *event = &replay->journal->events[which];
        if (!is_name(event))
            meet_fate(replay, image, i, mode, &state);
        else if (names > 0 && names-- > 0)
            apply(image, event);
    }
    return image;
}

bool replay_differs(const struct replay *replay, enum ramdisk_mode mode)
{
    bool under_way = replay->next < replay->journal->events_count;
    size_t count = replay->pending_count + under_way;
    const struct ramdisk_event *event = under_way ? &replay->journal->events[replay->next] : NULL;

    switch (mode) {
    case RAMDISK_KEEP: return true;
    case RAMDISK_LAST: return event != NULL && event->kind == RAMDISK_WRITE;
    default: return count > (event != NULL && event->kind >= RAMDISK_SYNC && !is_name(event));
    }
}
