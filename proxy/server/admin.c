/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd without threads of its own: it gathers its sockets in one epoll descriptor, which
 * the loop polls, and says how long it may be left alone, for which there is a timer.
 *
 * At a tls: address a tunnel ends TLS, and libmicrohttpd gets the plaintext (tunnel.h).
 *
 *   all is there ──▶ who asks? (doors.c) ──▶ a file, /health, /metrics: answered at once
 *                                       ├──▶ a stream (live.c)
 *                                       └──▶ an exchange, which may have to wait (api.c)
 *
 * Refusals wait for the body, too: libmicrohttpd closes a connection that is answered before, and
 * what is still on its way then may cost the client the answer.
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
#include "fence/base/plain.h"
#include "proxy/engine/show/show.h"
#include "proxy/server/address.h"
#include "proxy/server/api.h"
#include "proxy/server/doors.h"
#include "proxy/server/http.h"
#include "proxy/server/live.h"
#include "proxy/server/page/page.h"
#include "proxy/server/places.h"
#include "proxy/server/tunnel.h"

enum {
    CONNECTIONS_MAX = 320, /* process.c reserves descriptors for them, or for tunnels */
    /* What was ended to make room is closed in libmicrohttpd's next turn. */
    PLACES_MAX = CONNECTIONS_MAX - 32,
    TUNNELS_MAX = CONNECTIONS_MAX / 2, /* each takes two descriptors, and its connection one */
    NEVER_KEPT = 24,                   /* places; see places.h */
    TIMEOUT_SECONDS = 10,
    CONNECTION_BYTES_MAX = 16 * 1024,
    BACKLOG = 256,
};

enum {
    BODY_MAX = 8192,            /* bytes */
    BODY_IGNORED_MAX = 1 << 20, /* a longer one is cut off, instead of refused */
};

enum { TRIALS_MAX = 16, LOGINS_KNOWN = 64, LOGIN_KNOWN_MS = 15 * 60 * 1000 };

#define OPENMETRICS "application/openmetrics-text"
#define THERE_ARE   "there are / (the page), /health, /ready, /metrics and /api/..."

struct admin {
    struct engine *engine;
    struct MHD_Daemon *http;
    struct api *api;
    struct live *live;
    struct places *places;
    struct guest *arriving; /* it is being given to libmicrohttpd; else NULL */
    struct list trials;
    struct {
        uint64_t until_ms;
        char key[ADDRESS_TEXT_MAX + ACL_USER_MAX + 2]; /* "address user" */
    } logins[LOGINS_KNOWN];                            /* that the audit has */
    struct doors doors;
    uv_poll_t poll;
    uv_timer_t timer;
    struct tunnels *tunnels; /* NULL: no TLS */
    int open_handles;
    char text[ADDRESS_TEXT_MAX];
};

/* A client's connection. One through a tunnel has two ends, and is over when both are. */
struct guest {
    struct admin *admin;
    struct place *place;
    struct tunnel *tunnel; /* NULL: none, or it has closed */
    int fd;                /* of libmicrohttpd's end; -1: not yet, or no more */
    char *user;            /* whom its certificate names; NULL: nobody */
};

/* A request that has begun to arrive. */
struct incoming {
    struct buf body;
    size_t body_len;           /* of what has come, kept or not */
    struct exchange *exchange; /* NULL: none is needed, or not yet */
};

/* What is served to everybody: it tells no names, and changes nothing. */

static unsigned write_health(struct admin *admin, struct buf *body)
{
    return engine_health(admin->engine, body) ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
}

static unsigned write_ready(struct admin *admin, struct buf *body)
{
    struct buf why = {0};
    bool ready = show_ready(admin->engine, &why);

    buf_append_text(body, !ready ? "" : why.len > 0 ? "ready, but " : "ready");
    buf_append_bytes(body, buf_bytes(&why));
    buf_append_text(body, "\n");
    buf_free(&why);
    return ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
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

static const struct plain {
    const char *url, *type;
    unsigned (*write)(struct admin *admin, struct buf *body); /* returns the HTTP status */
} plains[] = {
    {"/health", HTTP_JSON, write_health},
    {"/ready", HTTP_TEXT, write_ready},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", write_metrics},
};

/* /metrics for those who ask for it, as Prometheus does. */
static const struct plain openmetrics = {"/metrics", OPENMETRICS "; version=1.0.0; charset=utf-8",
                                         write_openmetrics};

static const struct plain *plain_at(struct MHD_Connection *connection, const char *url)
{
    const char *accept = http_header(connection, MHD_HTTP_HEADER_ACCEPT);

    if (strcmp(url, openmetrics.url) == 0 && accept != NULL && strstr(accept, OPENMETRICS) != NULL)
        return &openmetrics;
    for (size_t i = 0; i < sizeof plains / sizeof *plains; i++)
        if (strcmp(url, plains[i].url) == 0)
            return &plains[i];
    return NULL;
}

static enum MHD_Result serve_plain(struct admin *admin, struct MHD_Connection *connection,
                                   const struct plain *plain)
{
    struct buf body = {0};
    unsigned status = plain->write(admin, &body);
    enum MHD_Result queued = http_reply(connection, status, plain->type, buf_bytes(&body));

    buf_free(&body);
    return queued;
}

/* What tells names, or changes something. */

enum route { ROUTE_FILE, ROUTE_STATE, ROUTE_STREAM, ROUTE_CALL };

static const struct {
    const char *url, *method; /* HEAD goes with GET, but for a stream */
    const char *needs;        /* the command whose right it takes */
    enum route route;
    enum api_call call;
} routes[] = {
    {"/api/state", "GET", "LEASES", ROUTE_STATE, 0},
    {"/api/stream", "GET", "LEASES", ROUTE_STREAM, 0},
    {"/api/leases", "GET", "LEASES", ROUTE_CALL, API_LEASES},
    {"/api/resource", "GET", "LEASE", ROUTE_CALL, API_RESOURCE},
    {"/api/refusals", "GET", "REFUSALS", ROUTE_CALL, API_REFUSALS},
    {"/api/revoke", "POST", "REVOKE", ROUTE_CALL, API_REVOKE},
};

static enum MHD_Result find_forwarded(void *context, enum MHD_ValueKind kind, const char *name,
                                      const char *value)
{
    (void)kind, (void)value;
    if (!plain_equal(name, "Forwarded") && !plain_begins(name, "X-Forwarded-"))
        return MHD_YES;
    *(bool *)context = true;
    return MHD_NO;
}

static const struct sockaddr_storage *peer_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return info == NULL ? NULL : (const void *)info->client_addr;
}

static struct visitor visitor_of(struct MHD_Connection *connection, bool tls)
{
    const struct sockaddr_storage *peer = peer_of(connection);
    struct visitor visitor = {
        .host = http_header(connection, MHD_HTTP_HEADER_HOST),
        .origin = http_header(connection, MHD_HTTP_HEADER_ORIGIN),
        .fetch_site = http_header(connection, "Sec-Fetch-Site"),
        .content_type = http_header(connection, MHD_HTTP_HEADER_CONTENT_TYPE),
        .loopback = peer != NULL && address_is_loopback(peer),
        .tls = tls,
    };
    MHD_get_connection_values(connection, MHD_HEADER_KIND, find_forwarded, &visitor.forwarded);
    return visitor;
}

static unsigned status_of(enum door door)
{
    return door == DOOR_PASSWORD ? MHD_HTTP_UNAUTHORIZED
           : door == DOOR_HOST   ? MHD_HTTP_MISDIRECTED_REQUEST
           : door == DOOR_TYPE   ? MHD_HTTP_UNSUPPORTED_MEDIA_TYPE
                                 : MHD_HTTP_FORBIDDEN;
}

static struct guest *guest_of(struct MHD_Connection *connection)
{
    return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
}

static void audit_login(struct admin *admin, struct MHD_Connection *connection, const char *user,
                        bool right)
{
    const struct sockaddr_storage *peer = peer_of(connection);
    char address[ADDRESS_TEXT_MAX] = "";

    if (peer != NULL)
        address_text(peer, address);
    engine_audit(admin->engine,
                 &(struct audit_note){.event = right ? AUDIT_LOGIN : AUDIT_LOGIN_FAILED,
                                      .code = right ? STK_OK : STK_WRONGPASS,
                                      .user = bytes_of(user),
                                      .address = bytes_of(address)});
}

static void wake(void *context);

/* Browsers send the password with each request: audit a user's login from an address once in
 * LOGIN_KNOWN_MS. */
static void audit_login_once(struct admin *admin, struct MHD_Connection *connection,
                             const char *user)
{
    const struct sockaddr_storage *peer = peer_of(connection);
    uint64_t now_ms = uv_now(admin->timer.loop);
    char key[sizeof admin->logins[0].key] = "";
    size_t oldest = 0;

    if (peer != NULL)
        address_text(peer, key);
    char *port = strrchr(key, ':');
    if (port != NULL)
        *port = '\0'; /* each connection has another */
    text_print(key + strlen(key), sizeof key - strlen(key), " %s", user);
    for (size_t i = 0; i < LOGINS_KNOWN; i++) {
        if (now_ms < admin->logins[i].until_ms && strcmp(admin->logins[i].key, key) == 0)
            return;
        if (admin->logins[i].until_ms < admin->logins[oldest].until_ms)
            oldest = i;
    }
    admin->logins[oldest].until_ms = now_ms + LOGIN_KNOWN_MS;
    memcpy(admin->logins[oldest].key, key, sizeof key);
    audit_login(admin, connection, user, true);
}

/* A password that only crypt(3) can judge: its connection is suspended meanwhile, and asks again
 * when that is known. */
struct trial {
    struct list link; /* admin->trials */
    struct engine_job job;
    struct admin *admin; /* NULL: it has closed */
    struct engine *engine;
    struct MHD_Connection *connection;
    struct acl_trial *trial; /* NULL: it is over, and was wrong */
};

static void run_trial(struct engine_job *job)
{
    acl_trial_run(list_entry(job, struct trial, job)->trial);
}

static void end_trial(struct engine_job *job)
{
    struct trial *trial = list_entry(job, struct trial, job);
    bool right = acl_trial_end(trial->trial, engine_acl(trial->engine));
    struct admin *admin = trial->admin;
    struct MHD_Connection *connection = trial->connection;

    trial->trial = NULL;
    if (admin == NULL || right) { /* what is right is known now */
        list_remove(&trial->link);
        free(trial);
    }
    if (admin != NULL)
        http_resume(connection, &(struct waker){wake, admin});
}

/* False: too many are under way. */
static bool start_trial(struct admin *admin, struct MHD_Connection *connection,
                        const struct acl_user *user, struct bytes password)
{
    size_t count = 0;

    for (struct list *link = admin->trials.next; link != &admin->trials; link = link->next)
        count++;
    if (count >= TRIALS_MAX || places_are_crowded(admin->places))
        return false;
    struct trial *trial = mem_zalloc(sizeof *trial);
    *trial = (struct trial){.job = {run_trial, end_trial, NULL},
                            .admin = admin,
                            .engine = admin->engine,
                            .connection = connection,
                            .trial = acl_trial_new(engine_acl(admin->engine), user, password)};
    list_append(&admin->trials, &trial->link);
    MHD_suspend_connection(connection);
    engine_run_aside(admin->engine, &trial->job);
    return true;
}

/* Was this connection's password found wrong? Says so once. */
static bool take_failed(struct admin *admin, struct MHD_Connection *connection)
{
    for (struct list *link = admin->trials.next; link != &admin->trials; link = link->next) {
        struct trial *trial = list_entry(link, struct trial, link);
        if (trial->connection != connection || trial->trial != NULL)
            continue;
        list_remove(link);
        free(trial);
        return true;
    }
    return false;
}

/* Who asks. */
struct asker {
    struct reader reader; /* its acl is the one in force */
    const char *name;
    bool may_revoke;
};

enum known { KNOWN, SUSPENDED, CROWDED };

/* Is this the password? Where there is no file of users, it is so under any name. */
static enum known try_password(struct admin *admin, struct MHD_Connection *connection,
                               struct visitor *visitor, struct asker *asker)
{
    struct acl *acl = engine_acl(admin->engine);
    char *password = NULL, *name = MHD_basic_auth_get_username_password(connection, &password);
    enum known known = KNOWN;

    if (name != NULL && password != NULL) {
        const struct acl_user *user =
            acl_find(acl, acl_has_file(acl) ? bytes_of(name) : BYTES_LITERAL(ACL_DEFAULT_USER));
        enum acl_login answer =
            user == NULL || !user->on ? ACL_WRONG : acl_check_password(user, bytes_of(password));
        visitor->by_password = answer == ACL_RIGHT && visitor->needs_login;
        if (answer == ACL_SLOW && !take_failed(admin, connection))
            known = start_trial(admin, connection, user, bytes_of(password)) ? SUSPENDED : CROWDED;
        if (answer == ACL_RIGHT && visitor->needs_login) {
            asker->reader.rights = user;
            asker->name = user->name;
            audit_login_once(admin, connection, user->name);
        } else if (known == KNOWN && visitor->needs_login) {
            audit_login(admin, connection, name, false);
        }
    }
    if (password != NULL)
        explicit_bzero(password, strlen(password));
    MHD_free(name);
    MHD_free(password);
    return known;
}

/* Who may go on? `needs` is the command whose right the request needs; NULL: none. */
static enum known ask_doors(struct admin *admin, struct MHD_Connection *connection,
                            const char *needs, bool changes, enum door *door, struct asker *asker)
{
    struct visitor visitor = visitor_of(connection, admin->tunnels != NULL);
    struct acl *acl = engine_acl(admin->engine);
    bool local = visitor.loopback && !visitor.forwarded;
    const char *name = guest_of(connection)->user;
    enum known known = KNOWN;

    *asker = (struct asker){.reader = {acl, acl_newcomer(acl, local)}, .name = ACL_DEFAULT_USER};
    visitor.needs_login = acl_newcomer(acl, true) == NULL;
    visitor.has_rights = acl_has_file(acl);
    if (name != NULL && acl_has_file(acl)) {
        const struct acl_user *user = acl_find(acl, bytes_of(name));
        asker->reader.rights = user != NULL && user->on ? user : NULL;
        asker->name = name;
        visitor.by_certificate = asker->reader.rights != NULL;
        visitor.needs_login = true;
    }
    if (!visitor.by_certificate &&
        (known = try_password(admin, connection, &visitor, asker)) != KNOWN)
        return known;
    const struct acl_user *user = asker->reader.rights;
    asker->may_revoke =
        user != NULL && acl_may_run_name(user, "REVOKE") && (acl_has_file(acl) || user->admin);
    visitor.may = user != NULL && (changes         ? asker->may_revoke
                                   : needs != NULL ? acl_may_run_name(user, needs)
                                                   : true);
    *door = changes         ? doors_change(&admin->doors, &visitor)
            : needs == NULL ? doors_page(&admin->doors, &visitor)
                            : doors_read(&admin->doors, &visitor);
    if (user != NULL && user->all)
        asker->reader.rights = NULL; /* all is shown */
    return KNOWN;
}

static enum MHD_Result serve_state(struct admin *admin, struct MHD_Connection *connection,
                                   const struct asker *asker)
{
    struct buf body = {0};

    live_state(admin->live, asker->reader, asker->may_revoke, &body);
    buf_append_text(&body, "\n");
    enum MHD_Result queued = http_reply(connection, MHD_HTTP_OK, HTTP_JSON, buf_bytes(&body));
    buf_free(&body);
    return queued;
}

static enum MHD_Result serve_stream(struct admin *admin, struct MHD_Connection *connection,
                                    const struct asker *asker)
{
    enum MHD_Result queued = MHD_NO;

    if (live_stream(admin->live, connection, asker->reader, asker->may_revoke, &queued)) {
        place_keep(guest_of(connection)->place);
        return queued;
    }
    return http_refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE, true, NULL,
                       "too many pages are open");
}

static enum MHD_Result begin_call(struct admin *admin, struct MHD_Connection *connection,
                                  enum api_call call, const struct asker *asker,
                                  struct incoming *incoming)
{
    const struct sockaddr_storage *peer = peer_of(connection);
    char text[ADDRESS_TEXT_MAX] = "";

    if (incoming->body_len > BODY_MAX)
        return http_refuse(connection, MHD_HTTP_CONTENT_TOO_LARGE, true, NULL,
                           "the body has at most 8192 bytes");
    if (peer != NULL)
        address_text(peer, text);
    incoming->exchange = api_begin(admin->api, connection, call, buf_bytes(&incoming->body), text,
                                   asker->reader, asker->name);
    return api_go_on(incoming->exchange);
}

static enum MHD_Result serve_route(struct admin *admin, struct MHD_Connection *connection,
                                   size_t at, const struct asker *asker, struct incoming *incoming)
{
    if (routes[at].route != ROUTE_STATE && places_are_crowded(admin->places))
        return http_refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE, true, NULL,
                           "too many connections are open");
    switch (routes[at].route) {
    case ROUTE_STATE: return serve_state(admin, connection, asker);
    case ROUTE_STREAM: return serve_stream(admin, connection, asker);
    default: return begin_call(admin, connection, routes[at].call, asker, incoming);
    }
}

/* Answer a request, or begin to. */
static enum MHD_Result begin(struct admin *admin, struct MHD_Connection *connection,
                             const char *url, const char *method, struct incoming *incoming)
{
    const struct plain *plain = plain_at(connection, url);
    const char *allow = "GET, HEAD";
    struct page_file file;
    bool is_file = plain == NULL && page_find(url, &file);
    size_t at = 0;
    struct asker asker;
    enum door door = DOOR_PASSWORD;

    while (at < sizeof routes / sizeof *routes && strcmp(url, routes[at].url) != 0)
        at++;
    bool is_route = at < sizeof routes / sizeof *routes;
    if (plain == NULL && !is_file && !is_route)
        return http_refuse(connection, MHD_HTTP_NOT_FOUND, false, NULL, THERE_ARE);
    bool changes = is_route && strcmp(routes[at].method, "POST") == 0;
    if (changes)
        allow = "POST";
    bool is_head = strcmp(method, "HEAD") == 0 && (!is_route || routes[at].route != ROUTE_STREAM);
    if (changes ? strcmp(method, "POST") != 0 : strcmp(method, "GET") != 0 && !is_head)
        return http_refuse(connection, MHD_HTTP_METHOD_NOT_ALLOWED, is_route, allow,
                           changes ? "only POST" : "only GET");
    if (plain != NULL)
        return serve_plain(admin, connection, plain);
    const char *needs = is_file ? NULL : routes[at].needs;
    enum known known = ask_doors(admin, connection, needs, changes, &door, &asker);
    if (known == SUSPENDED)
        return MHD_YES;
    if (known == CROWDED)
        return http_refuse(connection, MHD_HTTP_SERVICE_UNAVAILABLE, is_route, NULL,
                           "too many passwords are being checked");
    if (door != DOOR_OPEN)
        return http_refuse(connection, status_of(door), is_route, NULL, doors_reason(door));
    if (is_file)
        return http_reply(connection, MHD_HTTP_OK, file.type, file.body);
    return serve_route(admin, connection, at, &asker, incoming);
}

static enum MHD_Result take_body(struct incoming *incoming, const char *piece, size_t *len)
{
    incoming->body_len += *len;
    if (incoming->body_len > BODY_IGNORED_MAX)
        return MHD_NO;
    if (incoming->body_len <= BODY_MAX)
        buf_append(&incoming->body, piece, *len);
    *len = 0;
    return MHD_YES;
}

/* Called when the head is there, for each piece of the body, when all is there, and once more after
 * each time that the connection was suspended. */
static enum MHD_Result serve(void *context, struct MHD_Connection *connection, const char *url,
                             const char *method, const char *version, const char *upload,
                             size_t *upload_size, void **state)
{
    struct incoming *incoming = *state;
    enum MHD_Result queued;

    (void)version;
    if (incoming == NULL) {
        *state = mem_zalloc(sizeof *incoming);
        return MHD_YES;
    }
    if (*upload_size > 0)
        return take_body(incoming, upload, upload_size);
    place_answer(guest_of(connection)->place);
    if (incoming->exchange != NULL)
        queued = api_go_on(incoming->exchange);
    else
        queued = begin(context, connection, url, method, incoming);
    if (MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_SUSPENDED)->suspended)
        place_keep(guest_of(connection)->place);
    return queued;
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    struct incoming *incoming = *state;

    (void)context, (void)code;
    if (incoming != NULL) {
        if (incoming->exchange != NULL)
            api_forget(incoming->exchange);
        buf_free(&incoming->body);
        free(incoming);
    }
    *state = NULL;
    place_await(guest_of(connection)->place);
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

/* Have libmicrohttpd run in this turn of the loop, or at the beginning of the next. */
static void wake(void *context)
{
    struct admin *admin = context;

    if (!uv_is_closing((uv_handle_t *)&admin->timer))
        uv_timer_start(&admin->timer, on_timer, 0, 0);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    run(poll->data);
}

#define CANNOT_SERVE "cannot serve admin HTTP on %s: %s"

static bool resolve(const char *text, struct sockaddr_storage *resolved, char *why, size_t why_size)
{
    struct address address;
    char reason[128];

    if (address_parse(text, &address, reason, sizeof reason) &&
        address_resolve(&address, resolved, reason, sizeof reason))
        return true;
    snprintf(why, why_size, CANNOT_SERVE, text, reason);
    return false;
}

bool admin_look(const char *address, bool *exposed, char *why, size_t why_size)
{
    struct sockaddr_storage resolved;

    if (!resolve(address, &resolved, why, why_size))
        return false;
    *exposed = !address_is_loopback(&resolved);
    return true;
}

bool admin_socket_is_exposed(int fd)
{
    struct sockaddr_storage bound = {0};
    socklen_t len = sizeof bound;

    return getsockname(fd, (struct sockaddr *)&bound, &len) != 0 || !address_is_loopback(&bound);
}

int admin_bind(const char *address, char *why, size_t why_size)
{
    struct sockaddr_storage resolved;
    int yes = 1;

    if (!resolve(address, &resolved, why, why_size))
        return -1;
    int fd = socket(resolved.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(fd, (struct sockaddr *)&resolved, sizeof resolved) == 0)
        return fd;
    snprintf(why, why_size, CANNOT_SERVE, address, plain_errno(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Listen at a socket that is bound. Return it, or -1. */
static int take(struct admin *admin, int fd, bool tls, char *why, size_t why_size)
{
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;

    if (getsockname(fd, (struct sockaddr *)&bound, &len) != 0 ||
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 || listen(fd, BACKLOG) != 0) {
        snprintf(why, why_size, "%s", plain_errno(errno));
        close(fd);
        return -1;
    }
    text_print(admin->text, sizeof admin->text, "%s%s", tls ? "tls:" : "",
               address_text(&bound, (char[ADDRESS_TEXT_MAX]){0}));
    return fd;
}

static void on_crowded(void *context)
{
    struct guest *guest = context;

    if (guest->fd >= 0)
        (void)shutdown(guest->fd, SHUT_RDWR); /* libmicrohttpd sees that it has ended */
    if (guest->tunnel != NULL)
        tunnel_drop(guest->tunnel);
}

static struct guest *add_guest(struct admin *admin, struct tunnel *tunnel, int fd)
{
    struct guest *guest = mem_zalloc(sizeof *guest);

    *guest = (struct guest){.admin = admin, .tunnel = tunnel, .fd = fd};
    guest->place = place_take(admin->places, on_crowded, guest);
    return guest;
}

static void forget_guest_if_over(struct guest *guest)
{
    if (guest->fd >= 0 || guest->tunnel != NULL)
        return;
    place_leave(guest->place);
    free(guest->user);
    free(guest);
}

static void on_connection(void *context, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct admin *admin = context;
    struct guest *guest = *socket_context;

    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        guest->fd = -1;
        forget_guest_if_over(guest);
    } else if (admin->tunnels == NULL) {
        *socket_context = add_guest(admin, NULL, info->connect_fd);
    } else {
        check(admin->arriving != NULL && admin->arriving->fd == info->connect_fd);
        *socket_context = admin->arriving;
        admin->arriving = NULL;
    }
}

/* Accept at a socket that listens, or (-1) take connections as they are given. */
static bool start_http(struct admin *admin, int fd)
{
    unsigned flags =
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | (fd < 0 ? MHD_USE_NO_LISTEN_SOCKET : 0);

    admin->http = MHD_start_daemon(
        flags, 0, NULL, NULL, serve, admin, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, admin, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_SECONDS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES_MAX,
        fd < 0 ? MHD_OPTION_END : MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_END);
    return admin->http != NULL;
}

static void *on_tunnel(void *context, struct tunnel *tunnel)
{
    return add_guest(context, tunnel, -1);
}

/* libmicrohttpd may take it only when it runs, and closes the socket where it refuses it. */
static void on_tunnel_opened(void *context, int fd, const char *user, const struct sockaddr *peer,
                             socklen_t peer_len)
{
    struct guest *guest = context;
    struct admin *admin = guest->admin;

    guest->fd = fd;
    guest->user = user != NULL ? mem_strdup(user) : NULL;
    admin->arriving = guest;
    if (MHD_add_connection(admin->http, fd, peer, peer_len) == MHD_YES)
        MHD_run(admin->http);
    if (admin->arriving != NULL)
        guest->fd = -1;
    admin->arriving = NULL;
    wake(admin);
}

static void on_tunnel_closed(void *context)
{
    struct guest *guest = context;

    guest->tunnel = NULL;
    forget_guest_if_over(guest);
}

static bool open_tunnels(struct admin *admin, uv_loop_t *loop, const struct admin_options *options,
                         int fd)
{
    const struct tunnels_options tunnels = {.loop = loop,
                                            .log = options->log,
                                            .begun = on_tunnel,
                                            .opened = on_tunnel_opened,
                                            .closed = on_tunnel_closed,
                                            .context = admin};

    admin->tunnels = tunnels_open(&tunnels, fd, tls_context_share(options->tls), options->tls_user);
    return admin->tunnels != NULL;
}

struct admin *admin_open(uv_loop_t *loop, struct engine *engine,
                         const struct admin_options *options, char *why, size_t why_size)
{
    struct admin *admin = mem_zalloc(sizeof *admin);
    char reason[128];
    int fd = options->inherited;

    if (fd < 0 && (fd = admin_bind(options->address, why, why_size)) < 0) {
        free(admin);
        return NULL;
    }
    fd = take(admin, fd, options->tls != NULL, reason, sizeof reason);

    admin->engine = engine;
    list_init(&admin->trials);
    admin->doors = (struct doors){.names = options->names, .names_count = options->names_count};
    if (fd >= 0 && !start_http(admin, options->tls != NULL ? -1 : fd)) {
        snprintf(reason, sizeof reason, "libmicrohttpd does not start");
        close(fd);
    }
    if (admin->http != NULL && options->tls != NULL && !open_tunnels(admin, loop, options, fd)) {
        snprintf(reason, sizeof reason, "%s", plain_errno(errno));
        MHD_stop_daemon(admin->http);
        admin->http = NULL;
    }
    if (admin->http == NULL) {
        snprintf(why, why_size, CANNOT_SERVE, options->address, reason);
        free(admin);
        return NULL;
    }
    int epoll_fd = MHD_get_daemon_info(admin->http, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    check(uv_poll_init(loop, &admin->poll, epoll_fd) == 0);
    check(uv_timer_init(loop, &admin->timer) == 0);
    admin->poll.data = admin->timer.data = admin;
    admin->open_handles = admin->tunnels != NULL ? 6 : 5;
    const struct waker waker = {wake, admin};
    admin->api = api_new(loop, engine, options->show_values, waker);
    admin->live = live_new(loop, engine, options->service_uri, waker);
    admin->places = places_new(loop, options->tls != NULL ? TUNNELS_MAX : PLACES_MAX,
                               (options->tls != NULL ? TUNNELS_MAX : PLACES_MAX) - NEVER_KEPT);
    check(uv_poll_start(&admin->poll, UV_READABLE, on_poll) == 0);
    return admin;
}

void admin_set_tls(struct admin *admin, struct tls_context *tls, enum tls_user user)
{
    if (admin->tunnels != NULL)
        tunnels_set_tls(admin->tunnels, tls_context_share(tls), user);
}

const char *admin_address(const struct admin *admin)
{
    return admin->text;
}

static void on_part_closed(void *context)
{
    struct admin *admin = context;
    if (--admin->open_handles == 0)
        free(admin);
}

static void on_closed(uv_handle_t *handle)
{
    on_part_closed(handle->data);
}

/* One that is under way frees itself when it ends. */
static void end_trials(struct admin *admin)
{
    struct list *link;

    while ((link = list_pop(&admin->trials)) != NULL) {
        struct trial *trial = list_entry(link, struct trial, link);
        if (trial->trial == NULL) {
            free(trial);
        } else {
            trial->admin = NULL;
            MHD_resume_connection(trial->connection);
        }
    }
}

void admin_close(struct admin *admin)
{
    uv_close((uv_handle_t *)&admin->poll, on_closed);
    uv_close((uv_handle_t *)&admin->timer, on_closed);
    live_end(admin->live);
    api_end(admin->api);
    end_trials(admin);
    MHD_run(admin->http); /* none may be suspended when it stops */
    MHD_stop_daemon(admin->http);
    if (admin->tunnels != NULL)
        tunnels_close(admin->tunnels, on_part_closed, admin);
    live_close(admin->live, on_part_closed, admin);
    places_close(admin->places, on_part_closed, admin);
    api_close(admin->api, on_part_closed, admin);
}
