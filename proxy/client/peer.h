/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a Stockade: a transport with the protocol on it. Requests are written with
 * ask_word; replies come as hiredis's reader makes them. */
#ifndef STOCKADE_CLIENT_PEER_H
#define STOCKADE_CLIENT_PEER_H

#include <hiredis/hiredis.h>

#include "fence/base/list.h"
#include "proxy/client/transport.h"

struct embedded;

struct peer {
    struct list link; /* whoever holds it */
    struct transport *transport;
    redisReader *reader;
    struct buf in; /* on its way from the transport to the reader */
    bool used;     /* it has answered before: where it breaks now, that may be old age */
};

/* Connects, and authenticates where the target has a password. `embedded`: the engine, or NULL for
 * a daemon. `wake_fd` as in socket_open. NULL: *error, and fail() was called. */
struct peer *peer_open(const struct target *target, struct embedded *embedded, int64_t deadline_ms,
                       int wake_fd, enum stk_error *error);
void peer_close(struct peer *peer);

/* *sent is raised by the bytes that are on their way. */
enum moved peer_send(struct peer *peer, struct bytes data, int64_t deadline_ms, size_t *sent);
/* The next reply; free with freeReplyObject. */
enum moved peer_receive(struct peer *peer, int64_t deadline_ms, redisReply **reply);

/* A request: its head, then each of its arguments. */
void ask_begin(struct buf *out, size_t argc);
void ask_word(struct buf *out, struct bytes arg);
void ask_text(struct buf *out, const char *arg);
void ask_int(struct buf *out, int64_t arg);

/* An error reply as its code, its text kept by fail(); STK_OK for any other. */
enum stk_error reply_error(const redisReply *reply);
/* The same without a word kept. */
enum stk_error reply_code(const redisReply *reply);
bool reply_is_int(const redisReply *reply);
/* fail(STK_PROTOCOL): the reply to `command` is not what it should be. */
enum stk_error reply_strange(const char *command);

#endif
