/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the RESP side as a whole; see listener.c and conn.c for its parts. */
#include "proxy/server/server.h"

#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/server/server_internal.h"

struct server *server_new(uv_loop_t *loop, const struct log *log)
{
    struct server *server = mem_zalloc(sizeof *server);

    server->loop = loop;
    server->log = log;
    list_init(&server->listeners);
    list_init(&server->conns);
    list_init(&server->lingering);
    check(uv_timer_init(loop, &server->linger_timer) == 0);
    server->linger_timer.data = server;
    return server;
}

bool server_is_flushed(const struct server *server)
{
    return server->writing_count == 0;
}

void server_hang_up(struct server *server)
{
    while (!list_empty(&server->conns))
        conn_close(server->conns.next);
    while (!list_empty(&server->lingering))
        conn_close(server->lingering.next);
}

void server_close(struct server *server)
{
    server_stop_listening(server);
    server_hang_up(server);
    uv_close((uv_handle_t *)&server->linger_timer, NULL);
}

void server_free(struct server *server)
{
    check(list_empty(&server->listeners) && list_empty(&server->conns) &&
          list_empty(&server->lingering) && server->writing_count == 0);
    buf_free(&server->out);
    free(server);
}
