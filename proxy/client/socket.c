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
#include "proxy/client/thread.h"
#include "proxy/client/transport.h"

enum { READ_SIZE = 16 * 1024, HTTP_LIMIT_MS = 500 };

struct socket {
    struct transport base;
    int fd;
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

static enum io_result socket_send(struct transport *transport, struct bytes data,
                                  int64_t deadline_ms, size_t *sent)
{
    struct socket *socket = of(transport);
    size_t at = 0;

    while (at < data.len) {
        ssize_t done = send(socket->fd, data.data + at, data.len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done >= 0) {
            at += (size_t)done;
            *sent += (size_t)done;
            continue;
        }
        if (!would_block(errno))
            return broken(socket, strerror(errno));
        /* A wake-up does not stop what has begun: half a request is of no use. */
        if (wait_for(socket->fd, POLLOUT, -1, deadline_ms) == IO_LATE)
            return IO_LATE;
    }
    return IO_DONE;
}

static enum io_result socket_receive(struct transport *transport, struct buf *in,
                                     int64_t deadline_ms)
{
    struct socket *socket = of(transport);

    for (;;) {
        ssize_t got = recv(socket->fd, buf_reserve(in, READ_SIZE), READ_SIZE, MSG_DONTWAIT);
        if (got > 0) {
            in->len += (size_t)got;
            return IO_DONE;
        }
        if (got == 0)
            return broken(socket, "the daemon closed the connection");
        if (!would_block(errno))
            return broken(socket, strerror(errno));
        enum io_result result = wait_for(socket->fd, POLLIN, socket->base.wake_fd, deadline_ms);
        if (result != IO_DONE)
            return result;
    }
}

/* Nothing is expected: bytes that come all the same make it useless, too. */
static bool socket_is_broken(struct transport *transport)
{
    char byte;
    return recv(of(transport)->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || !would_block(errno);
}

static void socket_close(struct transport *transport)
{
    close(of(transport)->fd);
    free(transport);
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
        *error = fail(STK_UNREACHABLE, "cannot look up %s: %s", host, gai_strerror(lookup->code));
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
                                                attempt.to, strerror(attempt.why));
        return NULL;
    }
    struct socket *socket = mem_zalloc(sizeof *socket);
    socket->base.impl = &socket_impl;
    socket->fd = fd;
    return &socket->base;
}

bool socket_speaks_http(const struct target *target, int64_t deadline_ms, int wake_fd)
{
    int64_t until_ms = now_ms() + HTTP_LIMIT_MS;
    struct attempt attempt = {.deadline_ms = until_ms < deadline_ms ? until_ms : deadline_ms,
                              .wake_fd = wake_fd};
    static const char request[] = "HEAD /health HTTP/1.0\r\n\r\n";
    char start[8] = "";

    int fd = target->kind == TARGET_TCP ? connect_tcp(target, &attempt) : -1;
    if (fd < 0)
        return false;
    bool answered = send(fd, request, sizeof request - 1, MSG_NOSIGNAL) > 0 &&
                    wait_for(fd, POLLIN, wake_fd, attempt.deadline_ms) == IO_DONE &&
                    recv(fd, start, sizeof start - 1, MSG_DONTWAIT) > 0;
    close(fd);
    return answered && strncmp(start, "HTTP/", 5) == 0;
}
