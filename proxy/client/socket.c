/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets to a daemon: resolve its name, connect, send, receive. Only poll waits, and so every wait
 * has its deadline. A daemon that has gone is an error code here and no SIGPIPE.
 *
 * getaddrinfo knows no time limit, so a name is looked up on a thread of its own. Whoever asked
 * leaves when its time is over, and the last of the two frees what they share. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/base/plain.h"
#include "fence/base/thread.h"
#include "fence/base/tls.h"
#include "proxy/client/thread.h"
#include "proxy/client/transport.h"

enum { READ_SIZE = 16 * 1024, HTTP_LIMIT_MS = 500 };

struct socket {
    struct transport base;
    int fd;
    struct tls *tls;   /* NULL: plain */
    struct buf sealed; /* to be sent by TLS, and not sent yet */
};

enum io_result wait_for(int fd, short events, int wake_fd, int64_t deadline_ms)
{
    struct pollfd polled[2] = {{.fd = fd, .events = events}, {.fd = wake_fd, .events = POLLIN}};

    for (;;) {
        int64_t left_ms = deadline_ms - now_ms();
        if (left_ms < 0)
            left_ms = 0;
        int ready = poll(polled, 2, left_ms > 60000 ? 60000 : (int)left_ms);
        if (ready < 0 && errno != EINTR)
            return IO_LATE; /* no memory for poll: as if nothing came */
        if (ready > 0 && polled[1].revents != 0)
            return IO_WOKEN;
        if (ready > 0)
            return IO_DONE;
        if (now_ms() >= deadline_ms)
            return IO_LATE;
    }
}

static struct socket *of(struct transport *transport)
{
    return (struct socket *)(void *)transport;
}

static enum io_result broken(struct socket *socket, const char *why)
{
    snprintf(socket->base.why, sizeof socket->base.why, "%s", why);
    return IO_BROKEN;
}

static bool would_block(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static enum io_result send_bytes(struct socket *socket, struct bytes data, int64_t deadline_ms,
                                 size_t *sent)
{
    size_t at = 0;

    while (at < data.len) {
        ssize_t done = send(socket->fd, data.data + at, data.len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done >= 0) {
            at += (size_t)done;
            *sent += (size_t)done;
            continue;
        }
        if (!would_block(errno))
            return broken(socket, plain_errno(errno));
        /* A wake-up does not stop what has begun: half a request is of no use. */
        if (wait_for(socket->fd, POLLOUT, -1, deadline_ms) == IO_LATE)
            return IO_LATE;
    }
    return IO_DONE;
}

static enum io_result send_sealed(struct socket *socket, int64_t deadline_ms, size_t *sent)
{
    enum io_result result = send_bytes(socket, buf_bytes(&socket->sealed), deadline_ms, sent);

    buf_clear(&socket->sealed); /* what is left of it is of no use */
    return result;
}

static enum io_result receive_some(struct socket *socket, struct buf *in, int64_t deadline_ms);

/* Read what the daemon sent before it hung up: an alert of TLS says why. */
static void hear_why(struct socket *socket)
{
    struct buf in = {0};

    while (in.len == 0 && receive_some(socket, &in, 0) == IO_DONE)
        ;
    buf_free(&in);
}

static enum io_result socket_send(struct transport *transport, struct bytes data,
                                  int64_t deadline_ms, size_t *sent)
{
    struct socket *socket = of(transport);
    size_t sealed_sent = 0;

    if (socket->tls == NULL)
        return send_bytes(socket, data, deadline_ms, sent);
    if (tls_state(socket->tls) != TLS_OPEN)
        return broken(socket, "the daemon closed the connection");
    tls_send(socket->tls, data, &socket->sealed);
    enum io_result result = send_sealed(socket, deadline_ms, &sealed_sent);
    /* Nobody knows which of the bytes are in the part of the sealed data that was sent. */
    *sent += result == IO_DONE ? data.len : sealed_sent > 0;
    if (result == IO_BROKEN)
        hear_why(socket);
    return result;
}

/* Why nothing more comes by TLS. */
static enum io_result ended(struct socket *socket)
{
    return broken(socket, tls_state(socket->tls) == TLS_FAILED
                              ? tls_why(socket->tls)
                              : "the daemon closed the connection");
}

static bool is_over(const struct socket *socket)
{
    return tls_state(socket->tls) == TLS_ENDED || tls_state(socket->tls) == TLS_FAILED;
}

/* Open what has come, and send what TLS has to say to that; or wait until something comes. IO_DONE:
 * go on, there may be nothing for the caller yet. */
static enum io_result receive_some(struct socket *socket, struct buf *in, int64_t deadline_ms)
{
    char sealed[READ_SIZE];
    size_t sent = 0;

    if (is_over(socket))
        return ended(socket);
    ssize_t got = recv(socket->fd, sealed, sizeof sealed, MSG_DONTWAIT);
    if (got < 0 && would_block(errno))
        return wait_for(socket->fd, POLLIN, socket->base.wake_fd, deadline_ms);
    if (got < 0)
        return broken(socket, plain_errno(errno));
    if (got == 0)
        return broken(socket, "the daemon closed the connection");
    tls_receive(socket->tls, (struct bytes){sealed, (size_t)got}, in, &socket->sealed);
    return send_sealed(socket, deadline_ms, &sent);
}

static enum io_result receive_by_tls(struct socket *socket, struct buf *in, int64_t deadline_ms)
{
    size_t had = in->len;
    enum io_result result;

    do {
        result = receive_some(socket, in, deadline_ms);
    } while (result == IO_DONE && in->len == had);
    return in->len > had ? IO_DONE : result;
}

static enum io_result shake_hands(struct socket *socket, int64_t deadline_ms)
{
    struct buf in = {0};
    size_t sent = 0;

    tls_receive(socket->tls, (struct bytes){0}, &in, &socket->sealed);
    enum io_result result = send_sealed(socket, deadline_ms, &sent);
    while (result == IO_DONE && tls_state(socket->tls) == TLS_HANDSHAKE)
        result = receive_some(socket, &in, deadline_ms);
    if (result == IO_DONE && is_over(socket))
        result = ended(socket);
    if (result == IO_DONE && in.len > 0)
        result = broken(socket, "it speaks before it is spoken to");
    buf_free(&in);
    return result;
}

static enum io_result socket_receive(struct transport *transport, struct buf *in,
                                     int64_t deadline_ms)
{
    struct socket *socket = of(transport);

    if (socket->tls != NULL)
        return receive_by_tls(socket, in, deadline_ms);
    for (;;) {
        ssize_t got = recv(socket->fd, buf_reserve(in, READ_SIZE), READ_SIZE, MSG_DONTWAIT);
        if (got > 0) {
            in->len += (size_t)got;
            return IO_DONE;
        }
        if (got == 0)
            return broken(socket, "the daemon closed the connection");
        if (!would_block(errno))
            return broken(socket, plain_errno(errno));
        enum io_result result = wait_for(socket->fd, POLLIN, socket->base.wake_fd, deadline_ms);
        if (result != IO_DONE)
            return result;
    }
}

/* Nothing is expected: bytes that come all the same make it useless, too. */
static bool socket_is_broken(struct transport *transport)
{
    struct socket *socket = of(transport);
    struct buf in = {0};
    char byte;

    if (socket->tls == NULL)
        return recv(socket->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || !would_block(errno);
    enum io_result result; /* TLS itself may have sent something: tickets, new keys */
    do {
        result = receive_some(socket, &in, 0);
    } while (result == IO_DONE && in.len == 0);
    bool broken = in.len > 0 || result == IO_BROKEN;
    buf_free(&in);
    return broken;
}

static void socket_close(struct transport *transport)
{
    struct socket *socket = of(transport);

    if (socket->tls != NULL && !transport->silent) { /* the last word, if there is room for it */
        tls_end(socket->tls, &socket->sealed);
        (void)send(socket->fd, socket->sealed.data, socket->sealed.len,
                   MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    tls_free(socket->tls);
    buf_free(&socket->sealed);
    close(socket->fd);
    free(socket);
}

static const struct transport_impl socket_impl = {
    .send = socket_send,
    .receive = socket_receive,
    .is_broken = socket_is_broken,
    .close = socket_close,
};

/* The host's name to its addresses. */

struct lookup {
    char *host, *port;
    int done_fd; /* readable when `result` and `code` are there */
    struct addrinfo *result;
    int code;
    atomic_bool ready;
    atomic_int users; /* the thread, and who asked */
};

static int look_up(const char *host, const char *port, int flags, struct addrinfo **result)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    *result = NULL;
    return getaddrinfo(host, port, &hints, result);
}

static void leave(struct lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->users, 1) > 1)
        return;
    if (lookup->result != NULL)
        freeaddrinfo(lookup->result);
    close(lookup->done_fd);
    free(lookup->host);
    free(lookup->port);
    free(lookup);
}

static void *lookup_main(void *context)
{
    struct lookup *lookup = context;

    lookup->code = look_up(lookup->host, lookup->port, 0, &lookup->result);
    atomic_store(&lookup->ready, true);
    (void)eventfd_write(lookup->done_fd, 1);
    leave(lookup);
    return NULL;
}

/* NULL: no descriptors or threads are left. */
static struct lookup *lookup_start(const char *host, const char *port)
{
    struct lookup *lookup = mem_zalloc(sizeof *lookup);
    pthread_t thread;

    lookup->host = mem_strdup(host);
    lookup->port = mem_strdup(port);
    atomic_init(&lookup->users, 2);
    lookup->done_fd = eventfd(0, EFD_CLOEXEC);
    if (lookup->done_fd >= 0 && thread_start(&thread, "stk-resolve", lookup_main, lookup)) {
        pthread_detach(thread);
        return lookup;
    }
    atomic_store(&lookup->users, 1);
    leave(lookup);
    return NULL;
}

/* Free with freeaddrinfo. */
static struct addrinfo *resolve(const char *host, const char *port, int64_t deadline_ms,
                                int wake_fd, enum stk_error *error)
{
    struct addrinfo *result;

    *error = STK_OK;
    if (look_up(host, port, AI_NUMERICHOST, &result) == 0)
        return result;
    struct lookup *lookup = lookup_start(host, port);
    if (lookup == NULL) {
        *error = fail(STK_UNREACHABLE, "cannot look up %s: no more threads or descriptors", host);
        return NULL;
    }
    enum io_result waited = wait_for(lookup->done_fd, POLLIN, wake_fd, deadline_ms);
    if (waited == IO_WOKEN) {
        *error = fail(STK_CANCELLED, NULL);
    } else if (waited != IO_DONE || !atomic_load(&lookup->ready)) {
        *error = fail(STK_TIMEOUT, "looking up %s takes too long", host);
    } else if (lookup->code != 0) {
        *error =
            fail(STK_UNREACHABLE, "cannot look up %s: %s", host, plain_host_error(lookup->code));
    } else {
        result = lookup->result;
        lookup->result = NULL;
    }
    leave(lookup);
    return result;
}

/* Connecting. */

struct attempt {
    char to[300]; /* the target, for messages */
    int64_t deadline_ms;
    int wake_fd;
    enum stk_error error; /* fail() was called; STK_OK: `why` says more */
    int why;              /* an errno */
};

/* Return a connected socket, or -1. */
static int connect_to(const struct sockaddr *address, socklen_t len, struct attempt *attempt)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    socklen_t size = sizeof attempt->why;

    attempt->error = STK_OK;
    if (fd < 0) {
        attempt->why = errno;
        return -1;
    }
    attempt->why = connect(fd, address, len) == 0 ? 0 : errno;
    if (attempt->why == EINPROGRESS || attempt->why == EINTR) {
        attempt->why = 0;
        enum io_result waited = wait_for(fd, POLLOUT, attempt->wake_fd, attempt->deadline_ms);
        if (waited == IO_WOKEN)
            attempt->error = fail(STK_CANCELLED, NULL);
        else if (waited != IO_DONE)
            attempt->error = fail(STK_TIMEOUT, "no connection to %s in time", attempt->to);
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &attempt->why, &size) != 0)
            attempt->why = errno;
    }
    if (attempt->why != 0 || attempt->error != STK_OK) {
        close(fd);
        return -1;
    }
    if (address->sa_family != AF_UNIX)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int connect_unix(const struct target *target, struct attempt *attempt)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    check(strlen(target->path) < sizeof address.sun_path);
    strcpy(address.sun_path, target->path);
    return connect_to((const struct sockaddr *)&address, sizeof address, attempt);
}

/* Try each address in turn, until one answers or the time is over. */
static int connect_tcp(const struct target *target, struct attempt *attempt)
{
    char port[16];
    int fd = -1;

    snprintf(port, sizeof port, "%d", target->host.port);
    struct addrinfo *all =
        resolve(target->host.name, port, attempt->deadline_ms, attempt->wake_fd, &attempt->error);
    for (const struct addrinfo *at = all; at != NULL && fd < 0; at = at->ai_next)
        fd = connect_to(at->ai_addr, at->ai_addrlen, attempt);
    if (all != NULL)
        freeaddrinfo(all);
    return fd;
}

/* The files are read for each connection: they may be new. */
static enum stk_error begin_tls(struct socket *socket, const struct target *target,
                                const struct attempt *attempt)
{
    char why[TLS_WHY_MAX];
    struct tls_context *context =
        tls_client(&(struct tls_files){target->tls_cert, target->tls_key, target->tls_ca}, why);

    if (context == NULL)
        return fail(STK_UNREACHABLE, "%s", why);
    socket->tls =
        tls_open(context, target->tls_name[0] != '\0' ? target->tls_name : target->host.name);
    tls_context_free(context);
    switch (shake_hands(socket, attempt->deadline_ms)) {
    case IO_DONE: return STK_OK;
    case IO_WOKEN: return fail(STK_CANCELLED, NULL);
    case IO_LATE: return fail(STK_TIMEOUT, "no TLS handshake with %s in time", attempt->to);
    case IO_BROKEN: break;
    }
    return fail(STK_UNREACHABLE, "cannot connect to %s: %s", attempt->to, socket->base.why);
}

struct transport *socket_open(const struct target *target, int64_t deadline_ms, int wake_fd,
                              enum stk_error *error)
{
    struct attempt attempt = {.deadline_ms = deadline_ms, .wake_fd = wake_fd};

    (void)target_text(target, attempt.to, sizeof attempt.to);
    int fd = target->kind == TARGET_UNIX ? connect_unix(target, &attempt)
                                         : connect_tcp(target, &attempt);
    *error = STK_OK;
    if (fd < 0) {
        *error = attempt.error != STK_OK ? attempt.error
                                         : fail(STK_UNREACHABLE, "cannot connect to %s: %s",
                                                attempt.to, plain_errno(attempt.why));
        return NULL;
    }
    struct socket *socket = mem_zalloc(sizeof *socket);
    socket->base.impl = &socket_impl;
    socket->base.wake_fd = wake_fd;
    socket->fd = fd;
    if (target->tls)
        *error = begin_tls(socket, target, &attempt);
    if (*error == STK_OK)
        return &socket->base;
    socket_close(&socket->base);
    return NULL;
}

bool socket_speaks_http(const struct target *target, int64_t deadline_ms, int wake_fd)
{
    int64_t until_ms = now_ms() + HTTP_LIMIT_MS;
    struct attempt attempt = {.deadline_ms = until_ms < deadline_ms ? until_ms : deadline_ms,
                              .wake_fd = wake_fd};
    static const char request[] = "HEAD /health HTTP/1.0\r\n\r\n";
    char start[8] = "";

    int fd = target->kind == TARGET_TCP && !target->tls ? connect_tcp(target, &attempt) : -1;
    if (fd < 0)
        return false;
    bool answered = send(fd, request, sizeof request - 1, MSG_NOSIGNAL) > 0 &&
                    wait_for(fd, POLLIN, wake_fd, attempt.deadline_ms) == IO_DONE &&
                    recv(fd, start, sizeof start - 1, MSG_DONTWAIT) > 0;
    close(fd);
    return answered && strncmp(start, "HTTP/", 5) == 0;
}
