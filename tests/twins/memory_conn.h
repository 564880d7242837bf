/* SPDX-License-Identifier: Apache-2.0 */
/* A client's connection to an engine, without a socket: what proxy/server/conn.c does with bytes
 * from the network, done with buffers. Each host of an engine in the tests has its clients on it.
 */
#ifndef STOCKADE_TESTS_TWINS_MEMORY_CONN_H
#define STOCKADE_TESTS_TWINS_MEMORY_CONN_H

#include <hiredis/hiredis.h>

#include "proxy/engine/engine.h"

/* All zero: not connected. */
struct memory_conn {
    struct session *session; /* NULL: not connected */
    struct buf received;     /* sent by the engine, and not taken yet */
    bool stalls;             /* it reads nothing: `received` is what it would read first */
    bool closed;             /* by the engine, since the last memory_conn_open */
    redisReader *reader;
    void *context;
    /* Called for each whole reply, with its bytes; both are valid during the call. The reply is
     * NULL where the bytes are none. May be NULL: then all that comes stays in `received`. */
    void (*on_reply)(struct memory_conn *conn, const redisReply *reply, struct bytes raw);
    /* Called when the engine has closed the connection. May be NULL. */
    void (*on_closed)(struct memory_conn *conn);
};

/* For struct engine_host: take what the engine sends to a connection that was opened here. */
void memory_conn_changed(void *conn);
/* Open a session. Where the engine refuses it, `session` stays NULL, and what it says is in
 * `received`. */
void memory_conn_open(struct memory_conn *conn, struct engine *engine, const char *peer);
/* The client is gone. Harmless where it is not connected. */
void memory_conn_close(struct memory_conn *conn);
/* Close it, and free what it holds. */
void memory_conn_free(struct memory_conn *conn);

#endif
