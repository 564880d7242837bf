/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: sockets on one side, the engine's sessions on the other.
 *
 *   open ──────────────▶ lingering ─────────────────▶ closed, freed in libuv's callback
 *     │  session ended    its replies leave, FIN is sent,     ▲
 *     │                   what still comes in is dropped      │
 *     └───────────── client hung up, error, conns_hang_up ────┘
 *
 * Lingering is what lets a client read why it was turned away: a socket that is closed with unread
 * bytes in it is reset, and the reset overtakes the reply. It ends when the client hangs up, or
 * after LINGER_MS.
 *
 * Invariants: a session is closed exactly once, when its connection leaves `open`. One write per
 * connection is under way. Meanwhile output gathers in the session, which starts no more commands
 * above a limit, and nothing is read from a connection whose session has enough to do. So a slow
 * reader, or a fast writer, costs bounded memory. An idle connection owns no buffer here. */
#include "proxy/server/conn.h"

#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/server/address.h"

enum {
    LINGER_MS = 2000,
    LINGER_WRITING_MS = 30000,
    LINGER_TICK_MS = 250,
    LINGERING_MAX = 128, /* more are closed at once; process.c reserves the descriptors */
    KEEPALIVE_SECONDS = 60,
    OUT_KEPT_MAX = 64 * 1024,
};

struct conn {
    struct list link; /* in conns->open or conns->lingering */
    struct conns *conns;
    struct session *session; /* NULL: lingering or closed */
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } socket;
    struct buf out; /* what the write under way sends */
    size_t unsent;  /* its length: all of it is held until the last byte has left */
    size_t counted; /* what the engine counts of it, once the session is closed */
    union {
        uv_write_t write;
        uv_shutdown_t shutdown;
    } request;
    uint64_t linger_until_ms;
    bool reading, writing;
};

static void free_conn(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    check(conn->session == NULL && !conn->writing);
    free(conn);
}

static void drop(struct conn *conn)
{
    struct conns *conns = conn->conns;

    if (uv_is_closing(&conn->socket.handle))
        return;
    if (conn->session != NULL)
        session_close(conn->session);
    else if (--conns->lingering_count == 0)
        uv_timer_stop(&conns->linger_timer);
    conn->session = NULL;
    list_remove(&conn->link);
    uv_close(&conn->socket.handle, free_conn);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct conn *conn = handle->data;
    (void)suggested;
    *buffer = uv_buf_init(conn->conns->read_buffer, READ_BUFFER_SIZE);
}

static void set_reading(struct conn *conn, bool reading);

static void on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buffer)
{
    struct conn *conn = stream->data;

    if (len == UV_EOF && conn->session != NULL && session_input_ended(conn->session)) {
        conn->reading = false; /* libuv has stopped by itself */
    } else if (len < 0) {
        drop(conn);
    } else if (len > 0 && conn->session != NULL) {
        session_input(conn->session, buffer->base, (size_t)len);
        set_reading(conn, session_wants_input(conn->session));
    }
}

static void set_reading(struct conn *conn, bool reading)
{
    if (reading == conn->reading)
        return;
    conn->reading = reading;
    if (!reading)
        uv_read_stop(&conn->socket.stream);
    else if (uv_read_start(&conn->socket.stream, on_alloc, on_read) != 0)
        drop(conn);
}

static void on_linger_tick(uv_timer_t *timer)
{
    struct conns *conns = timer->data;

    for (struct list *link = conns->lingering.next, *next; link != &conns->lingering; link = next) {
        struct conn *conn = list_entry(link, struct conn, link);
        next = link->next;
        if (conn->linger_until_ms <= uv_now(conns->loop))
            drop(conn);
    }
}

static void on_shutdown(uv_shutdown_t *request, int status)
{
    if (status < 0)
        drop(request->data);
}

static void say_goodbye(struct conn *conn)
{
    conn->request.shutdown.data = conn;
    conn->linger_until_ms = uv_now(conn->conns->loop) + LINGER_MS;
    if (uv_shutdown(&conn->request.shutdown, &conn->socket.stream, on_shutdown) != 0)
        drop(conn);
}

static void on_written(uv_write_t *request, int status)
{
    struct conn *conn = request->data;

    conn->writing = false;
    conn->unsent = 0;
    if (conn->counted > 0)
        engine_count_unsent(conn->conns->engine, &conn->counted, 0);
    conn->conns->writing_count--;
    buf_free(&conn->out);
    if (status < 0) {
        drop(conn);
    } else if (conn->session != NULL) {
        session_set_unsent(conn->session, 0);
        conn_on_change(conn);
    } else {
        say_goodbye(conn);
    }
}

/* Send conns->out: what the socket takes now, and the rest as a write of its own. Return how
 * many bytes are held until then; 0: all is sent. */
static size_t send_out(struct conn *conn)
{
    struct buf *out = &conn->conns->out;
    uv_buf_t piece = uv_buf_init(out->data, (unsigned)out->len);
    int sent = out->len == 0 ? 0 : uv_try_write(&conn->socket.stream, &piece, 1);

    if (sent < 0 && sent != UV_EAGAIN) {
        buf_clear(out);
        drop(conn);
        return 0;
    }
    size_t done = sent < 0 ? 0 : (size_t)sent, left = out->len - done;
    if (left == 0) {
        buf_clear(out);
        if (out->cap > OUT_KEPT_MAX)
            buf_free(out);
        return 0;
    }
    conn->out = *out;
    *out = (struct buf){0};
    buf_fit(&conn->out); /* it may take long, and only what it holds is counted */
    piece = uv_buf_init(conn->out.data + done, (unsigned)left);
    conn->request.write.data = conn;
    conn->writing = true;
    conn->unsent = conn->out.len;
    conn->conns->writing_count++;
    check(uv_write(&conn->request.write, &conn->socket.stream, &piece, 1, on_written) == 0);
    return conn->unsent;
}

/* Linger: the session has ended, or there never was one, and conns->out says why. */
static void linger(struct conn *conn)
{
    struct conns *conns = conn->conns;

    if (conn->session != NULL)
        session_close(conn->session);
    conn->session = NULL;
    list_remove(&conn->link);
    list_append(&conns->lingering, &conn->link);
    if (conns->lingering_count++ == 0)
        uv_timer_start(&conns->linger_timer, on_linger_tick, LINGER_TICK_MS, LINGER_TICK_MS);
    conn->linger_until_ms = uv_now(conns->loop) + LINGER_WRITING_MS;
    if (!conn->writing)
        send_out(conn);
    if (conn->writing)
        engine_count_unsent(conns->engine, &conn->counted, conn->unsent);
    if (conns->lingering_count > LINGERING_MAX)
        drop(conn);
    if (uv_is_closing(&conn->socket.handle))
        return;
    if (!conn->writing)
        say_goodbye(conn);
    set_reading(conn, true);
}

void conn_on_change(void *connection)
{
    struct conn *conn = connection;

    if (!conn->writing) {
        session_take_output(conn->session, &conn->conns->out);
        size_t unsent = send_out(conn);
        if (uv_is_closing(&conn->socket.handle))
            return;
        session_set_unsent(conn->session, unsent);
    }
    if (session_ended(conn->session))
        linger(conn);
    else
        set_reading(conn, session_wants_input(conn->session));
}

/* Describe the peer, as "127.0.0.1:5123" or "unix". Return whether it is certainly on this machine.
 */
static bool describe_peer(struct conn *conn, bool is_unix, char text[ADDRESS_TEXT_MAX])
{
    struct sockaddr_storage peer = {0};
    int len = sizeof peer;

    if (!is_unix && uv_tcp_getpeername(&conn->socket.tcp, (struct sockaddr *)&peer, &len) != 0)
        peer.ss_family = AF_UNSPEC;
    address_text(&peer, text);
    return is_unix || address_is_loopback(&peer);
}

void conns_accept(struct conns *conns, uv_stream_t *listener, bool is_unix)
{
    struct conn *conn = mem_zalloc(sizeof *conn);
    char peer[ADDRESS_TEXT_MAX];

    conn->conns = conns;
    if (is_unix)
        check(uv_pipe_init(conns->loop, &conn->socket.pipe, 0) == 0);
    else
        check(uv_tcp_init(conns->loop, &conn->socket.tcp) == 0);
    conn->socket.handle.data = conn;
    list_append(&conns->open, &conn->link);
    if (uv_accept(listener, &conn->socket.stream) != 0) {
        list_remove(&conn->link);
        uv_close(&conn->socket.handle, free_conn);
        return;
    }
    if (!is_unix) { /* where these fail, the connection is gone already */
        (void)uv_tcp_nodelay(&conn->socket.tcp, 1);
        (void)uv_tcp_keepalive(&conn->socket.tcp, 1, KEEPALIVE_SECONDS);
    }
    bool trusted = describe_peer(conn, is_unix, peer);
    conn->session = session_open(conns->engine, peer, trusted, conn, &conns->out);
    if (conn->session != NULL)
        set_reading(conn, true);
    else
        linger(conn);
}

void conns_init(struct conns *conns, uv_loop_t *loop)
{
    conns->loop = loop;
    list_init(&conns->open);
    list_init(&conns->lingering);
    check(uv_timer_init(loop, &conns->linger_timer) == 0);
    conns->linger_timer.data = conns;
}

static void drop_all(struct list *list)
{
    while (!list_empty(list))
        drop(list_entry(list->next, struct conn, link));
}

void conns_hang_up(struct conns *conns)
{
    drop_all(&conns->open);
    drop_all(&conns->lingering);
}

void conns_close(struct conns *conns)
{
    conns_hang_up(conns);
    uv_close((uv_handle_t *)&conns->linger_timer, NULL);
}

void conns_free(struct conns *conns)
{
    check(list_empty(&conns->open) && list_empty(&conns->lingering) && conns->writing_count == 0);
    buf_free(&conns->out);
}
