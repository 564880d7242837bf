/* SPDX-License-Identifier: Apache-2.0 */
/* What an operation can do inside the store's transaction: a handful of primitives over resources
 * (their fences and leases) and values. A store implements them, the commands above use them.
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

#define RESOURCE_NAME_MAX 512 /* bytes; also of field names and owners */

struct store_txn;

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
    bool anonymous;     /* generated: nobody can enter again */
    int64_t holds;      /* entries by the owner, 0 when retired */
    int64_t ttl_ms;     /* as granted or last renewed */
    int64_t session;    /* store_session() of the daemon that granted it */
    int64_t connection; /* client id there, 0 = none */
    /* Read only: the store keeps them. */
    int64_t changed_ms;    /* when the fence was written last, or the row made; 0: no row */
    int64_t receipts_gone; /* receipts of tokens up to this one may have been removed; where there
                            * is no row, any up to the floor */
};

/* What remains of a write that carried an ID: its reply, for the repeat. */
struct receipt {
    int64_t token;        /* that it was written under */
    uint64_t fingerprint; /* of the command, but for its tokens */
    bool resp3;           /* which protocol the reply is written in */
    struct bytes reply;
};

/* When the transaction began, by the store's time (store/clock.h): for the age of things. */
int64_t txn_now_ms(struct store_txn *txn);

/* A mark inside an operation: what is done after it can be undone, what was done before it stays.
 * At most one at a time; it ends with the operation. */
enum stk_error txn_mark(struct store_txn *txn);
enum stk_error txn_mark_keep(struct store_txn *txn);
/* STK_ERR: SQL has ended the whole transaction, the operation must return an error. */
enum stk_error txn_mark_undo(struct store_txn *txn);

/* Finds a resource by name; one that does not exist has id 0, FENCE_NONE, VALUE_NONE. */
enum stk_error txn_resource(struct store_txn *txn, struct bytes name, struct resource *resource);
/* Makes the row where id is 0, and fills in the id. */
enum stk_error txn_resource_make(struct store_txn *txn, struct bytes name,
                                 struct resource *resource);
/* Writes resource->fence (token and state; the row exists) and the lease beside it. */
enum stk_error txn_fence_put(struct store_txn *txn, const struct resource *resource,
                             const struct lease *lease);
enum stk_error txn_lease(struct store_txn *txn, const struct resource *resource,
                         struct lease *lease);
/* The names of resources with id above `after` and a live fence, or with a value, in order of id,
 * until `each` returns false. */
typedef bool (*txn_each_name)(void *context, int64_t id, struct bytes name, enum value_type type);
enum stk_error txn_each_live(struct store_txn *txn, int64_t after, txn_each_name each,
                             void *context);
enum stk_error txn_each_key(struct store_txn *txn, int64_t after, txn_each_name each,
                            void *context);
enum stk_error txn_count_keys(struct store_txn *txn, int64_t *count);
enum stk_error txn_count_live(struct store_txn *txn, int64_t *count);

/* Values. The type in the row follows by itself: a put makes it VALUE_STRING or VALUE_HASH (and
 * writes resource->type), a removal of the last part makes it VALUE_NONE. Puts need the row; the
 * caller has ruled out the wrong type before it puts, or cleared the value. */
enum stk_error txn_string(struct store_txn *txn, const struct resource *resource, bool *found,
                          struct bytes *value);
/* The same by name alone, where the store remembers the string, or whose id the name is: one
 * look-up, or none, instead of two. Not found says nothing: look for the resource then. */
enum stk_error txn_string_of(struct store_txn *txn, struct bytes name, bool *found,
                             struct bytes *value);
enum stk_error txn_string_put(struct store_txn *txn, struct resource *resource, struct bytes value);
enum stk_error txn_field(struct store_txn *txn, const struct resource *resource, struct bytes field,
                         bool *found, struct bytes *value);
enum stk_error txn_field_put(struct store_txn *txn, struct resource *resource, struct bytes field,
                             struct bytes value);
enum stk_error txn_field_remove(struct store_txn *txn, struct resource *resource,
                                struct bytes field, bool *found);
/* Fields from `from` (inclusive) in the order of bytes_compare, until `each` returns false. */
typedef bool (*txn_each_field)(void *context, struct bytes field, struct bytes value);
enum stk_error txn_each_field_from(struct store_txn *txn, const struct resource *resource,
                                   struct bytes from, txn_each_field each, void *context);
enum stk_error txn_count_fields(struct store_txn *txn, const struct resource *resource,
                                int64_t *count);
/* Removes the value, whatever its type. */
enum stk_error txn_value_clear(struct store_txn *txn, struct resource *resource);
/* The receipt of a request's id on a resource that exists. A put replaces nothing: where there is
 * one, it stays as it is. */
enum stk_error txn_receipt(struct store_txn *txn, const struct resource *resource, struct bytes id,
                           bool *found, struct receipt *receipt);
enum stk_error txn_receipt_put(struct store_txn *txn, const struct resource *resource,
                               struct bytes id, const struct receipt *receipt);
/* It is as if the request had never been; harmless where there is none. */
enum stk_error txn_receipt_remove(struct store_txn *txn, const struct resource *resource,
                                  struct bytes id);
/* Clean-up, a little at a time: looks at no more than `max` rows, and says in `more` whether there
 * is more to do now. Receipts go when their token was retired before `before_ms`; before the first
 * one goes, lease.receipts_gone has risen to the token. */
enum stk_error txn_sweep_receipts(struct store_txn *txn, int64_t before_ms, size_t max,
                                  size_t *removed, bool *more);
/* Resources without value, receipt or live token go when their fence was written last before
 * `before_ms`; those whose token is live, but was written last before `live_before_ms`, count as
 * abandoned and go too (where they have receipts: are revoked, so that these go first). The
 * store-wide floor rises to the largest token that goes. `*after` is where the last sweep ended (an
 * id; 0: start). `more` is false at the end of the table, and `*after` 0 again. */
enum stk_error txn_sweep_resources(struct store_txn *txn, int64_t before_ms, int64_t live_before_ms,
                                   size_t max, int64_t *after, size_t *removed, bool *more);
/* For a read: is there anything to do for a sweep with the same arguments? Where there is, the walk
 * over the resources stays where it is; else it has moved on. */
enum stk_error txn_receipts_due(struct store_txn *txn, int64_t before_ms, bool *due);
enum stk_error txn_resources_due(struct store_txn *txn, int64_t before_ms, int64_t live_before_ms,
                                 size_t max, int64_t *after, bool *due, bool *more);
/* Removes every value and revokes every live fence. */
enum stk_error txn_flush(struct store_txn *txn);

#endif
