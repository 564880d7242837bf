/* SPDX-License-Identifier: Apache-2.0 */
/* What an operation can do inside the store's transaction: a handful of primitives over resources
 * (their fences and leases) and values, as a table of functions. A store implements them; the
 * commands above call them by the names at the end, txn_resource(txn, ...) for `resource`.
 *
 * Every function returns STK_OK, or STK_STORE when the disk or the database failed: pass that on,
 * the operation is undone. Bytes handed out stay valid until the next call on the same transaction.
 */
#ifndef STOCKADE_STORE_TXN_H
#define STOCKADE_STORE_TXN_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/token.h"
#include "store/sql.h"

#define RESOURCE_NAME_MAX 512 /* bytes; also of field names and owners */

/* On disk as a number: never renumber. */
enum value_type { VALUE_NONE = 0, VALUE_STRING = 1, VALUE_HASH = 2 };

/* The row that every command needs: small, cached. id 0: there is no such row. */
struct resource {
    int64_t id;
    struct fence fence; /* floor: at least the store-wide one, also where there is no row */
    enum value_type type;
};

/* The lease side of the row, read and written by grants only. */
struct lease {
    struct bytes owner; /* as the client named it, or generated */
    bool anonymous;     /* the owner was generated: nobody can reenter */
    int64_t holds;      /* entries by the owner, 0 when retired */
    int64_t ttl_ms;     /* as granted or last renewed */
    int64_t opening;    /* store_opening() of the daemon that granted it */
    int64_t connection; /* client id there, 0 = none; negative: the lease ends with it */
    /* Read only: the store keeps them. */
    int64_t changed_ms;    /* when the fence was written last, or the row made; 0: no row */
    int64_t change;        /* a number that differs after each time that it was written */
    int64_t age_ms;        /* at least so long ago, by a clock that all who share the store have in
                            * common; -1: there is no such clock */
    int64_t receipts_gone; /* receipts of tokens up to this one may have been removed; where there
                            * is no row, any up to the floor */
};

/* What remains of a write that carried an ID: its reply, for the repeat. */
struct receipt {
    int64_t token;        /* that it was written under */
    uint64_t fingerprint; /* of the command, but for its tokens */
    bool resp3;           /* which protocol the reply is written in */
    struct bytes reply;
    int64_t written_ms; /* since 1970, for people; the store knows, a put ignores it */
};

typedef bool (*txn_each_name)(void *context, int64_t id, struct bytes name, enum value_type type);
typedef bool (*txn_each_field)(void *context, struct bytes field, struct bytes value);
typedef bool (*txn_each_receipt)(void *context, struct bytes id, const struct receipt *receipt);

/* A walk over all resources that there are when it begins, in small transactions. */
struct flush_walk {
    int64_t after, until; /* ids: it has come to the one, and ends at the other; 0: it begins */
    bool more;            /* it has not come to its end */
};

/* Embedded first in a store's own transaction. */
struct store_txn {
    const struct store_txn_impl *impl;
};

struct store_txn_impl {
    /* When the transaction began, by the store's time (store/clock.h): for the age of things. */
    int64_t (*now_ms)(struct store_txn *txn);

    /* A savepoint inside an operation: what is done after it can be undone, what was done before it
     * stays. At most one at a time; it ends with the operation. */
    enum stk_error (*savepoint)(struct store_txn *txn);
    enum stk_error (*savepoint_keep)(struct store_txn *txn);
    /* STK_ERR: SQL has ended the whole transaction, the operation must return an error. */
    enum stk_error (*savepoint_undo)(struct store_txn *txn);

    /* Find a resource by name; one that does not exist has id 0, FENCE_NONE, VALUE_NONE. */
    enum stk_error (*resource)(struct store_txn *txn, struct bytes name, struct resource *resource);
    /* Make the row where id is 0, and fill in the id. */
    enum stk_error (*resource_make)(struct store_txn *txn, struct bytes name,
                                    struct resource *resource);
    /* Write resource->fence (token and state; the row exists) and the lease beside it. */
    enum stk_error (*fence_put)(struct store_txn *txn, const struct resource *resource,
                                const struct lease *lease);
    /* Both in one: make the row where id is 0, and write fence and lease. NULL in a store where
     * that is no less work than one after the other. */
    enum stk_error (*fence_make)(struct store_txn *txn, struct bytes name,
                                 struct resource *resource, const struct lease *lease);
    enum stk_error (*lease)(struct store_txn *txn, const struct resource *resource,
                            struct lease *lease);
    /* Ask to be told when another daemon ends the live lease of this resource: see store_listen.
     * NULL in a store that is told nothing by others. */
    enum stk_error (*await)(struct store_txn *txn, const struct resource *resource);
    /* Call `each` for resources with an id above `after` and a live fence (each_key: a value), in
     * the order of ids, until it returns false. */
    enum stk_error (*each_live)(struct store_txn *txn, int64_t after, txn_each_name each,
                                void *context);
    enum stk_error (*each_key)(struct store_txn *txn, int64_t after, txn_each_name each,
                               void *context);
    enum stk_error (*count_keys)(struct store_txn *txn, int64_t *count);
    enum stk_error (*count_live)(struct store_txn *txn, int64_t *count);

    /* The type in the row follows by itself: a put makes it VALUE_STRING or VALUE_HASH (and
     * writes resource->type), a removal of the last part makes it VALUE_NONE. Puts need the row;
     * the caller has ruled out the wrong type before it puts, or cleared the value. */
    enum stk_error (*string)(struct store_txn *txn, const struct resource *resource, bool *found,
                             struct bytes *value);
    /* The same by name alone, where the store remembers the string or the name's id: one look-up,
     * or none, instead of two. Not found means only that it is not remembered: look the resource
     * up then. NULL in a store that remembers nothing. */
    enum stk_error (*string_of)(struct store_txn *txn, struct bytes name, bool *found,
                                struct bytes *value);
    enum stk_error (*string_put)(struct store_txn *txn, struct resource *resource,
                                 struct bytes value);
    enum stk_error (*field)(struct store_txn *txn, const struct resource *resource,
                            struct bytes field, bool *found, struct bytes *value);
    enum stk_error (*field_put)(struct store_txn *txn, struct resource *resource,
                                struct bytes field, struct bytes value);
    enum stk_error (*field_remove)(struct store_txn *txn, struct resource *resource,
                                   struct bytes field, bool *found);
    /* Call `each` for the fields from `from` on (inclusive), in the order of bytes_compare, until
     * it returns false. */
    enum stk_error (*each_field_from)(struct store_txn *txn, const struct resource *resource,
                                      struct bytes from, txn_each_field each, void *context);
    enum stk_error (*count_fields)(struct store_txn *txn, const struct resource *resource,
                                   int64_t *count);
    /* Remove the value, whatever its type. */
    enum stk_error (*value_clear)(struct store_txn *txn, struct resource *resource);
    /* The receipt of a request's ID on a resource that exists. A put does not replace an older one.
     */
    enum stk_error (*receipt)(struct store_txn *txn, const struct resource *resource,
                              struct bytes id, bool *found, struct receipt *receipt);
    enum stk_error (*receipt_put)(struct store_txn *txn, const struct resource *resource,
                                  struct bytes id, const struct receipt *receipt);
    /* Make it as if the request had never been. It is no error if there is none. */
    enum stk_error (*receipt_remove)(struct store_txn *txn, const struct resource *resource,
                                     struct bytes id);
    /* Call `each` for a resource's receipts, those of newer tokens first, then in
     * the reverse order of bytes_compare, until it returns false; at least for 1000 of them. */
    enum stk_error (*each_receipt)(struct store_txn *txn, const struct resource *resource,
                                   txn_each_receipt each, void *context);
    /* Clean-up, a little at a time: examine no more than `max` rows, and say in `more` whether
     * there is more to do now. Receipts go when their token was retired before `before_ms`; before
     * the first one goes, lease.receipts_gone has risen to the token. */
    enum stk_error (*sweep_receipts)(struct store_txn *txn, int64_t before_ms, size_t max,
                                     size_t *removed, bool *more);
    /* Resources without value, receipt or live token go when their fence was written last before
     * `before_ms`; those whose token is live, but was written last before `live_before_ms`, count
     * as abandoned and go too (where they have receipts: are revoked, so that these go first). The
     * store-wide floor rises to the largest token that goes. `*after` is where the last sweep ended
     * (an id; 0: start). `more` is false at the end of the table, and `*after` 0 again. */
    enum stk_error (*sweep_resources)(struct store_txn *txn, int64_t before_ms,
                                      int64_t live_before_ms, size_t max, int64_t *after,
                                      size_t *removed, bool *more);
    /* For a read: is there anything to do for a sweep with the same arguments? If not, `*after`
     * moves on as after that sweep. */
    enum stk_error (*receipts_due)(struct store_txn *txn, int64_t before_ms, bool *due);
    enum stk_error (*resources_due)(struct store_txn *txn, int64_t before_ms,
                                    int64_t live_before_ms, size_t max, int64_t *after, bool *due,
                                    bool *more);
    /* Remove the values and revoke the live fences of the next resources: until it is some `max`
     * rows and fields, and no hash in parts. The walk goes on from where the last step left it. */
    enum stk_error (*flush)(struct store_txn *txn, size_t max, struct flush_walk *walk);

    /* Keep this head of an audit. `*restored`: a backup was put in the store's place since the
     * chain's head was kept last. NULL in a store that keeps none. */
    enum stk_error (*audit_head)(struct store_txn *txn, struct bytes chain, int64_t lines,
                                 struct bytes hash, bool *restored);

    /* SQL, NULL all of them in a store without it: see sql.h. */
    enum stk_error (*sql)(struct store_txn *txn, struct sql_call *call);
    void (*present)(struct store_txn *txn, const struct claim *claims, size_t count);
    enum stk_error (*guard_create)(struct store_txn *txn, const struct table_guard *guard,
                                   char why[SQL_WHY_MAX]);
    enum stk_error (*guard_drop)(struct store_txn *txn, struct bytes table, char why[SQL_WHY_MAX]);
    enum stk_error (*guards)(struct store_txn *txn, txn_each_guard each, void *context);
};

/* For `if (txn_failed(error = txn_...)) return error;`. */
static inline bool txn_failed(enum stk_error error)
{
    return error != STK_OK;
}

/* The primitives, as they are called. */
#define txn_now_ms(txn)               ((txn)->impl->now_ms(txn))
#define txn_savepoint(txn)            ((txn)->impl->savepoint(txn))
#define txn_savepoint_keep(txn)       ((txn)->impl->savepoint_keep(txn))
#define txn_savepoint_undo(txn)       ((txn)->impl->savepoint_undo(txn))
#define txn_resource(txn, ...)        ((txn)->impl->resource((txn), __VA_ARGS__))
#define txn_resource_make(txn, ...)   ((txn)->impl->resource_make((txn), __VA_ARGS__))
#define txn_fence_put(txn, ...)       ((txn)->impl->fence_put((txn), __VA_ARGS__))
#define txn_lease(txn, ...)           ((txn)->impl->lease((txn), __VA_ARGS__))
#define txn_await(txn, ...)           ((txn)->impl->await((txn), __VA_ARGS__))
#define txn_each_live(txn, ...)       ((txn)->impl->each_live((txn), __VA_ARGS__))
#define txn_each_key(txn, ...)        ((txn)->impl->each_key((txn), __VA_ARGS__))
#define txn_count_keys(txn, ...)      ((txn)->impl->count_keys((txn), __VA_ARGS__))
#define txn_count_live(txn, ...)      ((txn)->impl->count_live((txn), __VA_ARGS__))
#define txn_string(txn, ...)          ((txn)->impl->string((txn), __VA_ARGS__))
#define txn_string_put(txn, ...)      ((txn)->impl->string_put((txn), __VA_ARGS__))
#define txn_field(txn, ...)           ((txn)->impl->field((txn), __VA_ARGS__))
#define txn_field_put(txn, ...)       ((txn)->impl->field_put((txn), __VA_ARGS__))
#define txn_field_remove(txn, ...)    ((txn)->impl->field_remove((txn), __VA_ARGS__))
#define txn_each_field_from(txn, ...) ((txn)->impl->each_field_from((txn), __VA_ARGS__))
#define txn_count_fields(txn, ...)    ((txn)->impl->count_fields((txn), __VA_ARGS__))
#define txn_value_clear(txn, ...)     ((txn)->impl->value_clear((txn), __VA_ARGS__))
#define txn_receipt(txn, ...)         ((txn)->impl->receipt((txn), __VA_ARGS__))
#define txn_receipt_put(txn, ...)     ((txn)->impl->receipt_put((txn), __VA_ARGS__))
#define txn_receipt_remove(txn, ...)  ((txn)->impl->receipt_remove((txn), __VA_ARGS__))
#define txn_each_receipt(txn, ...)    ((txn)->impl->each_receipt((txn), __VA_ARGS__))
#define txn_sweep_receipts(txn, ...)  ((txn)->impl->sweep_receipts((txn), __VA_ARGS__))
#define txn_sweep_resources(txn, ...) ((txn)->impl->sweep_resources((txn), __VA_ARGS__))
#define txn_receipts_due(txn, ...)    ((txn)->impl->receipts_due((txn), __VA_ARGS__))
#define txn_resources_due(txn, ...)   ((txn)->impl->resources_due((txn), __VA_ARGS__))
#define txn_flush(txn, ...)           ((txn)->impl->flush((txn), __VA_ARGS__))
#define txn_audit_head(txn, chain, lines, hash, restored)                                          \
    ((txn)->impl->audit_head != NULL                                                               \
         ? (txn)->impl->audit_head((txn), (chain), (lines), (hash), (restored))                    \
         : (*(restored) = false, (enum stk_error)STK_OK))
#define txn_string_of(txn, name, found, value)                                                     \
    ((txn)->impl->string_of != NULL ? (txn)->impl->string_of((txn), (name), (found), (value))      \
                                    : (*(found) = false, (enum stk_error)STK_OK))
#define txn_present(txn, claims, count)                                                            \
    ((txn)->impl->present != NULL ? (txn)->impl->present((txn), (claims), (count)) : (void)0)

static inline enum stk_error txn_fence_make(struct store_txn *txn, struct bytes name,
                                            struct resource *resource, const struct lease *lease)
{
    struct fence fence = resource->fence;

    if (txn->impl->fence_make != NULL)
        return txn->impl->fence_make(txn, name, resource, lease);
    enum stk_error error = txn_resource_make(txn, name, resource);
    if (error != STK_OK)
        return error;
    resource->fence = fence;
    return txn_fence_put(txn, resource, lease);
}

#endif
