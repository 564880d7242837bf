/* SPDX-License-Identifier: Apache-2.0 */
/* Getting a lease. The request carries an ID, so that a reply that was lost is asked for again. A
 * lease that was waited for is renewed at once: how long its grant was on its way nobody knows, and
 * its time has to count from before a request. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/client/export.h"
#include "proxy/client/lease.h"
#include "store/txn.h"

enum { TTL_MS_MIN = 10, TTL_MS_MAX = 24 * 3600 * 1000, RESOURCES_MAX = 1024 };

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
    ask_begin(out, 3 + (acquire->all ? acquire->count : 0) + (waits ? 2 : 0) +
                       (options->owner != NULL ? 2 : 0) + 2 + (options->ephemeral ? 1 : 0));
    if (acquire->all) {
        ask_text(out, "ACQUIREALL");
        ask_int(out, acquire->ttl_ms);
        ask_int(out, (int64_t)acquire->count);
        for (size_t i = 0; i < acquire->count; i++)
            ask_text(out, acquire->resources[i]);
    } else {
        ask_text(out, "ACQUIRE");
        ask_text(out, acquire->resources[0]);
        ask_int(out, acquire->ttl_ms);
    }
    if (waits) {
        ask_text(out, "WAIT");
        ask_int(out, wait_ms);
    }
    if (options->owner != NULL) {
        ask_text(out, "OWNER");
        ask_text(out, options->owner);
    }
    ask_text(out, "ID");
    ask_text(out, acquire->id);
    if (options->ephemeral)
        ask_text(out, "EPHEMERAL");
}

static stk_lease *make_handle(const struct acquire *acquire)
{
    stk_lease *lease = mem_zalloc(sizeof *lease);

    lease->client = acquire->call.client;
    lease->count = acquire->count;
    lease->holds = mem_zalloc(acquire->count * sizeof *lease->holds);
    for (size_t i = 0; i < acquire->count; i++)
        lease->holds[i].resource = mem_strdup(acquire->resources[i]);
    lease->anonymous = acquire->options->owner == NULL;
    lease->lost = acquire->options->lost;
    lease->context = acquire->options->context;
    lease->owner = thread_mark_own();
    lease->peer = acquire->call.peer;
    list_init(&lease->link);
    return lease;
}

/* [token, ttl_ms], or n tokens. False: the reply is none of this. */
static bool read_grant(const struct acquire *acquire, const redisReply *reply, stk_lease *lease)
{
    size_t count = acquire->all ? acquire->count : 2;
    int64_t told_ms = acquire->ttl_ms;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!reply_is_int(reply->element[i]))
            return false;
    for (size_t i = 0; i < acquire->count; i++)
        lease->holds[i].token = reply->element[i]->integer;
    if (!acquire->all)
        told_ms = reply->element[1]->integer;
    handle_extend(lease, acquire->call.asked_ms, acquire->ttl_ms, told_ms);
    return true;
}

/* From a grant to a lease at work. */
static enum stk_error begin(struct acquire *acquire, stk_lease *lease)
{
    stk_client *client = acquire->call.client;
    int64_t took_ms = now_ms() - acquire->call.asked_ms;
    enum stk_error error = STK_OK;

    pthread_mutex_lock(&client->lock);
    list_append(&client->leases, &lease->link);
    pthread_mutex_unlock(&client->lock);
    if (took_ms > acquire->ttl_ms / 10)
        error = handle_renew(lease, 0, acquire->call.deadline_ms);
    if (error == STK_OK && !acquire->options->no_keep_alive) {
        pthread_mutex_lock(&client->lock);
        error = keepalive_add(lease) ? STK_OK : STK_BUSY;
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
    stk_lease *granted = make_handle(acquire);
    acquire->call.peer = NULL; /* the lease's, where there is one */
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
            error = fail(STK_TIMEOUT, NULL);
        if (error != STK_OK)
            return error;
        enum stk_error code = reply_code(call->replies[0]);
        error = take_answer(acquire, lease);
        if (call->peer != NULL)
            peer_close(call->peer);
        call->peer = NULL;
        /* A connection from the pool may hold what somebody else now waits for. */
        bool again = code == STK_DEADLOCK && !call->alone;
        call->alone |= again;
        /* What was granted to an attempt without a reply is over. */
        if (code == STK_STALE && now_ms() < call->deadline_ms) {
            id_make(acquire->id);
            again = true;
        }
        if (!again)
            return error;
    }
}

static enum stk_error check_names(const struct acquire *acquire)
{
    if (acquire->count < 1 || acquire->count > RESOURCES_MAX)
        return fail(STK_MISUSE, "1 to %d resources", RESOURCES_MAX);
    for (size_t i = 0; i < acquire->count; i++) {
        size_t len = acquire->resources[i] == NULL ? 0 : strlen(acquire->resources[i]);
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
                                 .keeps_peer = options->ephemeral,
                                 .deadline_ms = acquire.wait_until_ms + client->timeout_ms,
                                 .compose = compose};
    enum stk_error error = client_check(client);
    if (error == STK_OK)
        error = check_names(&acquire);
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

EXPORT enum stk_error stk_acquire(stk_client *client, const char *resource,
                                  const stk_lease_options *options, stk_lease **lease)
{
    return acquire(client, false, &resource, 1, options, lease);
}

EXPORT enum stk_error stk_acquire_all(stk_client *client, const char *const *resources,
                                      size_t count, const stk_lease_options *options,
                                      stk_lease **lease)
{
    return acquire(client, true, resources, count, options, lease);
}
