/* SPDX-License-Identifier: Apache-2.0 */
/* Connections: sockets on one side, the engine's sessions on the other.
 *
 *   (TLS: handshake ─▶)
 *   open ──────────────▶ lingering ─────────────────▶ closed, freed in libuv's callback
 *     │  session ended    its replies leave, FIN is sent,     ▲
 *     │                   what still comes in is dropped      │
 *     └───────────── client hung up, error, conns_close ──────┘
 *
 * Lingering is what lets a client read why it was turned away: a socket that is closed with unread
 * bytes in it is reset, and the reset overtakes the reply. It ends when the client hangs up, or
 * after LINGER_MS. At a stop those linger that have not received all (conns_hang_up).
 *
 * TLS stands between the socket and the session, and is no other path: what arrives is opened
 * before the session gets it, what leaves is sealed behind it. Whose turn for a handshake it is,
 * handshake.h knows; until then nothing is read.
 *
 * Invariants: a session is closed exactly once, when its connection leaves `open`. One write per
 * connection is under way. Meanwhile output gathers in the session, which starts no more commands
 * above a limit, and nothing is read from a connection whose session has enough to do. So a slow
 * reader, or a fast writer, costs bounded memory. An idle connection owns no buffer here. */
#include "proxy/server/conn.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/resp/resp.h"

enum {
    LINGER_MS = 2000,
    LINGER_WRITING_MS = 30000,
    TICK_MS = 250,
    TICK_STOPPING_MS = 10,
    PENDING_MAX = 64 * 1024,
    LINGERING_MAX = 128, /* more are closed at once; process.c reserves the descriptors */
    KEEPALIVE_SECONDS = 60,
    /* What OpenSSL 3.0 takes for one connection, as measured: during the handshake (a long chain of
     * certificates may take as much again), and after it, with a part of a record. */
    TLS_HANDSHAKE_BYTES = 80 << 10,
    TLS_OPEN_BYTES = 34 << 10,
    OUT_KEPT_MAX = 64 * 1024,
};

struct conn {
    struct list link; /* in conns->open or conns->lingering */
    struct conns *conns;
    struct session *session; /* NULL: lingering or closed */
    union socket socket;
    struct buf out;  /* what the write under way sends */
    size_t unsent;   /* its length: all of it is held until the last byte has left */
    size_t counted;  /* what the engine counts of it, once the session is closed */
    struct tls *tls; /* NULL: plain, or its turn for a handshake has not come */
    struct handshake handshake;
    struct buf pending; /* what TLS itself has to say once that write is done */
    union {
        uv_write_t write;
        uv_shutdown_t shutdown;
    } request;
    uint64_t until_ms;            /* lingering: it is closed then */
    bool reading, writing, heard; /* heard: something of the client's has arrived */
};

static void free_conn(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    check(conn->session == NULL && !conn->writing);
    tls_free(conn->tls);
    buf_free(&conn->pending);
    free(conn);
}

static void drop(struct conn *conn);
static void set_reading(struct conn *conn, bool reading);

static bool shakes_hands(const struct conn *conn)
{
    return handshake_goes_on(&conn->handshake);
}

/* Tell the engine what is held here for this connection. */
static void count_held(struct conn *conn)
{
    size_t tls = conn->tls == NULL ? 0 : shakes_hands(conn) ? TLS_HANDSHAKE_BYTES : TLS_OPEN_BYTES;

    if (conn->session != NULL)
        session_set_host_bytes(conn->session, sizeof *conn + tls + conn->pending.cap);
}

static void begin_handshake(struct handshake *handshake, struct tls *tls)
{
    struct conn *conn = list_entry(handshake, struct conn, handshake);

    conn->tls = tls;
    count_held(conn);
    set_reading(conn, true);
}

static void drop(struct conn *conn)
{
    struct conns *conns = conn->conns;

    if (uv_is_closing(&conn->socket.handle))
        return;
    if (conn->session != NULL)
        session_close(conn->session);
    else
        conns->lingering_count--;
    conn->session = NULL;
    list_remove(&conn->link);
    uv_close(&conn->socket.handle, free_conn);
    if (shakes_hands(conn)) {
        engine_count_failed_handshake(conns->engine);
        handshake_end(&conns->handshakes, &conn->handshake);
    }
}

static void drop_late(struct handshake *handshake)
{
    drop(list_entry(handshake, struct conn, handshake));
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct conn *conn = handle->data;
    size_t max = conn->session == NULL ? READ_BUFFER_SIZE : session_read_max(conn->session);

    (void)suggested;
    *buffer = uv_buf_init(conn->conns->read_buffer,
                          (unsigned)(max < READ_BUFFER_SIZE ? max : READ_BUFFER_SIZE));
}

static void take_input(struct conn *conn, struct bytes input)
{
    if (conn->session == NULL || input.len == 0)
        return;
    session_input(conn->session, input.data, input.len);
    set_reading(conn, session_wants_input(conn->session));
}

/* Nothing more comes: what has come is answered. */
static void end_input(struct conn *conn)
{
    if (conn->session == NULL || shakes_hands(conn) || !session_input_ended(conn->session))
        drop(conn);
    else
        set_reading(conn, false);
}

/* Give back the memory of a buffer that all share, where it was for much. */
static void clear_shared(struct buf *buf)
{
    buf_clear(buf);
    if (buf->cap > OUT_KEPT_MAX)
        buf_free(buf);
}

static void complete_handshake(struct conn *conn)
{
    struct handshakes *handshakes = &conn->conns->handshakes;
    char name[USER_NAME_MAX + 1];

    session_secured(conn->session, handshake_user(handshakes, conn->tls, name));
    handshake_end(handshakes, &conn->handshake);
    count_held(conn);
}

static void log_failed(struct conn *conn, const char *why)
{
    handshake_log_failed(&conn->conns->handshakes, &conn->socket, why);
}

static bool send_sealed(struct conn *conn);

static void take_sealed(struct conn *conn, struct bytes arrived)
{
    struct conns *conns = conn->conns;
    enum tls_state state = tls_receive(conn->tls, arrived, &conns->plain, &conns->sealed);

    if (state == TLS_FAILED && shakes_hands(conn))
        log_failed(conn, tls_why(conn->tls));
    else if (state != TLS_HANDSHAKE && shakes_hands(conn))
        complete_handshake(conn);
    if (send_sealed(conn) && state != TLS_FAILED)
        take_input(conn, buf_bytes(&conns->plain));
    clear_shared(&conns->plain);
    if (state == TLS_FAILED)
        drop(conn);
    else if (state == TLS_ENDED && !uv_is_closing(&conn->socket.handle))
        end_input(conn);
}

static void linger(struct conn *conn);

/* Turn a client away that speaks TLS where this address does not, or the other way round, in its
 * own words: a silent end, or a wait, would tell it nothing. Return whether it was. */
static bool speaks_otherwise(struct conn *conn, struct bytes first)
{
    static const char alert[] = {0x15, 3, 1, 0, 2, 2, 70}; /* fatal: protocol_version */
    struct buf *out = &conn->conns->out;

    if (conn->tls == NULL && handshake_is_tls(first)) {
        log_failed(conn, "this address speaks no TLS");
        buf_append(out, alert, sizeof alert);
    } else if (conn->tls != NULL && handshake_is_text(first)) {
        log_failed(conn, "it speaks no TLS");
        engine_count_failed_handshake(conn->conns->engine);
        handshake_end(&conn->conns->handshakes, &conn->handshake);
        tls_free(conn->tls);
        conn->tls = NULL;
        resp_error(out, STK_ERR, "this address speaks TLS: connect by stockades:// or rediss://");
    } else {
        return false;
    }
    linger(conn);
    return true;
}

static void on_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buffer)
{
    struct conn *conn = stream->data;
    bool first = !conn->heard && len > 0 && conn->session != NULL;

    conn->heard |= len > 0;
    if (first && speaks_otherwise(conn, (struct bytes){buffer->base, (size_t)len}))
        return;

    if (len == UV_EOF)
        end_input(conn);
    else if (len < 0)
        drop(conn);
    else if (conn->tls != NULL)
        take_sealed(conn, (struct bytes){buffer->base, (size_t)len});
    else
        take_input(conn, (struct bytes){buffer->base, (size_t)len});
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

/* Is something that it is to receive still on its way to the client? */
static bool is_sending(const struct conn *conn)
{
    uv_os_fd_t fd;
    int bytes = 0;

    return conn->writing || (uv_fileno(&conn->socket.handle, &fd) == 0 &&
                             ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0);
}

static void on_tick(uv_timer_t *timer)
{
    struct conns *conns = timer->data;

    for (struct list *link = conns->lingering.next, *next; link != &conns->lingering; link = next) {
        struct conn *conn = list_entry(link, struct conn, link);
        next = link->next;
        if (conn->until_ms <= uv_now(conns->loop) || (conns->hung_up && !is_sending(conn)))
            drop(conn);
    }
    handshakes_tick(&conns->handshakes);
    if (conns->lingering_count == 0 && handshakes_are_over(&conns->handshakes))
        uv_timer_stop(timer);
}

static void start_ticking(struct conns *conns)
{
    if (!uv_is_active((uv_handle_t *)&conns->timer))
        uv_timer_start(&conns->timer, on_tick, TICK_MS, TICK_MS);
}

static void on_shutdown(uv_shutdown_t *request, int status)
{
    if (status < 0)
        drop(request->data);
}

static void say_goodbye(struct conn *conn)
{
    conn->request.shutdown.data = conn;
    conn->until_ms = uv_now(conn->conns->loop) + LINGER_MS;
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
        return;
    }
    buf_append_bytes(&conn->conns->sealed, buf_bytes(&conn->pending));
    buf_free(&conn->pending);
    count_held(conn);
    if (!send_sealed(conn) || conn->writing)
        return;
    if (conn->session != NULL) {
        session_set_unsent(conn->session, 0);
        conn_on_change(conn);
    } else {
        say_goodbye(conn);
    }
}

/* Send one of the buffers that all share: what the socket takes now, and the rest as a write of its
 * own. Return how many bytes are held until then; 0: all is sent, or the connection is gone. */
static size_t send_shared(struct conn *conn, struct buf *out)
{
    uv_buf_t piece = uv_buf_init(out->data, (unsigned)out->len);
    int sent = out->len == 0 ? 0 : uv_try_write(&conn->socket.stream, &piece, 1);

    if (sent < 0 && sent != UV_EAGAIN) {
        buf_clear(out);
        drop(conn);
        return 0;
    }
    size_t done = sent < 0 ? 0 : (size_t)sent, left = out->len - done;
    if (left == 0) {
        clear_shared(out);
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

/* Send what TLS itself has to say, now or behind the write under way. False: the connection is
 * gone. */
static bool send_sealed(struct conn *conn)
{
    struct conns *conns = conn->conns;

    if (conns->sealed.len == 0)
        return true;
    if (!conn->writing) {
        send_shared(conn, &conns->sealed);
        return !uv_is_closing(&conn->socket.handle);
    }
    buf_append_bytes(&conn->pending, buf_bytes(&conns->sealed));
    clear_shared(&conns->sealed);
    count_held(conn);
    if (conn->pending.len <= PENDING_MAX)
        return true;
    drop(conn); /* it asks for new keys again and again, and reads nothing */
    return false;
}

/* Send conns->out. Return as send_shared does. */
static size_t send_out(struct conn *conn)
{
    struct conns *conns = conn->conns;

    if (conn->tls == NULL)
        return send_shared(conn, &conns->out);
    tls_send(conn->tls, buf_bytes(&conns->out), &conns->sealed);
    clear_shared(&conns->out);
    return send_shared(conn, &conns->sealed);
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
    conns->lingering_count++;
    start_ticking(conns);
    conn->until_ms = uv_now(conns->loop) + LINGER_WRITING_MS;
    if (!conn->writing)
        send_out(conn);
    if (conn->tls != NULL && !uv_is_closing(&conn->socket.handle)) {
        tls_end(conn->tls, &conns->sealed);
        if (!send_sealed(conn))
            return;
    }
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

    if (shakes_hands(conn)) { /* it can be told nothing yet */
        if (session_ended(conn->session))
            drop(conn);
        return;
    }
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

/* Close a connection that has no session, without a word. */
static void refuse(struct conn *conn)
{
    list_remove(&conn->link);
    uv_close(&conn->socket.handle, free_conn);
}

void conns_accept(struct conns *conns, uv_stream_t *listener, enum address_kind kind)
{
    struct conn *conn = mem_zalloc(sizeof *conn);
    char peer[ADDRESS_TEXT_MAX];
    bool is_unix = kind == ADDRESS_UNIX;

    conn->conns = conns;
    handshake_init(&conn->handshake);
    if (is_unix)
        check(uv_pipe_init(conns->loop, &conn->socket.pipe, 0) == 0);
    else
        check(uv_tcp_init(conns->loop, &conn->socket.tcp) == 0);
    conn->socket.handle.data = conn;
    list_append(&conns->open, &conn->link);
    if (uv_accept(listener, &conn->socket.stream) != 0) {
        refuse(conn);
        return;
    }
    if (!is_unix) { /* where these fail, the connection is gone already */
        (void)uv_tcp_nodelay(&conn->socket.tcp, 1);
        (void)uv_tcp_keepalive(&conn->socket.tcp, 1, KEEPALIVE_SECONDS);
    }
    bool trusted = socket_peer(&conn->socket, is_unix, peer);
    conn->session = session_open(conns->engine, peer, trusted, conn, &conns->out);
    count_held(conn);
    if (conn->session != NULL && kind == ADDRESS_TLS) {
        start_ticking(conns);
        handshake_wait(&conns->handshakes, &conn->handshake);
    } else if (conn->session != NULL) {
        set_reading(conn, true);
    } else if (kind == ADDRESS_TLS) { /* why could be told after a handshake only */
        buf_clear(&conns->out);
        refuse(conn);
    } else {
        linger(conn);
    }
}

void conns_init(struct conns *conns, uv_loop_t *loop, const struct log *log)
{
    conns->loop = loop;
    conns->handshakes = (struct handshakes){
        .loop = loop, .log = log, .door = "", .begin = begin_handshake, .late = drop_late};
    handshakes_init(&conns->handshakes);
    list_init(&conns->open);
    list_init(&conns->lingering);
    check(uv_timer_init(loop, &conns->timer) == 0);
    conns->timer.data = conns;
}

/* Let a client tell the end from one that somebody else has made. */
static void say_end(struct conn *conn)
{
    struct conns *conns = conn->conns;

    if (conn->tls == NULL || conn->writing)
        return;
    tls_end(conn->tls, &conns->sealed);
    uv_buf_t piece = uv_buf_init(conns->sealed.data, (unsigned)conns->sealed.len);
    (void)uv_try_write(&conn->socket.stream, &piece, 1);
    clear_shared(&conns->sealed);
}

static void drop_all(struct list *list)
{
    while (!list_empty(list)) {
        struct conn *conn = list_entry(list->next, struct conn, link);
        say_end(conn);
        drop(conn);
    }
}

/* Drop those of the list that have nothing on its way, or have not sent all in time. */
static void drop_idle(struct list *list)
{
    for (struct list *link = list->next, *next; link != list; link = next) {
        struct conn *conn = list_entry(link, struct conn, link);
        next = link->next;
        if (!shakes_hands(conn) && !conn->writing && is_sending(conn))
            continue;
        say_end(conn);
        drop(conn);
    }
}

void conns_hang_up(struct conns *conns)
{
    drop_idle(&conns->lingering);
    drop_idle(&conns->open);
    while (!list_empty(&conns->open))
        linger(list_entry(conns->open.next, struct conn, link));
    conns->hung_up = true;
    uv_timer_start(&conns->timer, on_tick, TICK_STOPPING_MS, TICK_STOPPING_MS);
}

bool conns_are_gone(const struct conns *conns)
{
    return list_empty(&conns->open) && list_empty(&conns->lingering);
}

void conns_close(struct conns *conns)
{
    drop_all(&conns->open);
    drop_all(&conns->lingering);
    uv_close((uv_handle_t *)&conns->timer, NULL);
}

void conns_free(struct conns *conns)
{
    check(list_empty(&conns->open) && list_empty(&conns->lingering));
    check_nought("lingering connections", conns->lingering_count);
    check_nought("writes under way", conns->writing_count);
    handshakes_free(&conns->handshakes);
    buf_free(&conns->out);
    buf_free(&conns->plain);
    buf_free(&conns->sealed);
}
