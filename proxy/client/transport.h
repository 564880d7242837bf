/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to a Stockade and back, by one of two ways: a socket to a daemon, or a pipe in memory to an
 * engine in this process. Above it all is the same.
 *
 * A transport is used by one thread at a time. No wait outlasts its deadline (now_ms). One that is
 * broken stays so, and is closed. */
#ifndef STOCKADE_CLIENT_TRANSPORT_H
#define STOCKADE_CLIENT_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/err.h"
#include "proxy/client/target.h"

enum io_result {
    IO_DONE,   /* everything was sent; something was received */
    IO_LATE,   /* the deadline has passed */
    IO_WOKEN,  /* wake_fd is readable */
    IO_BROKEN, /* the transport has ended, or failed: `why` */
};

struct transport {
    const struct transport_impl *impl;
    int wake_fd;   /* its user's: ends each wait to receive while it is readable; -1: none */
    bool silent;   /* it is closed without a last word: another process goes on with it */
    char why[160]; /* IO_BROKEN */
};

struct transport_impl {
    /* Raise *sent by the bytes that are on their way, also where not all are. What has begun to be
     * sent is not woken: half a request is of no use. */
    enum io_result (*send)(struct transport *, struct bytes data, int64_t deadline_ms,
                           size_t *sent);
    /* Append at least one byte. */
    enum io_result (*receive)(struct transport *, struct buf *in, int64_t deadline_ms);
    /* Whether the other side has ended it. Does not wait. */
    bool (*is_broken)(struct transport *);
    void (*close)(struct transport *); /* frees it */
};

/* Connect to a daemon. NULL: *error, and fail() was called; STK_CANCELLED where `wake_fd` became
 * readable first. */
struct transport *socket_open(const struct target *target, int64_t deadline_ms, int wake_fd,
                              enum stk_error *error);
/* Return whether a web server answers there, such as a daemon's admin address, which ends a
 * connection that does not begin with HTTP without a word. Waits for half a second at most. */
bool socket_speaks_http(const struct target *target, int64_t deadline_ms, int wake_fd);
/* Wait until `fd` (-1: none) has one of `events`. */
enum io_result wait_for(int fd, short events, int wake_fd, int64_t deadline_ms);

/* An engine in this process: one thread with a loop, on which a store, a lease provider and an
 * engine live. What a daemon is, without sockets. */
struct embedded;

/* Return when the store is open and it is known how things stand with the lease service (at most a
 * second). NULL: *error, and fail() was called. Another program that holds the store's locks is
 * waited for as long as the store does (5 s), whatever the client's timeout. */
struct embedded *embedded_open(const struct target *target, enum stk_error *error);
/* Wait until what has begun is on disk, and free it. Every pipe is closed by now. NULL is fine. */
void embedded_close(struct embedded *embedded);
/* Open a session. NULL: the store is lost; *error, and fail() was called. */
struct transport *embedded_connect(struct embedded *embedded, enum stk_error *error);

#endif
