/* SPDX-License-Identifier: Apache-2.0 */
/* Private to listeners and connections. Each of them lives until libuv has closed its handle. */
#ifndef STOCKADE_SERVER_SERVER_INTERNAL_H
#define STOCKADE_SERVER_SERVER_INTERNAL_H

#include "fence/base/list.h"
#include "proxy/server/address.h"
#include "proxy/server/server.h"

enum { READ_BUFFER_SIZE = 64 * 1024 };

struct server {
    uv_loop_t *loop;
    const struct log *log;
    struct engine *engine; /* from server_open on */
    struct list listeners; /* in the order of server_bind */
    struct list conns;     /* with a session */
    struct list lingering; /* without one, see conn.c */
    size_t lingering_count;
    size_t writing_count;      /* connections whose output waits for the socket */
    uv_timer_t linger_timer;   /* runs while somebody lingers */
    uint64_t accept_failed_ms; /* when that was logged last */
    struct buf out;            /* of the connection whose turn it is; empty between turns */
    char read_buffer[READ_BUFFER_SIZE]; /* of the connection that is read just now */
};

union socket_handle {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

struct listener {
    struct list link;
    struct server *server;
    union socket_handle socket;
    bool is_unix, loopback;
    char text[ADDRESS_TEXT_MAX];
};

/* A connection has come in: takes it from the listener. */
void conn_accept(struct listener *listener);
void conn_close(struct list *link);

#endif
