/* SPDX-License-Identifier: Apache-2.0 */
/* Private to proxy/server: the connections of one server, from accept to close. */
#ifndef STOCKADE_SERVER_CONN_H
#define STOCKADE_SERVER_CONN_H

#include <uv.h>

#include "fence/base/list.h"
#include "proxy/engine/engine.h"
#include "proxy/server/address.h"
#include "proxy/server/handshake.h"

enum { READ_BUFFER_SIZE = 64 * 1024 };

struct conns {
    uv_loop_t *loop;
    struct engine *engine; /* to be set before the first is accepted */
    struct list open;      /* with a session */
    struct list lingering; /* without one, see conn.c */
    size_t lingering_count;
    size_t writing_count; /* those whose output waits for the socket */
    bool hung_up;         /* who lingers goes as soon as it has all that was sent */
    uv_timer_t timer;     /* runs while somebody lingers, or shakes hands */
    struct buf out;       /* of the connection whose turn it is; empty between turns */

    struct handshakes handshakes;
    struct buf plain, sealed;           /* as `out`: what was received, and what is to be sent */
    char read_buffer[READ_BUFFER_SIZE]; /* of the connection that is being read */
};

/* Loop and log are borrowed. */
void conns_init(struct conns *conns, uv_loop_t *loop, const struct log *log);
/* Take the connection that has come in at a listener of this kind. */
void conns_accept(struct conns *conns, uv_stream_t *listener, enum address_kind kind);
/* Send what the session has to say, and read on or not; for engine_host.changed. */
void conn_on_change(void *conn);
/* End every session, and close the connections: at once, but for those to which something is on its
 * way, which linger. */
void conns_hang_up(struct conns *conns);
/* Have all closed? */
bool conns_are_gone(const struct conns *conns);
/* Close all, and what is left on the loop; free when the loop has run dry. */
void conns_close(struct conns *conns);
void conns_free(struct conns *conns);

#endif
