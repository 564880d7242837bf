/* SPDX-License-Identifier: Apache-2.0 */
/* Judges a chain of an audit: are its lines all there, unchanged, in order? The files of one chain
 * are given one after the other, piece by piece.
 *
 * What is found: any line that was changed, removed, added or moved, where a line stands behind it,
 * or where the store's head covers it. What a crash leaves is told apart: a last line that is torn,
 * and torn bytes that the daemon has found at its next start and put under the chain. */
#ifndef STOCKADE_AUDIT_JUDGE_H
#define STOCKADE_AUDIT_JUDGE_H

#include "proxy/server/audit/chain.h"

struct judge;

struct judgement {
    struct chain_head head; /* of the lines that were found whole */
    uint64_t first;         /* the number of the first line; 1: the chain's own first */
    uint64_t torn;          /* places where a crash tore a line */
    uint64_t gaps;          /* lines that say that others could not be written */
    bool ends_torn;         /* the last line has no end: a crash, or somebody cut it */
    bool head_seen;         /* the line of the store's head is there, and is that line */
    bool broken;
    char why[320]; /* of a broken one: "FILE:12: ..." */
};

/* `known`, the store's head of the chain, is NULL where it is not to be asked for. */
struct judge *judge_new(const struct chain_head *known);
/* A file begins; `name` is for messages, and is borrowed until the end. */
void judge_begin_file(struct judge *judge, const char *name);
void judge_read(struct judge *judge, struct bytes piece);
/* `last`: no other file follows. */
void judge_end_file(struct judge *judge, bool last);
/* After the last file. Borrowed from the judge. */
const struct judgement *judge_end(struct judge *judge);
void judge_free(struct judge *judge);

#endif
