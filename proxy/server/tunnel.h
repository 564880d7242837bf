/* SPDX-License-Identifier: Apache-2.0 */
/* TLS for a server that has none, and lives on the same loop: a client's connection ends here, and
 * what it says goes on in plain, through a pair of sockets, to the server; and back.
 *
 *   client ══TLS══▶ outside │ inside ──plain──▶ the server's end of the pair
 *
 * Neither way has a buffer but for what one read brings: where it cannot be written on at once,
 * nothing more is read. */
#ifndef STOCKADE_SERVER_TUNNEL_H
#define STOCKADE_SERVER_TUNNEL_H

#include <sys/socket.h>
#include <uv.h>

#include "fence/base/log.h"
#include "fence/base/tls.h"

struct tunnels;
struct tunnel;

struct tunnels_options {
    uv_loop_t *loop;
    const struct log *log;
    /* A client has come. What is returned is given to the other two. To make room, tunnels may be
     * dropped here. */
    void *(*begun)(void *context, struct tunnel *tunnel);
    void *context;
    /* It has shaken hands: take this end of the pair, and own it. `user`: whom its certificate
     * names; NULL: nobody. */
    void (*opened)(void *client, int fd, const char *user, const struct sockaddr *peer,
                   socklen_t peer_len);
    /* The tunnel is no more. */
    void (*closed)(void *client);
};

/* Listen on a socket that is bound, which is taken over, as the context is. NULL: it is closed, and
 * errno says why. */
struct tunnels *tunnels_open(const struct tunnels_options *options, int fd, struct tls_context *tls,
                             enum tls_user user);
/* New connections begin with this context, which is taken over. */
void tunnels_set_tls(struct tunnels *tunnels, struct tls_context *tls, enum tls_user user);
/* End one at once. */
void tunnel_drop(struct tunnel *tunnel);
/* Close everything; `closed` is called when the loop has closed the last handle. */
void tunnels_close(struct tunnels *tunnels, void (*closed)(void *context), void *context);

#endif
