/* SPDX-License-Identifier: Apache-2.0 */
/* The commands ACQUIRE, with QUEUE or without, and DEQUEUE, and their replies. */
#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/session/arguments.h"

struct acquire_command {
    struct request *request;
    bool queues;
    union {
        struct acquire acquire;
        struct queue_ask ask; /* queues */
    };
};

void acquire_prepare(struct request *request)
{
    bool waits = lease_options_have(request, 3, OF_ACQUIRE, OPTION_WAIT);

    request->order = waits ? ORDER_ALONE : ORDER_LEASE;
}

void acquire_abandon(struct request *request)
{
    struct acquire_command *command = request->state;

    if (command == NULL)
        return;
    if (command->queues)
        queue_ask_cancel(&command->ask);
    else
        acquire_cancel(&command->acquire);
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

/* ACQUIRE resource ttl_ms [WAIT ms | QUEUE] [OWNER owner] [ID id] [EPHEMERAL] */
void lease_acquire(struct request *request)
{
    struct lease_options options = {0};
    int64_t ttl_ms;

    if (!request_may_audit(request, AUDIT_LEASES) || !request_name(request, 1, "a resource") ||
        !request_int(request, 2, LEASE_TTL_MIN_MS, LEASE_TTL_MAX_MS, "ttl_ms", &ttl_ms) ||
        !lease_options_parse(request, 3, OF_ACQUIRE, &options))
        return;
    bool queues = lease_option_given(&options, OPTION_QUEUE);
    if (queues && lease_option_given(&options, OPTION_WAIT)) {
        request_fail(request, STK_ERR,
                     "WAIT holds the reply back, QUEUE answers at once: "
                     "one of the two");
        return;
    }
    if (queues && options.id.len == 0) {
        request_fail(request, STK_ERR, "QUEUE needs an ID, by which the place is found again");
        return;
    }
    struct acquire_command *command = mem_zalloc(sizeof *command);
    request->state = command;
    command->request = request;
    command->queues = queues;
    if (command->queues) {
        command->ask = (struct queue_ask){.engine = request->engine,
                                          .session = request->session,
                                          .resource = request->argv[1],
                                          .ttl_ms = ttl_ms,
                                          .options = options,
                                          .on_end = on_queued};
        queue_ask(&command->ask);
        return;
    }
    struct acquire *acquire = &command->acquire;
    acquire->engine = request->engine;
    acquire->session = request->session;
    acquire->resource = request->argv[1];
    acquire->ttl_ms = ttl_ms;
    acquire->options = options;
    acquire->way = options.wait_until_ms > 0 ? WAY_WAITS : WAY_ONCE;
    if (options.id.len > 0)
        acquire->fingerprint = lease_fingerprint("ACQUIRE", options.owner);
    acquire->on_end = on_end;
    acquire_start(acquire);
}

/* DEQUEUE resource id */
void lease_dequeue(struct request *request)
{
    if (!request_name(request, 1, "a resource") || !request_id(request, 2))
        return;
    resp_int(&request->reply, queue_leave(request->engine, request->argv[1], request->argv[2]));
    request_finish(request);
}
