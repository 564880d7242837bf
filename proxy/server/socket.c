/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/server/socket.h"

bool socket_peer(const union socket *socket, bool is_unix, char text[ADDRESS_TEXT_MAX])
{
    struct sockaddr_storage peer = {0};
    int len = sizeof peer;

    if (!is_unix && uv_tcp_getpeername(&socket->tcp, (struct sockaddr *)&peer, &len) != 0)
        peer.ss_family = AF_UNSPEC;
    address_text(&peer, text);
    return is_unix || address_is_loopback(&peer);
}
