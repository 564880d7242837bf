/* SPDX-License-Identifier: Apache-2.0 */
/* One session with ZooKeeper. Wraps a handle of the C client, whose two threads never get past this
 * file: what they report is queued and delivered on the loop's thread, where everything here is
 * called, too.
 *
 * While the session lasts the client finds a server by itself, again and again. A session that has
 * expired is over: free it and open another one. */
#ifndef STOCKADE_FENCE_LEASE_ZOOKEEPER_SESSION_H
#define STOCKADE_FENCE_LEASE_ZOOKEEPER_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/list.h"
#include "fence/lease/uri.h"
#include "fence/lease/zookeeper/client.h"

struct uv_loop_s;
struct zk_session;

enum zk_session_state {
    ZK_CONNECTED, /* (again); requests may be sent */
    ZK_LOST,      /* no server; requests under way have failed, or are about to */
    ZK_ENDED,     /* expired, or never begun (see zk_session_why) */
};

struct zk_session_events {
    void (*on_state)(void *context, enum zk_session_state state);
    /* A watched znode has been written or removed. (It may have been made again since.) */
    void (*on_node)(void *context, const char *path, bool removed);
    /* After zk_session_free: nothing of it uses `context` any more. */
    void (*on_closed)(void *context);
};

/* A request and its answer. The owner keeps it until `on_answer`, which is called exactly once and
 * never before the request's function has returned. What the answer points to is freed after it. */
struct zk_request {
    void (*on_answer)(struct zk_request *request);
    int rc;           /* ZOK, ZNONODE, ... */
    int64_t zxid;     /* of the transaction that made the znode */
    int64_t mtime_ms; /* of its last change, by the leader's wall clock */
    int32_t version;
    char *text; /* of `create`: the whole path; of `get`: the content, text_len bytes */
    size_t text_len;
    char **names; /* of `children` */
    int names_count;
    /* The session's own. */
    struct list under_way, ready;
    struct zk_session *session;
    void *results; /* of zk_move's steps */
};

/* Begin to connect; `client` and `uri` are borrowed for this call, `events` for the session's life.
 * `resumed`: the same session by a new handle, without its watches; free the old handle. (A handle
 * that has seen more than the servers know, because they lost their data, is turned away for ever.)
 * NULL: a new session. */
struct zk_session *zk_session_open(struct uv_loop_s *loop, const struct zk_client *client,
                                   const struct lease_uri *uri,
                                   const struct zk_session_events *events, void *context,
                                   const struct zk_session *resumed);
/* Was it connected, and is not now? */
bool zk_session_resumable(const struct zk_session *session);
/* Why it is not connected: for people. Static storage. */
const char *zk_session_why(const struct zk_session *session);
/* End the session: its ephemeral znodes go. Requests under way are answered (with ZCLOSING at the
 * latest), then `on_closed` is called; the loop is not blocked meanwhile. */
void zk_session_free(struct zk_session *session);

enum zk_mode { ZK_PERSISTENT, ZK_CONTAINER, ZK_EPHEMERAL_SEQUENTIAL };

void zk_children(struct zk_session *session, struct zk_request *request, const char *path);
void zk_get(struct zk_session *session, struct zk_request *request, const char *path);
/* Ask whether the znode is there; if so its next change is reported, once. */
void zk_watch(struct zk_session *session, struct zk_request *request, const char *path);
void zk_create(struct zk_session *session, struct zk_request *request, const char *path,
               const char *data, int len, enum zk_mode mode);
/* Only at this version; -1: at any. */
void zk_set(struct zk_session *session, struct zk_request *request, const char *path,
            const char *data, int len, int32_t version);
void zk_delete(struct zk_session *session, struct zk_request *request, const char *path,
               int32_t version);
/* In one transaction: removes `gone`, only at this version, and makes `path`, ephemeral. */
void zk_move(struct zk_session *session, struct zk_request *request, const char *gone,
             int32_t version, const char *path, const char *data, int len);

#endif
