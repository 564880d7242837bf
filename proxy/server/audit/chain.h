/* SPDX-License-Identifier: Apache-2.0 */
/* The audit's lines, and how each holds the one before. A line is a JSON object with these members,
 * in this order:
 *
 *   time_ms event user address resource token code reason prev
 *
 * `prev` is the SHA-256 of the line before, without its end; of a chain's first line, 64 zeros. So
 * nobody can change, remove or add a line without making all after it anew, and the newest hash
 * with the number of lines, the head, stands for all of them.
 *
 * Each file begins with an event `chain`, whose reason is "chain ID line N": which chain it belongs
 * to, and which number that line has in it. Where the end of a file was torn by a crash, the next
 * line is an event `torn`, whose reason is "bytes N sha256 H": of all that stands between the last
 * whole line and it, which is no part of the chain.
 *
 * No I/O here. */
#ifndef STOCKADE_AUDIT_CHAIN_H
#define STOCKADE_AUDIT_CHAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "proxy/engine/audit.h"

enum { CHAIN_HASH_LEN = 64, CHAIN_ID_LEN = 32 };

/* SHA-256 as text. */
struct chain_hash {
    char hex[CHAIN_HASH_LEN + 1];
};

/* How far a chain has come. All zero but for the id: it begins. */
struct chain_head {
    char id[CHAIN_ID_LEN + 1];
    uint64_t lines;
    struct chain_hash hash; /* of the last line */
};

enum { CHAIN_LINE_MAX = 64 << 10 };      /* none is as long, with all its texts escaped */
#define CHAIN_LINE_START "{\"time_ms\":" /* each line begins so */

/* Hashes pieces of one text; owned by one thread. */
struct chain_hasher;
struct chain_hasher *chain_hasher_new(void);
void chain_hasher_free(struct chain_hasher *hasher);
/* Begin a text, add to it, and take the hash of what was added so far (more may follow). */
void chain_hash_begin(struct chain_hasher *hasher);
void chain_hash_add(struct chain_hasher *hasher, struct bytes piece);
struct chain_hash chain_hash_take(struct chain_hasher *hasher);
/* The hash of one text. What was begun before is lost. */
struct chain_hash chain_hash_of(struct chain_hasher *hasher, struct bytes text);

/* Begin a chain with an id of its own. False: the system gives no random bytes. */
bool chain_begin(struct chain_head *head);
/* Append the next line, with its end, and move the head on to it. */
void chain_append(struct chain_head *head, struct chain_hasher *hasher, int64_t time_ms,
                  const struct audit_note *note, struct buf *out);
/* The same for the audit's own: the first line of a file, and the one after torn bytes. */
void chain_append_begin(struct chain_head *head, struct chain_hasher *hasher, int64_t time_ms,
                        struct buf *out);
void chain_append_torn(struct chain_head *head, struct chain_hasher *hasher, int64_t time_ms,
                       uint64_t bytes, struct chain_hash hash, struct buf *out);

/* A line without its end, as far as a chain is concerned. */
struct chain_line {
    struct bytes event, prev;
    struct bytes reason; /* as it stands in the line: escaped, without quotes; empty: null */
};
/* False: that is no line of an audit. The parts are views into the text. */
bool chain_line_read(struct bytes text, struct chain_line *line);
/* Read what a line `chain` or `torn` says. False: it is no such line. */
bool chain_line_begins(const struct chain_line *line, struct chain_head *head, uint64_t *number);
bool chain_line_is_torn(const struct chain_line *line, uint64_t *bytes, struct chain_hash *hash);
/* Return whether the line holds this one. */
bool chain_line_holds(const struct chain_line *line, const struct chain_head *before);

const char *audit_event_name(enum audit_event event);
/* Read a list as "grant,login" or "all" into bits. False: `*wrong` is the name that is none. */
bool audit_events_read(const char *text, uint32_t *events, struct bytes *wrong);

#endif
