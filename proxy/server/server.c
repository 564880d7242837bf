/* SPDX-License-Identifier: Apache-2.0 */
/* The listeners, TCP and unix sockets; what they accept is conn.c's.
 *
 * A daemon that is killed leaves its socket file behind: it is replaced if nobody answers there,
 * and only then. The file is for its owner alone (mode 0700, set before anybody can connect),
 * because whoever comes through it is an administrator where there is no password. */
#include "proxy/server/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/list.h"
#include "fence/base/mem.h"
#include "fence/base/plain.h"
#include "proxy/server/address.h"
#include "proxy/server/conn.h"
#include "proxy/server/socket.h"

enum { BACKLOG = 1024, ACCEPT_FAILED_EVERY_MS = 1000 };

struct server {
    const struct log *log;
    struct list listeners;     /* in the order of server_bind */
    uint64_t accept_failed_ms; /* when that was logged last */
    bool only_looks;           /* server_only_look */
    struct conns conns;
};

/* It lives until libuv has closed its handle. */
struct listener {
    struct list link;
    struct server *server;
    union socket socket;
    enum address_kind kind;
    bool loopback;
    char text[ADDRESS_TEXT_MAX];
};

struct server *server_new(uv_loop_t *loop, const struct log *log)
{
    struct server *server = mem_zalloc(sizeof *server);

    server->log = log;
    list_init(&server->listeners);
    conns_init(&server->conns, loop, log);
    return server;
}

static void free_listener(uv_handle_t *handle)
{
    free(handle->data);
}

static void close_listener(struct listener *listener)
{
    list_remove(&listener->link);
    uv_close(&listener->socket.handle, free_listener);
}

/* Clear the way for a socket at `path`. Return whether nothing is there any more. */
static bool clear_path(const char *path, char *why, size_t why_size)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat status;

    if (lstat(path, &status) != 0)
        return true; /* where that is no good, bind will say why */
    if (!S_ISSOCK(status.st_mode)) {
        snprintf(why, why_size, "there is something there that is not a socket");
        return false;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int failed =
        fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (failed == ECONNREFUSED && unlink(path) == 0)
        return true;
    snprintf(why, why_size, "%s",
             failed == 0 || failed == EAGAIN ? "somebody answers there already"
                                             : plain_errno(errno));
    return false;
}

/* Return whether there is a folder that `path` could be in. */
static bool folder_exists(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[sizeof((struct sockaddr_un *)NULL)->sun_path] = ".";
    struct stat status;

    if (slash != NULL)
        text_print(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    return stat(folder, &status) == 0 && S_ISDIR(status.st_mode);
}

static bool bind_unix(struct listener *listener, const char *path, char *why, size_t why_size)
{
    if (listener->server->only_looks && !folder_exists(path)) {
        snprintf(why, why_size, "there is no such folder");
        return false;
    }
    if (listener->server->only_looks)
        return true;
    if (!clear_path(path, why, why_size))
        return false;
    int failed = uv_pipe_bind(&listener->socket.pipe, path);
    if (failed == UV_EACCES && !folder_exists(path)) { /* so libuv calls ENOENT, too */
        snprintf(why, why_size, "there is no such folder");
        return false;
    }
    if (failed != 0 || chmod(path, 0700) != 0) {
        snprintf(why, why_size, "%s", failed != 0 ? uv_strerror(failed) : plain_errno(errno));
        return false;
    }
    snprintf(listener->text, sizeof listener->text, "unix:%s", path);
    return true;
}

static bool bind_tcp(struct listener *listener, const struct address *address, char *why,
                     size_t why_size)
{
    struct sockaddr_storage resolved, bound;
    int len = sizeof bound;
    uv_tcp_t *tcp = &listener->socket.tcp;

    if (!address_resolve(address, &resolved, why, why_size))
        return false;
    bound = resolved;
    int failed =
        listener->server->only_looks ? 0 : uv_tcp_bind(tcp, (struct sockaddr *)&resolved, 0);
    if (failed == 0 && !listener->server->only_looks)
        failed = uv_tcp_getsockname(tcp, (struct sockaddr *)&bound, &len);
    if (failed != 0) {
        snprintf(why, why_size, "%s", uv_strerror(failed));
        return false;
    }
    listener->loopback = address_is_loopback(&bound);
    text_print(listener->text, sizeof listener->text, "%s%s",
               address->kind == ADDRESS_TLS ? "tls:" : "",
               address_text(&bound, (char[ADDRESS_TEXT_MAX]){0}));
    return true;
}

static struct listener *add_listener(struct server *server, enum address_kind kind)
{
    struct listener *listener = mem_zalloc(sizeof *listener);

    listener->server = server;
    listener->kind = kind;
    if (kind == ADDRESS_UNIX)
        check(uv_pipe_init(server->conns.loop, &listener->socket.pipe, 0) == 0);
    else
        check(uv_tcp_init(server->conns.loop, &listener->socket.tcp) == 0);
    listener->socket.handle.data = listener;
    list_append(&server->listeners, &listener->link);
    return listener;
}

bool server_bind(struct server *server, const char *text, char *why, size_t why_size)
{
    struct address address;
    char reason[128];

    if (!address_parse(text, &address, reason, sizeof reason)) {
        snprintf(why, why_size, "cannot listen on %s: %s", text, reason);
        return false;
    }
    struct listener *listener = add_listener(server, address.kind);
    bool bound = address.kind == ADDRESS_UNIX
                     ? bind_unix(listener, address.path, reason, sizeof reason)
                     : bind_tcp(listener, &address, reason, sizeof reason);
    if (!bound) {
        snprintf(why, why_size, "cannot listen on %s: %s", text, reason);
        close_listener(listener);
    }
    return bound;
}

void server_only_look(struct server *server)
{
    server->only_looks = true;
}

bool server_take(struct server *server, int fd, char *why, size_t why_size)
{
    struct sockaddr_storage bound = {0};
    socklen_t len = sizeof bound;
    int failed = getsockname(fd, (struct sockaddr *)&bound, &len) == 0 ? 0 : -errno;
    struct listener *listener =
        add_listener(server, bound.ss_family == AF_UNIX ? ADDRESS_UNIX : ADDRESS_TCP);

    if (failed == 0)
        failed = listener->kind == ADDRESS_UNIX ? uv_pipe_open(&listener->socket.pipe, fd)
                                                : uv_tcp_open(&listener->socket.tcp, fd);
    if (failed != 0) {
        snprintf(why, why_size, "cannot use the inherited socket %d: %s", fd, uv_strerror(failed));
        close(fd);
        close_listener(listener);
        return false;
    }
    listener->loopback = address_is_loopback(&bound);
    if (listener->kind == ADDRESS_UNIX)
        text_print(listener->text, sizeof listener->text, "unix:%s",
                   ((struct sockaddr_un *)&bound)->sun_path);
    else
        address_text(&bound, listener->text);
    return true;
}

/* Where descriptors ran out, libuv has closed the connection, so this does not spin. */
static void accept_failed(struct server *server, int status)
{
    uint64_t now_ms = uv_now(server->conns.loop);

    if (server->accept_failed_ms != 0 && now_ms - server->accept_failed_ms < ACCEPT_FAILED_EVERY_MS)
        return;
    server->accept_failed_ms = now_ms;
    log_warn(server->log, "a connection could not be accepted: %s", uv_strerror(status));
}

static void on_connection(uv_stream_t *stream, int status)
{
    struct listener *listener = stream->data;

    if (status < 0)
        accept_failed(listener->server, status);
    else
        conns_accept(&listener->server->conns, stream, listener->kind);
}

bool server_open(struct server *server, struct engine *engine, char *why, size_t why_size)
{
    server->conns.engine = engine;
    for (struct list *link = server->listeners.next; link != &server->listeners;
         link = link->next) {
        struct listener *listener = list_entry(link, struct listener, link);
        int failed = uv_listen(&listener->socket.stream, BACKLOG, on_connection);
        if (failed != 0) {
            snprintf(why, why_size, "cannot listen on %s: %s", listener->text, uv_strerror(failed));
            return false;
        }
    }
    return true;
}

const char *server_address(const struct server *server, size_t i)
{
    for (struct list *link = server->listeners.next; link != &server->listeners; link = link->next)
        if (i-- == 0)
            return list_entry(link, struct listener, link)->text;
    return NULL;
}

bool server_needs_tls(const struct server *server)
{
    for (struct list *link = server->listeners.next; link != &server->listeners; link = link->next)
        if (list_entry(link, struct listener, link)->kind == ADDRESS_TLS)
            return true;
    return false;
}

void server_set_tls(struct server *server, struct tls_context *context, enum tls_user user)
{
    handshakes_set_tls(&server->conns.handshakes, context, user);
}

const char *server_exposed(const struct server *server, bool tls_too)
{
    for (struct list *link = server->listeners.next; link != &server->listeners;
         link = link->next) {
        const struct listener *listener = list_entry(link, struct listener, link);
        if (listener->kind != ADDRESS_UNIX && !listener->loopback &&
            (tls_too || listener->kind == ADDRESS_TCP))
            return listener->text;
    }
    return NULL;
}

void server_stop_listening(struct server *server)
{
    while (!list_empty(&server->listeners))
        close_listener(list_entry(server->listeners.next, struct listener, link));
}

bool server_is_flushed(const struct server *server)
{
    return server->conns.writing_count == 0;
}

void server_hang_up(struct server *server)
{
    conns_hang_up(&server->conns);
}

bool server_is_empty(const struct server *server)
{
    return conns_are_gone(&server->conns);
}

void server_close(struct server *server)
{
    server_stop_listening(server);
    conns_close(&server->conns);
}

void server_free(struct server *server)
{
    check(list_empty(&server->listeners));
    conns_free(&server->conns);
    free(server);
}
