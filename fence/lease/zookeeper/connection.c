/* SPDX-License-Identifier: Apache-2.0 */
/* See connection.h. */
#include "fence/lease/zookeeper/connection.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

/* So long without a server, then a new handle resumes the session. Each further one has twice the
 * time, up to the session's: servers may be slow to take a session back. */
#define RESUME_MS 1000

static void open_session(struct zk_connection *connection);
static void greet(struct zk_connection *connection);
static void resume(struct zk_connection *connection);

/* Time. */

static void on_timer(uv_timer_t *timer);

static void schedule(struct zk_connection *connection)
{
    int64_t first_ms = reconnect_first_due_ms(&connection->reconnect);
    int64_t due_ms = first_ms < connection->due_ms ? first_ms : connection->due_ms;

    if (connection->state != ZK_CLOSING)
        reconnect_set_timer(&connection->reconnect, &connection->timer, on_timer, due_ms);
}

static void schedule_at(struct zk_connection *connection, int64_t due_ms)
{
    connection->due_ms = due_ms;
    schedule(connection);
}

static void on_timer(uv_timer_t *timer)
{
    struct zk_connection *connection = timer->data;
    struct reconnect *reconnect = &connection->reconnect;
    int64_t now_ms = zk_now_ms(connection);

    if (now_ms >= reconnect_first_due_ms(reconnect)) {
        if (connection->state != ZK_READY)
            reconnect_log_down(reconnect, zk_connection_why(connection));
        reconnect_end_first_attempt(reconnect);
    }
    if (now_ms >= connection->due_ms) {
        connection->due_ms = INT64_MAX;
        if (connection->state == ZK_WAITING)
            open_session(connection);
        else if (connection->state == ZK_CONNECTING)
            resume(connection);
        else if (connection->state == ZK_GREETING)
            greet(connection);
    }
    schedule(connection);
}

/* What is said to people. */

const char *zk_connection_why(const struct zk_connection *connection)
{
    if (connection->state == ZK_CLOSING)
        return "the provider is being closed";
    if (connection->reconnect.refusal[0] != '\0')
        return connection->reconnect.refusal;
    if (connection->state == ZK_CONNECTING)
        return zk_session_why(connection->session);
    return reconnect_reason(&connection->reconnect);
}

void zk_connection_health(const struct zk_connection *connection, struct lease_health *health)
{
    const struct reconnect *reconnect = &connection->reconnect;
    bool ready = connection->state == ZK_READY;
    size_t size = sizeof health->detail;

    health->up = ready && !connection->silent && reconnect->refusal[0] == '\0';
    health->reconnects = reconnect->connections > 0 ? reconnect->connections - 1 : 0;
    if (health->up)
        text_print(health->detail, size, "%s: ready", reconnect->name);
    else if (reconnect->refusal[0] != '\0')
        text_print(health->detail, size, "%s: refuses: %s", reconnect->name, reconnect->refusal);
    else if (ready)
        text_print(health->detail, size, "%s: no answer within %d ms", reconnect->name,
                   reconnect->timeout_ms);
    else
        text_print(health->detail, size, "%s: %s, trying again", reconnect->name,
                   zk_connection_why(connection));
}

void zk_connection_heard(struct zk_connection *connection, int rc)
{
    if (rc != ZOK && rc > ZAPIERROR)
        return; /* that was the client library, not ZooKeeper */
    connection->reconnect.heard_ms = zk_now_ms(connection);
    connection->silent = false;
}

void zk_connection_refused(struct zk_connection *connection, int rc, char *why, size_t why_size)
{
    switch (rc) {
    case ZCONNECTIONLOSS: text_print(why, why_size, "the connection was lost"); return;
    case ZOPERATIONTIMEOUT: text_print(why, why_size, "no answer in time"); return;
    case ZCLOSING: text_print(why, why_size, "the connection is being closed"); return;
    case ZINVALIDSTATE:
    case ZSESSIONEXPIRED: text_print(why, why_size, "the session has expired"); return;
    case ZNOAUTH:
        text_print(why, why_size, "no permission at %.64s (is the login right?)",
                   connection->base_path);
        break;
    case ZDATAINCONSISTENCY:
        text_print(why, why_size, "it has made another znode than it was asked for");
        break;
    case ZUNIMPLEMENTED: text_print(why, why_size, "ZooKeeper is older than 3.5.3"); break;
    default: text_print(why, why_size, "ZooKeeper says: %s", connection->client->zerror(rc));
    }
    reconnect_refused(&connection->reconnect, why);
}

void zk_connection_note_time(struct zk_connection *connection, int64_t mtime_ms)
{
    connection->server_ahead_ms = mtime_ms - zk_now_ms(connection);
    connection->server_ahead_known = true;
}

/* The folder of all leases, and the greeting. */

static void on_base_made(struct zk_request *request)
{
    free(request);
}

void zk_connection_make_base(struct zk_connection *connection)
{
    char path[NODE_BASE_MAX + 1];

    for (size_t i = 1; i <= strlen(connection->base_path); i++) {
        if (connection->base_path[i] != '/' && connection->base_path[i] != '\0')
            continue;
        memcpy(path, connection->base_path, i);
        path[i] = '\0';
        struct zk_request *request = mem_zalloc(sizeof *request);
        request->on_answer = on_base_made;
        zk_create(connection->session, request, path, "", 0, ZK_PERSISTENT);
    }
}

static void become_ready(struct zk_connection *connection)
{
    struct reconnect *reconnect = &connection->reconnect;

    connection->state = ZK_READY;
    connection->silent = false;
    reconnect->heard_ms = zk_now_ms(connection);
    reconnect_accepted(reconnect);
    reconnect_up(reconnect);
    reconnect_log_up(reconnect);
    schedule(connection);
    connection->events->on_ready(connection->context);
    reconnect_end_first_attempt(reconnect);
}

/* The session could not begin or is over, or ZooKeeper refuses the greeting. */
static void pause_after(struct zk_connection *connection, const char *why)
{
    int64_t pause_ms = reconnect_down(&connection->reconnect, why);

    reconnect_log_down(&connection->reconnect, why);
    schedule_at(connection, zk_now_ms(connection) + pause_ms);
    reconnect_end_first_attempt(&connection->reconnect);
}

static void on_greeted(struct zk_request *request)
{
    struct zk_connection *connection = list_entry(request, struct zk_connection, greeting);
    char why[128];

    connection->greeting_under_way = false;
    if (connection->state != ZK_GREETING)
        return;
    if (request->rc == ZOK && request->session == connection->session) {
        become_ready(connection);
    } else if (request->rc == ZNONODE && !connection->base_made) {
        connection->base_made = true;
        zk_connection_make_base(connection);
        greet(connection);
    } else if (request->rc == ZOK || request->rc == ZCONNECTIONLOSS ||
               request->rc == ZOPERATIONTIMEOUT) {
        greet(connection); /* it went over another connection, or none */
    } else {
        connection->base_made = false;
        zk_connection_refused(connection, request->rc, why, sizeof why);
        pause_after(connection, why);
    }
}

static void greet(struct zk_connection *connection)
{
    if (connection->greeting_under_way)
        return;
    connection->greeting_under_way = true;
    schedule_at(connection, INT64_MAX);
    connection->greeting.on_answer = on_greeted;
    zk_children(connection->session, &connection->greeting, connection->base_path);
}

/* Sessions. */

static void report_closed(struct zk_connection *connection)
{
    if (connection->state != ZK_CLOSING || connection->sessions_closing > 0 ||
        !connection->timer_closed)
        return;
    check(!connection->greeting_under_way);
    connection->events->on_closed(connection->context);
}

static void on_session_closed(void *context)
{
    struct zk_connection *connection = context;

    connection->sessions_closing--;
    report_closed(connection);
}

static void leave_session(struct zk_connection *connection)
{
    struct zk_session *session = connection->session;

    connection->session = NULL;
    if (session == NULL)
        return;
    connection->sessions_closing++;
    zk_session_free(session);
}

static void session_over(struct zk_connection *connection)
{
    char why[sizeof connection->reconnect.reason];

    text_print(why, sizeof why, "%s", zk_session_why(connection->session));
    connection->state = ZK_WAITING;
    connection->server_ahead_known = false;
    connection->events->on_session_over(connection->context);
    leave_session(connection);
    pause_after(connection, why);
}

static void on_session_state(void *context, enum zk_session_state state)
{
    struct zk_connection *connection = context;

    if (connection->state == ZK_CLOSING)
        return;
    if (state == ZK_ENDED) {
        session_over(connection);
    } else if (state == ZK_CONNECTED) {
        connection->state = ZK_GREETING;
        connection->base_made = false;
        greet(connection);
    } else {
        if (connection->state == ZK_READY)
            reconnect_log_down(&connection->reconnect, zk_session_why(connection->session));
        connection->state = ZK_CONNECTING;
        connection->resume_ms = RESUME_MS;
        schedule_at(connection, zk_now_ms(connection) + RESUME_MS);
    }
}

static void on_node(void *context, const char *path, bool removed)
{
    struct zk_connection *connection = context;

    connection->events->on_node(connection->context, path, removed);
}

static const struct zk_session_events session_events = {
    .on_state = on_session_state,
    .on_node = on_node,
    .on_closed = on_session_closed,
};

static void open_session(struct zk_connection *connection)
{
    const struct lease_surroundings *env = &connection->reconnect.env;

    chance_hex(env->chance, connection->origin, NODE_ORIGIN_LEN);
    connection->state = ZK_CONNECTING;
    connection->session = zk_session_open(env->loop, connection->client, &connection->uri,
                                          &session_events, connection, NULL);
}

/* Servers that have lost their data never take a handle back that has seen more: another one takes
 * over its session. */
static void resume(struct zk_connection *connection)
{
    struct zk_session *old = connection->session;

    if (!zk_session_resumable(old)) {
        schedule_at(connection, zk_now_ms(connection) + connection->resume_ms);
        return;
    }
    connection->resume_ms *= 2;
    if (connection->resume_ms > connection->uri.session_ms)
        connection->resume_ms = connection->uri.session_ms;
    schedule_at(connection, zk_now_ms(connection) + connection->resume_ms);
    connection->events->on_watches_lost(connection->context);
    struct zk_session *fresh = zk_session_open(connection->reconnect.env.loop, connection->client,
                                               &connection->uri, &session_events, connection, old);
    leave_session(connection);
    connection->session = fresh;
}

/* The connection's own life. */

void zk_connection_init(struct zk_connection *connection, const struct zk_client *client,
                        const struct lease_uri *uri, const struct lease_surroundings *surroundings,
                        const struct zk_connection_events *events, void *context)
{
    char name[sizeof connection->reconnect.name];

    reconnect_init(&connection->reconnect, lease_uri_text(uri, name, sizeof name), uri->timeout_ms,
                   surroundings);
    connection->client = client;
    connection->uri = *uri;
    connection->events = events;
    connection->context = context;
    connection->due_ms = INT64_MAX;
    node_base(uri, connection->base_path);
    check(uv_timer_init(surroundings->loop, &connection->timer) == 0);
    connection->timer.data = connection;
    open_session(connection);
}

void zk_connection_on_first_attempt(struct zk_connection *connection, void (*ended)(void *context),
                                    void *context)
{
    reconnect_on_first_attempt(&connection->reconnect, ended, context);
    schedule(connection);
}

static void on_timer_closed(uv_handle_t *timer)
{
    struct zk_connection *connection = timer->data;

    connection->timer_closed = true;
    report_closed(connection);
}

void zk_connection_close(struct zk_connection *connection)
{
    check(connection->state != ZK_CLOSING);
    connection->state = ZK_CLOSING;
    connection->reconnect.on_first_attempt = NULL;
    uv_close((uv_handle_t *)&connection->timer, on_timer_closed);
    leave_session(connection);
}
