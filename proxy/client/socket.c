/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets, never blocking but in poll, and so always with a deadline. A peer that has gone is an
 * error code here and no SIGPIPE. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "proxy/client/own.h"
#include "proxy/client/transport.h"

enum { READ_SIZE = 16 * 1024 };

struct socket {
    struct transport base;
    int fd, wake_fd;
};

int64_t now_ms(void)
{
    return clock_now_ms(&clock_monotonic);
}

enum moved wait_for(int fd, short events, int wake_fd, int64_t deadline_ms)
{
    struct pollfd polled[2] = {{.fd = fd, .events = events}, {.fd = wake_fd, .events = POLLIN}};

    for (;;) {
        int64_t left_ms = deadline_ms - now_ms();
        if (left_ms < 0)
            left_ms = 0;
        int ready = poll(polled, 2, left_ms > 60000 ? 60000 : (int)left_ms);
        if (ready < 0 && errno != EINTR)
            return MOVED_LATE; /* no memory for poll: as if nothing came */
        if (ready > 0 && polled[1].revents != 0)
            return MOVED_WOKEN;
        if (ready > 0)
            return MOVED;
        if (now_ms() >= deadline_ms)
            return MOVED_LATE;
    }
}

static struct socket *of(struct transport *transport)
{
    return (struct socket *)(void *)transport;
}

static enum moved broken(struct socket *socket, const char *why)
{
    snprintf(socket->base.why, sizeof socket->base.why, "%s", why);
    return MOVED_BROKEN;
}

static bool would_block(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static enum moved socket_send(struct transport *transport, struct bytes data, int64_t deadline_ms,
                              size_t *sent)
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
        if (wait_for(socket->fd, POLLOUT, -1, deadline_ms) == MOVED_LATE)
            return MOVED_LATE;
    }
    return MOVED;
}

static enum moved socket_receive(struct transport *transport, struct buf *in, int64_t deadline_ms)
{
    struct socket *socket = of(transport);

    for (;;) {
        ssize_t got = recv(socket->fd, buf_reserve(in, READ_SIZE), READ_SIZE, MSG_DONTWAIT);
        if (got > 0) {
            in->len += (size_t)got;
            return MOVED;
        }
        if (got == 0)
            return broken(socket, "the daemon closed the connection");
        if (!would_block(errno))
            return broken(socket, strerror(errno));
        enum moved moved = wait_for(socket->fd, POLLIN, socket->wake_fd, deadline_ms);
        if (moved != MOVED)
            return moved;
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

/* A connected socket, or -1; *error is an errno, or 0 where the time was over or it was woken. */
static int connect_to(const struct sockaddr *address, socklen_t len, int64_t deadline_ms,
                      int wake_fd, int *error)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    socklen_t size = sizeof *error;

    if (fd < 0) {
        *error = errno;
        return -1;
    }
    *error = connect(fd, address, len) == 0 ? 0 : errno;
    if (*error == EINPROGRESS || *error == EINTR) {
        *error = 0;
        if (wait_for(fd, POLLOUT, wake_fd, deadline_ms) != MOVED) {
            close(fd);
            return -1;
        }
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, error, &size) != 0)
            *error = errno;
    }
    if (*error != 0) {
        close(fd);
        return -1;
    }
    if (address->sa_family != AF_UNIX)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int connect_unix(const struct target *target, int64_t deadline_ms, int wake_fd, int *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    check(strlen(target->path) < sizeof address.sun_path);
    strcpy(address.sun_path, target->path);
    return connect_to((const struct sockaddr *)&address, sizeof address, deadline_ms, wake_fd,
                      error);
}

/* Each address in turn. */
static int connect_tcp(const struct target *target, int64_t deadline_ms, int wake_fd, int *error,
                       enum stk_error *resolve_error)
{
    int fd = -1;
    char port[16];

    snprintf(port, sizeof port, "%d", target->host.port);
    struct addrinfo *all = resolve(target->host.name, port, deadline_ms, wake_fd, resolve_error);
    for (const struct addrinfo *at = all; at != NULL && fd < 0; at = at->ai_next)
        fd = connect_to(at->ai_addr, at->ai_addrlen, deadline_ms, wake_fd, error);
    if (all != NULL)
        freeaddrinfo(all);
    return fd;
}

struct transport *socket_open(const struct target *target, int64_t deadline_ms, int wake_fd,
                              enum stk_error *error)
{
    char text[300];
    int why = 0;

    *error = STK_OK;
    int fd = target->kind == TARGET_UNIX ? connect_unix(target, deadline_ms, wake_fd, &why)
                                         : connect_tcp(target, deadline_ms, wake_fd, &why, error);
    if (fd < 0 && *error == STK_OK)
        *error = why == 0 ? fail(STK_TIMEOUT, "no connection to %s in time",
                                 target_text(target, text, sizeof text))
                          : fail(STK_UNREACHABLE, "cannot connect to %s: %s",
                                 target_text(target, text, sizeof text), strerror(why));
    if (fd < 0)
        return NULL;
    struct socket *socket = mem_zalloc(sizeof *socket);
    socket->base.impl = &socket_impl;
    socket->fd = fd;
    socket->wake_fd = wake_fd;
    return &socket->base;
}
