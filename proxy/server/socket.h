/* SPDX-License-Identifier: Apache-2.0 */
/* A socket as libuv has it, whoever's it is: a client's (conn.c, tunnel.c) or a listener's. */
#ifndef STOCKADE_SERVER_SOCKET_H
#define STOCKADE_SERVER_SOCKET_H

#include <stdbool.h>
#include <uv.h>

#include "proxy/server/address.h"

union socket {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

/* Describe the peer, as "127.0.0.1:5123" or "unix". Return whether it is certainly on this machine.
 */
bool socket_peer(const union socket *socket, bool is_unix, char text[ADDRESS_TEXT_MAX]);

#endif
