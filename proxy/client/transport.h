/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to a Stockade and back, whichever way it is: a socket, or a pipe in memory to an engine in
 * this process. Above it all is the same.
 *
 * A transport is used by one thread at a time, but for transport_wake. No wait outlasts its
 * deadline (on the monotonic clock). One that is broken stays so, and is closed. */
#ifndef STOCKADE_CLIENT_TRANSPORT_H
#define STOCKADE_CLIENT_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/err.h"
#include "proxy/client/target.h"

enum moved {
    MOVED,      /* as asked: everything was sent; something was received */
    MOVED_LATE, /* the deadline has passed */
    MOVED_WOKEN,
    MOVED_BROKEN, /* it has ended, or failed: `why` */
};

struct transport {
    const struct transport_impl *impl;
    char why[160]; /* MOVED_BROKEN */
};

struct transport_impl {
    /* *sent is raised by the bytes that are on their way, also where not all are. */
    enum moved (*send)(struct transport *, struct bytes data, int64_t deadline_ms, size_t *sent);
    /* Appends at least one byte. */
    enum moved (*receive)(struct transport *, struct buf *in, int64_t deadline_ms);
    /* Has the other side ended it? Asks without waiting. */
    bool (*is_broken)(struct transport *);
    /* From any thread: the wait under way, or the next one, returns MOVED_WOKEN. NULL: whoever
     * opened it has given it a descriptor that wakes it. */
    void (*wake)(struct transport *);
    void (*close)(struct transport *); /* frees it */
};

/* Connects to a daemon. `wake_fd`: where it becomes readable, waits return MOVED_WOKEN, and so does
 * the connecting (as NULL and STK_TIMEOUT); -1: none. NULL: *error, and fail() was called. */
struct transport *socket_open(const struct target *target, int64_t deadline_ms, int wake_fd,
                              enum stk_error *error);

/* The addresses of a host, from a thread of its own where it is a name, since that may take long.
 * Free with freeaddrinfo. */
struct addrinfo;
struct addrinfo *resolve(const char *host, const char *port, int64_t deadline_ms, int wake_fd,
                         enum stk_error *error);

/* Waits until `fd` (-1: none) has one of `events`. */
enum moved wait_for(int fd, short events, int wake_fd, int64_t deadline_ms);

int64_t now_ms(void); /* the monotonic clock */

#endif
