/* SPDX-License-Identifier: Apache-2.0 */
/* A tunnel's life:
 *
 *   HANDSHAKE ─▶ OPEN ─▶ ENDING ─▶ closed          (handshake.h: whose turn it is)
 *                          the server has closed its end: its last bytes and TLS's last word leave,
 *                          and what the client still sends is dropped, until it hangs up or
 *                          ENDING_MS are over. (To close at once would overtake the reply.)
 *
 * A client that says no more (by TLS, or by closing its connection) is told to the server as the
 * end of its input, and gets what the server still has to say. So does one that goes on after the
 * server has closed. One that reads nothing is dropped here: the server's own limit would go
 * unnoticed behind the write that waits. */
#include "proxy/server/tunnel.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/list.h"
#include "fence/base/mem.h"
#include "proxy/server/handshake.h"

enum {
    ENDING_MS = 2000,
    WRITING_MS = 30000, /* a client that reads nothing for so long is dropped */
    TICK_MS = 250,
    BACKLOG = 256,
    READ_SIZE = 16 * 1024,
};

enum state { HANDSHAKE, OPEN, ENDING };

struct tunnels {
    struct tunnels_options options;
    struct handshakes handshakes;
    uv_tcp_t listener;
    uv_timer_t timer;
    struct list all;
    size_t count; /* tunnels whose handles are not closed yet */
    int handles;  /* the listener and the timer */
    char read_buffer[READ_SIZE];
    struct buf plain, sealed; /* of the tunnel whose turn it is; empty between turns */
    void (*closed)(void *context);
    void *closed_context;
};

/* One end of a tunnel, and what is being written to it. */
struct side {
    union socket socket;
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct buf held;                     /* what the write under way sends */
    bool there, reading, writing, ended; /* ended: nothing more comes from it */
};

struct tunnel {
    struct list link;
    struct tunnels *tunnels;
    struct tls *tls; /* NULL: its turn for a handshake has not come */
    struct handshake handshake;
    enum state state;
    uint64_t until_ms; /* ENDING; OPEN: of the write to the client */
    int handles;
    bool heard, dropped; /* heard: something of the client's has arrived */
    void *client;        /* what begun() has returned */
    struct side outside, inside;
};

static void free_when_closed(struct tunnels *tunnels)
{
    if (tunnels->handles > 0 || tunnels->count > 0 || tunnels->closed == NULL)
        return;
    void (*closed)(void *context) = tunnels->closed;
    void *context = tunnels->closed_context;

    handshakes_free(&tunnels->handshakes);
    buf_free(&tunnels->plain);
    buf_free(&tunnels->sealed);
    free(tunnels);
    closed(context);
}

static void on_side_closed(uv_handle_t *handle)
{
    struct tunnel *tunnel = handle->data;
    struct tunnels *tunnels = tunnel->tunnels;

    if (--tunnel->handles > 0)
        return;
    tls_free(tunnel->tls);
    buf_free(&tunnel->outside.held);
    buf_free(&tunnel->inside.held);
    free(tunnel);
    tunnels->count--;
    free_when_closed(tunnels);
}

void tunnel_drop(struct tunnel *tunnel)
{
    if (tunnel->dropped)
        return;
    tunnel->dropped = true;
    list_remove(&tunnel->link);
    if (handshake_goes_on(&tunnel->handshake))
        handshake_end(&tunnel->tunnels->handshakes, &tunnel->handshake);
    uv_close(&tunnel->outside.socket.handle, on_side_closed);
    if (tunnel->inside.there)
        uv_close(&tunnel->inside.socket.handle, on_side_closed);
    if (tunnel->client != NULL)
        tunnel->tunnels->options.closed(tunnel->client);
}

/* Writing. */

static void move_on(struct tunnel *tunnel);

/* The server has closed its end: what it said before is still to be read. */
static void write_failed(struct tunnel *tunnel, const struct side *side)
{
    if (side == &tunnel->outside)
        tunnel_drop(tunnel);
}

static void on_written(uv_write_t *write, int status)
{
    struct side *side = write->data;
    struct tunnel *tunnel = side->socket.handle.data;

    side->writing = false;
    buf_free(&side->held);
    if (status < 0)
        write_failed(tunnel, side);
    if (!tunnel->dropped)
        move_on(tunnel);
}

/* Write what is in the buffer, which is empty then; what does not go out at once is held. */
static void put(struct tunnel *tunnel, struct side *side, struct buf *from)
{
    uv_buf_t piece = uv_buf_init(from->data, (unsigned)from->len);

    if (from->len == 0 || tunnel->dropped)
        return;
    check(!side->writing);
    int sent = uv_try_write(&side->socket.stream, &piece, 1);
    if (sent < 0 && sent != UV_EAGAIN) {
        write_failed(tunnel, side);
    } else if (sent < (int)from->len) {
        buf_consume(from, sent < 0 ? 0 : (size_t)sent);
        side->held = *from;
        *from = (struct buf){0};
        buf_fit(&side->held);
        piece = uv_buf_init(side->held.data, (unsigned)side->held.len);
        side->writing = true;
        if (side == &tunnel->outside && tunnel->state == OPEN)
            tunnel->until_ms = uv_now(tunnel->tunnels->options.loop) + WRITING_MS;
        side->write.data = side;
        check(uv_write(&side->write, &side->socket.stream, &piece, 1, on_written) == 0);
    }
    buf_clear(from);
}

/* Reading. */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct tunnel *tunnel = handle->data;
    (void)suggested;
    *buffer = uv_buf_init(tunnel->tunnels->read_buffer, READ_SIZE);
}

static void on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buffer);

static void set_reading(struct tunnel *tunnel, struct side *side, bool reading)
{
    if (!side->there || side->ended || reading == side->reading || tunnel->dropped)
        return;
    side->reading = reading;
    if (!reading)
        uv_read_stop(&side->socket.stream);
    else if (uv_read_start(&side->socket.stream, on_alloc, on_read) != 0)
        tunnel_drop(tunnel);
}

/* All is said. Where the client has nothing more to say either, that is the end. */
static void on_shut_down(uv_shutdown_t *request, int status)
{
    struct tunnel *tunnel = request->handle->data;

    if (status < 0 || (tunnel->state == ENDING && tunnel->outside.ended))
        tunnel_drop(tunnel);
}

static void shut_down(struct tunnel *tunnel, struct side *side)
{
    if (uv_shutdown(&side->shutdown, &side->socket.stream, on_shut_down) != 0)
        tunnel_drop(tunnel);
}

/* These are the last bytes for the client. */
static void end_with(struct tunnel *tunnel, struct buf *last)
{
    tunnel->state = ENDING;
    tunnel->until_ms = uv_now(tunnel->tunnels->options.loop) + ENDING_MS;
    put(tunnel, &tunnel->outside, last);
    if (!tunnel->dropped)
        shut_down(tunnel, &tunnel->outside);
}

/* Read where there is room for what comes, and end what has ended. */
static void move_on(struct tunnel *tunnel)
{
    struct side *outside = &tunnel->outside, *inside = &tunnel->inside;

    if (tunnel->state == OPEN && inside->ended && !outside->writing) {
        tls_end(tunnel->tls, &tunnel->tunnels->sealed);
        end_with(tunnel, &tunnel->tunnels->sealed);
    }
    set_reading(tunnel, outside, tunnel->tls != NULL && !outside->writing && !inside->writing);
    set_reading(tunnel, inside, !outside->writing);
}

/* The client has shaken hands: make the pair, and give the server its end. */
static void open_inside(struct tunnel *tunnel)
{
    const struct tunnels_options *options = &tunnel->tunnels->options;
    struct sockaddr_storage peer = {0};
    int pair[2], len = sizeof peer;
    char name[USER_NAME_MAX + 1];

    tunnel->state = OPEN;
    handshake_end(&tunnel->tunnels->handshakes, &tunnel->handshake);
    if (uv_tcp_getpeername(&tunnel->outside.socket.tcp, (struct sockaddr *)&peer, &len) != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        tunnel_drop(tunnel);
        return;
    }
    check(uv_pipe_init(options->loop, &tunnel->inside.socket.pipe, 0) == 0 &&
          uv_pipe_open(&tunnel->inside.socket.pipe, pair[0]) == 0);
    tunnel->inside.socket.handle.data = tunnel;
    tunnel->inside.there = true;
    tunnel->handles++;
    options->opened(tunnel->client, pair[1],
                    handshake_user(&tunnel->tunnels->handshakes, tunnel->tls, name),
                    (struct sockaddr *)&peer, (socklen_t)len);
}

/* A client that speaks HTTP without TLS is told where to go: an alert would be noise to it. */
static void refuse_text(struct tunnel *tunnel)
{
    static const char answer[] = "HTTP/1.1 400 Bad Request\r\n"
                                 "Content-Type: text/plain\r\nConnection: close\r\n\r\n"
                                 "this address speaks TLS: ask by https://\n";
    struct tunnels *tunnels = tunnel->tunnels;

    handshake_log_failed(&tunnels->handshakes, &tunnel->outside.socket, "it speaks no TLS");
    handshake_end(&tunnels->handshakes, &tunnel->handshake);
    buf_append(&tunnels->sealed, answer, sizeof answer - 1);
    end_with(tunnel, &tunnels->sealed);
}

static void take_sealed(struct tunnel *tunnel, struct bytes arrived)
{
    struct tunnels *tunnels = tunnel->tunnels;

    if (tunnel->state == HANDSHAKE && !tunnel->heard && handshake_is_text(arrived)) {
        refuse_text(tunnel);
        return;
    }
    tunnel->heard = true;
    enum tls_state state = tls_receive(tunnel->tls, arrived, &tunnels->plain, &tunnels->sealed);

    if (state == TLS_FAILED && tunnel->state == HANDSHAKE)
        handshake_log_failed(&tunnels->handshakes, &tunnel->outside.socket, tls_why(tunnel->tls));
    put(tunnel, &tunnel->outside, &tunnels->sealed);
    if (state == TLS_FAILED)
        tunnel_drop(tunnel);
    else if (state != TLS_HANDSHAKE && tunnel->state == HANDSHAKE && !tunnel->dropped)
        open_inside(tunnel);
    if (tunnel->state == OPEN && !tunnel->inside.ended)
        put(tunnel, &tunnel->inside, &tunnels->plain);
    buf_clear(&tunnels->plain);
    if (state == TLS_ENDED && tunnel->state == OPEN && !tunnel->dropped)
        shut_down(tunnel, &tunnel->inside);
}

/* Nothing more comes from this side. */
static void end_side(struct tunnel *tunnel, struct side *side)
{
    side->reading = false;
    side->ended = true;
    if (side == &tunnel->outside && tunnel->state != OPEN)
        tunnel_drop(tunnel);
    else if (side == &tunnel->outside && tls_state(tunnel->tls) == TLS_OPEN)
        shut_down(tunnel, &tunnel->inside);
}

static void on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buffer)
{
    struct tunnel *tunnel = stream->data;
    struct tunnels *tunnels = tunnel->tunnels;
    bool is_inside = stream == &tunnel->inside.socket.stream;
    struct bytes bytes = {buffer->base, len > 0 ? (size_t)len : 0};

    if (len == UV_EOF || (len < 0 && is_inside)) {
        end_side(tunnel, is_inside ? &tunnel->inside : &tunnel->outside);
    } else if (len < 0) {
        tunnel_drop(tunnel);
    } else if (!is_inside && tunnel->state != ENDING) {
        take_sealed(tunnel, bytes);
    } else if (is_inside && tunnel->state == OPEN) {
        tls_send(tunnel->tls, bytes, &tunnels->sealed);
        put(tunnel, &tunnel->outside, &tunnels->sealed);
    }
    if (!tunnel->dropped)
        move_on(tunnel);
}

/* Accepting. */

static void begin_handshake(struct handshake *handshake, struct tls *tls)
{
    struct tunnel *tunnel = list_entry(handshake, struct tunnel, handshake);

    tunnel->tls = tls;
    move_on(tunnel);
}

static void drop_late(struct handshake *handshake)
{
    tunnel_drop(list_entry(handshake, struct tunnel, handshake));
}

static void on_tick(uv_timer_t *timer)
{
    struct tunnels *tunnels = timer->data;

    for (struct list *link = tunnels->all.next, *next; link != &tunnels->all; link = next) {
        struct tunnel *tunnel = list_entry(link, struct tunnel, link);
        next = link->next;
        if ((tunnel->state == ENDING || (tunnel->state == OPEN && tunnel->outside.writing)) &&
            tunnel->until_ms <= uv_now(tunnels->options.loop))
            tunnel_drop(tunnel);
    }
    handshakes_tick(&tunnels->handshakes);
    if (list_empty(&tunnels->all))
        uv_timer_stop(timer);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct tunnels *tunnels = listener->data;
    struct tunnel *tunnel = mem_zalloc(sizeof *tunnel);

    tunnel->tunnels = tunnels;
    tunnel->handles = 1;
    handshake_init(&tunnel->handshake);
    tunnels->count++;
    list_append(&tunnels->all, &tunnel->link);
    check(uv_tcp_init(tunnels->options.loop, &tunnel->outside.socket.tcp) == 0);
    tunnel->outside.socket.handle.data = tunnel;
    tunnel->outside.there = true;
    if (status < 0 || uv_accept(listener, &tunnel->outside.socket.stream) != 0) {
        tunnel_drop(tunnel);
        return;
    }
    tunnel->client = tunnels->options.begun(tunnels->options.context, tunnel);
    (void)uv_tcp_nodelay(&tunnel->outside.socket.tcp, 1);
    if (!uv_is_active((uv_handle_t *)&tunnels->timer))
        uv_timer_start(&tunnels->timer, on_tick, TICK_MS, TICK_MS);
    handshake_wait(&tunnels->handshakes, &tunnel->handshake);
}

static void on_part_closed(uv_handle_t *handle)
{
    struct tunnels *tunnels = handle->data;

    tunnels->handles--;
    free_when_closed(tunnels);
}

static void ignore_closed(void *context)
{
    (void)context;
}

struct tunnels *tunnels_open(const struct tunnels_options *options, int fd, struct tls_context *tls,
                             enum tls_user user)
{
    struct tunnels *tunnels = mem_zalloc(sizeof *tunnels);

    tunnels->options = *options;
    tunnels->handshakes = (struct handshakes){.loop = options->loop,
                                              .log = options->log,
                                              .door = "admin: ",
                                              .begin = begin_handshake,
                                              .late = drop_late,
                                              .context = tls,
                                              .user = user};
    handshakes_init(&tunnels->handshakes);
    tunnels->handles = 2;
    list_init(&tunnels->all);
    check(uv_tcp_init(options->loop, &tunnels->listener) == 0 &&
          uv_timer_init(options->loop, &tunnels->timer) == 0);
    tunnels->listener.data = tunnels->timer.data = tunnels;
    int failed = uv_tcp_open(&tunnels->listener, fd);
    if (failed != 0)
        close(fd);
    else
        failed = uv_listen((uv_stream_t *)&tunnels->listener, BACKLOG, on_connection);
    if (failed == 0)
        return tunnels;
    errno = -failed;
    tunnels_close(tunnels, ignore_closed, NULL);
    return NULL;
}

void tunnels_set_tls(struct tunnels *tunnels, struct tls_context *tls, enum tls_user user)
{
    handshakes_set_tls(&tunnels->handshakes, tls, user);
}

void tunnels_close(struct tunnels *tunnels, void (*closed)(void *context), void *context)
{
    tunnels->closed = closed;
    tunnels->closed_context = context;
    while (!list_empty(&tunnels->all))
        tunnel_drop(list_entry(tunnels->all.next, struct tunnel, link));
    uv_close((uv_handle_t *)&tunnels->listener, on_part_closed);
    uv_close((uv_handle_t *)&tunnels->timer, on_part_closed);
}
