/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a Stockade: a transport with the protocol on it. Requests are composed with
 * proxy/resp; replies are hiredis's. */
#ifndef STOCKADE_CLIENT_CONNECTION_H
#define STOCKADE_CLIENT_CONNECTION_H

#include <hiredis/hiredis.h>

#include "fence/base/list.h"
#include "proxy/client/transport.h"

struct connection {
    struct list link; /* whoever holds it */
    struct transport *transport;
    redisReader *reader;
    struct buf in;       /* on its way from the transport to the reader */
    bool used;           /* it has answered before: where it breaks now, that may be old age */
    struct buf greeting; /* goes before the first request, and so costs no trip */
    bool greets;         /* its reply has not come yet */
};

/* Connect, and log in where the target has a password. `embedded`: the engine, or NULL for a
 * daemon, which is told the program's `name`. `wake_fd`: ends waits, as in socket_open, from here
 * on. NULL: *error, and fail() was called. */
struct connection *connection_open(const struct target *target, struct embedded *embedded,
                                   const char *name, int64_t deadline_ms, int wake_fd,
                                   enum stk_error *error);
void connection_close(struct connection *connection);
/* The same in a forked child: not a byte is sent, for the parent goes on with it. */
void connection_drop(struct connection *connection);

/* Raise *sent by the bytes that are on their way. */
enum io_result connection_send(struct connection *connection, struct bytes data,
                               int64_t deadline_ms, size_t *sent);
/* The next reply; free with freeReplyObject. */
enum io_result connection_receive(struct connection *connection, int64_t deadline_ms,
                                  redisReply **reply);
/* Why has a new connection ended before there was an answer? STK_UNREACHABLE; or STK_PROTOCOL,
 * where fail() was called: a web server answers there, which will not become a daemon. */
enum stk_error connection_explain_end(const struct target *target, int64_t deadline_ms);
/* Whether the other side has ended it. Does not wait. */
bool connection_is_broken(struct connection *connection);

#endif
