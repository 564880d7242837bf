/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/server/socket.h"

enum { HANDSHAKE_LOGGED_MS = 1000 }; /* one that failed is logged, others within this are not */

bool socket_peer(const union socket *socket, bool is_unix, char text[ADDRESS_TEXT_MAX])
{
    struct sockaddr_storage peer = {0};
    int len = sizeof peer;

    if (!is_unix && uv_tcp_getpeername(&socket->tcp, (struct sockaddr *)&peer, &len) != 0)
        peer.ss_family = AF_UNSPEC;
    address_text(&peer, text);
    return is_unix || address_is_loopback(&peer);
}

void socket_log_handshake(const union socket *socket, const struct log *log, const char *door,
                          uint64_t *logged_ms, const char *why)
{
    uint64_t now_ms = uv_now(uv_handle_get_loop(&socket->handle));
    char peer[ADDRESS_TEXT_MAX];

    if (*logged_ms != 0 && now_ms - *logged_ms < HANDSHAKE_LOGGED_MS)
        return;
    *logged_ms = now_ms;
    socket_peer(socket, false, peer);
    log_info(log, "%sthe TLS handshake with %s failed: %s", door, peer, why);
}
