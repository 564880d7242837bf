/* SPDX-License-Identifier: Apache-2.0 */
/* A hiredis context that is not in blocking mode. */
#include "tools/lock/link.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "fence/base/check.h"

static enum link_got link_lost(struct link *link, const char *why)
{
    (void)failure_set(&link->failure, "%s", why);
    link_close(link);
    return LINK_LOST;
}

bool link_open(struct link *link, const struct client_uri *uri)
{
    redisContext *context = uri->is_unix ? redisConnectUnixNonBlock(uri->path)
                                         : redisConnectNonBlock(uri->host.name, uri->host.port);

    *link = (struct link){.context = context, .connecting = true};
    check(context != NULL); /* out of memory */
    if (context->err != 0) {
        (void)link_lost(link, context->errstr);
        return false;
    }
    (void)fcntl(context->fd, F_SETFD, FD_CLOEXEC);
    if (uri->login.password[0] != '\0') {
        if (uri->login.user[0] != '\0') {
            link_send(link, "AUTH %s %s", uri->login.user, uri->login.password);
        } else {
            link_send(link, "AUTH %s", uri->login.password);
        }
        link->greetings++;
    }
    if (uri->db != 0) {
        link_send(link, "SELECT %d", uri->db);
        link->greetings++;
    }
    return true;
}

void link_close(struct link *link)
{
    if (link->context != NULL) {
        redisFree(link->context);
        link->context = NULL;
    }
}

struct pollfd link_poll(const struct link *link)
{
    struct pollfd polled = {.fd = -1};

    if (link->context != NULL) {
        bool sends = link->connecting || sdslen(link->context->obuf) > 0;
        polled.fd = link->context->fd;
        polled.events = (short)(POLLIN | (sends ? POLLOUT : 0));
    }
    return polled;
}

void link_send(struct link *link, const char *format, ...)
{
    va_list args;

    check(link->context != NULL);
    va_start(args, format);
    check(redisvAppendCommand(link->context, format, args) == REDIS_OK);
    va_end(args);
}

/* Whether the connection is made by now; false with the link closed: it could not be. */
static bool link_connected(struct link *link)
{
    struct pollfd polled = {.fd = link->context->fd, .events = POLLOUT};
    socklen_t size = sizeof(int);
    int error = 0;

    if (poll(&polled, 1, 0) <= 0) {
        return false;
    }
    check(getsockopt(polled.fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0);
    if (error != 0) {
        (void)link_lost(link, strerror(error));
        return false;
    }
    link->connecting = false;
    return true;
}

/* The next whole reply that has been read already. */
static enum link_got link_take(struct link *link, redisReply **reply)
{
    for (;;) {
        void *next = NULL;

        if (redisGetReplyFromReader(link->context, &next) != REDIS_OK) {
            return link_lost(link, link->context->errstr);
        }
        *reply = next;
        if (next == NULL) {
            return LINK_NOTHING;
        }
        if (link->greetings == 0) {
            return LINK_REPLY;
        }
        link->greetings--;
        if ((*reply)->type == REDIS_REPLY_ERROR) {
            enum link_got lost = link_lost(link, (*reply)->str);
            freeReplyObject(*reply);
            return lost;
        }
        freeReplyObject(*reply);
    }
}

enum link_got link_turn(struct link *link, redisReply **reply)
{
    int done = 0;

    if (link->context == NULL) {
        return LINK_NOTHING;
    }
    if (link->connecting && !link_connected(link)) {
        return link->context == NULL ? LINK_LOST : LINK_NOTHING;
    }
    if (sdslen(link->context->obuf) > 0 && redisBufferWrite(link->context, &done) != REDIS_OK) {
        return link_lost(link, link->context->errstr);
    }
    enum link_got got = link_take(link, reply);
    if (got != LINK_NOTHING) {
        return got;
    }
    if (redisBufferRead(link->context) != REDIS_OK) {
        return link_lost(link, link->context->errstr);
    }
    return link_take(link, reply);
}

void link_pin(const struct link *link, struct client_uri *uri)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[sizeof uri->host.name];

    if (!uri->is_unix && getpeername(link->context->fd, (struct sockaddr *)&address, &size) == 0 &&
        getnameinfo((struct sockaddr *)&address, size, host, sizeof host, NULL, 0,
                    NI_NUMERICHOST) == 0) {
        (void)snprintf(uri->host.name, sizeof uri->host.name, "%s", host);
    }
}
