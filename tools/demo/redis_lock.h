/* SPDX-License-Identifier: Apache-2.0 */
/* The common Redis lock: SET key value NX PX ttl with a value of one's own, tried again every 20 ms
 * or so; deleted by a script that compares the value first. */
#ifndef STOCKADE_TOOLS_DEMO_REDIS_LOCK_H
#define STOCKADE_TOOLS_DEMO_REDIS_LOCK_H

#include "tools/demo/demo.h"

enum { REDIS_LOCK_VALUE_MAX = 33 }; /* bytes, with the zero */

/* Write a value that nobody else has. */
void redis_lock_value(char out[REDIS_LOCK_VALUE_MAX]);
/* Take the lock of an article. PURCHASE_MADE: it is ours, since `granted_us` at the latest.
 * PURCHASE_AGAIN: it was not to be had. */
enum purchase redis_lock_take(struct buyer *buyer, int sku, const char *key, const char *value,
                              int64_t *granted_us);
/* Delete the lock if it is still ours. Whether it was is not checked. */
bool redis_lock_give(struct client *client, const char *key, const char *value);

#endif
