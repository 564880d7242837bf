/* SPDX-License-Identifier: Apache-2.0 */
/* The engine in this process: one thread with a loop, on which a store, a lease provider and an
 * engine live, and pipes in memory to its sessions. What a daemon is, without sockets. */
#ifndef STOCKADE_CLIENT_EMBEDDED_H
#define STOCKADE_CLIENT_EMBEDDED_H

#include "proxy/client/transport.h"

struct embedded;

/* Returns when the store is open and it is known how things stand with the lease service (at most a
 * second), or NULL: *error, and fail() was called. Another program that holds the store's locks is
 * waited for as long as the store does (5 s), whatever the client's timeout. */
struct embedded *embedded_open(const struct target *target, enum stk_error *error);
/* Every pipe is closed by now. Waits until what has begun is on disk. NULL is fine. */
void embedded_close(struct embedded *embedded);

/* A session. NULL: the store is lost; *error, and fail() was called. */
struct transport *embedded_connect(struct embedded *embedded, enum stk_error *error);

#endif
