/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd without threads of its own: it gathers its sockets in one epoll descriptor, which
 * the loop polls, and says how long it may be left alone, for which there is a timer.
 *
 * How it fails: bad requests are answered or cut off by libmicrohttpd within the limits below. What
 * goes wrong here never reaches clients of the RESP side. */
#include "proxy/server/admin.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/server/address.h"

enum { CONNECTIONS_MAX = 32, TIMEOUT_SECONDS = 10, CONNECTION_BYTES_MAX = 16 * 1024, BACKLOG = 16 };

struct admin {
    struct engine *engine;
    struct MHD_Daemon *http;
    uv_poll_t poll;
    uv_timer_t timer;
    int open_handles;
    char text[ADDRESS_TEXT_MAX];
};

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *type,
                             struct bytes body)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(body.len, (void *)body.data, MHD_RESPMEM_MUST_COPY);

    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result queued = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return queued;
}

static unsigned write_health(struct admin *admin, struct buf *body)
{
    return engine_health(admin->engine, body) ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
}

static unsigned write_metrics(struct admin *admin, struct buf *body)
{
    engine_metrics(admin->engine, false, body);
    return MHD_HTTP_OK;
}

static unsigned write_openmetrics(struct admin *admin, struct buf *body)
{
    engine_metrics(admin->engine, true, body);
    return MHD_HTTP_OK;
}

#define OPENMETRICS "application/openmetrics-text"

/* What is served. */
static const struct page {
    const char *url, *type;
    unsigned (*write)(struct admin *admin, struct buf *body); /* returns the HTTP status */
} pages[] = {
    {"/health", "application/json", write_health},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", write_metrics},
};

/* /metrics for those who ask for it, as Prometheus does. */
static const struct page openmetrics_page = {
    "/metrics", OPENMETRICS "; version=1.0.0; charset=utf-8", write_openmetrics};

static bool accepts_openmetrics(struct MHD_Connection *connection)
{
    const char *accept =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    return accept != NULL && strstr(accept, OPENMETRICS) != NULL;
}

static const struct page *page_at(struct MHD_Connection *connection, const char *url)
{
    if (strcmp(url, openmetrics_page.url) == 0 && accepts_openmetrics(connection))
        return &openmetrics_page;

    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (strcmp(url, pages[i].url) == 0)
            return &pages[i];
    return NULL;
}

/* Answer one request, whole, as soon as its head is there. */
static enum MHD_Result serve(void *context, struct MHD_Connection *connection, const char *url,
                             const char *method, const char *version, const char *upload,
                             size_t *upload_size, void **state)
{
    const struct page *page = page_at(connection, url);
    struct buf body = {0};

    (void)version, (void)upload, (void)upload_size, (void)state;
    if (page == NULL)
        return reply(connection, MHD_HTTP_NOT_FOUND, "text/plain",
                     BYTES_LITERAL("there are /health and /metrics\n"));
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return reply(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain",
                     BYTES_LITERAL("only GET\n"));
    unsigned status = page->write(context, &body);
    enum MHD_Result queued = reply(connection, status, page->type, buf_bytes(&body));
    buf_free(&body);
    return queued;
}

static void on_timer(uv_timer_t *timer);

static void run(struct admin *admin)
{
    MHD_UNSIGNED_LONG_LONG wait_ms;

    MHD_run(admin->http);
    if (MHD_get_timeout(admin->http, &wait_ms) == MHD_YES)
        uv_timer_start(&admin->timer, on_timer, wait_ms, 0);
    else
        uv_timer_stop(&admin->timer);
}

static void on_timer(uv_timer_t *timer)
{
    run(timer->data);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    run(poll->data);
}

/* Return a listening socket, or -1. */
static int listen_on(struct admin *admin, const char *text, char *why, size_t why_size)
{
    struct address address;
    struct sockaddr_storage resolved;
    socklen_t len = sizeof resolved;
    int yes = 1;

    if (!address_parse(text, &address, why, why_size) ||
        !address_resolve(&address, &resolved, why, why_size))
        return -1;
    int fd = socket(resolved.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(fd, (struct sockaddr *)&resolved, sizeof resolved) == 0 && listen(fd, BACKLOG) == 0 &&
        getsockname(fd, (struct sockaddr *)&resolved, &len) == 0) {
        address_text(&resolved, admin->text);
        return fd;
    }
    snprintf(why, why_size, "%s", strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Look at a listening socket that was inherited. Return it, or -1. */
static int take(struct admin *admin, int fd, char *why, size_t why_size)
{
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;

    if (getsockname(fd, (struct sockaddr *)&bound, &len) != 0 ||
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
        snprintf(why, why_size, "inherited socket %d: %s", fd, strerror(errno));
        close(fd);
        return -1;
    }
    address_text(&bound, admin->text);
    return fd;
}

struct admin *admin_open(uv_loop_t *loop, struct engine *engine, const char *address, int inherited,
                         char *why, size_t why_size)
{
    struct admin *admin = mem_zalloc(sizeof *admin);
    char reason[128];
    int fd = inherited >= 0 ? take(admin, inherited, reason, sizeof reason)
                            : listen_on(admin, address, reason, sizeof reason);

    admin->engine = engine;
    if (fd >= 0) {
        admin->http = MHD_start_daemon(
            MHD_USE_EPOLL, 0, NULL, NULL, serve, admin, MHD_OPTION_LISTEN_SOCKET, fd,
            MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT,
            (unsigned)TIMEOUT_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
            (size_t)CONNECTION_BYTES_MAX, MHD_OPTION_END);
        if (admin->http == NULL) {
            snprintf(reason, sizeof reason, "libmicrohttpd does not start");
            close(fd);
        }
    }
    if (admin->http == NULL) {
        snprintf(why, why_size, "cannot serve admin HTTP on %s: %s", address, reason);
        free(admin);
        return NULL;
    }
    int epoll_fd = MHD_get_daemon_info(admin->http, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    check(uv_poll_init(loop, &admin->poll, epoll_fd) == 0);
    check(uv_timer_init(loop, &admin->timer) == 0);
    admin->poll.data = admin->timer.data = admin;
    admin->open_handles = 2;
    check(uv_poll_start(&admin->poll, UV_READABLE, on_poll) == 0);
    return admin;
}

const char *admin_address(const struct admin *admin)
{
    return admin->text;
}

static void on_closed(uv_handle_t *handle)
{
    struct admin *admin = handle->data;
    if (--admin->open_handles == 0)
        free(admin);
}

void admin_close(struct admin *admin)
{
    uv_close((uv_handle_t *)&admin->poll, on_closed);
    uv_close((uv_handle_t *)&admin->timer, on_closed);
    MHD_stop_daemon(admin->http);
}
