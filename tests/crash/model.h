/* SPDX-License-Identifier: Apache-2.0 */
/* What the store has to hold, worked out apart from it: operations as clients send them, and what
 * each does to a slot. A slot is some resources (one string, one hash, one that never has a value)
 * and a guarded row, which nobody else touches, so each slot has a history of its own. */
#ifndef STOCKADE_TESTS_CRASH_MODEL_H
#define STOCKADE_TESTS_CRASH_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"

enum { MODEL_SLOTS = 3, MODEL_RESOURCES = 3, MODEL_RECEIPTS_MAX = 96, MODEL_REPLY_MAX = 160 };
enum { MODEL_TTL_MS = 30000 };
enum { BOX, SKU, TMP }; /* a hash, a string, nothing: in the order of their names */

enum model_state { MODEL_NONE, MODEL_LIVE, MODEL_RELEASED, MODEL_REVOKED };

struct model_resource {
    enum model_state state;
    int64_t token;
    int holds, owner;
    int64_t changed_ms; /* the fence */
    int64_t until_ms;   /* its lease is over */
};

struct model_receipt {
    int resource, id;
    char kind;                   /* w: a write, g: a grant, r: a release */
    int64_t token, ended_ms;     /* ended_ms 0: its token is live */
    char reply[MODEL_REPLY_MAX]; /* of a write */
};

struct model_slot {
    int number;
    struct model_resource resources[MODEL_RESOURCES];
    bool has_sku, has_n, has_m, has_row;
    int64_t sku, n, m, row;
    int64_t big; /* bytes of a large field; 0: there is none */
    struct model_receipt receipts[MODEL_RECEIPTS_MAX];
    int receipts_count;
};

enum op_kind {
    OP_ACQUIRE, /* also: once more, and of one whose lease is over */
    OP_RELEASE,
    OP_REVOKE,
    OP_RENEW,
    OP_SET,
    OP_ADD,
    OP_DELETE,
    OP_FIELD_ADD,
    OP_FIELD_SET,
    OP_BIG,
    OP_BIG_REMOVE,
    OP_BASKET,         /* MULTI: both counters */
    OP_BASKET_REFUSED, /* MULTI: the second command is refused, so nothing is applied */
    OP_ROW,            /* guarded SQL */
    OP_ROW_ROLLS_BACK, /* SQL that ends the transaction of the whole batch */
    OP_STALE,          /* a write with the token before */
    OP_READ,
    OP_KINDS
};

struct op {
    enum op_kind kind;
    int resource, id; /* id 0: without */
    int owner;
    int64_t token, other_token; /* of the resource; of the box, where two are needed */
    int64_t number;
    int replies; /* how many a client gets for it; the last one counts */
};

const char *op_name(enum op_kind kind);
/* The name of a slot's resource, into `out` of 16 bytes. */
const char *model_name(int slot, int resource, char out[16]);
/* Pick what to do next: up to `max` operations that go out together. Return how many. */
int model_pick(const struct model_slot *slot, uint64_t *dice, int *ids, int64_t now_ms,
               struct op *ops, int max);
/* Append a request of words between spaces; between tildes, spaces are part of the word. */
void model_line(struct buf *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Append the operation as it goes over the wire. */
void model_request(int slot, const struct op *op, struct buf *out);
/* Do it. `reply` is what was answered, NULL: not known; `token` the one that a grant gave, where
 * there was no reply. Return false where the reply is not the right one; `expected` says which is
 * (text for people, where it is a grant's). */
bool model_apply(struct model_slot *slot, const struct op *op, const struct bytes *reply,
                 int64_t token, int64_t now_ms, char expected[MODEL_REPLY_MAX]);
/* The daemon has started anew: what was not released is held for its time again. */
void model_restart(struct model_slot *slot, int64_t now_ms);
/* Append the slot as lines. Where a line begins with '?', it may be missing: clean-up was allowed
 * to remove it. */
void model_lines(const struct model_slot *slot, int64_t now_ms, struct buf *out);

#endif
