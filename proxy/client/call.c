/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of connections, the attempts of a call, and the pauses between them. */
#include "proxy/client/call.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "proxy/client/reply.h"

enum { IDLE_MAX = 64, PAUSE_MS_MIN = 4, PAUSE_MS_MAX = 256 };

enum stk_error client_check(const stk_client *client)
{
    return client->pid == getpid() ? STK_OK : fail(STK_FORKED, NULL);
}

bool client_command_reads(const stk_client *client, struct bytes name)
{
    const struct command *command = command_find(&client->commands, name);
    return command != NULL && command_only_reads(command);
}

struct connection *client_connect(stk_client *client, int64_t deadline_ms, int wake_fd,
                                  enum stk_error *error)
{
    char name[sizeof client->name];

    pthread_mutex_lock(&client->lock);
    memcpy(name, client->name, sizeof name);
    pthread_mutex_unlock(&client->lock);
    return connection_open(&client->target, client->embedded, name, deadline_ms, wake_fd, error);
}

/* Take the connection used last, if it is still good; else open one. */
static struct connection *take_connection(struct call *call, enum stk_error *error)
{
    stk_client *client = call->client;
    struct list *link = NULL;

    *error = STK_OK;
    while (!call->alone) {
        pthread_mutex_lock(&client->lock);
        link = list_pop(&client->idle);
        client->idle_count -= link != NULL;
        pthread_mutex_unlock(&client->lock);
        if (link == NULL)
            break;
        struct connection *connection = list_entry(link, struct connection, link);
        if (!connection_is_broken(connection))
            return connection;
        connection_close(connection);
    }
    return client_connect(client, call->deadline_ms, thread_cancel_fd(), error);
}

static void give_connection(struct call *call, struct connection *connection)
{
    stk_client *client = call->client;

    if (call->keeps_connection) {
        call->connection = connection;
        return;
    }
    pthread_mutex_lock(&client->lock);
    bool room = client->idle_count < IDLE_MAX;
    if (room) {
        list_insert(client->idle.next, &connection->link);
        client->idle_count++;
    }
    pthread_mutex_unlock(&client->lock);
    if (!room)
        connection_close(connection);
}

static void drop_replies(struct call *call)
{
    for (size_t i = 0; call->replies != NULL && i < call->replies_count; i++)
        if (call->replies[i] != NULL)
            freeReplyObject(call->replies[i]);
    free(call->replies);
    call->replies = NULL;
}

/* One attempt on one connection. */
static enum io_result exchange(struct call *call, struct connection *connection)
{
    size_t sent = 0;

    call->asked_ms = now_ms();
    if (call->compose != NULL)
        call->compose(call);
    connection->transport->wake_fd = thread_cancel_fd();
    enum io_result result =
        connection_send(connection, buf_bytes(&call->request), call->deadline_ms, &sent);
    call->sent |= sent > 0;
    drop_replies(call);
    call->replies = mem_zalloc(call->replies_count * sizeof(redisReply *));
    for (size_t i = 0; i < call->replies_count && result == IO_DONE; i++)
        result = connection_receive(connection, call->deadline_ms, &call->replies[i]);
    return result;
}

/* How a call ends that got no answer. `why`: the connection broke; "": fail() was called. */
static enum stk_error unanswered(const struct call *call, enum stk_error error, const char *why)
{
    bool unsure = call->sent && call->changes;

    if (why[0] != '\0')
        return fail(unsure ? STK_UNSURE : error, "the connection broke (%s)%s", why,
                    unsure ? "; it may have been applied" : "; nothing was applied");
    return unsure ? fail(STK_UNSURE, NULL) : error;
}

static enum stk_error cancelled(struct call *call)
{
    call->cancelled = true;
    return unanswered(call, fail(STK_CANCELLED, NULL), "");
}

enum io_result call_pause(struct call *call)
{
    unsigned char random;

    if (call->pause_ms == 0)
        call->pause_ms = PAUSE_MS_MIN;
    chance_system.fill(&chance_system, &random, 1);
    /* Half of it is left to chance, so that a crowd spreads out. */
    int64_t until_ms = now_ms() + call->pause_ms / 2 + call->pause_ms * random / 512;
    if (until_ms >= call->deadline_ms)
        return IO_BROKEN;
    call->pause_ms = call->pause_ms * 2 > PAUSE_MS_MAX ? PAUSE_MS_MAX : call->pause_ms * 2;
    return wait_for(-1, 0, thread_cancel_fd(), until_ms);
}

static bool is_busy(const struct call *call)
{
    for (size_t i = 0; i < call->replies_count; i++)
        if (reply_code(call->replies[i]) == STK_BUSY)
            return true;
    return false;
}

enum stk_error call_run(struct call *call)
{
    /* Of the last connection that broke: if the next one is not made in time, or hears nothing,
     * that is still why. */
    char why[sizeof((struct transport *)0)->why] = "";

    for (;;) {
        enum stk_error error;
        bool aged = false; /* one that idled may have ended long ago: no pause after it */
        struct connection *connection = take_connection(call, &error);

        if (connection != NULL) {
            aged = connection->used;
            enum io_result result = exchange(call, connection);
            bool done = result == IO_DONE;
            if (done && !(call->unheard && call->changes && is_busy(call))) {
                give_connection(call, connection);
                return STK_OK;
            }
            call->unheard |= call->sent;
            if (connection->transport->why[0] != '\0')
                memcpy(why, connection->transport->why, sizeof why);
            connection_close(connection);
            if (result == IO_LATE)
                return unanswered(call, fail(STK_TIMEOUT, NULL), why);
            if (result == IO_WOKEN)
                return cancelled(call);
            error = STK_UNREACHABLE;
            if (done)
                aged = false; /* busy: nothing was applied this time; pause before the next */
            else if (!aged && !call->looked_for_http)
                error = connection_explain_end(&call->client->target, call->deadline_ms);
            call->looked_for_http = true;
            if (error == STK_PROTOCOL)
                return error;
        } else if (error != STK_TIMEOUT) {
            why[0] = '\0';
        }
        if (error == STK_CANCELLED)
            return cancelled(call);
        if (error != STK_UNREACHABLE || (call->sent && !call->repeatable))
            return unanswered(call, error, why);
        if (aged)
            continue;
        switch (call_pause(call)) {
        case IO_LATE: continue;
        case IO_WOKEN: return cancelled(call);
        default: return unanswered(call, error, why);
        }
    }
}

void call_end(struct call *call)
{
    drop_replies(call);
    buf_free(&call->request);
}
