/* SPDX-License-Identifier: Apache-2.0 */
/* One session with ZooKeeper: the C client's handle, whose two threads stay behind this line. What
 * they report is queued under a mutex, and the loop is woken; everything here is called on the
 * loop's thread and calls back on it.
 *
 * The client connects, and connects again, by itself, to whichever server answers. A session that
 * has expired is over: free it and open another. */
#ifndef STOCKADE_FENCE_LEASE_ZOOKEEPER_SESSION_H
#define STOCKADE_FENCE_LEASE_ZOOKEEPER_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/list.h"
#include "fence/lease/uri.h"

struct uv_loop_s;
struct zk_session;

enum zk_news {
    ZK_CONNECTED, /* (again); requests may be sent */
    ZK_LOST,      /* the connection; requests under way have failed, or are about to */
    ZK_ENDED,     /* expired, or never begun (see zk_session_why) */
};

struct zk_events {
    void (*news)(void *context, enum zk_news news);
    /* A watched node has been removed, or written. It may have been made again since. */
    void (*removed)(void *context, const char *path);
    void (*written)(void *context, const char *path);
    /* After zk_session_free: nothing of it uses `context` any more. */
    void (*closed)(void *context);
};

/* One request. Its owner keeps it until `done`, which comes exactly once, from a turn of the loop;
 * the answer's memory is the session's, and goes after `done`. */
struct zk_op {
    void (*done)(struct zk_op *op);
    int rc;           /* ZOK, ZNONODE, ... */
    int64_t zxid;     /* of the transaction that made the node */
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

/* Begins to connect; `uri` is borrowed for this call, `events` for the session's life. `resumed`:
 * the same session by a new handle, without its watches; free the old one. (Servers that have lost
 * all their data turn a handle away for ever that has seen more than they know.) NULL: a new one.
 */
struct zk_session *zk_session_open(struct uv_loop_s *loop, const struct lease_uri *uri,
                                   const struct zk_events *events, void *context,
                                   const struct zk_session *resumed);
/* Had it a connection, and has none now? */
bool zk_session_resumable(const struct zk_session *session);
/* Why it is not connected: for people. Static storage. */
const char *zk_session_why(const struct zk_session *session);
/* Ends the session: its ephemeral nodes go. Requests under way get their `done` (ZCLOSING at the
 * latest), then `closed` is called; the loop is not blocked meanwhile. */
void zk_session_free(struct zk_session *session);

enum zk_mode { ZK_PERSISTENT, ZK_CONTAINER, ZK_EPHEMERAL_NUMBERED };

void zk_children(struct zk_session *session, struct zk_op *op, const char *path);
void zk_get(struct zk_session *session, struct zk_op *op, const char *path);
/* Asks whether it is there, and if so has its next change told, once. */
void zk_watch(struct zk_session *session, struct zk_op *op, const char *path);
void zk_create(struct zk_session *session, struct zk_op *op, const char *path, const char *data,
               int len, enum zk_mode mode);
/* Only at this version; -1: at any. */
void zk_set(struct zk_session *session, struct zk_op *op, const char *path, const char *data,
            int len, int32_t version);
void zk_delete(struct zk_session *session, struct zk_op *op, const char *path, int32_t version);
/* In one transaction: removes `gone`, only at this version, and makes `path`, ephemeral. */
void zk_move(struct zk_session *session, struct zk_op *op, const char *gone, int32_t version,
             const char *path, const char *data, int len);

#endif
