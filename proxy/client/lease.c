/* SPDX-License-Identifier: Apache-2.0 */
/* The handle: what it says of itself, and how it ends. How it begins: acquire.c. */
#include "proxy/client/lease.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/client/export.h"

static int64_t margin_ms(int64_t ttl_ms)
{
    return ttl_ms / 100 + 2;
}

enum stk_error handle_check(const stk_lease *lease)
{
    if (lease == NULL || lease->client == NULL)
        return fail(STK_MISUSE,
                    lease == NULL ? "the lease is NULL" : "the client of this lease is closed");
    return client_check(lease->client);
}

void handle_extend(stk_lease *lease, int64_t asked_ms, int64_t ttl_ms, int64_t told_ms)
{
    int64_t good_ms = told_ms < ttl_ms ? told_ms : ttl_ms;

    lease->ttl_ms = ttl_ms;
    lease->until_ms = asked_ms + good_ms - margin_ms(good_ms);
    lease->renew_ms = asked_ms + good_ms / 3;
}

void handle_compose_renewal(const stk_lease *lease, int64_t ttl_ms, bool notify, struct buf *out)
{
    for (size_t i = 0; i < lease->count; i++) {
        ask_begin(out, notify ? 5 : 4);
        ask_text(out, "RENEW");
        ask_text(out, lease->holds[i].resource);
        ask_int(out, lease->holds[i].token);
        ask_int(out, ttl_ms);
        if (notify)
            ask_text(out, "NOTIFY");
    }
}

void handle_is_stale(stk_lease *lease)
{
    pthread_mutex_lock(&lease->client->lock);
    if (lease->state == STATE_LIVE) {
        lease->state = STATE_LOST;
        lease->why = STK_STALE;
        keepalive_look(lease);
    }
    pthread_mutex_unlock(&lease->client->lock);
}

/* The client's lock, of a handle that is only looked at. NULL: the client is closed or not ours. */
static pthread_mutex_t *lock_of(const stk_lease *lease)
{
    if (handle_check(lease) != STK_OK)
        return NULL;
    pthread_mutex_lock(&lease->client->lock);
    return &lease->client->lock;
}

EXPORT int64_t stk_lease_left_ms(const stk_lease *lease)
{
    pthread_mutex_t *lock = lock_of(lease);

    if (lock == NULL)
        return 0;
    int64_t left_ms = lease->state == STATE_LIVE ? lease->until_ms - now_ms() : 0;
    /* The connection that an ephemeral one ends with. */
    if (left_ms > 0 && lease->peer != NULL &&
        lease->peer->transport->impl->is_broken(lease->peer->transport))
        left_ms = 0;
    pthread_mutex_unlock(lock);
    return left_ms > 0 ? left_ms : 0;
}

EXPORT bool stk_lease_valid(const stk_lease *lease)
{
    return stk_lease_left_ms(lease) > 0;
}

EXPORT int64_t stk_lease_token(const stk_lease *lease, const char *resource)
{
    for (size_t i = 0; lease != NULL && i < lease->count; i++)
        if (resource == NULL || strcmp(lease->holds[i].resource, resource) == 0)
            return lease->holds[i].token;
    return 0;
}

EXPORT enum stk_error stk_lease_adopt(stk_lease *lease)
{
    enum stk_error error = handle_check(lease);

    if (error != STK_OK)
        return error;
    pthread_mutex_lock(&lease->client->lock);
    lease->owner = thread_mark_own();
    pthread_mutex_unlock(&lease->client->lock);
    return STK_OK;
}

/* The first error among the replies; `only_int`: what is no number is one. */
static enum stk_error first_error(const struct call *call, const char *command)
{
    for (size_t i = 0; i < call->replies_count; i++) {
        enum stk_error error = reply_error(call->replies[i]);
        if (error == STK_OK && !reply_is_int(call->replies[i]))
            error = reply_strange(command);
        if (error != STK_OK)
            return error;
    }
    return STK_OK;
}

/* The least that the replies tell. */
static int64_t told_ms(const struct call *call, int64_t ttl_ms)
{
    for (size_t i = 0; i < call->replies_count; i++)
        if (call->replies[i]->integer < ttl_ms)
            ttl_ms = call->replies[i]->integer;
    return ttl_ms;
}

enum stk_error handle_renew(stk_lease *lease, int64_t ttl_ms, int64_t deadline_ms)
{
    enum stk_error error;

    pthread_mutex_lock(&lease->client->lock);
    enum lease_state state = lease->state;
    if (ttl_ms == 0)
        ttl_ms = lease->ttl_ms;
    pthread_mutex_unlock(&lease->client->lock);
    if (state != STATE_LIVE)
        return state == STATE_RELEASED ? fail(STK_RELEASED, NULL)
                                       : fail(STK_STALE, "this lease was lost");
    struct call call = {.client = lease->client,
                        .replies_count = lease->count,
                        .repeatable = true,
                        .deadline_ms = deadline_ms};
    handle_compose_renewal(lease, ttl_ms, false, &call.request);
    error = call_run(&call);
    if (error == STK_OK)
        error = first_error(&call, "RENEW");
    pthread_mutex_lock(&lease->client->lock);
    if (error == STK_OK && lease->state == STATE_LIVE) {
        handle_extend(lease, call.asked_ms, ttl_ms, told_ms(&call, ttl_ms));
        keepalive_look(lease);
    } else if (error == STK_STALE || error == STK_UNKNOWN) { /* the caller knows; no `lost` */
        keepalive_forget(lease);
        lease->state = STATE_LOST;
    }
    pthread_mutex_unlock(&lease->client->lock);
    call_end(&call);
    return error;
}

EXPORT enum stk_error stk_renew(stk_lease *lease, int64_t ttl_ms)
{
    enum stk_error error = handle_check(lease);
    return error != STK_OK ? error
                           : handle_renew(lease, ttl_ms, now_ms() + lease->client->timeout_ms);
}

/* RELEASE for each, under one ID: an ID is a resource's. */
static enum stk_error give_back(stk_lease *lease)
{
    char id[ID_LEN + 1];
    struct call call = {.client = lease->client,
                        .replies_count = lease->count,
                        .repeatable = true,
                        .changes = true,
                        .deadline_ms = now_ms() + lease->client->timeout_ms};

    id_make(id);
    for (size_t i = 0; i < lease->count; i++) {
        ask_begin(&call.request, 5);
        ask_text(&call.request, "RELEASE");
        ask_text(&call.request, lease->holds[i].resource);
        ask_int(&call.request, lease->holds[i].token);
        ask_text(&call.request, "ID");
        ask_text(&call.request, id);
    }
    enum stk_error error = call_run(&call);
    if (error == STK_OK)
        error = first_error(&call, "RELEASE");
    call_end(&call);
    return error;
}

EXPORT enum stk_error stk_release(stk_lease *lease)
{
    enum stk_error error = handle_check(lease);

    if (error != STK_OK)
        return error;
    pthread_mutex_lock(&lease->client->lock);
    keepalive_forget(lease);
    bool again = lease->state == STATE_RELEASED;
    lease->state = STATE_RELEASED;
    pthread_mutex_unlock(&lease->client->lock);
    return again ? fail(STK_RELEASED, NULL) : give_back(lease);
}

EXPORT void stk_lease_free(stk_lease *lease)
{
    if (lease == NULL || (lease->client != NULL && client_check(lease->client) != STK_OK))
        return;
    if (lease->client != NULL) {
        pthread_mutex_lock(&lease->client->lock);
        keepalive_forget(lease);
        keepalive_await(lease);
        list_remove(&lease->link);
        pthread_mutex_unlock(&lease->client->lock);
    }
    if (lease->peer != NULL)
        peer_close(lease->peer);
    for (size_t i = 0; i < lease->count; i++)
        free(lease->holds[i].resource);
    free(lease->holds);
    free(lease);
}
