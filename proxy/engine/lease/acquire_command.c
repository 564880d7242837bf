/* SPDX-License-Identifier: Apache-2.0 */
/* The commands ACQUIRE, with QUEUE, PERMITS, or neither, and DEQUEUE, and their replies. */
#include <stddef.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/permits.h"
#include "proxy/engine/session/admission.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/rights.h"

struct acquire_command {
    struct request *request;
    enum {
        FOR_LEASE,
        FOR_PLACE,
        FOR_PERMIT,
    } what;
    union {
        struct acquire acquire;
        struct queue_ask ask;
        struct permits permits;
    };
};

/* Without room for the permits. */
#define LEASE_COMMAND_SIZE                                                                         \
    (offsetof(struct acquire_command, acquire) +                                                   \
     (sizeof(struct acquire) > sizeof(struct queue_ask) ? sizeof(struct acquire)                   \
                                                        : sizeof(struct queue_ask)))

/* The right to a permit is one to its own name. */
struct act acquire_act(const struct acl_user *user, struct request *request,
                       const struct bytes *argv, size_t argc)
{
    (void)user, (void)request;
    bool of_permits = lease_options_have(argv, argc, 3, OF_ACQUIRE, OPTION_PERMITS);
    return (struct act){.deed = of_permits ? DEED_PERMIT : DEED_ACQUIRE};
}

void acquire_prepare(struct request *request)
{
    bool waits = lease_options_have(request->argv, request->argc, 3, OF_ACQUIRE, OPTION_WAIT);

    request->order = waits ? ORDER_ALONE : ORDER_LEASE;
}

void acquire_abandon(struct request *request)
{
    struct acquire_command *command = request->state;

    if (command == NULL)
        return;
    switch (command->what) {
    case FOR_LEASE: acquire_cancel(&command->acquire); break;
    case FOR_PLACE: queue_ask_cancel(&command->ask); break;
    case FOR_PERMIT: permits_cancel(&command->permits); break;
    }
}

static void reply_lease(struct request *request, int64_t token, int64_t left_ms)
{
    resp_array(&request->reply, 2);
    resp_int(&request->reply, token);
    request_tell_left(request, left_ms);
}

static void on_end(struct acquire *acquire)
{
    struct request *request = list_entry(acquire, struct acquire_command, acquire)->request;

    request->waited = acquire->wait.since_us != 0;
    if (acquire->error != STK_OK) {
        request->op.why = acquire->op.why;
        request_fail(request, acquire->error, acquire->reason == NULL ? NULL : "%s",
                     acquire->reason);
        return;
    }
    if (acquire->grant.token == 0)
        resp_null_array(&request->reply, request->resp3);
    else
        reply_lease(request, acquire->grant.token, acquire->grant.left_ms);
    request_finish(request);
}

static void on_queued(struct queue_ask *ask)
{
    struct request *request = list_entry(ask, struct acquire_command, ask)->request;

    if (ask->error != STK_OK) {
        request->op.why = ask->why;
        request_fail(request, ask->error, ask->reason == NULL ? NULL : "%s", ask->reason);
        return;
    }
    if (ask->token != 0) {
        reply_lease(request, ask->token, ask->left_ms);
    } else if (ask->place != 0) {
        resp_array(&request->reply, 2);
        resp_bulk_text(&request->reply, "queued");
        resp_int(&request->reply, ask->place);
    } else {
        resp_null_array(&request->reply, request->resp3);
    }
    request_finish(request);
}

static void deny(struct request *request)
{
    static const char first[] = {PERMIT_MARK, '1'};
    struct buf name = {0};

    buf_append_bytes(&name, request->argv[1]);
    buf_append(&name, first, sizeof first);
    const struct denial denial = {.reason = DENIED_FOR_KEY,
                                  .object = buf_bytes(&name),
                                  .needs = ACL_WRITES,
                                  .command = request->command->name,
                                  .category = ""};

    session_deny(request->session, request, &denial);
    buf_free(&name);
    request_finish(request);
}

static void on_permit(struct permits *permits)
{
    struct request *request = list_entry(permits, struct acquire_command, permits)->request;

    request->waited = permits->wait.since_us != 0;
    if (permits->error == STK_NOPERM && request->session != NULL) {
        deny(request);
        return;
    }
    if (permits->error != STK_OK) {
        request->op.why = permits->why;
        request_fail(request, permits->error, permits->reason == NULL ? NULL : "%s",
                     permits->reason);
        return;
    }
    if (permits->token == 0 || permits->left_ms <= 0) {
        resp_null_array(&request->reply, request->resp3);
    } else {
        resp_array(&request->reply, 3);
        resp_int(&request->reply, permits->token);
        request_tell_left_then(request, permits->left_ms, permits->permit);
    }
    request_finish(request);
}

/* Those that cannot go together. NULL: none of them were given. */
static const char *conflict(const struct request *request, const struct lease_options *options)
{
    bool queues = lease_option_given(options, OPTION_QUEUE);

    if (queues && lease_option_given(options, OPTION_WAIT))
        return "WAIT holds the reply back, QUEUE answers at once: one of the two";
    if (queues && options->permits != 0)
        return "PERMITS has no QUEUE: WAIT, on a connection of its own";
    if (queues && options->id.len == 0)
        return "QUEUE needs an ID, by which the place is found again";
    if (options->permits != 0 && request->argv[1].len > PERMIT_RESOURCE_MAX)
        return "a resource with PERMITS has a name of 506 bytes at most: each permit has a longer "
               "one";
    return NULL;
}

static void start_queue(struct acquire_command *command, const struct lease_options *options,
                        int64_t ttl_ms)
{
    struct request *request = command->request;

    command->ask = (struct queue_ask){.engine = request->engine,
                                      .session = request->session,
                                      .resource = request->argv[1],
                                      .ttl_ms = ttl_ms,
                                      .options = *options,
                                      .on_end = on_queued};
    queue_ask(&command->ask);
}

static void start_permits(struct acquire_command *command, const struct lease_options *options,
                          int64_t ttl_ms)
{
    struct request *request = command->request;
    struct permits *permits = &command->permits;

    if (!request->session->rights->all) /* which may be others by the time that it asks */
        request_take_rights(request, request->session->rights);
    permits->engine = request->engine;
    permits->session = request->session;
    permits->rights = request->rights;
    permits->resource = request->argv[1];
    permits->ttl_ms = ttl_ms;
    permits->options = *options;
    permits->on_end = on_permit;
    permits_start(permits);
}

static void start_acquire(struct acquire_command *command, const struct lease_options *options,
                          int64_t ttl_ms)
{
    struct request *request = command->request;
    struct acquire *acquire = &command->acquire;

    acquire->engine = request->engine;
    acquire->session = request->session;
    acquire->resource = request->argv[1];
    acquire->ttl_ms = ttl_ms;
    acquire->options = *options;
    acquire->way = options->wait_until_ms > 0 ? WAY_WAITS : WAY_ONCE;
    if (options->id.len > 0)
        acquire->fingerprint = lease_fingerprint("ACQUIRE", options->owner);
    acquire->on_end = on_end;
    acquire_start(acquire);
}

/* ACQUIRE resource ttl_ms [WAIT ms | QUEUE] [OWNER owner] [ID id] [EPHEMERAL] [PERMITS n] */
void lease_acquire(struct request *request)
{
    struct lease_options options = {0};
    int64_t ttl_ms;

    if (!request_may_audit(request, AUDIT_LEASES) || !request_name(request, 1, "a resource") ||
        !request_int(request, 2, LEASE_TTL_MIN_MS, LEASE_TTL_MAX_MS, "ttl_ms", &ttl_ms) ||
        !lease_options_parse(request, 3, OF_ACQUIRE, &options))
        return;
    const char *why = conflict(request, &options);
    if (why != NULL) {
        request_fail(request, STK_ERR, "%s", why);
        return;
    }
    /* What only permits need is large, and not for every lease to clear. */
    struct acquire_command *command =
        mem_zalloc(options.permits != 0 ? sizeof *command : LEASE_COMMAND_SIZE);
    request->state = command;
    command->request = request;
    if (lease_option_given(&options, OPTION_QUEUE)) {
        command->what = FOR_PLACE;
        start_queue(command, &options, ttl_ms);
    } else if (options.permits != 0) {
        command->what = FOR_PERMIT;
        start_permits(command, &options, ttl_ms);
    } else {
        start_acquire(command, &options, ttl_ms);
    }
}

/* DEQUEUE resource id */
void lease_dequeue(struct request *request)
{
    if (!request_name(request, 1, "a resource") || !request_id(request, 2))
        return;
    resp_int(&request->reply, queue_leave(request->engine, request->argv[1], request->argv[2]));
    request_finish(request);
}
