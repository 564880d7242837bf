/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting, calling and leases. A socket timeout bounds every wait; after one has struck, hiredis
 * marks the context, and so each later call fails at once. */
#include "tools/client.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/bytes.h"
#include "fence/base/check.h"
#include "proxy/client/target.h"

enum { REDIS_PORT = 6379 };
enum { CONNECT_LIMIT_MS = 2000, WRITE_TTL_MS = 10000, WRITE_WAIT_MS = 3000, DB_MAX = 1 << 20 };

static struct timeval timeval_of(int64_t ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
}

/* What follows "redis://". A password may have any character: the last @ is before the host. */
static bool parse_tcp(struct client_uri *uri, const char *rest)
{
    struct uri_reader reader = {.at = rest};
    const char *at_sign = strrchr(rest, '@');

    return (at_sign == NULL || uri_take_login(&reader, at_sign, &uri->login)) &&
           uri_take_host(&reader, REDIS_PORT, &uri->host) &&
           (!uri_skip(&reader, "/") || *reader.at == '\0' ||
            uri_take_number(&reader, strlen(reader.at), 0, DB_MAX, &uri->db, "database")) &&
           *reader.at == '\0';
}

/* A daemon's URI is what the library takes. */
static bool parse_stockade(struct client_uri *uri, const char *text)
{
    struct target target;
    char why[256];

    if (!target_parse(text, &target, why, sizeof why) || target.kind == TARGET_EMBEDDED)
        return false;
    uri->is_unix = target.kind == TARGET_UNIX;
    text_print(uri->path, sizeof uri->path, "%s", target.path);
    uri->host = target.host;
    uri->login = target.login;
    return true;
}

static bool parse_unix(struct client_uri *uri, const char *path)
{
    uri->is_unix = true;
    text_print(uri->path, sizeof uri->path, "%s", path);
    return path[0] != '\0' && strlen(path) < sizeof uri->path;
}

bool client_uri_parse(struct client_uri *uri, const char *scheme, const char *text,
                      struct failure *failure)
{
    const char *tcp = uri_after(text, "redis://"), *path = uri_after(text, "redis+unix:");
    bool good;

    *uri = (struct client_uri){.is_unix = false};
    text_print(uri->text, sizeof uri->text, "%s", text);
    if (strcmp(scheme, "redis") != 0)
        good = parse_stockade(uri, text);
    else
        good = tcp != NULL ? parse_tcp(uri, tcp) : path != NULL && parse_unix(uri, path);
    if (!good || strlen(text) >= sizeof uri->text) {
        struct buf shown = {0};
        uri_append_masked(&shown, text);
        (void)failure_set(failure,
                          "takes %s://[user:password@]host[:port] or %s+unix:PATH, not \"%.*s\"",
                          scheme, scheme, BYTES_CUT(shown, 200));
        buf_free(&shown);
        return false;
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
    const struct uri_host *host = &uri->host;
    const struct uri_login *login = &uri->login;
    char doing[300];

    *client = (struct client){.context = NULL};
    if (uri->is_unix) {
        (void)snprintf(doing, sizeof doing, "cannot connect to %s", uri->path);
        client->context = redisConnectUnixWithTimeout(uri->path, limit);
    } else {
        (void)snprintf(doing, sizeof doing, "cannot connect to %s:%d", host->name, host->port);
        client->context = redisConnectWithTimeout(host->name, host->port, limit);
    }
    if (client->context == NULL || client->context->err != 0 ||
        !client_limit(client, CLIENT_LIMIT_MS)) {
        (void)client_lost(client, doing);
        client_close(client);
        return false;
    }
    bool ready = true;
    if (login->password[0] != '\0' && login->user[0] != '\0')
        ready = client_do(client, "AUTH %s %s", login->user, login->password);
    else if (login->password[0] != '\0')
        ready = client_do(client, "AUTH %s", login->password);
    if (ready && uri->db != 0)
        ready = client_do(client, "SELECT %d", uri->db);
    if (!ready)
        client_close(client);
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
    if (good && reply->type == REDIS_REPLY_ERROR)
        good = failure_set(&client->failure, "the server refused: %s", reply->str);
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

enum acquire_reply lease_of(const redisReply *reply, struct lease *lease)
{
    if (reply->type == REDIS_REPLY_NIL)
        return ACQUIRE_HELD;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
        client_to_int64(reply->element[0], &lease->token) &&
        client_to_int64(reply->element[1], &lease->ttl_ms))
        return ACQUIRE_GRANTED;
    return ACQUIRE_REFUSED;
}

bool lease_released(const redisReply *reply)
{
    return reply != NULL && (reply->type != REDIS_REPLY_ERROR || client_is_error(reply, "STALE") ||
                             client_is_error(reply, "BUSY"));
}

bool lease_taken(struct client *client, const char *key, redisReply *reply, struct lease *lease)
{
    if (reply == NULL)
        return false;
    enum acquire_reply answer = lease_of(reply, lease);
    if (answer != ACQUIRE_GRANTED)
        (void)failure_set(&client->failure, "no lease on %s: %s", key,
                          answer == ACQUIRE_HELD ? "another holds it" : client_text(reply));
    freeReplyObject(reply);
    return answer == ACQUIRE_GRANTED;
}

bool lease_write(struct client *client, const char *command, const char *key, const char *value)
{
    struct lease lease = {.token = 0};
    redisReply *reply =
        client_call(client, "ACQUIRE %s %d WAIT %d", key, WRITE_TTL_MS, WRITE_WAIT_MS);

    if (!lease_taken(client, key, reply, &lease))
        return false;
    bool written =
        value == NULL ? client_do(client, "FENCED %lld %s %s", (long long)lease.token, command, key)
                      : client_do(client, "FENCED %lld %s %s %s", (long long)lease.token, command,
                                  key, value);
    return written && client_do(client, "RELEASE %s %lld", key, (long long)lease.token);
}
