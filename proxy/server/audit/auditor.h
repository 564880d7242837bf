/* SPDX-License-Identifier: Apache-2.0 */
/* The audit of a daemon: notes go in on the loop's thread, a thread of its own makes lines of them,
 * writes them and syncs them.
 *
 *   engine ─ note ─▶ fresh ─ auditor_flush, once a turn ─▶ queue ─▶ [ thread: write, fdatasync ]
 *   engine_audited ◀─ auditor_collect ◀─ wake ───────────────────────────┘
 *
 * - Of a group of durable notes there is one fdatasync, and replies wait for it. What is not
 * durable is written within GATHER_MS, and synced within SYNC_MS.
 * - Nobody waits for room: notes are dropped and counted where QUEUE_BYTES_MAX wait already, as
 *   they do while the disk is full, and a line `gap` says how many once there is room again. A
 *   durable note that is dropped, or cannot be synced, is AUDIT_LOST: its client is not told.
 * - Lines that were made are never dropped: they are written when the disk takes them. */
#ifndef STOCKADE_AUDIT_AUDITOR_H
#define STOCKADE_AUDIT_AUDITOR_H

#include "fence/base/log.h"
#include "proxy/server/audit/chain.h"

struct auditor;

struct auditor_options {
    const char *path;
    int64_t bytes_max;              /* of a file, about; 0: it is never rotated by size */
    uint32_t durable;               /* bits of enum audit_event */
    const struct chain_head *known; /* heads that were seen before; borrowed for auditor_open */
    size_t known_count;
    const struct log *log;
    void (*wake)(void *context); /* on any thread: call auditor_collect soon */
    void *context;
};

/* Open the file and start the thread. NULL: `why` is one line. */
struct auditor *auditor_open(const struct auditor_options *options, char *why, size_t why_size);
/* What the engine is given. */
struct audit auditor_audit(struct auditor *auditor);
/* At the end of a turn: hand over what was noted in it. */
void auditor_flush(struct auditor *auditor);
/* What has become known since the last call. */
struct auditor_news {
    uint64_t ticket; /* up to this one all is on disk */
    bool failed;     /* the rest of them could not be put there */
};
struct auditor_news auditor_collect(struct auditor *auditor);
/* SIGUSR1: go on in a new file. */
void auditor_reopen(struct auditor *auditor);
/* The head of the chain: of what is synced. */
struct chain_head auditor_head(const struct auditor *auditor);
/* Write and sync all that was noted, and end the thread. Notes are dropped from now on. False,
 * which is only returned to who does not want to wait: the disk is still at it; call this again
 * after the next wake(). */
bool auditor_finish(struct auditor *auditor, bool wait);
void auditor_free(struct auditor *auditor);

#endif
