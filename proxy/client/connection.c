/* SPDX-License-Identifier: Apache-2.0 */
/* Open, send, receive. */
#include "proxy/client/connection.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/client/reply.h"
#include "proxy/client/thread.h"
#include "proxy/resp/resp.h"

enum io_result connection_send(struct connection *connection, struct bytes data,
                               int64_t deadline_ms, size_t *sent)
{
    struct transport *transport = connection->transport;

    if (connection->greeting.len == 0)
        return transport->impl->send(transport, data, deadline_ms, sent);
    buf_append_bytes(&connection->greeting, data);
    enum io_result result =
        transport->impl->send(transport, buf_bytes(&connection->greeting), deadline_ms, sent);
    buf_free(&connection->greeting);
    connection->greets = true;
    return result;
}

enum io_result connection_receive(struct connection *connection, int64_t deadline_ms,
                                  redisReply **reply)
{
    for (;;) {
        void *got = NULL;
        if (redisReaderGetReply(connection->reader, &got) != REDIS_OK) {
            memcpy(connection->transport->why, connection->reader->errstr,
                   sizeof connection->reader->errstr);
            return IO_BROKEN;
        }
        if (got != NULL && connection->greets) {
            connection->greets = false; /* the name is for people: what it is told is no matter */
            freeReplyObject(got);
            continue;
        }
        if (got != NULL) {
            connection->used = true;
            *reply = got;
            return IO_DONE;
        }
        enum io_result result = connection->transport->impl->receive(connection->transport,
                                                                     &connection->in, deadline_ms);
        if (result != IO_DONE)
            return result;
        check(redisReaderFeed(connection->reader, connection->in.data, connection->in.len) ==
              REDIS_OK);
        buf_clear(&connection->in);
    }
}

bool connection_is_broken(struct connection *connection)
{
    return connection->transport->impl->is_broken(connection->transport);
}

enum stk_error connection_explain_end(const struct target *target, int64_t deadline_ms)
{
    char at[300];

    if (!socket_speaks_http(target, deadline_ms, thread_cancel_fd()))
        return STK_UNREACHABLE;
    return fail(STK_PROTOCOL,
                "%s speaks HTTP, as a daemon's admin address does; clients use another port of "
                "the daemon, by default 7379",
                target_text(target, at, sizeof at));
}

/* HELLO 2 [AUTH user password] SETNAME name */
static void greet(struct buf *out, const struct target *target, const char *name)
{
    const char *user = target->login.user, *password = target->login.password;

    resp_array(out, password[0] != '\0' ? 7 : 4);
    resp_bulk_text(out, "HELLO");
    resp_bulk_text(out, "2");
    if (password[0] != '\0') {
        resp_bulk_text(out, "AUTH");
        resp_bulk_text(out, user[0] != '\0' ? user : "default");
        resp_bulk_text(out, password);
    }
    resp_bulk_text(out, "SETNAME");
    resp_bulk_text(out, name);
}

/* Whether the login is good has to be known before anything is asked. */
static enum stk_error log_in(struct connection *connection, const struct target *target,
                             const char *name, int64_t deadline_ms)
{
    struct buf request = {0};
    redisReply *reply = NULL;
    size_t sent = 0;

    greet(&request, target, name);
    enum io_result result = connection_send(connection, buf_bytes(&request), deadline_ms, &sent);
    if (result == IO_DONE)
        result = connection_receive(connection, deadline_ms, &reply);
    buf_free(&request);
    switch (result) {
    case IO_DONE: break;
    case IO_LATE: return fail(STK_TIMEOUT, "no answer to the login in time");
    case IO_WOKEN: return fail(STK_CANCELLED, NULL);
    case IO_BROKEN:
        return connection_explain_end(target, deadline_ms) == STK_PROTOCOL
                   ? STK_PROTOCOL
                   : fail(STK_UNREACHABLE, "the connection broke: %s", connection->transport->why);
    }
    enum stk_error error = reply_error(reply);
    freeReplyObject(reply);
    return error;
}

struct connection *connection_open(const struct target *target, struct embedded *embedded,
                                   const char *name, int64_t deadline_ms, int wake_fd,
                                   enum stk_error *error)
{
    struct transport *transport = embedded != NULL
                                      ? embedded_connect(embedded, error)
                                      : socket_open(target, deadline_ms, wake_fd, error);
    if (transport == NULL)
        return NULL;
    transport->wake_fd = wake_fd;
    struct connection *connection = mem_zalloc(sizeof *connection);
    list_init(&connection->link);
    connection->transport = transport;
    connection->reader = redisReaderCreate();
    check(connection->reader != NULL);
    *error = STK_OK;
    if (embedded == NULL && target->login.password[0] != '\0')
        *error = log_in(connection, target, name, deadline_ms);
    else if (embedded == NULL)
        greet(&connection->greeting, target, name);
    connection->used = false;
    if (*error == STK_OK)
        return connection;
    connection_close(connection);
    return NULL;
}

void connection_drop(struct connection *connection)
{
    connection->transport->silent = true;
    connection_close(connection);
}

void connection_close(struct connection *connection)
{
    list_remove(&connection->link);
    connection->transport->impl->close(connection->transport);
    redisReaderFree(connection->reader);
    buf_free(&connection->in);
    buf_free(&connection->greeting);
    free(connection);
}
