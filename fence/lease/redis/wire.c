/* SPDX-License-Identifier: Apache-2.0 */
/* A socket that libuv watches, TLS where it is asked for, and hiredis's reader:
 *
 *   wire_send ──▶ out ─────────────[ TLS ]──▶ sealed ──▶ socket
 *   reply ◀── hiredis's reader ◀──[ TLS ]◀── plain  ◀── socket
 *
 * The other side may be no Redis at all. So a reply that nobody asked for, a message of another
 * form than usual, an array of too many elements, and a reply that never ends each end the wire. */
#include "fence/lease/redis/wire.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/base/plain.h"

#define READ_SIZE          (16 * 1024)
#define UNREAD_BYTES_MAX   (1024 * 1024) /* of a string or a number that is not complete */
#define REPLY_BYTES_MAX    (16 * 1024 * 1024)
#define ARRAY_ELEMENTS_MAX 16384 /* CLUSTER SLOTS: one for each slot at most */
#define READS_AT_END       64

struct wire {
    uv_poll_t poll;
    int fd, polled; /* UV_READABLE | UV_WRITABLE */
    bool connected, gone;
    struct tls *tls;                 /* NULL: plain, or not connected yet */
    struct tls_context *tls_context; /* for when it is connected; shared; NULL: plain */
    char *tls_name;
    struct buf out, sealed; /* to be sent; `sealed` comes first and is what TLS has made of it */
    redisReader *reader;
    size_t reply_bytes;                  /* that have come of a reply which is not complete */
    redisReplyObjectFunctions functions; /* hiredis's, but for arrays: */
    void *(*make_array)(const redisReadTask *task, int elements); /* hiredis's */
    struct buf asked;    /* void *: the requests without a reply, the oldest first, ... */
    size_t asked_first;  /* ... from here on (in bytes) */
    const char *channel; /* listening; or NULL */
    void *listener;      /* wire_listen's request */
    bool refused;        /* there was an error reply */
    const struct wire_events *events;
    void *context;
    char error[TLS_WHY_MAX];
};

/* The end. */

/* Keep the first error, in lower case so that it fits into our sentences: "connection refused". */
static void note_error(struct wire *wire, const char *error)
{
    if (wire->error[0] != '\0')
        return;
    text_print(wire->error, sizeof wire->error, "%s", error);
    if (plain_is_upper(wire->error[0]) && plain_is_lower(wire->error[1]))
        wire->error[0] = plain_lower(wire->error[0]);
}

static void on_closed(uv_handle_t *handle)
{
    struct wire *wire = handle->data;
    const struct wire_events *events = wire->events;
    void *context = wire->context;

    tls_free(wire->tls);
    tls_context_free(wire->tls_context);
    free(wire->tls_name);
    redisReaderFree(wire->reader);
    buf_free(&wire->out);
    buf_free(&wire->sealed);
    buf_free(&wire->asked);
    free(wire);
    events->closed(context);
}

static bool take_asked(struct wire *wire, void **request)
{
    if (wire->asked_first == wire->asked.len)
        return false;
    memcpy(request, wire->asked.data + wire->asked_first, sizeof *request);
    wire->asked_first += sizeof *request;
    if (wire->asked_first == wire->asked.len || wire->asked_first > READ_SIZE) {
        buf_consume(&wire->asked, wire->asked_first);
        wire->asked_first = 0;
    }
    return true;
}

/* Report the end to every request and the owner, once, and close the socket. */
static void end(struct wire *wire, const char *error)
{
    void *request;

    if (wire->gone)
        return;
    wire->gone = true;
    note_error(wire, error);
    while (take_asked(wire, &request))
        wire->events->reply(wire->context, request, NULL);
    if (wire->channel != NULL)
        wire->events->reply(wire->context, wire->listener, NULL);
    wire->events->gone(wire->context);
    if (wire->tls != NULL) { /* the last word, if there is room for it */
        tls_end(wire->tls, &wire->sealed);
        if (wire->sealed.len > 0)
            (void)send(wire->fd, wire->sealed.data, wire->sealed.len, MSG_NOSIGNAL);
    }
    uv_close((uv_handle_t *)&wire->poll, on_closed);
    close(wire->fd);
}

/* Replies. */

static bool is_text(const redisReply *reply, const char *text)
{
    return reply->type == REDIS_REPLY_STRING && reply->len == strlen(text) &&
           memcmp(reply->str, text, reply->len) == 0;
}

static bool is_message(const struct wire *wire, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3)
        return false;
    const redisReply *word = reply->element[0], *last = reply->element[2];
    return (is_text(word, "message") || is_text(word, "subscribe")) &&
           is_text(reply->element[1], wire->channel) &&
           (last->type == REDIS_REPLY_STRING || last->type == REDIS_REPLY_INTEGER);
}

static void deliver(struct wire *wire, const redisReply *reply)
{
    void *request;

    wire->refused |= reply->type == REDIS_REPLY_ERROR;
    if (take_asked(wire, &request))
        wire->events->reply(wire->context, request, reply);
    else if (wire->channel != NULL && is_message(wire, reply))
        wire->events->reply(wire->context, wire->listener, reply);
    else if (reply->type == REDIS_REPLY_ERROR) /* "max number of clients reached" */
        end(wire, reply->str);
    else
        end(wire, "a reply that nobody asked for (is it Redis?)");
}

/* NULL makes hiredis end the reading. */
static void *make_array(const redisReadTask *task, int elements)
{
    struct wire *wire = task->privdata;
    char error[48];

    if (elements <= ARRAY_ELEMENTS_MAX)
        return wire->make_array(task, elements);
    snprintf(error, sizeof error, "an array of %d elements", elements);
    note_error(wire, error);
    return NULL;
}

static void read_replies(struct wire *wire, struct bytes arrived)
{
    void *reply = NULL;

    if (arrived.len == 0)
        return;
    wire->reply_bytes += arrived.len;
    int status = redisReaderFeed(wire->reader, arrived.data, arrived.len);
    while (status == REDIS_OK && !wire->gone) {
        status = redisReaderGetReply(wire->reader, &reply);
        if (status != REDIS_OK || reply == NULL)
            break;
        wire->reply_bytes = 0;
        deliver(wire, reply);
        freeReplyObject(reply);
    }
    if (status != REDIS_OK)
        end(wire, wire->reader->errstr);
    else if (wire->reader->len > UNREAD_BYTES_MAX || wire->reply_bytes > REPLY_BYTES_MAX)
        end(wire, "a reply without end");
}

/* The socket. */

static void on_poll(uv_poll_t *poll, int status, int events);

static void watch(struct wire *wire, int events)
{
    if (wire->gone || events == wire->polled)
        return;
    wire->polled = events;
    check(uv_poll_start(&wire->poll, events, on_poll) == 0);
}

/* Ask for an event where there is something to send. */
static void watch_for_more(struct wire *wire)
{
    watch(wire, wire->out.len + wire->sealed.len > 0 ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

static void become_connected(struct wire *wire)
{
    wire->connected = true;
    wire->events->connected(wire->context);
}

static void take_sealed(struct wire *wire, struct bytes arrived)
{
    struct buf plain = {0};
    enum tls_state state = tls_receive(wire->tls, arrived, &plain, &wire->sealed);

    if (!wire->connected && (state == TLS_OPEN || state == TLS_ENDED))
        become_connected(wire);
    read_replies(wire, buf_bytes(&plain));
    buf_free(&plain);
    if (state == TLS_FAILED)
        end(wire, tls_why(wire->tls));
    else if (state == TLS_ENDED)
        end(wire, "server closed the connection");
}

/* False: nothing has come. */
static bool receive(struct wire *wire)
{
    char buffer[READ_SIZE];
    ssize_t len = recv(wire->fd, buffer, sizeof buffer, 0);
    struct bytes arrived = {buffer, len > 0 ? (size_t)len : 0};

    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (len < 0)
        end(wire, plain_errno(errno));
    else if (len == 0)
        end(wire, wire->connected ? "server closed the connection"
                                  : "server closed the connection in the TLS handshake");
    else if (wire->tls != NULL)
        take_sealed(wire, arrived);
    else
        read_replies(wire, arrived);
    return true;
}

/* The socket has failed. What came before that is read first: it may say why, as an alert of TLS
 * does, or "max number of clients reached". */
static void end_failed(struct wire *wire, const char *error)
{
    for (int i = 0; i < READS_AT_END && !wire->gone && (wire->connected || wire->tls != NULL); i++)
        if (!receive(wire))
            break;
    end(wire, error);
}

static void transmit(struct wire *wire)
{
    struct buf *from = &wire->out;

    if (wire->tls != NULL) {
        from = &wire->sealed;
        if (wire->connected)
            tls_send(wire->tls, buf_bytes(&wire->out), &wire->sealed);
        buf_clear(&wire->out);
        if (tls_state(wire->tls) == TLS_FAILED) {
            end(wire, tls_why(wire->tls));
            return;
        }
    }
    if (from->len == 0)
        return;
    ssize_t len = send(wire->fd, from->data, from->len, MSG_NOSIGNAL);
    if (len < 0 && errno != EAGAIN && errno != EINTR)
        end_failed(wire, plain_errno(errno));
    else if (len > 0)
        buf_consume(from, (size_t)len);
}

/* The socket is connected, or is not and never will be. */
static void finish_connect(struct wire *wire)
{
    int error = 0;
    socklen_t size = sizeof error;

    if (getsockopt(wire->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error != 0) {
        end(wire, plain_errno(error));
    } else if (wire->tls_context == NULL) {
        become_connected(wire);
    } else {
        wire->tls = tls_open(wire->tls_context, wire->tls_name);
        take_sealed(wire, (struct bytes){0});
    }
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct wire *wire = poll->data;

    if (status < 0) { /* libuv has stopped watching; where the socket knows why, that is better */
        int error = 0;
        socklen_t size = sizeof error;
        bool known = getsockopt(wire->fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error != 0;
        end_failed(wire, known ? plain_errno(error) : uv_strerror(status));
        return;
    }
    if (!wire->connected && wire->tls == NULL) {
        finish_connect(wire);
    } else {
        if (events & UV_READABLE)
            receive(wire);
        if ((events & UV_WRITABLE) && !wire->gone)
            transmit(wire);
    }
    watch_for_more(wire);
}

/* A socket on its way to the target; -1: errno says why. */
static int begin_connect(const struct wire_target *target)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    const struct sockaddr *address = (const struct sockaddr *)&path;
    socklen_t len = sizeof path;
    int on = 1;

    if (target->port == 0)
        text_print(path.sun_path, sizeof path.sun_path, "%s", target->address);
    else if (uv_ip4_addr(target->address, target->port, &v4) == 0)
        address = (const struct sockaddr *)&v4, len = sizeof v4;
    else if (uv_ip6_addr(target->address, target->port, &v6) == 0)
        address = (const struct sockaddr *)&v6, len = sizeof v6;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (target->port != 0) { /* where these fail, so does the rest */
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    }
    if (connect(fd, address, len) == 0 || errno == EINPROGRESS)
        return fd;
    int failed = errno;
    close(fd);
    errno = failed;
    return -1;
}

static void make_reader(struct wire *wire)
{
    wire->reader = redisReaderCreate();
    check(wire->reader != NULL);
    wire->functions = *wire->reader->fn;
    wire->make_array = wire->functions.createArray;
    wire->functions.createArray = make_array;
    wire->reader->fn = &wire->functions;
    wire->reader->privdata = wire;
}

struct wire *wire_open(struct uv_loop_s *loop, const struct wire_target *target,
                       const struct wire_events *events, void *context, char *why, size_t why_size)
{
    struct wire *wire = mem_zalloc(sizeof *wire);
    int status = 0;

    wire->fd = begin_connect(target);
    if (wire->fd < 0)
        note_error(wire, plain_errno(errno));
    else if ((status = uv_poll_init(loop, &wire->poll, wire->fd)) != 0)
        note_error(wire, uv_strerror(status));
    if (wire->fd < 0 || status != 0) {
        text_print(why, why_size, "%s", wire->error);
        if (wire->fd >= 0)
            close(wire->fd);
        free(wire);
        return NULL;
    }
    wire->poll.data = wire;
    if (target->tls != NULL) {
        wire->tls_context = tls_context_share(target->tls);
        wire->tls_name = mem_strdup(target->tls_name);
    }
    wire->events = events;
    wire->context = context;
    make_reader(wire);
    watch(wire, UV_WRITABLE);
    return wire;
}

/* The interface. */

static void format(struct wire *wire, int argc, const char **argv, const size_t *lens)
{
    char *command;
    int len = redisFormatCommandArgv(&command, argc, argv, lens);

    check(len > 0 && wire->connected && !wire->gone);
    buf_append(&wire->out, command, (size_t)len);
    redisFreeCommand(command);
    watch_for_more(wire);
}

void wire_send(struct wire *wire, void *request, int argc, const char **argv, const size_t *lens)
{
    buf_append(&wire->asked, &request, sizeof request);
    format(wire, argc, argv, lens);
}

void wire_listen(struct wire *wire, void *request, const char *channel)
{
    const char *argv[] = {"SUBSCRIBE", channel};
    const size_t lens[] = {strlen(argv[0]), strlen(channel)};

    wire->channel = channel;
    wire->listener = request;
    format(wire, 2, argv, lens);
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
    end(wire, "");
}
