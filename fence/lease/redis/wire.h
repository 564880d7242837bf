/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes between us and one Redis, plain or by TLS, on a libuv loop. Nothing above knows how
 * they travel. hiredis reads the replies; the socket is ours: hiredis's own asynchronous context
 * has no TLS in Debian 12, and aborts the process where the other side is no Redis.
 *
 * It has no timers: its user (conn.c) frees a wire that takes too long. */
#ifndef STOCKADE_FENCE_LEASE_REDIS_WIRE_H
#define STOCKADE_FENCE_LEASE_REDIS_WIRE_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/tls.h"

struct redisReply;
struct uv_loop_s;
struct wire;

/* All called on the loop's thread. None of them may call wire_free: do it later, from a timer. */
struct wire_events {
    /* It is connected, and by TLS the other side is who it should be. */
    void (*connected)(void *context);
    /* The answer to `request`, in the order of sending; borrowed. NULL: there will be none, and
     * wire_error says why; nothing more can be sent from then on. */
    void (*reply)(void *context, void *request, const struct redisReply *reply);
    /* The connection failed, ended, or was freed; every request has had its `reply`. Do not use the
     * wire any more, except for wire_error in this very call. */
    void (*gone)(void *context);
    /* The last libuv handle is closed: `context` is no longer referred to. */
    void (*closed)(void *context);
};

struct wire_target {
    const char *address;     /* numeric; or the path of a unix socket */
    int port;                /* 0: it is a unix socket */
    struct tls_context *tls; /* NULL: plain */
    const char *tls_name;    /* that its certificate has to have */
};

/* Begin to connect. NULL: it failed already, and `why` says how. `events` is borrowed for the
 * wire's life. */
struct wire *wire_open(struct uv_loop_s *loop, const struct wire_target *target,
                       const struct wire_events *events, void *context, char *why, size_t why_size);
/* Queue a command. Only between `connected` and `gone`, and not after a `reply` of NULL. */
void wire_send(struct wire *wire, void *request, int argc, const char **argv, const size_t *lens);
/* Subscribe to a channel, also where it has been subscribed to already. From then on nothing else
 * is sent, and `reply` is called with `request` for each confirmation and message: arrays of a
 * word, the channel, and a number or the text. `channel` stays where it is for the wire's life. */
void wire_listen(struct wire *wire, void *request, const char *channel);
/* Has the other side answered anything with an error? */
bool wire_refused(const struct wire *wire);
/* Why it failed, in a few words; "" if it has not. */
const char *wire_error(const struct wire *wire);
void wire_free(struct wire *wire);

#endif
