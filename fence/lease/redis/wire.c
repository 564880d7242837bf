/* SPDX-License-Identifier: Apache-2.0 */
/* hiredis 0.14 on libuv.
 *
 * The wire and its context are born and die together: hiredis frees the context when the connection
 * fails, or we do; either way its `cleanup` hook runs last, closes the poll handle, and the
 * handle's close callback frees the wire.
 *
 * The other side may be no Redis at all, and hiredis is not prepared for that. It aborts the
 * process when a reply arrives that nobody asked for, or a message of another form than usual, and
 * it allocates whatever an array's header says. So our own object functions stand before its
 * reader: they count the replies that are expected, check messages, and turn what does not fit into
 * a protocol error. hiredis also buffers a line that never ends; here it is cut off. */
#include "fence/lease/redis/wire.h"

#include <ctype.h>
#include <fcntl.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

#define UNREAD_BYTES_MAX   (1024 * 1024) /* of a reply that is not complete */
#define ARRAY_ELEMENTS_MAX 1024          /* ROLE: one for each replica */

struct wire {
    uv_poll_t poll;
    int polled;                       /* UV_READABLE | UV_WRITABLE, as hiredis wants it */
    redisAsyncContext *redis;         /* NULL: gone */
    redisReplyObjectFunctions reader; /* ours, which check and then call hiredis's: */
    const redisReplyObjectFunctions *make;
    size_t replies_expected;
    const char *channel; /* listening; or NULL */
    bool in_message;     /* is the reader inside of one? */
    bool refused;        /* there was an error reply */
    const struct wire_events *events;
    void *context;
    char error[128];
};

/* The object functions. NULL makes hiredis end the connection. */

/* Does this begin a reply that was asked for, or a message? */
static bool is_expected(struct wire *wire, const redisReadTask *task, int elements)
{
    wire->refused |= task->type == REDIS_REPLY_ERROR;
    wire->in_message = false;
    if (wire->replies_expected > 0) {
        wire->replies_expected--;
        return true;
    }
    if (task->type == REDIS_REPLY_ERROR) /* "max number of clients reached": hiredis copes */
        return true;
    wire->in_message = wire->channel != NULL;
    return wire->in_message && elements == 3;
}

static bool is_text(const char *text, size_t len, const char *word)
{
    return len == strlen(word) && memcmp(text, word, len) == 0;
}

/* May this stand in a message? Only what hiredis's handling of them can take. */
static bool fits_message(const struct wire *wire, const redisReadTask *task, const char *text,
                         size_t len)
{
    if (text == NULL || task->type != REDIS_REPLY_STRING)
        return task->idx == 2 && task->type == REDIS_REPLY_INTEGER;
    return task->idx == 0   ? is_text(text, len, "message") || is_text(text, len, "subscribe")
           : task->idx == 1 ? is_text(text, len, wire->channel)
                            : true;
}

/* `text` of a string, else NULL; `elements` of an array, else 0. */
static bool refuses(const redisReadTask *task, const char *text, size_t len, int elements)
{
    struct wire *wire = task->privdata;

    if (task->parent == NULL ? is_expected(wire, task, elements)
                             : !wire->in_message || fits_message(wire, task, text, len))
        return false;
    snprintf(wire->error, sizeof wire->error, "a reply that nobody asked for (is it Redis?)");
    return true;
}

static void *make_string(const redisReadTask *task, char *text, size_t len)
{
    struct wire *wire = task->privdata;
    return refuses(task, text, len, 0) ? NULL : wire->make->createString(task, text, len);
}

static void *make_array(const redisReadTask *task, int elements)
{
    struct wire *wire = task->privdata;

    if (elements > ARRAY_ELEMENTS_MAX) {
        snprintf(wire->error, sizeof wire->error, "an array of %d elements", elements);
        return NULL;
    }
    return refuses(task, NULL, 0, elements) ? NULL : wire->make->createArray(task, elements);
}

static void *make_integer(const redisReadTask *task, long long number)
{
    struct wire *wire = task->privdata;
    return refuses(task, NULL, 0, 0) ? NULL : wire->make->createInteger(task, number);
}

static void *make_nil(const redisReadTask *task)
{
    struct wire *wire = task->privdata;
    return refuses(task, NULL, 0, 0) ? NULL : wire->make->createNil(task);
}

/* Copy hiredis's error so that it fits into our sentences: "connection refused". */
static void note_error(char *error, size_t size, const redisContext *context)
{
    if (error[0] != '\0' || context->err == 0)
        return;
    snprintf(error, size, "%s", context->errstr);
    if (isupper((unsigned char)error[0]) && islower((unsigned char)error[1]))
        error[0] = (char)tolower((unsigned char)error[0]);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct wire *wire = poll->data;

    /* Where there is a status, libuv has stopped watching, and the error waits on the socket. */
    if (wire->redis != NULL && (status < 0 || (events & UV_READABLE) != 0))
        redisAsyncHandleRead(wire->redis);
    if (wire->redis != NULL && status == 0 && (events & UV_WRITABLE) != 0)
        redisAsyncHandleWrite(wire->redis);
    if (wire->redis == NULL)
        return;
    if (status < 0)
        snprintf(wire->error, sizeof wire->error, "%s", uv_strerror(status));
    else if (wire->redis->c.reader->len > UNREAD_BYTES_MAX)
        snprintf(wire->error, sizeof wire->error, "a reply without end");
    else
        return;
    uv_poll_stop(&wire->poll);
    wire->events->broken(wire->context);
}

static void watch(struct wire *wire, int events)
{
    if (events == wire->polled)
        return;
    wire->polled = events;
    if (events == 0)
        uv_poll_stop(&wire->poll);
    else
        check(uv_poll_start(&wire->poll, events, on_poll) == 0);
}

static void add_read(void *data)
{
    struct wire *wire = data;
    watch(wire, wire->polled | UV_READABLE);
}

static void del_read(void *data)
{
    struct wire *wire = data;
    watch(wire, wire->polled & ~UV_READABLE);
}

static void add_write(void *data)
{
    struct wire *wire = data;
    watch(wire, wire->polled | UV_WRITABLE);
}

static void del_write(void *data)
{
    struct wire *wire = data;
    watch(wire, wire->polled & ~UV_WRITABLE);
}

static void on_closed(uv_handle_t *handle)
{
    struct wire *wire = handle->data;
    const struct wire_events *events = wire->events;
    void *context = wire->context;

    free(wire);
    events->closed(context);
}

static void cleanup(void *data)
{
    struct wire *wire = data;

    note_error(wire->error, sizeof wire->error, &wire->redis->c);
    wire->events->gone(wire->context);
    wire->redis = NULL;
    uv_close((uv_handle_t *)&wire->poll, on_closed); /* before hiredis closes the socket */
}

static void on_connect(const redisAsyncContext *redis, int status)
{
    struct wire *wire = redis->data;

    if (status == REDIS_OK)
        wire->events->connected(wire->context);
    /* Else `cleanup` follows. */
}

static void on_reply(redisAsyncContext *redis, void *reply, void *request)
{
    struct wire *wire = redis->data;

    if (reply == NULL)
        note_error(wire->error, sizeof wire->error, &redis->c);
    wire->events->reply(wire->context, request, reply);
}

static void guard_reader(struct wire *wire)
{
    redisReader *reader = wire->redis->c.reader;

    wire->make = reader->fn;
    wire->reader = (redisReplyObjectFunctions){make_string, make_array, make_integer, make_nil,
                                               reader->fn->freeObject};
    reader->fn = &wire->reader;
    reader->privdata = wire;
}

struct wire *wire_open(struct uv_loop_s *loop, const char *address, int port,
                       const struct wire_events *events, void *context, char *why, size_t why_size)
{
    redisAsyncContext *redis =
        port == 0 ? redisAsyncConnectUnix(address) : redisAsyncConnect(address, port);
    check(redis != NULL);
    if (redis->err != 0) {
        why[0] = '\0';
        note_error(why, why_size, &redis->c);
        redisAsyncFree(redis);
        return NULL;
    }

    struct wire *wire = mem_zalloc(sizeof *wire);
    int status = uv_poll_init(loop, &wire->poll, redis->c.fd);
    if (status != 0) {
        snprintf(why, why_size, "%s", uv_strerror(status));
        redisAsyncFree(redis);
        free(wire);
        return NULL;
    }
    (void)fcntl(redis->c.fd, F_SETFD, FD_CLOEXEC);
    if (port != 0)
        (void)redisEnableKeepAlive(&redis->c);
    wire->poll.data = wire;
    wire->redis = redis;
    wire->events = events;
    wire->context = context;
    guard_reader(wire);
    redis->data = redis->ev.data = wire;
    redis->ev.addRead = add_read;
    redis->ev.delRead = del_read;
    redis->ev.addWrite = add_write;
    redis->ev.delWrite = del_write;
    redis->ev.cleanup = cleanup;
    check(redisAsyncSetConnectCallback(redis, on_connect) == REDIS_OK);
    return wire;
}

void wire_send(struct wire *wire, void *request, int argc, const char **argv, const size_t *lens)
{
    wire->replies_expected++;
    check(redisAsyncCommandArgv(wire->redis, on_reply, request, argc, argv, lens) == REDIS_OK);
}

void wire_listen(struct wire *wire, void *request, const char *channel)
{
    const char *argv[] = {"SUBSCRIBE", channel};
    const size_t lens[] = {strlen(argv[0]), strlen(channel)};

    wire->channel = channel;
    check(redisAsyncCommandArgv(wire->redis, on_reply, request, 2, argv, lens) == REDIS_OK);
}

bool wire_refused(const struct wire *wire)
{
    return wire->refused;
}

const char *wire_error(const struct wire *wire)
{
    return wire->error;
}

void wire_free(struct wire *wire)
{
    redisAsyncFree(wire->redis);
}
