/* SPDX-License-Identifier: Apache-2.0 */
/* Private to proxy/server: the connections of one server, from accept to close. */
#ifndef STOCKADE_SERVER_CONN_H
#define STOCKADE_SERVER_CONN_H

#include <uv.h>

#include "fence/base/list.h"
#include "proxy/engine/engine.h"

enum { READ_BUFFER_SIZE = 64 * 1024 };

struct conns {
    uv_loop_t *loop;
    struct engine *engine; /* to be set before the first is accepted */
    struct list open;      /* with a session */
    struct list lingering; /* without one, see conn.c */
    size_t lingering_count;
    size_t writing_count;    /* those whose output waits for the socket */
    uv_timer_t linger_timer; /* runs while somebody lingers */
    struct buf out;          /* of the connection whose turn it is; empty between turns */
    char read_buffer[READ_BUFFER_SIZE]; /* of the connection that is being read */
};

/* The loop is borrowed. */
void conns_init(struct conns *conns, uv_loop_t *loop);
/* Take the connection that has come in at a listener, a pipe (`is_unix`) or TCP. */
void conns_accept(struct conns *conns, uv_stream_t *listener, bool is_unix);
/* Send what the session has to say, and read on or not; for engine_host.changed. */
void conn_on_change(void *conn);
/* Close every connection, and its session. */
void conns_hang_up(struct conns *conns);
/* Hang up, and close what is left on the loop; free when the loop has run dry. */
void conns_close(struct conns *conns);
void conns_free(struct conns *conns);

#endif
