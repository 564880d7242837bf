/* SPDX-License-Identifier: Apache-2.0 */
/* The connection is a state machine with one timer.
 *
 *              ┌────── the next address of the name ──────┐
 *              ▼                                          │
 *   WAITING ─▶ LOCATING ─▶ RESOLVING ─▶ CONNECTING ─▶ GREETING ─▶ READY       any ─▶ CLOSING
 *      ▲           │           │            │            │          │
 *      └───────────┴───────────┴────────────┴────────────┴──────────┘
 *       fail(): a pause of 50 ms to 2 s (reconnect.h)
 *
 * LOCATING asks the sentinels where the master is; only roles at a master do so. RESOLVING is left
 * out where the host is an address already, or a unix socket. All that differs from role to role
 * stands in the table `roles`: another kind of peer, such as a node of a cluster, is another row.
 *
 * - Whatever goes wrong ends in fail(), which only changes the state. The wire's callbacks must not
 *   free it, so the timer does, later: until then WAITING still has the wire of before.
 * - Requests are under way only in READY, or while the wire of a failed connection is being freed.
 * - All requests have the same time limit, so the oldest one's deadline is the only one watched. */
#include "fence/lease/redis/conn.h"

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/reconnect.h"
#include "fence/lease/redis/greeting.h"
#include "fence/lease/redis/wire.h"

#define ADDRESSES_MAX    8
#define ADDRESS_SIZE     (INET6_ADDRSTRLEN + 1 + UV_IF_NAMESIZE) /* fe80::1%eth0 */
#define COMMAND_ARGS_MAX 4
#define QUIET_MS         2000 /* without a message, until a listener checks the connection */
#define NO_LISTENING_MS  5000 /* until a listener that was refused tries again */

enum state {
    WAITING,  /* until due_ms, then it is tried (again) */
    LOCATING, /* these four until due_ms at the latest */
    RESOLVING,
    CONNECTING,
    GREETING,
    READY,
    CLOSING,
};

struct role {
    bool at_master;    /* it goes where the sentinels say the master is */
    unsigned greeting; /* enum greeting_part */
    const char *client_name;
    void (*on_ready)(struct redis_conn *conn);
    /* An attempt or the connection has failed. `refused`: by an error in answer to the greeting. */
    void (*on_failed)(struct redis_conn *conn, bool refused);
    void (*on_reply)(struct redis_conn *conn, void *request, const struct redisReply *reply);
    /* In READY: by when the other side has to say something; INT64_MAX: it need not. */
    int64_t (*due_ms)(const struct redis_conn *conn);
    /* In READY, where it did not. True: it has been asked for a sign of life now. */
    bool (*check_peer)(struct redis_conn *conn);
    /* The connection to the master is lost, or the master seems to be none any more. */
    void (*on_master_lost)(struct redis_conn *conn);
};

/* A name's lookup. It cannot always be stopped; it is left alone then, and frees itself. */
struct lookup {
    uv_getaddrinfo_t request;
    struct redis_conn *conn; /* NULL: nobody waits for it any more */
};

struct redis_conn {
    const struct role *role;
    const struct redis_events *events;
    void *context;
    /* hosts[0] is where it goes. At a master: where that is or was last; port 0: not known. */
    struct lease_uri uri;
    struct reconnect reconnect;

    enum state state;
    int64_t due_ms; /* the end of the state's time; see also role->due_ms */
    uv_timer_t timer;
    int handles; /* libuv's, open */
    struct wire *wire;
    struct tls_context *tls; /* NULL: none is needed, or the files are to be read */

    struct lookup *lookup; /* under way, or NULL */
    char addresses[ADDRESSES_MAX][ADDRESS_SIZE];
    unsigned addresses_count, addresses_tried;
    struct greeting greeting;

    struct list under_way; /* requesters: redis_request, the oldest first */
    char channel[REDIS_CHANNEL_MAX + 1];
    bool peer_checked; /* listeners: by subscribing again, and nothing was heard since */

    void (*closed)(void *context);
    void *closed_context;
};

/* States and their time. */

static void on_timer(uv_timer_t *timer);

static int64_t now_ms(const struct redis_conn *conn)
{
    return reconnect_now_ms(&conn->reconnect);
}

static int64_t due_ms(const struct redis_conn *conn)
{
    return conn->state == READY ? conn->role->due_ms(conn) : conn->due_ms;
}

/* Set the timer for whatever is due next. */
static void schedule(struct redis_conn *conn)
{
    const struct reconnect *reconnect = &conn->reconnect;
    int64_t at_ms = reconnect->grace_until_ms != 0 ? reconnect->grace_until_ms : due_ms(conn);

    if (reconnect_first_due_ms(reconnect) < at_ms)
        at_ms = reconnect_first_due_ms(reconnect);
    if (conn->state == CLOSING || (conn->state == WAITING && conn->wire != NULL))
        at_ms = 0; /* to free the wire */
    reconnect_set_timer(reconnect, &conn->timer, on_timer, at_ms);
}

static void enter(struct redis_conn *conn, enum state state, int64_t time_ms)
{
    conn->state = state;
    conn->reconnect.grace_until_ms = 0;
    conn->due_ms = now_ms(conn) + time_ms;
}

static void enter_step(struct redis_conn *conn, enum state state)
{
    enter(conn, state, conn->uri.timeout_ms);
    schedule(conn);
}

/* The attempt or the connection has failed; harmless where it has failed already. */
static void fail(struct redis_conn *conn, const char *reason)
{
    const struct role *role = conn->role;
    enum state failed = conn->state;

    if (failed == WAITING || failed == CLOSING)
        return;
    if (failed == CONNECTING) {
        tls_context_free(conn->tls);
        conn->tls = NULL;
    }
    bool refused = failed == GREETING && conn->wire != NULL && wire_refused(conn->wire);
    enter(conn, WAITING, 0);
    if (failed == CONNECTING && conn->addresses_tried < conn->addresses_count) {
        reconnect_set_reason(&conn->reconnect, reason);
    } else {
        conn->addresses_tried = conn->addresses_count = 0;
        conn->due_ms += reconnect_down(&conn->reconnect, reason);
        role->on_failed(conn, refused);
        reconnect_end_first_attempt(&conn->reconnect);
        if (failed > LOCATING)
            role->on_master_lost(conn);
    }
    schedule(conn);
}

/* Drop the connection and try again at once. */
static void retry_now(struct redis_conn *conn)
{
    enter(conn, WAITING, 0);
    schedule(conn);
}

/* WAITING is over: locate the master. */

static void forget_lookup(struct redis_conn *conn)
{
    if (conn->lookup == NULL)
        return;
    conn->lookup->conn = NULL;
    uv_cancel((uv_req_t *)&conn->lookup->request);
    conn->lookup = NULL;
}

static void go_to(struct redis_conn *conn, const struct uri_host *master)
{
    char address[URI_HOST_TEXT_MAX];

    if (strcmp(conn->uri.hosts[0].name, master->name) != 0)
        forget_lookup(conn); /* it would bring the old master's address */
    conn->uri.hosts[0] = *master;
    if (conn->uri.kind == LEASE_URI_SENTINEL)
        snprintf(conn->reconnect.name, sizeof conn->reconnect.name, "sentinel %.48s at %.95s",
                 conn->uri.name, uri_host_text(master, address));
    else
        snprintf(conn->reconnect.name, sizeof conn->reconnect.name, "cluster at %.95s",
                 uri_host_text(master, address));
}

/* True: uri.hosts[0] is the master. */
static bool locate(struct redis_conn *conn, bool last)
{
    struct uri_host master;
    char why[REDIS_WHY_MAX];

    if (conn->state != LOCATING)
        enter_step(conn, LOCATING);
    switch (conn->events->locate(conn->context, last, &master, why)) {
    case REDIS_LOCATED: go_to(conn, &master); return true;
    case REDIS_LOCATING: break;
    case REDIS_NOWHERE:
        conn->uri.hosts[0].port = 0;
        fail(conn, why);
        break;
    }
    return false;
}

/* Connect to the next address. */

static const struct wire_events wire_events;

/* The files are read again after a failure: it may have been for want of new ones. */
static bool choose_tls(struct redis_conn *conn, struct wire_target *target, char why[TLS_WHY_MAX])
{
    const struct lease_uri *uri = &conn->uri;

    if (!uri->tls)
        return true;
    if (conn->tls == NULL)
        conn->tls = lease_uri_tls(uri, why);
    target->tls = conn->tls;
    target->tls_name = uri->tls_name[0] != '\0' ? uri->tls_name : uri->hosts[0].name;
    return conn->tls != NULL;
}

static void connect_next(struct redis_conn *conn)
{
    char why[TLS_WHY_MAX] = "";
    bool local = conn->uri.kind == LEASE_URI_REDIS_UNIX;
    struct wire_target target = {.address = local ? conn->uri.path
                                                  : conn->addresses[conn->addresses_tried],
                                 .port = local ? 0 : conn->uri.hosts[0].port};

    conn->addresses_tried++;
    enter_step(conn, CONNECTING);
    if (!choose_tls(conn, &target, why)) {
        fail(conn, why);
        return;
    }
    conn->wire = wire_open(conn->reconnect.env.loop, &target, &wire_events, conn, why, sizeof why);
    if (conn->wire == NULL)
        fail(conn, why);
    else
        conn->handles++;
}

/* Resolve a name on libuv's threads: the wire's own getaddrinfo would block the loop. */

/* (uv_ip_name would leave out the interface, without which a link-local address is of no use.) */
static void keep_addresses(struct redis_conn *conn, const struct addrinfo *found)
{
    for (; found != NULL && conn->addresses_count < ADDRESSES_MAX; found = found->ai_next)
        if (getnameinfo(found->ai_addr, found->ai_addrlen, conn->addresses[conn->addresses_count],
                        ADDRESS_SIZE, NULL, 0, NI_NUMERICHOST) == 0)
            conn->addresses_count++;
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct lookup *lookup = request->data;
    struct redis_conn *conn = lookup->conn;

    if (conn != NULL)
        conn->lookup = NULL;
    if (conn != NULL && conn->state == RESOLVING) {
        char why[128];
        if (status == 0)
            keep_addresses(conn, found);
        snprintf(why, sizeof why, "the name cannot be resolved: %s",
                 status == 0 ? "no address" : uv_strerror(status));
        if (conn->addresses_count > 0)
            connect_next(conn);
        else
            fail(conn, why);
    }
    uv_freeaddrinfo(found);
    free(lookup);
}

static void resolve(struct redis_conn *conn)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const struct uri_host *host = &conn->uri.hosts[0];
    char port[8];

    enter_step(conn, RESOLVING);
    if (conn->lookup != NULL) /* an earlier attempt's, still under way: its answer will do */
        return;
    struct lookup *lookup = conn->lookup = mem_zalloc(sizeof *lookup);
    lookup->conn = conn;
    lookup->request.data = lookup;
    snprintf(port, sizeof port, "%d", host->port);
    int status = uv_getaddrinfo(conn->reconnect.env.loop, &lookup->request, on_resolved, host->name,
                                port, &hints);
    if (status != 0) {
        free(lookup);
        conn->lookup = NULL;
        fail(conn, uv_strerror(status));
    }
}

/* Begin an attempt, or go on with one. A name may have several addresses: an attempt tries them
 * in turn, each with the full time limit. `last`: see redis_events.locate. */
static void attempt(struct redis_conn *conn, bool last)
{
    unsigned char address[sizeof(struct in6_addr)];
    const struct uri_host *host = &conn->uri.hosts[0];

    if (conn->addresses_tried == conn->addresses_count) {
        conn->addresses_tried = conn->addresses_count = 0;
        if (conn->role->at_master && !locate(conn, last))
            return;
        if (conn->uri.kind == LEASE_URI_REDIS_UNIX) {
            conn->addresses_count = 1; /* its path */
        } else if (inet_pton(AF_INET, host->name, address) == 1 ||
                   inet_pton(AF_INET6, host->name, address) == 1) {
            snprintf(conn->addresses[0], ADDRESS_SIZE, "%.45s", host->name);
            conn->addresses_count = 1;
        }
    }
    if (conn->addresses_count > 0)
        connect_next(conn);
    else
        resolve(conn);
}

/* Connected: greet, then be ready. */

static void on_connected(void *context)
{
    struct redis_conn *conn = context;

    if (conn->state != CONNECTING)
        return;
    enter_step(conn, GREETING);
    greeting_send(&conn->greeting, conn->wire);
}

static void become_ready(struct redis_conn *conn)
{
    enter(conn, READY, 0);
    reconnect_up(&conn->reconnect);
    conn->role->on_ready(conn);
    schedule(conn);
}

static void on_reply(void *context, void *request, const struct redisReply *reply)
{
    struct redis_conn *conn = context;
    char why[GREETING_WHY_MAX];

    if (reply == NULL)
        fail(conn, wire_error(conn->wire));
    if (conn->greeting.unanswered == 0) {
        conn->role->on_reply(conn, request, reply);
    } else if (reply != NULL) {
        bool good = greeting_answered(&conn->greeting, request, reply, why);
        if (conn->state == GREETING && !good)
            fail(conn, why);
        else if (conn->state == GREETING && conn->greeting.unanswered == 0)
            become_ready(conn);
    }
}

/* The connection is lost. */

static void on_gone(void *context)
{
    struct redis_conn *conn = context;

    fail(conn, wire_error(conn->wire));
    check(list_empty(&conn->under_way));
    conn->wire = NULL;
}

static void on_handle_closed(void *context)
{
    struct redis_conn *conn = context;

    conn->handles--;
    if (conn->handles > 0)
        return;
    void (*closed)(void *context) = conn->closed;
    void *closed_context = conn->closed_context;
    tls_context_free(conn->tls);
    free(conn);
    closed(closed_context);
}

static const struct wire_events wire_events = {
    .connected = on_connected,
    .reply = on_reply,
    .gone = on_gone,
    .closed = on_handle_closed,
};

/* The timer: an attempt is to begin, a step or an answer is overdue, or there is a wire to free. */

static void give_up(struct redis_conn *conn)
{
    char why[64];

    if (conn->state == LOCATING) {
        attempt(conn, true);
        return;
    }
    snprintf(why, sizeof why, "%s within %d ms",
             conn->state == RESOLVING    ? "the name was not resolved"
             : conn->state == CONNECTING ? "no connection"
                                         : "no answer",
             conn->uri.timeout_ms);
    fail(conn, why);
}

static void check_time(struct redis_conn *conn)
{
    int64_t end_ms = due_ms(conn);

    if (conn->state == READY && now_ms(conn) >= end_ms && conn->role->check_peer(conn))
        return;
    if (reconnect_is_overdue(&conn->reconnect, end_ms))
        give_up(conn);
}

static void on_timer_closed(uv_handle_t *handle)
{
    on_handle_closed(handle->data);
}

static void on_timer(uv_timer_t *timer)
{
    struct redis_conn *conn = timer->data;

    if (now_ms(conn) >= reconnect_first_due_ms(&conn->reconnect))
        reconnect_end_first_attempt(&conn->reconnect);
    if (conn->state != WAITING && conn->state != CLOSING)
        check_time(conn);
    else if (conn->state == WAITING && conn->wire == NULL && now_ms(conn) >= conn->due_ms)
        attempt(conn, false);
    if (conn->wire != NULL && (conn->state == WAITING || conn->state == CLOSING))
        wire_free(conn->wire);
    if (conn->state != CLOSING)
        schedule(conn);
    else if (!uv_is_closing((uv_handle_t *)timer))
        uv_close((uv_handle_t *)timer, on_timer_closed);
}

/* A requester. */

static void requester_on_ready(struct redis_conn *conn)
{
    reconnect_log_up(&conn->reconnect);
    conn->events->on_ready(conn->context);
    reconnect_end_first_attempt(&conn->reconnect);
}

static void requester_on_failed(struct redis_conn *conn, bool refused)
{
    (void)refused;
    reconnect_log_down(&conn->reconnect, conn->reconnect.reason);
}

static void requester_on_reply(struct redis_conn *conn, void *asked, const struct redisReply *reply)
{
    struct redis_request *request = asked;

    list_remove(&request->link);
    conn->reconnect.heard_ms = now_ms(conn);
    request->done(request, reply, reply == NULL ? redis_conn_reason(conn) : NULL);
}

static int64_t requester_due_ms(const struct redis_conn *conn)
{
    if (list_empty(&conn->under_way))
        return INT64_MAX;
    return reconnect_due_ms(
        &conn->reconnect,
        list_entry(conn->under_way.next, struct redis_request, link)->deadline_ms);
}

static bool requester_check_peer(struct redis_conn *conn)
{
    (void)conn;
    return false; /* its requests ask already */
}

static void tell_master_lost(struct redis_conn *conn)
{
    if (conn->uri.hosts[0].port != 0)
        conn->events->on_master_lost(conn->context);
}

/* A listener. Nobody depends on what it hears, so its loss is not logged: the requester to the same
 * Redis does that. Only a Redis that lets nobody listen (an ACL without the right to it) is logged,
 * once, and tried again after longer pauses. */

static void listener_on_ready(struct redis_conn *conn)
{
    struct reconnect *reconnect = &conn->reconnect;

    conn->peer_checked = false;
    conn->due_ms = now_ms(conn) + QUIET_MS;
    if (reconnect->logged == LOGGED_DOWN)
        log_info(reconnect->env.log, "lease service %s lets this daemon listen again",
                 reconnect->name);
    reconnect->logged = LOGGED_UP;
}

static void listener_on_failed(struct redis_conn *conn, bool refused)
{
    struct reconnect *reconnect = &conn->reconnect;

    if (!refused)
        return;
    conn->due_ms = now_ms(conn) + NO_LISTENING_MS;
    if (reconnect->logged != LOGGED_DOWN)
        log_warn(reconnect->env.log,
                 "lease service %s does not let this daemon listen to %s: %s; leases that other "
                 "daemons end are noticed within a second, not at once",
                 reconnect->name, conn->channel, reconnect->reason);
    reconnect->logged = LOGGED_DOWN;
}

/* A message, or the confirmation that it has subscribed again. */
static void listener_on_reply(struct redis_conn *conn, void *request,
                              const struct redisReply *reply)
{
    (void)request;
    if (reply == NULL || conn->state != READY)
        return;
    const redisReply *text = reply->element[2]; /* the wire lets only arrays of three pass */
    conn->peer_checked = false;
    conn->reconnect.grace_until_ms = 0;
    conn->due_ms = now_ms(conn) + QUIET_MS;
    if (text->type == REDIS_REPLY_STRING)
        conn->events->on_message(conn->context, (struct bytes){text->str, text->len});
}

static int64_t listener_due_ms(const struct redis_conn *conn)
{
    return conn->due_ms;
}

/* To subscribe again is confirmed, and otherwise without effect. (PING's answer in this mode is
 * nothing that hiredis 0.14 can take.) */
static bool listener_check_peer(struct redis_conn *conn)
{
    if (conn->peer_checked)
        return false;
    conn->peer_checked = true;
    conn->due_ms = now_ms(conn) + conn->uri.timeout_ms;
    wire_listen(conn->wire, NULL, conn->channel);
    return true;
}

static void ignore_master_lost(struct redis_conn *conn)
{
    (void)conn;
}

/* A sentinel: a listener whose greeting asks a question. */

static void sentinel_on_ready(struct redis_conn *conn)
{
    listener_on_ready(conn);
    conn->events->on_master(conn->context, &conn->greeting.master, NULL);
}

static void sentinel_on_failed(struct redis_conn *conn, bool refused)
{
    (void)refused;
    conn->events->on_master(conn->context, NULL, conn->reconnect.reason);
}

/* The roles. */

#define REQUESTER                                                                                  \
    .client_name = "stockade", .on_ready = requester_on_ready, .on_failed = requester_on_failed,   \
    .on_reply = requester_on_reply, .due_ms = requester_due_ms, .check_peer = requester_check_peer
#define SUBSCRIBER                                                                                 \
    .client_name = "stockade-listener", .on_reply = listener_on_reply, .due_ms = listener_due_ms,  \
    .check_peer = listener_check_peer, .on_master_lost = ignore_master_lost
#define LISTENER SUBSCRIBER, .on_ready = listener_on_ready, .on_failed = listener_on_failed

static const struct role roles[] = {
    [REDIS_REQUESTER] = {REQUESTER, .greeting = GREETING_SCRIPTS,
                         .on_master_lost = ignore_master_lost},
    [REDIS_LISTENER] = {LISTENER, .greeting = GREETING_SUBSCRIBE},
    [REDIS_MASTER_REQUESTER] = {REQUESTER, .at_master = true,
                                .greeting = GREETING_ROLE | GREETING_SCRIPTS,
                                .on_master_lost = tell_master_lost},
    [REDIS_MASTER_LISTENER] = {LISTENER, .at_master = true,
                               .greeting = GREETING_ROLE | GREETING_SUBSCRIBE},
    [REDIS_SENTINEL] = {SUBSCRIBER, .greeting = GREETING_MASTER | GREETING_SUBSCRIBE,
                        .on_ready = sentinel_on_ready, .on_failed = sentinel_on_failed},
};

/* The interface. */

struct redis_conn *redis_conn_new(enum redis_role role, const struct lease_uri *uri,
                                  const struct lease_surroundings *surroundings,
                                  const char *channel, const struct redis_events *events,
                                  void *context)
{
    struct redis_conn *conn = mem_zalloc(sizeof *conn);
    char name[sizeof conn->reconnect.name];

    conn->role = &roles[role];
    conn->events = events;
    conn->context = context;
    conn->uri = *uri;
    lease_uri_text(uri, name, sizeof name);
    if (conn->role->at_master) {
        conn->uri.hosts[0].port = 0;
        snprintf(name, sizeof name, "sentinel %.48s", uri->name);
    }
    reconnect_init(&conn->reconnect, name, uri->timeout_ms, surroundings);
    if (channel != NULL)
        snprintf(conn->channel, sizeof conn->channel, "%s", channel);
    conn->greeting = (struct greeting){.uri = &conn->uri,
                                       .parts = conn->role->greeting,
                                       .client_name = conn->role->client_name,
                                       .channel = conn->channel};
    list_init(&conn->under_way);
    check(uv_timer_init(surroundings->loop, &conn->timer) == 0);
    conn->timer.data = conn;
    conn->handles = 1;
    enter(conn, WAITING, 0);
    schedule(conn);
    return conn;
}

bool redis_conn_is_ready(const struct redis_conn *conn)
{
    return conn->state == READY;
}

const char *redis_conn_reason(const struct redis_conn *conn)
{
    return reconnect_reason(&conn->reconnect);
}

void redis_conn_health(const struct redis_conn *conn, struct lease_health *health)
{
    reconnect_health(&conn->reconnect, conn->state == READY,
                     conn->state == WAITING ? conn->due_ms : 0, health);
}

void redis_conn_on_first_attempt(struct redis_conn *conn, void (*ended)(void *context),
                                 void *context)
{
    reconnect_on_first_attempt(&conn->reconnect, ended, context);
    schedule(conn);
}

static void send_request(struct redis_conn *conn, struct redis_request *request, int argc,
                         const char **argv, const size_t *lens)
{
    bool idle = list_empty(&conn->under_way);

    check(conn->state == READY);
    request->deadline_ms = now_ms(conn) + conn->uri.timeout_ms;
    list_append(&conn->under_way, &request->link);
    wire_send(conn->wire, request, argc, argv, lens);
    if (idle)
        schedule(conn);
}

void redis_conn_send(struct redis_conn *conn, struct redis_request *request, int argc,
                     const char **argv)
{
    size_t lens[COMMAND_ARGS_MAX];

    check(argc <= COMMAND_ARGS_MAX);
    for (int i = 0; i < argc; i++)
        lens[i] = strlen(argv[i]);
    send_request(conn, request, argc, argv, lens);
}

void redis_conn_send_script(struct redis_conn *conn, struct redis_request *request,
                            enum lease_verb verb, bool by_text, const struct script_args *args)
{
    const char *argv[SCRIPT_ARGS_MAX + 2] = {by_text ? "EVAL" : "EVALSHA"};
    size_t lens[SCRIPT_ARGS_MAX + 2] = {strlen(argv[0])};

    argv[1] = by_text ? script_text(verb) : conn->greeting.shas[verb];
    lens[1] = strlen(argv[1]);
    memcpy(argv + 2, args->at, (size_t)args->count * sizeof *argv);
    memcpy(lens + 2, args->lens, (size_t)args->count * sizeof *lens);
    send_request(conn, request, args->count + 2, argv, lens);
}

/* An error that only a replica gives: this is not the master any more. */
static bool is_of_replica(const char *error)
{
    return strncmp(error, "READONLY", 8) == 0 || strncmp(error, "MASTERDOWN", 10) == 0;
}

void redis_conn_refused(struct redis_conn *conn, const char *why)
{
    if (reconnect_refused(&conn->reconnect, why))
        conn->role->on_master_lost(conn); /* is it still the master? */
    if (conn->role->at_master && is_of_replica(why))
        fail(conn, why);
}

void redis_conn_accepted(struct redis_conn *conn)
{
    if (reconnect_accepted(&conn->reconnect))
        conn->events->on_ready(conn->context);
}

bool redis_conn_is_refusing(const struct redis_conn *conn)
{
    return conn->state == READY && conn->reconnect.refusal[0] != '\0';
}

void redis_conn_relocate(struct redis_conn *conn)
{
    struct uri_host master;
    char why[REDIS_WHY_MAX];

    if (conn->state == LOCATING) {
        attempt(conn, false);
    } else if (conn->state != CLOSING &&
               conn->events->locate(conn->context, false, &master, why) == REDIS_LOCATED &&
               !uri_host_equal(&master, &conn->uri.hosts[0])) {
        conn->uri.hosts[0].port = 0;
        conn->addresses_tried = conn->addresses_count = 0;
        fail(conn, "the sentinels name another master");
        retry_now(conn);
    }
}

void redis_conn_restart(struct redis_conn *conn)
{
    if (conn->state == READY)
        retry_now(conn);
}

void redis_conn_close(struct redis_conn *conn, void (*closed)(void *context), void *context)
{
    check(conn->state != CLOSING);
    conn->state = CLOSING;
    reconnect_set_reason(&conn->reconnect, "the connection is being closed");
    conn->reconnect.on_first_attempt = NULL;
    conn->closed = closed;
    conn->closed_context = context;
    forget_lookup(conn);
    schedule(conn);
}
