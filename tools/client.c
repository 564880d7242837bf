/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting and calling. A socket timeout bounds every wait; after one has struck, hiredis marks
 * the context, and so each later call fails at once. */
#include "tools/client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/bytes.h"
#include "fence/base/check.h"

enum { CONNECT_LIMIT_MS = 2000 };

static struct timeval timeval_of(int64_t ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
}

/* `length` bytes of text into a field; false where they do not fit or there are none. */
static bool field_set(char *field, size_t size, const char *text, size_t length)
{
    if (length == 0 || length >= size) {
        return false;
    }
    memcpy(field, text, length);
    field[length] = '\0';
    return true;
}

static bool uri_parse_number(const char *text, size_t length, int64_t max, int *number)
{
    int64_t value;

    if (!bytes_to_int64((struct bytes){text, length}, &value) || value < 0 || value > max) {
        return false;
    }
    *number = (int)value;
    return true;
}

/* What follows "scheme://". */
static bool uri_parse_tcp(struct client_uri *uri, const char *rest)
{
    const char *at = strrchr(rest, '@');
    const char *slash, *colon;
    size_t host_length;

    if (at != NULL) {
        const char *mark = memchr(rest, ':', (size_t)(at - rest));
        if (mark == NULL ||
            !field_set(uri->password, sizeof uri->password, mark + 1, (size_t)(at - mark - 1))) {
            return false;
        }
        if (mark > rest && !field_set(uri->user, sizeof uri->user, rest, (size_t)(mark - rest))) {
            return false;
        }
        rest = at + 1;
    }
    slash = strchr(rest, '/');
    if (slash != NULL && slash[1] != '\0' &&
        !uri_parse_number(slash + 1, strlen(slash + 1), 1 << 20, &uri->db)) {
        return false;
    }
    size_t length = slash != NULL ? (size_t)(slash - rest) : strlen(rest);
    colon = memrchr(rest, ':', length);
    if (colon == NULL ||
        !uri_parse_number(colon + 1, length - (size_t)(colon + 1 - rest), 65535, &uri->port)) {
        return false;
    }
    host_length = (size_t)(colon - rest);
    if (host_length > 2 && rest[0] == '[' && rest[host_length - 1] == ']') { /* IPv6 */
        rest++;
        host_length -= 2;
    }
    return uri->port > 0 && field_set(uri->host, sizeof uri->host, rest, host_length);
}

bool client_uri_parse(struct client_uri *uri, const char *scheme, const char *text,
                      struct failure *failure)
{
    size_t length = strlen(scheme);
    bool good = false;

    *uri = (struct client_uri){.port = 0};
    if (strncmp(text, scheme, length) == 0) {
        const char *rest = text + length;
        if (strncmp(rest, "://", 3) == 0) {
            good = uri_parse_tcp(uri, rest + 3);
        } else if (strncmp(rest, "+unix:", 6) == 0) {
            uri->is_unix = true;
            good = field_set(uri->path, sizeof uri->path, rest + 6, strlen(rest + 6));
        }
    }
    if (!good) {
        return failure_set(failure,
                           "takes %s://[user:password@]host:port or %s+unix:PATH, not \"%s\"",
                           scheme, scheme, text);
    }
    return true;
}

static bool client_lost(struct client *client, const char *doing)
{
    redisContext *context = client->context;
    const char *why = "out of memory";

    if (context != NULL) {
        bool timed_out = context->err == REDIS_ERR_IO && (errno == EAGAIN || errno == EWOULDBLOCK);
        why = timed_out ? "no answer in time" : context->errstr;
    }
    return failure_set(&client->failure, "%s: %s", doing, why);
}

bool client_open(struct client *client, const struct client_uri *uri)
{
    struct timeval limit = timeval_of(CONNECT_LIMIT_MS);
    char doing[300];

    *client = (struct client){.context = NULL};
    if (uri->is_unix) {
        (void)snprintf(doing, sizeof doing, "cannot connect to %s", uri->path);
        client->context = redisConnectUnixWithTimeout(uri->path, limit);
    } else {
        (void)snprintf(doing, sizeof doing, "cannot connect to %s:%d", uri->host, uri->port);
        client->context = redisConnectWithTimeout(uri->host, uri->port, limit);
    }
    if (client->context == NULL || client->context->err != 0 ||
        !client_limit(client, CLIENT_LIMIT_MS)) {
        (void)client_lost(client, doing);
        client_close(client);
        return false;
    }
    bool ready = true;
    if (uri->password[0] != '\0' && uri->user[0] != '\0') {
        ready = client_do(client, "AUTH %s %s", uri->user, uri->password);
    } else if (uri->password[0] != '\0') {
        ready = client_do(client, "AUTH %s", uri->password);
    }
    if (ready && uri->db != 0) {
        ready = client_do(client, "SELECT %d", uri->db);
    }
    if (!ready) {
        client_close(client);
    }
    return ready;
}

void client_close(struct client *client)
{
    if (client->context != NULL) {
        redisFree(client->context);
        client->context = NULL;
    }
}

bool client_limit(struct client *client, int64_t limit_ms)
{
    return redisSetTimeout(client->context, timeval_of(limit_ms)) == REDIS_OK ||
           client_lost(client, "cannot set a time limit");
}

redisReply *client_next(struct client *client)
{
    void *reply = NULL;

    if (redisGetReply(client->context, &reply) != REDIS_OK || reply == NULL) {
        (void)client_lost(client, "the connection was lost");
        return NULL;
    }
    return reply;
}

static void client_append_list(struct client *client, const char *format, va_list args)
{
    check(client->context != NULL);
    /* It fails for lack of memory, or for a format that is wrong: ours to get right. */
    check(redisvAppendCommand(client->context, format, args) == REDIS_OK);
}

void client_append(struct client *client, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    client_append_list(client, format, args);
    va_end(args);
}

redisReply *client_call(struct client *client, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    client_append_list(client, format, args);
    va_end(args);
    return client_next(client);
}

bool client_do(struct client *client, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    client_append_list(client, format, args);
    va_end(args);
    redisReply *reply = client_next(client);
    bool good = reply != NULL;
    if (good && reply->type == REDIS_REPLY_ERROR) {
        good = failure_set(&client->failure, "the server refused: %s", reply->str);
    }
    freeReplyObject(reply);
    return good;
}

bool client_is_error(const redisReply *reply, const char *code)
{
    size_t length = strlen(code);

    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, code, length) == 0 &&
           (reply->str[length] == ' ' || reply->str[length] == '\0');
}

bool client_to_int64(const redisReply *reply, int64_t *value)
{
    if (reply->type == REDIS_REPLY_INTEGER) {
        *value = reply->integer;
        return true;
    }
    return reply->type == REDIS_REPLY_STRING &&
           bytes_to_int64((struct bytes){reply->str, reply->len}, value);
}

const char *client_text(const redisReply *reply)
{
    switch (reply->type) {
    case REDIS_REPLY_NIL: return "nothing";
    case REDIS_REPLY_INTEGER: return "a number";
    case REDIS_REPLY_ARRAY: return "a list";
    default: return reply->str;
    }
}
