/* SPDX-License-Identifier: Apache-2.0 */
/* The common Redis lock: SET key value NX PX ttl with a value of one's own, tried again every 20 ms
 * or so; deleted by a script that compares the value first. */
#ifndef STOCKADE_TOOLS_DEMO_REDIS_LOCK_H
#define STOCKADE_TOOLS_DEMO_REDIS_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/client.h"

enum { REDIS_LOCK_VALUE_MAX = 33 }; /* bytes, with the zero */

void redis_lock_value(char out[REDIS_LOCK_VALUE_MAX]);
/* One try. False: the server failed us, client.failure says how. */
bool redis_lock_try(struct client *client, const char *key, const char *value, int64_t ttl_ms,
                    bool *taken);
/* Until the next try. */
void redis_lock_pause(void);
/* Deletes the lock if it is still ours; whether it was is not looked at. */
bool redis_lock_give(struct client *client, const char *key, const char *value);

#endif
