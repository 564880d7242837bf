/* SPDX-License-Identifier: Apache-2.0 */
/* The common Redis lock: SET key value NX PX ttl with a value of one's own, tried again every 20 ms
 * or so; deleted by a script that compares the value first. */
#ifndef STOCKADE_TOOLS_DEMO_REDIS_LOCK_H
#define STOCKADE_TOOLS_DEMO_REDIS_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/client.h"

enum { REDIS_LOCK_VALUE_MAX = 33 }; /* bytes, with the zero */

/* Write a value that nobody else has. */
void redis_lock_value(char out[REDIS_LOCK_VALUE_MAX]);
/* Try once. False: the server failed us, and client.failure says how. */
bool redis_lock_try(struct client *client, const char *key, const char *value, int64_t ttl_ms,
                    bool *taken);
/* Sleep until the next try. */
void redis_lock_pause(void);
/* Delete the lock if it is still ours. Whether it was is not checked. */
bool redis_lock_give(struct client *client, const char *key, const char *value);

#endif
