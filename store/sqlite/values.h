/* SPDX-License-Identifier: Apache-2.0 */
/* Strings and hashes, keyed by the resource's id. Each function is the primitive of txn.h that ends
 * in the same words, with its contract. The row's type is written only where it changes, so a write
 * to an existing key touches one table.
 *
 * Special way: strings by name (values_string_of). A read of a string need not look the resource up
 * first. On the writer's connection the cache may have the string itself; on the quick reader's,
 * `names` may have the id that the name once had. */
#ifndef STOCKADE_STORE_SQLITE_VALUES_H
#define STOCKADE_STORE_SQLITE_VALUES_H

#include "store/txn.h"

enum stk_error values_string(struct store_txn *txn, const struct resource *resource, bool *found,
                             struct bytes *value);
enum stk_error values_string_of(struct store_txn *txn, struct bytes name, bool *found,
                                struct bytes *value);
enum stk_error values_string_put(struct store_txn *txn, struct resource *resource,
                                 struct bytes value);
enum stk_error values_field(struct store_txn *txn, const struct resource *resource,
                            struct bytes field, bool *found, struct bytes *value);
enum stk_error values_field_put(struct store_txn *txn, struct resource *resource,
                                struct bytes field, struct bytes value);
enum stk_error values_field_remove(struct store_txn *txn, struct resource *resource,
                                   struct bytes field, bool *found);
enum stk_error values_each_field(struct store_txn *txn, const struct resource *resource,
                                 struct bytes from, txn_each_field each, void *context);
enum stk_error values_count_fields(struct store_txn *txn, const struct resource *resource,
                                   int64_t *count);
enum stk_error values_clear(struct store_txn *txn, struct resource *resource);

#endif
