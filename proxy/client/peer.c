/* SPDX-License-Identifier: Apache-2.0 */
/* Requests out, replies in, on one connection. */
#include "proxy/client/peer.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/client/embedded.h"
#include "proxy/client/own.h"
#include "proxy/resp/resp.h"

void ask_begin(struct buf *out, size_t argc)
{
    resp_array(out, argc);
}

void ask_word(struct buf *out, struct bytes arg)
{
    resp_bulk(out, arg);
}

void ask_text(struct buf *out, const char *arg)
{
    resp_bulk_text(out, arg);
}

void ask_int(struct buf *out, int64_t arg)
{
    resp_bulk_int(out, arg);
}

/* The error codes that a daemon may reply with, by their first word. */
static const struct {
    const char *code;
    enum stk_error error;
} codes[] = {
#define X(name, code, text) {code, STK_##name},
    STK_ERROR_MAP(X)
#undef X
};

enum stk_error reply_code(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return STK_OK;
    size_t len = strcspn(reply->str, " ");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strlen(codes[i].code) == len && memcmp(codes[i].code, reply->str, len) == 0)
            return codes[i].error;
    return STK_ERR;
}

enum stk_error reply_error(const redisReply *reply)
{
    enum stk_error error = reply_code(reply);

    if (error == STK_OK)
        return STK_OK;
    /* Without the code's word, which the caller gets as a number; "ERR" also stands for others'. */
    const char *text = strchr(reply->str, ' ');
    bool ours = strncmp(reply->str, stk_error_code(error), strlen(stk_error_code(error))) == 0;
    return fail(error, "%s", text != NULL && ours ? text + 1 : reply->str);
}

bool reply_is_int(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_INTEGER;
}

enum stk_error reply_strange(const char *command)
{
    return fail(STK_PROTOCOL, "the reply to %s makes no sense: is it a Stockade?", command);
}

enum moved peer_send(struct peer *peer, struct bytes data, int64_t deadline_ms, size_t *sent)
{
    return peer->transport->impl->send(peer->transport, data, deadline_ms, sent);
}

enum moved peer_receive(struct peer *peer, int64_t deadline_ms, redisReply **reply)
{
    for (;;) {
        void *got = NULL;
        if (redisReaderGetReply(peer->reader, &got) != REDIS_OK) {
            memcpy(peer->transport->why, peer->reader->errstr, sizeof peer->reader->errstr);
            return MOVED_BROKEN;
        }
        if (got != NULL) {
            peer->used = true;
            *reply = got;
            return MOVED;
        }
        enum moved moved = peer->transport->impl->receive(peer->transport, &peer->in, deadline_ms);
        if (moved != MOVED)
            return moved;
        check(redisReaderFeed(peer->reader, peer->in.data, peer->in.len) == REDIS_OK);
        buf_clear(&peer->in);
    }
}

/* AUTH [user] password */
static enum stk_error authenticate(struct peer *peer, const struct target *target,
                                   int64_t deadline_ms)
{
    struct buf request = {0};
    redisReply *reply = NULL;
    size_t sent = 0;

    ask_begin(&request, target->login.user[0] != '\0' ? 3 : 2);
    ask_text(&request, "AUTH");
    if (target->login.user[0] != '\0')
        ask_text(&request, target->login.user);
    ask_text(&request, target->login.password);
    enum moved moved = peer_send(peer, buf_bytes(&request), deadline_ms, &sent);
    if (moved == MOVED)
        moved = peer_receive(peer, deadline_ms, &reply);
    buf_free(&request);
    if (moved != MOVED)
        return moved == MOVED_BROKEN
                   ? fail(STK_UNREACHABLE, "the connection broke: %s", peer->transport->why)
                   : fail(STK_TIMEOUT, "no answer to AUTH in time");
    enum stk_error error = reply_error(reply);
    freeReplyObject(reply);
    return error;
}

struct peer *peer_open(const struct target *target, struct embedded *embedded, int64_t deadline_ms,
                       int wake_fd, enum stk_error *error)
{
    struct transport *transport = embedded != NULL
                                      ? embedded_connect(embedded, error)
                                      : socket_open(target, deadline_ms, wake_fd, error);
    if (transport == NULL)
        return NULL;
    struct peer *peer = mem_zalloc(sizeof *peer);
    list_init(&peer->link);
    peer->transport = transport;
    peer->reader = redisReaderCreate();
    check(peer->reader != NULL);
    if (embedded == NULL && target->login.password[0] != '\0')
        *error = authenticate(peer, target, deadline_ms);
    else
        *error = STK_OK;
    peer->used = false;
    if (*error == STK_OK)
        return peer;
    peer_close(peer);
    return NULL;
}

void peer_close(struct peer *peer)
{
    list_remove(&peer->link);
    peer->transport->impl->close(peer->transport);
    redisReaderFree(peer->reader);
    buf_free(&peer->in);
    free(peer);
}
