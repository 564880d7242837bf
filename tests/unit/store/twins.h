/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are drawn from a seed, and all that can be seen of what they leave: two stores on
 * which the same ones run must look the same. */
#ifndef STOCKADE_TESTS_STORE_TWINS_H
#define STOCKADE_TESTS_STORE_TWINS_H

#include "tests/unit/store/rig.h"

enum { TWINS_KEEP_MS = 5000 };

/* An operation: what it is drawn from, and what it came to. */
struct drawing {
    uint64_t seed;
    bool plain; /* of what concerns no more than the resources that it names */
    int64_t outcome;
};

/* xorshift64 */
unsigned twins_draw(uint64_t *state, unsigned below);
/* A rig_body; `arg` is a drawing. A few changes, some of them undone by a mark; then, now and then,
 * a failure. */
enum stk_error twins_change(struct store_txn *txn, void *arg);

/* What is seen of a store. `shared`: but for what others have a hand in, ids and times, and up to
 * which token receipts may be gone, which need not be exact. */
struct view {
    bool shared;
    struct buf text;
};

/* A rig_body; `arg` is a view. */
enum stk_error twins_view(struct store_txn *txn, void *arg);

#endif
