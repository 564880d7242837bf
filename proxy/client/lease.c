/* SPDX-License-Identifier: Apache-2.0 */
/* A lease from its acquire to its end.
 *
 * The request that acquires carries an ID, so that it can be repeated where the reply was lost. A
 * lease that was waited for is renewed at once: nobody knows how long ago it was granted, and its
 * time has to count from before a request. */
#include "proxy/client/lease.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/client/renewer.h"
#include "proxy/client/reply.h"
#include "proxy/resp/resp.h"
#include "store/txn.h"

enum { TTL_MS_MIN = 10, TTL_MS_MAX = 24 * 3600 * 1000, RESOURCES_MAX = 256 };

enum stk_error lease_check(const stk_lease *lease)
{
    if (lease == NULL || lease->client == NULL)
        return fail(STK_MISUSE,
                    lease == NULL ? "the lease is NULL" : "the client of this lease is closed");
    return client_check(lease->client);
}

/* Renewing. */

/* Return the first error among the replies. One that is no number is an error. */
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

/* Return the least time that the replies say is left. */
static int64_t remaining_ms(const struct call *call, int64_t ttl_ms)
{
    for (size_t i = 0; i < call->replies_count; i++)
        if (call->replies[i]->integer < ttl_ms)
            ttl_ms = call->replies[i]->integer;
    return ttl_ms;
}

static enum stk_error renew(stk_lease *lease, int64_t ttl_ms, int64_t deadline_ms)
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
    lease_compose_renewal(lease, ttl_ms, false, &call.request);
    error = call_run(&call);
    if (error == STK_OK)
        error = first_error(&call, "RENEW");
    pthread_mutex_lock(&lease->client->lock);
    if (error == STK_OK && lease->state == STATE_LIVE) {
        int64_t due_ms = lease->renew_ms; /* not put off: the first one asks for news */
        lease->why = STK_OK;
        lease_extend(lease, call.asked_ms, ttl_ms, remaining_ms(&call, ttl_ms));
        if (lease->kept && due_ms < lease->renew_ms)
            lease->renew_ms = due_ms;
        renewer_reschedule(lease);
    } else if (error == STK_STALE || error == STK_UNKNOWN) { /* the caller knows; no `lost` */
        renewer_forget(lease);
        lease->state = STATE_LOST;
    }
    pthread_mutex_unlock(&lease->client->lock);
    call_end(&call);
    return error;
}

enum stk_error stk_renew(stk_lease *lease, int64_t ttl_ms)
{
    enum stk_error error = lease_check(lease);
    return error != STK_OK ? error : renew(lease, ttl_ms, now_ms() + lease->client->timeout_ms);
}

/* Acquiring. */

struct acquire {
    struct call call; /* first */
    const char *const *resources;
    size_t count;
    bool all; /* ACQUIREALL */
    const stk_lease_options *options;
    int64_t ttl_ms, wait_until_ms;
    char id[ID_LEN + 1];
};

static void compose(struct call *call)
{
    const struct acquire *acquire = (const struct acquire *)(const void *)call;
    const stk_lease_options *options = acquire->options;
    struct buf *out = &call->request;
    int64_t wait_ms = acquire->wait_until_ms - call->asked_ms;
    bool waits = options->wait_ms > 0 && wait_ms > 0;

    buf_clear(out);
    resp_array(out, 3 + (acquire->all ? acquire->count : 0) + (waits ? 2 : 0) +
                        (options->owner != NULL ? 2 : 0) + 2 + (options->ephemeral ? 1 : 0));
    if (acquire->all) {
        resp_bulk_text(out, "ACQUIREALL");
        resp_bulk_int(out, acquire->ttl_ms);
        resp_bulk_int(out, (int64_t)acquire->count);
        for (size_t i = 0; i < acquire->count; i++)
            resp_bulk_text(out, acquire->resources[i]);
    } else {
        resp_bulk_text(out, "ACQUIRE");
        resp_bulk_text(out, acquire->resources[0]);
        resp_bulk_int(out, acquire->ttl_ms);
    }
    if (waits) {
        resp_bulk_text(out, "WAIT");
        resp_bulk_int(out, wait_ms);
    }
    if (options->owner != NULL) {
        resp_bulk_text(out, "OWNER");
        resp_bulk_text(out, options->owner);
    }
    resp_bulk_text(out, "ID");
    resp_bulk_text(out, acquire->id);
    if (options->ephemeral)
        resp_bulk_text(out, "EPHEMERAL");
}

static stk_lease *make_handle(stk_client *client, const char *const *resources, size_t count)
{
    stk_lease *lease = mem_zalloc(sizeof *lease);

    lease->client = client;
    lease->count = count;
    lease->holds = mem_zalloc(count * sizeof *lease->holds);
    for (size_t i = 0; i < count; i++)
        lease->holds[i].resource = mem_strdup(resources[i]);
    lease->owner = thread_mark_own();
    list_init(&lease->link);
    return lease;
}

static void enlist(stk_lease *lease)
{
    pthread_mutex_lock(&lease->client->lock);
    list_append(&lease->client->leases, &lease->link);
    pthread_mutex_unlock(&lease->client->lock);
}

/* [token, ttl_ms], or n tokens. False: the reply is none of this. */
static bool read_grant(const struct acquire *acquire, const redisReply *reply, stk_lease *lease)
{
    size_t count = acquire->all ? acquire->count : 2;
    int64_t remaining_ms = acquire->ttl_ms;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!reply_is_int(reply->element[i]))
            return false;
    for (size_t i = 0; i < acquire->count; i++)
        lease->holds[i].token = reply->element[i]->integer;
    if (!acquire->all)
        remaining_ms = reply->element[1]->integer;
    lease_extend(lease, acquire->call.asked_ms, acquire->ttl_ms, remaining_ms);
    return true;
}

/* From a grant to a lease at work. */
static enum stk_error begin(struct acquire *acquire, stk_lease *lease)
{
    stk_client *client = acquire->call.client;
    int64_t took_ms = now_ms() - acquire->call.asked_ms;
    enum stk_error error = STK_OK;

    enlist(lease);
    if (took_ms > acquire->ttl_ms / 10)
        error = renew(lease, 0, acquire->call.deadline_ms);
    if (error == STK_OK && !acquire->options->no_keep_alive) {
        pthread_mutex_lock(&client->lock);
        error = renewer_add(lease) ? STK_OK : STK_BUSY;
        pthread_mutex_unlock(&client->lock);
        if (error != STK_OK)
            (void)stk_release(lease);
    }
    return error;
}

static enum stk_error take_answer(struct acquire *acquire, stk_lease **lease)
{
    const redisReply *reply = acquire->call.replies[0];

    if (reply->type == REDIS_REPLY_NIL)
        return fail(STK_HELD, NULL);
    if (reply->type == REDIS_REPLY_ERROR)
        return reply_error(reply);
    stk_lease *granted = make_handle(acquire->call.client, acquire->resources, acquire->count);
    granted->anonymous = acquire->options->owner == NULL;
    granted->lost = acquire->options->lost;
    granted->context = acquire->options->context;
    granted->connection = acquire->call.connection; /* of an ephemeral one; else NULL */
    acquire->call.connection = NULL;
    enum stk_error error = read_grant(acquire, reply, granted)
                               ? begin(acquire, granted)
                               : reply_strange(acquire->all ? "ACQUIREALL" : "ACQUIRE");
    if (error == STK_OK)
        *lease = granted;
    else
        stk_lease_free(granted);
    return error;
}

/* Does this very thread hold one of them, and would wait for itself? */
static bool waits_for_itself(const struct acquire *acquire)
{
    stk_client *client = acquire->call.client;
    struct thread_mark own = thread_mark_own();
    bool found = false;

    if (acquire->options->wait_ms <= 0)
        return false;
    pthread_mutex_lock(&client->lock);
    for (struct list *at = client->leases.next; at != &client->leases && !found; at = at->next) {
        const stk_lease *held = list_entry(at, stk_lease, link);
        if (held->state != STATE_LIVE || held->until_ms <= now_ms() ||
            !thread_mark_equal(held->owner, own) ||
            (!held->anonymous && acquire->options->owner != NULL))
            continue;
        for (size_t i = 0; i < acquire->count; i++)
            found |= stk_lease_token(held, acquire->resources[i]) != 0;
    }
    pthread_mutex_unlock(&client->lock);
    return found;
}

static enum stk_error run(struct acquire *acquire, stk_lease **lease)
{
    struct call *call = &acquire->call;
    enum stk_error error;

    for (;;) {
        error = call_run(call);
        if (error == STK_UNSURE) /* no handle, no lease: it ends with its TTL */
            error = fail(call->cancelled ? STK_CANCELLED : STK_TIMEOUT, NULL);
        if (error != STK_OK)
            return error;
        enum stk_error code = reply_code(call->replies[0]);
        error = take_answer(acquire, lease);
        if (call->connection != NULL)
            connection_close(call->connection);
        call->connection = NULL;
        if (code != STK_STALE || now_ms() >= call->deadline_ms)
            return error;
        /* An earlier attempt was granted the lease without our knowing, and it has ended. */
        id_make(acquire->id);
    }
}

static enum stk_error check_names(const char *const *resources, size_t count)
{
    if (count < 1 || count > RESOURCES_MAX)
        return fail(STK_MISUSE, "1 to %d resources", RESOURCES_MAX);
    for (size_t i = 0; i < count; i++) {
        size_t len = resources[i] == NULL ? 0 : strlen(resources[i]);
        if (len < 1 || len > RESOURCE_NAME_MAX)
            return fail(STK_MISUSE, "a resource must be 1 to %d bytes long", RESOURCE_NAME_MAX);
    }
    return STK_OK;
}

static enum stk_error acquire(stk_client *client, bool all, const char *const *resources,
                              size_t count, const stk_lease_options *options, stk_lease **lease)
{
    static const stk_lease_options none = {0};
    struct acquire acquire = {
        .resources = resources, .count = count, .all = all, .options = options};

    *lease = NULL;
    if (options == NULL)
        acquire.options = options = &none;
    acquire.ttl_ms = options->ttl_ms != 0 ? options->ttl_ms : LEASE_TTL_DEFAULT_MS;
    acquire.wait_until_ms = now_ms() + options->wait_ms;
    acquire.call = (struct call){.client = client,
                                 .replies_count = 1,
                                 .repeatable = true,
                                 .changes = true,
                                 .alone = options->ephemeral,
                                 .keeps_connection = options->ephemeral,
                                 .deadline_ms = acquire.wait_until_ms + client->timeout_ms,
                                 .compose = compose};
    enum stk_error error = client_check(client);
    if (error == STK_OK)
        error = check_names(resources, count);
    if (error == STK_OK && (acquire.ttl_ms < TTL_MS_MIN || acquire.ttl_ms > TTL_MS_MAX))
        error = fail(STK_MISUSE, "ttl_ms is from %d to %d", TTL_MS_MIN, TTL_MS_MAX);
    if (error == STK_OK && (options->wait_ms < 0 || options->wait_ms > TTL_MS_MAX))
        error = fail(STK_MISUSE, "wait_ms is from 0 to %d", TTL_MS_MAX);
    if (error == STK_OK && waits_for_itself(&acquire))
        error = fail(STK_DEADLOCK, "this thread holds the lease that it would wait for");
    if (error != STK_OK)
        return error;
    id_make(acquire.id);
    error = run(&acquire, lease);
    call_end(&acquire.call);
    return error;
}

enum stk_error stk_acquire(stk_client *client, const char *resource,
                           const stk_lease_options *options, stk_lease **lease)
{
    return acquire(client, false, &resource, 1, options, lease);
}

enum stk_error stk_acquire_all(stk_client *client, const char *const *resources, size_t count,
                               const stk_lease_options *options, stk_lease **lease)
{
    return acquire(client, true, resources, count, options, lease);
}

enum stk_error stk_lease_use(stk_client *client, const char *resource, int64_t token,
                             stk_lease **lease)
{
    enum stk_error error = client_check(client);

    *lease = NULL;
    if (error == STK_OK)
        error = check_names(&resource, 1);
    if (error == STK_OK && token < 1)
        error = fail(STK_MISUSE, "a token is 1 or more");
    if (error != STK_OK)
        return error;
    *lease = make_handle(client, &resource, 1);
    (*lease)->holds[0].token = token;
    (*lease)->ttl_ms = LEASE_TTL_DEFAULT_MS;
    enlist(*lease);
    return STK_OK;
}

enum stk_error stk_keep_alive(stk_lease *lease, bool on)
{
    enum stk_error error = lease_check(lease);

    if (error != STK_OK)
        return error;
    pthread_mutex_lock(&lease->client->lock);
    if (lease->state == STATE_RELEASED)
        error = fail(STK_RELEASED, NULL);
    else if (lease->state == STATE_LOST)
        error = fail(STK_STALE, "this lease was lost");
    else if (!on)
        renewer_forget(lease);
    else if (lease->until_ms == 0)
        error = fail(STK_MISUSE, "stk_renew comes first: nobody knows what time it has left");
    else if (!lease->kept && !renewer_add(lease))
        error = STK_BUSY;
    pthread_mutex_unlock(&lease->client->lock);
    return error;
}

/* Asking. */

/* The client's lock, of a handle that is only looked at. NULL: the client is closed or not ours. */
static pthread_mutex_t *lock_of(const stk_lease *lease)
{
    if (lease_check(lease) != STK_OK)
        return NULL;
    pthread_mutex_lock(&lease->client->lock);
    return &lease->client->lock;
}

int64_t stk_lease_left_ms(const stk_lease *lease)
{
    pthread_mutex_t *lock = lock_of(lease);

    if (lock == NULL)
        return 0;
    int64_t left_ms = lease->state == STATE_LIVE ? lease->until_ms - now_ms() : 0;
    /* The connection that an ephemeral one ends with. */
    if (left_ms > 0 && lease->connection != NULL && connection_is_broken(lease->connection))
        left_ms = 0;
    pthread_mutex_unlock(lock);
    return left_ms > 0 ? left_ms : 0;
}

bool stk_lease_valid(const stk_lease *lease)
{
    return stk_lease_left_ms(lease) > 0;
}

int64_t stk_lease_token(const stk_lease *lease, const char *resource)
{
    for (size_t i = 0; lease != NULL && i < lease->count; i++)
        if (resource == NULL || strcmp(lease->holds[i].resource, resource) == 0)
            return lease->holds[i].token;
    return 0;
}

enum stk_error stk_lease_why(const stk_lease *lease)
{
    pthread_mutex_t *lock = lock_of(lease);
    enum stk_error why = STK_MISUSE;

    if (lock != NULL) {
        why = lease->why;
        pthread_mutex_unlock(lock);
    }
    return why;
}

enum stk_error stk_lease_adopt(stk_lease *lease)
{
    enum stk_error error = lease_check(lease);

    if (error != STK_OK)
        return error;
    pthread_mutex_lock(&lease->client->lock);
    lease->owner = thread_mark_own();
    pthread_mutex_unlock(&lease->client->lock);
    return STK_OK;
}

/* Ending. */

void lease_on_stale(stk_lease *lease)
{
    pthread_mutex_lock(&lease->client->lock);
    if (lease->state == STATE_LIVE) {
        lease->state = STATE_LOST;
        lease->why = STK_STALE;
        renewer_reschedule(lease);
    }
    pthread_mutex_unlock(&lease->client->lock);
}

/* RELEASE for each, under one ID: an ID is a resource's. A daemon that is busy, or stopping, may be
 * another one in a moment. */
static enum stk_error give_back(stk_lease *lease)
{
    char id[ID_LEN + 1];
    enum stk_error error;
    struct call call = {.client = lease->client,
                        .replies_count = lease->count,
                        .repeatable = true,
                        .changes = true,
                        .deadline_ms = now_ms() + lease->client->timeout_ms};

    id_make(id);
    for (size_t i = 0; i < lease->count; i++) {
        resp_array(&call.request, 5);
        resp_bulk_text(&call.request, "RELEASE");
        resp_bulk_text(&call.request, lease->holds[i].resource);
        resp_bulk_int(&call.request, lease->holds[i].token);
        resp_bulk_text(&call.request, "ID");
        resp_bulk_text(&call.request, id);
    }
    do {
        error = call_run(&call);
        if (error == STK_OK)
            error = first_error(&call, "RELEASE");
    } while (error == STK_BUSY && call_pause(&call) == IO_LATE);
    call_end(&call);
    return error;
}

enum stk_error stk_release(stk_lease *lease)
{
    enum stk_error error = lease_check(lease);

    if (error != STK_OK)
        return error;
    pthread_mutex_lock(&lease->client->lock);
    renewer_forget(lease);
    bool again = lease->state == STATE_RELEASED;
    lease->state = STATE_RELEASED;
    pthread_mutex_unlock(&lease->client->lock);
    return again ? fail(STK_RELEASED, NULL) : give_back(lease);
}

void stk_lease_free(stk_lease *lease)
{
    if (lease == NULL || (lease->client != NULL && client_check(lease->client) != STK_OK))
        return;
    if (lease->client != NULL) {
        pthread_mutex_lock(&lease->client->lock);
        renewer_forget(lease);
        renewer_await(lease);
        list_remove(&lease->link);
        pthread_mutex_unlock(&lease->client->lock);
    }
    if (lease->connection != NULL)
        connection_close(lease->connection);
    for (size_t i = 0; i < lease->count; i++)
        free(lease->holds[i].resource);
    free(lease->holds);
    free(lease);
}

void leases_orphan(stk_client *client, void (*close)(struct connection *connection))
{
    struct list *link;

    while ((link = list_pop(&client->leases)) != NULL) {
        stk_lease *lease = list_entry(link, stk_lease, link);
        if (lease->connection != NULL)
            close(lease->connection);
        lease->connection = NULL;
        lease->kept = false;
        lease->client = NULL;
    }
}
