/* SPDX-License-Identifier: Apache-2.0 */
/* The audit's file: lines are chained, written, synced, and go on in another file. Used by one
 * thread at a time; it waits for the disk.
 *
 * How it fails: a line is made once and kept until it is synced, also where a full disk takes half
 * of it. After a sync that failed it is written to the same place again, so nothing is there twice
 * or left out. A file that was torn by a crash is gone on
 * with, and a line says so. A second process is refused. */
#ifndef STOCKADE_AUDIT_FILE_H
#define STOCKADE_AUDIT_FILE_H

#include "proxy/server/audit/chain.h"

struct audit_file;

/* What was found when a file was opened. Lines that say so are made, and not written yet. */
struct audit_opened {
    bool is_new;         /* a chain begins */
    uint64_t torn_bytes; /* of a line that a crash has torn */
    char mismatch[160];  /* how the file differs from a known head: somebody has changed or cut it;
                            "": it does not */
};

/* Open the file, or make it and begin a chain. `known` are the heads that were seen before. NULL:
 * `why` is one line. */
struct audit_file *audit_file_open(const char *path, const struct chain_head *known,
                                   size_t known_count, struct audit_opened *opened, char *why,
                                   size_t why_size);
/* Close it. Lines that are not written are lost. */
void audit_file_close(struct audit_file *file);

/* Make a line, to be written by the next audit_file_write. */
void audit_file_add(struct audit_file *file, int64_t time_ms, const struct audit_note *note);
/* Write what was made. False: not all of it, errno says why; call it again later. */
bool audit_file_write(struct audit_file *file);
/* Sync what was written. False: errno says why, nobody knows what is on the disk, and the next
 * audit_file_write begins with what was not synced. */
bool audit_file_sync(struct audit_file *file);
bool audit_file_is_written(const struct audit_file *file);
/* How many bytes are kept until they are synced. */
size_t audit_file_unsynced(const struct audit_file *file);
bool audit_file_is_synced(const struct audit_file *file);
/* The head of the chain and the file's size, with the lines that are not written yet. */
struct chain_head audit_file_head(const struct audit_file *file);
int64_t audit_file_size(const struct audit_file *file);

enum audit_rotation {
    AUDIT_ROTATED,   /* the lines go on in a new file */
    AUDIT_UNCHANGED, /* they stay in this one; `why` says why */
};
/* Give the file a name with the number of its first line, and go on in a new one. All has to be
 * written and synced. `name`, out: its name now. */
enum audit_rotation audit_file_rotate(struct audit_file *file, char *name, size_t name_size,
                                      char *why, size_t why_size);
/* The file may have been moved away: then go on in a new one under the path, else rotate. */
enum audit_rotation audit_file_reopen(struct audit_file *file, char *name, size_t name_size,
                                      char *why, size_t why_size);

#endif
