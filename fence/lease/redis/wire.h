/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a Redis: an asynchronous hiredis context on a libuv loop.
 *
 * hiredis brings a libuv adapter of its own, which looks away when a connection fails. This one
 * tells every end, once. It has no timers: whoever waits too long frees the wire (conn.c). */
#ifndef STOCKADE_FENCE_LEASE_REDIS_WIRE_H
#define STOCKADE_FENCE_LEASE_REDIS_WIRE_H

#include <stdbool.h>
#include <stddef.h>

struct redisReply;
struct uv_loop_s;
struct wire;

/* All called on the loop's thread; none of them may call wire_free, except from outside of wire.c's
 * callbacks (a timer): hiredis still has the context in its hands. */
struct wire_events {
    void (*connected)(void *context);
    /* The answer to `request`, in the order of sending; borrowed. NULL: there will be none, see
     * wire_error; no new request is taken from then on. */
    void (*reply)(void *context, void *request, const struct redisReply *reply);
    /* The connection failed, ended, or was freed; every request has had its `reply`. The wire is
     * not to be touched any more, but for wire_error in this very call. */
    void (*gone)(void *context);
    /* The socket has stopped working and hiredis cannot tell why: call wire_free soon. */
    void (*broken)(void *context);
    /* The last libuv handle is closed: `context` is no longer referred to. */
    void (*closed)(void *context);
};

/* Begins to connect to a numeric address, or to a unix socket where `port` is 0. NULL: it failed
 * already, and `why` says how. `events` is borrowed for the wire's life. */
struct wire *wire_open(struct uv_loop_s *loop, const char *address, int port,
                       const struct wire_events *events, void *context, char *why, size_t why_size);
/* Queues a command. Call it only between `connected` and `gone`, and not once `reply` has said
 * NULL. */
void wire_send(struct wire *wire, void *request, int argc, const char **argv, const size_t *lens);
/* Subscribes to a channel, again where it has already. From then on nothing else is sent, and
 * `reply` is called with `request` for each confirmation and message: arrays of a word, the
 * channel, and a number or the text. `channel` stays where it is for the wire's life. */
void wire_listen(struct wire *wire, void *request, const char *channel);
/* Has the other side answered anything with an error? */
bool wire_refused(const struct wire *wire);
/* Why it failed, in a few words; "" where it has not. */
const char *wire_error(const struct wire *wire);
void wire_free(struct wire *wire);

#endif
