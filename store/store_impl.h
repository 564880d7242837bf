/* SPDX-License-Identifier: Apache-2.0 */
/* The store, as its implementers see it. Embed `struct store` and `struct store_txn` first in your
 * own structs and point them at your tables; the functions of store.h, txn.h and sql.h go through
 * them. Beside the contracts there, an implementer keeps this:
 *
 * - An operation's `run` sees one state and is alone with it: no other operation, and no other
 *   process, changes in between what it has read. How is the store's business (one writer with a
 *   lock; serializable transactions that are repeated). `run` may be run again, from scratch, as
 *   long as nothing of its earlier run is kept.
 * - `done` comes after what the operation did is durable, in the order of submission, and only from
 *   `collect`. What is not known to be durable is not answered (`lost`).
 * - The tokens of a resource never fall, whatever `run` puts: a write of a smaller one is a bug,
 * and ends the process. A row that is removed leaves its token to the store-wide floor.
 * - An operation that returns an error leaves no trace, and takes no other operation along.
 * - Ages go by the store's time (clock.h), not by any wall clock.
 * - Queues are bounded; a full one answers STK_BUSY at once.
 *
 * tests/unit/store/twins_test.c runs two stores side by side, step by step. */
#ifndef STOCKADE_STORE_STORE_IMPL_H
#define STOCKADE_STORE_STORE_IMPL_H

#include <pthread.h>

#include "store/sql.h"
#include "store/store.h"
#include "store/txn.h"

struct store_impl {
    enum stk_error (*submit)(struct store *store, struct store_op *op);
    bool (*flush)(struct store *store); /* NULL: a store without threads */
    void (*collect)(struct store *store);
    bool (*step)(struct store *store);
    bool (*lost)(const struct store *store);
    int64_t (*session)(const struct store *store);
    struct store_stats (*stats)(const struct store *store);
    void (*close)(struct store *store);
};

struct store {
    const struct store_impl *impl;
};

/* What operations were told, each text once: they only point here. */
#define STORE_REASONS_MAX 32
struct store_reasons {
    pthread_mutex_t lock;
    size_t count;
    char texts[STORE_REASONS_MAX][STORE_WHY_MAX];
};

/* The operation fails with STK_STORE; `why` becomes one printable line. More texts than there is
 * room for are left to the log. On any thread. */
void store_op_fail(struct store_op *op, struct store_reasons *reasons, const char *why);

/* As in txn.h and sql.h, with the same contracts. */
struct store_txn_impl {
    int64_t (*now_ms)(struct store_txn *);
    enum stk_error (*mark)(struct store_txn *);
    enum stk_error (*mark_keep)(struct store_txn *);
    enum stk_error (*mark_undo)(struct store_txn *);
    enum stk_error (*resource)(struct store_txn *, struct bytes, struct resource *);
    enum stk_error (*resource_make)(struct store_txn *, struct bytes, struct resource *);
    enum stk_error (*fence_put)(struct store_txn *, const struct resource *, const struct lease *);
    enum stk_error (*lease)(struct store_txn *, const struct resource *, struct lease *);
    enum stk_error (*each_live)(struct store_txn *, int64_t, txn_each_name, void *);
    enum stk_error (*each_key)(struct store_txn *, int64_t, txn_each_name, void *);
    enum stk_error (*count_keys)(struct store_txn *, int64_t *);
    enum stk_error (*count_live)(struct store_txn *, int64_t *);
    enum stk_error (*string)(struct store_txn *, const struct resource *, bool *, struct bytes *);
    /* NULL where nothing is remembered. */
    enum stk_error (*string_of)(struct store_txn *, struct bytes, bool *, struct bytes *);
    enum stk_error (*string_put)(struct store_txn *, struct resource *, struct bytes);
    enum stk_error (*field)(struct store_txn *, const struct resource *, struct bytes, bool *,
                            struct bytes *);
    enum stk_error (*field_put)(struct store_txn *, struct resource *, struct bytes, struct bytes);
    enum stk_error (*field_remove)(struct store_txn *, struct resource *, struct bytes, bool *);
    enum stk_error (*each_field_from)(struct store_txn *, const struct resource *, struct bytes,
                                      txn_each_field, void *);
    enum stk_error (*count_fields)(struct store_txn *, const struct resource *, int64_t *);
    enum stk_error (*value_clear)(struct store_txn *, struct resource *);
    enum stk_error (*receipt)(struct store_txn *, const struct resource *, struct bytes, bool *,
                              struct receipt *);
    enum stk_error (*receipt_put)(struct store_txn *, const struct resource *, struct bytes,
                                  const struct receipt *);
    enum stk_error (*receipt_remove)(struct store_txn *, const struct resource *, struct bytes);
    enum stk_error (*sweep_receipts)(struct store_txn *, int64_t, size_t, size_t *, bool *);
    enum stk_error (*sweep_resources)(struct store_txn *, int64_t, int64_t, size_t, int64_t *,
                                      size_t *, bool *);
    enum stk_error (*receipts_due)(struct store_txn *, int64_t, bool *);
    enum stk_error (*resources_due)(struct store_txn *, int64_t, int64_t, size_t, int64_t *, bool *,
                                    bool *);
    enum stk_error (*flush)(struct store_txn *);
    /* NULL, all of them, in a store without SQL. */
    enum stk_error (*sql)(struct store_txn *, struct sql_call *);
    void (*present)(struct store_txn *, const struct claim *, size_t);
    enum stk_error (*guard_create)(struct store_txn *, struct bytes, struct bytes, struct bytes,
                                   char[SQL_WHY_MAX]);
    enum stk_error (*guard_drop)(struct store_txn *, struct bytes, char[SQL_WHY_MAX]);
    enum stk_error (*guards)(struct store_txn *, txn_each_guard, void *);
};

struct store_txn {
    const struct store_txn_impl *impl;
};

#endif
