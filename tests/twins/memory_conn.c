/* SPDX-License-Identifier: Apache-2.0 */
/* Replies are read by hiredis. Its reader tells how many bytes it has not used yet, and so where
 * each reply ends. */
#include "tests/twins/memory_conn.h"

#include "fence/base/check.h"

/* Take the first whole reply. False: there is none yet. */
static bool take_reply(struct memory_conn *conn)
{
    struct buf *received = &conn->received;
    void *reply = NULL;
    bool valid = redisReaderGetReply(conn->reader, &reply) == REDIS_OK;
    size_t len = received->len;

    if (valid && reply == NULL)
        return false;
    if (valid)
        len -= conn->reader->len - conn->reader->pos;
    conn->on_reply(conn, reply, (struct bytes){received->data, len});
    freeReplyObject(reply);
    buf_consume(received, len);
    return valid;
}

void memory_conn_changed(void *context)
{
    struct memory_conn *conn = context;
    struct buf out = {0};

    if (!conn->stalls || conn->received.len == 0) {
        session_take_output(conn->session, &out);
        buf_append_bytes(&conn->received, buf_bytes(&out));
        session_set_unsent(conn->session, conn->stalls ? conn->received.len : 0);
    }
    if (conn->on_reply != NULL && out.len > 0) {
        (void)redisReaderFeed(conn->reader, out.data, out.len); /* what it refuses is no reply */
        while (take_reply(conn))
            ;
    }
    buf_free(&out);
    if (!session_ended(conn->session))
        return;
    memory_conn_close(conn);
    conn->closed = true;
    if (conn->on_closed != NULL)
        conn->on_closed(conn);
}

void memory_conn_open(struct memory_conn *conn, struct engine *engine, const char *peer)
{
    check(conn->session == NULL);
    conn->closed = false;
    buf_clear(&conn->received);
    if (conn->reader != NULL)
        redisReaderFree(conn->reader);
    conn->reader = redisReaderCreate();
    conn->session = session_open(engine, peer, true, conn, &conn->received);
}

void memory_conn_close(struct memory_conn *conn)
{
    if (conn->session != NULL)
        session_close(conn->session);
    conn->session = NULL;
}

void memory_conn_free(struct memory_conn *conn)
{
    memory_conn_close(conn);
    buf_free(&conn->received);
    if (conn->reader != NULL)
        redisReaderFree(conn->reader);
}
