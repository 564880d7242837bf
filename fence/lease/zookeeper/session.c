/* SPDX-License-Identifier: Apache-2.0 */
/* The handle's life, and the way from the client's threads to the loop.
 *
 *   zookeeper_init ──▶ callbacks ──▶ queue, uv_async ──▶ loop ──▶ zookeeper_close
 *   (libuv's pool)     (client's threads)                         (libuv's pool)
 *
 * - zookeeper_init resolves host names and zookeeper_close joins threads, so neither runs on the
 *   loop. A session that is freed while names are resolved reports its end at once and is cleaned
 *   up later.
 * - The queue is bounded: one answer for each request under way, one change for each watch, and
 *   only the last of the handle's states.
 * - The client forgets some requests when it is closed: they are answered here. */
#include "fence/lease/zookeeper/session.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

enum phase { PHASE_OPENING, PHASE_OPEN, PHASE_CLOSING };

struct change {
    struct list link;
    bool removed;
    char path[];
};

struct zk_session {
    /* The loop's. */
    uv_loop_t *loop;
    uv_async_t async;
    uv_work_t work;
    const struct zk_session_events *events; /* NULL: nobody is told any more */
    void *context;
    enum phase phase;
    bool was_connected;
    struct list under_way; /* zk_request */

    /* Written before the pool's thread starts to open or close, or by that thread. */
    struct zk_client client; /* its own, for it may outlive all the rest */
    char *hosts;
    char *login; /* "user:password"; NULL: none */
    int session_ms;
    clientid_t resumed; /* client_id 0: a new session */
    zhandle_t *handle;
    int open_error;

    /* Under `lock`. */
    pthread_mutex_t lock;
    struct list ready;   /* zk_request */
    struct list changed; /* struct change */
    int state;           /* the handle's; reported where state_changed */
    bool state_changed;
};

/* On the client's threads. */

static void hand_to_loop(struct zk_request *request, int rc, const struct Stat *stat)
{
    struct zk_session *session = request->session;

    request->rc = rc;
    if (rc == ZOK && stat != NULL) {
        request->zxid = stat->czxid;
        request->mtime_ms = stat->mtime;
        request->version = stat->version;
    }
    pthread_mutex_lock(&session->lock);
    list_append(&session->ready, &request->ready);
    pthread_mutex_unlock(&session->lock);
    uv_async_send(&session->async);
}

static void on_nothing(int rc, const void *data)
{
    hand_to_loop((struct zk_request *)(uintptr_t)data, rc, NULL);
}

static void on_stat(int rc, const struct Stat *stat, const void *data)
{
    hand_to_loop((struct zk_request *)(uintptr_t)data, rc, stat);
}

static void keep_text(struct zk_request *request, const char *text, size_t len)
{
    request->text = mem_zalloc(len + 1);
    if (len > 0)
        memcpy(request->text, text, len);
    request->text_len = len;
}

/* The client takes an answer that ends too early for a whole one, and hands out NULL for what is
 * not there. `whole`: all is there that a good answer brings. */
static int rc_of(int rc, bool whole)
{
    return rc == ZOK && !whole ? ZMARSHALLINGERROR : rc;
}

static void on_data(int rc, const char *value, int len, const struct Stat *stat, const void *data)
{
    struct zk_request *request = (struct zk_request *)(uintptr_t)data;

    rc = rc_of(rc, value != NULL || len <= 0);
    if (rc == ZOK)
        keep_text(request, value, len < 0 ? 0 : (size_t)len); /* -1: no content at all */
    hand_to_loop(request, rc, stat);
}

static void on_created(int rc, const char *path, const struct Stat *stat, const void *data)
{
    struct zk_request *request = (struct zk_request *)(uintptr_t)data;

    rc = rc_of(rc, path != NULL);
    if (rc == ZOK && path != NULL)
        keep_text(request, path, strlen(path));
    hand_to_loop(request, rc, stat);
}

static bool are_whole(const struct String_vector *names)
{
    bool whole = names->data != NULL || names->count == 0;

    for (int i = 0; i < names->count && whole; i++)
        whole = names->data[i] != NULL;
    return whole;
}

static void on_names(int rc, const struct String_vector *names, const void *data)
{
    struct zk_request *request = (struct zk_request *)(uintptr_t)data;

    rc = rc_of(rc, rc != ZOK || are_whole(names));
    if (rc == ZOK && names->count > 0) {
        request->names = mem_zalloc((size_t)names->count * sizeof *request->names);
        request->names_count = names->count;
        for (int i = 0; i < names->count; i++)
            request->names[i] = mem_strdup(names->data[i]);
    }
    hand_to_loop(request, rc, NULL);
}

static void on_state(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    struct zk_session *session = context;

    (void)handle;
    (void)path;
    if (type != *session->client.ZOO_SESSION_EVENT)
        return;
    pthread_mutex_lock(&session->lock);
    session->state = state;
    session->state_changed = true;
    pthread_mutex_unlock(&session->lock);
    uv_async_send(&session->async);
}

static void on_watch(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    struct zk_session *session = context;

    (void)handle;
    (void)state;
    if (type == *session->client.ZOO_SESSION_EVENT)
        return;
    struct change *change = mem_alloc(sizeof *change + strlen(path) + 1);
    change->removed = type != *session->client.ZOO_CHANGED_EVENT;
    strcpy(change->path, path);
    pthread_mutex_lock(&session->lock);
    list_append(&session->changed, &change->link);
    pthread_mutex_unlock(&session->lock);
    uv_async_send(&session->async);
}

/* Without this the client writes to stderr. What matters is told by zk_session_why. */
static void on_log(const char *message)
{
    (void)message;
}

/* On the loop. */

static void deliver(struct zk_request *request)
{
    char *text = request->text, **names = request->names;
    int names_count = request->names_count;
    void *results = request->results;

    list_remove(&request->under_way);
    request->on_answer(request); /* it may be gone, or under way again, after this */
    free(text);
    free(results);
    for (int i = 0; i < names_count; i++)
        free(names[i]);
    free(names);
}

static void report_state(struct zk_session *session, int state)
{
    if (state == *session->client.ZOO_CONNECTED_STATE) {
        session->was_connected = true;
        session->events->on_state(session->context, ZK_CONNECTED);
    } else if (state == *session->client.ZOO_EXPIRED_SESSION_STATE ||
               state == *session->client.ZOO_AUTH_FAILED_STATE) {
        session->events->on_state(session->context, ZK_ENDED);
    } else {
        session->events->on_state(session->context, ZK_LOST);
    }
}

static void collect(struct zk_session *session)
{
    struct list ready, changed, *link;
    int state;
    bool state_changed;

    list_init(&ready);
    list_init(&changed);
    pthread_mutex_lock(&session->lock);
    list_splice(&ready, &session->ready);
    list_splice(&changed, &session->changed);
    state = session->state;
    state_changed = session->state_changed;
    session->state_changed = false;
    pthread_mutex_unlock(&session->lock);

    while ((link = list_pop(&ready)) != NULL)
        deliver(list_entry(link, struct zk_request, ready));
    while ((link = list_pop(&changed)) != NULL) {
        struct change *change = list_entry(link, struct change, link);
        if (session->phase == PHASE_OPEN)
            session->events->on_node(session->context, change->path, change->removed);
        free(change);
    }
    if (state_changed && session->phase == PHASE_OPEN)
        report_state(session, state);
}

static void on_async(uv_async_t *async)
{
    struct zk_session *session = async->data;

    if (session->phase != PHASE_OPENING)
        collect(session);
}

static void on_async_closed(uv_handle_t *async)
{
    struct zk_session *session = async->data;
    const struct zk_session_events *events = session->events;
    void *context = session->context;

    check(list_empty(&session->under_way));
    pthread_mutex_destroy(&session->lock);
    free(session->hosts);
    free(session->login);
    free(session);
    if (events != NULL)
        events->on_closed(context);
}

/* In libuv's pool. */
static void close_run(uv_work_t *work)
{
    struct zk_session *session = work->data;

    if (session->handle != NULL)
        session->client.zookeeper_close(session->handle);
}

static void close_done(uv_work_t *work, int status)
{
    struct zk_session *session = work->data;

    (void)status;
    collect(session);
    while (!list_empty(&session->under_way)) {
        struct zk_request *request =
            list_entry(session->under_way.next, struct zk_request, under_way);
        request->rc = ZCLOSING;
        deliver(request);
    }
    uv_close((uv_handle_t *)&session->async, on_async_closed);
}

static void begin_close(struct zk_session *session)
{
    session->phase = PHASE_CLOSING;
    check(uv_queue_work(session->loop, &session->work, close_run, close_done) == 0);
}

/* In libuv's pool. */
static void open_run(uv_work_t *work)
{
    struct zk_session *session = work->data;

    errno = 0;
    session->handle = session->client.zookeeper_init2(
        session->hosts, on_state, session->session_ms,
        session->resumed.client_id != 0 ? &session->resumed : NULL, session, 0, on_log);
    if (session->handle == NULL)
        session->open_error = errno != 0 ? errno : EINVAL;
    else if (session->login != NULL)
        session->client.zoo_add_auth(session->handle, "digest", session->login,
                                     (int)strlen(session->login), NULL, NULL);
}

static void open_done(uv_work_t *work, int status)
{
    struct zk_session *session = work->data;

    (void)status;
    if (session->events == NULL) {
        begin_close(session);
        return;
    }
    session->phase = PHASE_OPEN;
    if (session->handle == NULL)
        session->events->on_state(session->context, ZK_ENDED);
    else
        collect(session);
}

static char *hosts_text(const struct lease_uri *uri)
{
    char *text = mem_zalloc(LEASE_URI_HOSTS_MAX * (sizeof uri->hosts[0].name + 16));
    size_t len = 0;

    for (int i = 0; i < uri->hosts_count; i++) {
        const struct uri_host *host = &uri->hosts[i];
        /* An IPv6 address without brackets: the client takes the last colon for the port's. */
        len += (size_t)sprintf(text + len, "%s%s:%d", i > 0 ? "," : "", host->name, host->port);
    }
    return text;
}

struct zk_session *zk_session_open(struct uv_loop_s *loop, const struct zk_client *client,
                                   const struct lease_uri *uri,
                                   const struct zk_session_events *events, void *context,
                                   const struct zk_session *resumed)
{
    struct zk_session *session = mem_zalloc(sizeof *session);

    session->loop = loop;
    session->client = *client;
    session->events = events;
    session->context = context;
    session->session_ms = uri->session_ms;
    session->hosts = hosts_text(uri);
    if (resumed != NULL) {
        session->resumed = *client->zoo_client_id(resumed->handle);
        session->was_connected = true;
    }
    if (uri->login.password[0] != '\0') { /* the user may be empty */
        session->login = mem_zalloc(sizeof uri->login + 1);
        sprintf(session->login, "%s:%s", uri->login.user, uri->login.password);
    }
    list_init(&session->under_way);
    list_init(&session->ready);
    list_init(&session->changed);
    check(pthread_mutex_init(&session->lock, NULL) == 0);
    check(uv_async_init(loop, &session->async, on_async) == 0);
    session->async.data = session->work.data = session;
    check(uv_queue_work(loop, &session->work, open_run, open_done) == 0);
    return session;
}

const char *zk_session_why(const struct zk_session *session)
{
    if (session->phase == PHASE_OPENING)
        return "the names of the servers are being looked up";
    if (session->handle == NULL)
        return session->open_error == ENOMEM ? "out of memory"
                                             : "no server's name could be resolved";
    int state = session->client.zoo_state(session->handle);
    if (state == *session->client.ZOO_EXPIRED_SESSION_STATE)
        return "the session has expired";
    if (state == *session->client.ZOO_AUTH_FAILED_STATE)
        return "the login was refused";
    if (state == *session->client.ZOO_ASSOCIATING_STATE)
        return "connected, but the server does not answer";
    return session->was_connected ? "the connection was lost" : "no server accepts a connection";
}

void zk_session_free(struct zk_session *session)
{
    const struct zk_session_events *events = session->events;
    void *context = session->context;

    check(session->phase != PHASE_CLOSING);
    if (session->phase == PHASE_OPEN) {
        begin_close(session);
        return;
    }
    uv_cancel((uv_req_t *)&session->work); /* either way open_done will be called */
    session->events = NULL;
    events->on_closed(context);
}

bool zk_session_resumable(const struct zk_session *session)
{
    return session->phase == PHASE_OPEN && session->handle != NULL && session->was_connected &&
           session->client.zoo_state(session->handle) != *session->client.ZOO_CONNECTED_STATE;
}

/* Requests. */

static void begin(struct zk_session *session, struct zk_request *request)
{
    void (*on_answer)(struct zk_request * request) = request->on_answer;

    check(session->phase == PHASE_OPEN && session->handle != NULL);
    *request = (struct zk_request){.on_answer = on_answer, .session = session};
    list_init(&request->ready);
    list_append(&session->under_way, &request->under_way);
}

/* A request that the client does not take is answered all the same, and later. */
static void begun(struct zk_request *request, int rc)
{
    if (rc != ZOK)
        hand_to_loop(request, rc, NULL);
}

static const struct ACL_vector *acl(const struct zk_session *session)
{
    return session->login != NULL ? session->client.ZOO_CREATOR_ALL_ACL
                                  : session->client.ZOO_OPEN_ACL_UNSAFE;
}

void zk_children(struct zk_session *session, struct zk_request *request, const char *path)
{
    begin(session, request);
    begun(request, session->client.zoo_aget_children(session->handle, path, 0, on_names, request));
}

void zk_get(struct zk_session *session, struct zk_request *request, const char *path)
{
    begin(session, request);
    begun(request, session->client.zoo_aget(session->handle, path, 0, on_data, request));
}

void zk_watch(struct zk_session *session, struct zk_request *request, const char *path)
{
    begin(session, request);
    begun(request,
          session->client.zoo_awexists(session->handle, path, on_watch, session, on_stat, request));
}

void zk_create(struct zk_session *session, struct zk_request *request, const char *path,
               const char *data, int len, enum zk_mode mode)
{
    int client_mode = mode == ZK_PERSISTENT  ? *session->client.ZOO_PERSISTENT
                      : mode == ZK_CONTAINER ? *session->client.ZOO_CONTAINER
                                             : *session->client.ZOO_EPHEMERAL_SEQUENTIAL;

    begin(session, request);
    begun(request, session->client.zoo_acreate2(session->handle, path, data, len, acl(session),
                                                client_mode, on_created, request));
}

void zk_set(struct zk_session *session, struct zk_request *request, const char *path,
            const char *data, int len, int32_t version)
{
    begin(session, request);
    begun(request,
          session->client.zoo_aset(session->handle, path, data, len, version, on_stat, request));
}

void zk_delete(struct zk_session *session, struct zk_request *request, const char *path,
               int32_t version)
{
    begin(session, request);
    begun(request,
          session->client.zoo_adelete(session->handle, path, version, on_nothing, request));
}

void zk_move(struct zk_session *session, struct zk_request *request, const char *gone,
             int32_t version, const char *path, const char *data, int len)
{
    zoo_op_t steps[2];

    begin(session, request);
    zoo_op_result_t *results = mem_zalloc(2 * sizeof *results); /* written until the answer */
    request->results = results;
    session->client.zoo_delete_op_init(&steps[0], gone, version);
    session->client.zoo_create_op_init(&steps[1], path, data, len, acl(session),
                                       *session->client.ZOO_EPHEMERAL, NULL, 0);
    begun(request,
          session->client.zoo_amulti(session->handle, 2, steps, results, on_nothing, request));
}
