/* SPDX-License-Identifier: Apache-2.0 */
/* The values of lock keys, and the tokens that they stand for. A lock library makes a value for
 * each lock that it takes, and has it in hand while it holds the lock: so a program can present it
 * in place of a token.
 *
 * The store keeps which token a value was granted as a receipt of that grant, under an ID that no
 * client can have: so it outlives the lease, a restart and this daemon as long as receipts do. A
 * value that was granted two tokens of one resource stands for neither. */
#ifndef STOCKADE_ENGINE_LOCK_VALUE_H
#define STOCKADE_ENGINE_LOCK_VALUE_H

#include "store/txn.h"

/* Is it a value, where a token or a value may stand? 1 to 16 digits are a token. */
bool lock_value_is(struct bytes text);
/* Can it be the value of a lock? NULL: it can; else what is wrong, for people. */
const char *lock_value_refused(struct bytes value);

/* On the store's thread. */

/* `value` was granted `token`, the newest of the resource, which has a row. */
enum stk_error lock_value_remember(struct store_txn *txn, const struct resource *row,
                                   struct bytes value, int64_t token);
/* Nobody was told of the grant of `token` to `value`: the next one is the value's first. */
enum stk_error lock_value_forget(struct store_txn *txn, const struct resource *row,
                                 struct bytes value, int64_t token);
/* Find the token that a value stands for; 0: none, and `why` says why. */
enum stk_error lock_value_token(struct store_txn *txn, struct bytes resource, struct bytes value,
                                int64_t *token, const char **why);

#endif
