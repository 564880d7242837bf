/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a request: made, run in the store, finished or failed. */
#include "proxy/engine/session/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/session.h"

enum { BRIEF_BYTES_MAX = 4096, BRIEF_STEPS_MAX = 16 };
/* Shorter replies that wait for their turn are not counted: SESSION_REQUESTS_MAX bounds them. */
enum { REPLY_UNCOUNTED_MAX = 512 };
enum { REASON_MAX = 160 }; /* of a lease service */

/* Requests of the usual size are used again, with the memory of their replies: it is allocated on
 * the store's thread and freed on the loop's, which costs malloc a lock. (Builds with a sanitizer
 * keep none, so that it sees every use after free.) */
enum { SPARE_ARGS_SIZE = 256, SPARE_REPLY_SIZE = 256 };
#ifndef REQUEST_SPARES_MAX
#define REQUEST_SPARES_MAX 1024
#endif

static struct request *request_take(struct engine *engine, size_t args_size)
{
    struct request *spare = engine->spares;

    if (args_size > SPARE_ARGS_SIZE) {
        struct request *request = mem_alloc(sizeof *request + args_size);
        memset(request, 0, sizeof *request);
        return request;
    }
    if (spare == NULL) {
        struct request *request = mem_alloc(sizeof *request + SPARE_ARGS_SIZE);
        memset(request, 0, sizeof *request);
        request->usual_size = true;
        return request;
    }
    struct buf reply = spare->reply;
    engine->spares = spare->next_spare;
    engine->spares_count--;
    memset(spare, 0, sizeof *spare);
    spare->reply = reply;
    spare->usual_size = true;
    return spare;
}

static void request_put(struct request *request)
{
    struct engine *engine = request->engine;

    if (!request->usual_size || engine->spares_count >= REQUEST_SPARES_MAX) {
        buf_free(&request->reply);
        free(request);
        return;
    }
    if (request->reply.cap > SPARE_REPLY_SIZE)
        buf_free(&request->reply);
    buf_clear(&request->reply);
    engine->spares_count++;
    request->next_spare = engine->spares;
    engine->spares = request;
}

void requests_free_spares(struct engine *engine)
{
    struct request *spare;

    while ((spare = engine->spares) != NULL) {
        engine->spares = spare->next_spare;
        buf_free(&spare->reply);
        free(spare);
    }
    engine->spares_count = 0;
}

struct request *request_new(struct session *session, const struct command *command,
                            const struct bytes *argv, size_t argc)
{
    size_t bytes = 0;
    for (size_t i = 0; i < argc; i++)
        bytes += argv[i].len;

    struct request *request = request_take(session->engine, argc * sizeof *argv + bytes);
    request->argv = (struct bytes *)(void *)(request + 1);
    char *at = (char *)(request->argv + argc);
    for (size_t i = 0; i < argc; i++) {
        if (argv[i].len > 0)
            memcpy(at, argv[i].data, argv[i].len);
        request->argv[i] = (struct bytes){at, argv[i].len};
        at += argv[i].len;
    }
    list_init(&request->link);
    request->session = session;
    request->engine = session->engine;
    request->command = command;
    request->argc = argc;
    request->size = bytes + argc * sizeof *argv;
    request->resp3 = session->resp3;
    request->order = command->order;
    return request;
}

static void plan_free(struct plan *plan)
{
    if (plan->claims != &plan->only_claim)
        free(plan->claims);
    if (plan->steps != &plan->only_step)
        free(plan->steps);
}

void request_free(struct request *request)
{
    replies_count(&request->engine->replies, &request->share, 0);
    plan_free(&request->plan);
    buf_free(&request->scoped);
    free(request->client);
    if (request->acl != NULL)
        acl_drop(request->acl);
    if (request->free_state != NULL)
        request->free_state(request->state);
    else
        free(request->state);
    if (request->command->flags & COMMAND_NO_AUTH) /* a password may be among its words */
        explicit_bzero(request->argv + request->argc,
                       request->size - request->argc * sizeof *request->argv);
    request_put(request);
}

void request_take_rights(struct request *request, const struct acl_user *user)
{
    struct acl *acl = acl_keep(request->engine->acl);

    if (request->acl != NULL)
        acl_drop(request->acl);
    request->rights = user;
    request->acl = acl;
}

void request_orphan(struct request *request)
{
    const struct session *session = request->session;
    struct request_client *client = request->client = mem_zalloc(sizeof *client);

    snprintf(client->user, sizeof client->user, "%s", session_user(session));
    snprintf(client->name, sizeof client->name, "%s", session->name);
    snprintf(client->peer, sizeof client->peer, "%s", session->peer);
    request->session = NULL;
}

/* In which of the histograms it is counted. */
static enum command_group group_of(const struct command *command, bool waited)
{
    if (command->flags & COMMAND_LEASE)
        return waited ? COMMANDS_WAIT : COMMANDS_LEASE;
    if (command->flags & COMMAND_SQL)
        return COMMANDS_SQL;
    return command->order == ORDER_READ    ? COMMANDS_READ
           : command->order == ORDER_WRITE ? COMMANDS_WRITE
                                           : COMMANDS_OTHER;
}

void requests_count_times(struct engine *engine)
{
    struct alike *alike = &engine->alike;

    if (alike->count > 0)
        durations_add_many(&engine->times.commands[group_of(alike->command, false)],
                           alike->ended_us - alike->started_us, alike->count);
    alike->count = 0;
}

/* Count one that is not like the one before. For lease commands the clock is read: the lease
 * service's answers come in the middle of a turn. (Not inlined: the usual case goes without it, and
 * need not save registers.) */
static __attribute__((noinline)) void count_time(const struct request *request)
{
    struct engine *engine = request->engine;
    const struct command *command = request->command;

    if (command->flags & COMMAND_LEASE) {
        durations_add(&engine->times.commands[group_of(command, request->waited)],
                      engine_read_clock_us(engine) - request->started_us);
        return;
    }
    requests_count_times(engine);
    engine->alike = (struct alike){command, request->started_us, engine->now_us, 1};
}

/* Requests that began and ended together, as those of pipelines do, are counted together, which is
 * cheaper. (Lease commands are never alike.) */
static bool is_alike(const struct request *request, const struct alike *alike)
{
    return alike->command == request->command && alike->started_us == request->started_us &&
           alike->ended_us == request->engine->now_us;
}

void request_finish(struct request *request)
{
    struct engine *engine = request->engine;

    check(request->stage == REQUEST_STARTED);
    request->stage = REQUEST_FINISHED;
    engine->requests_open--;
    engine->counters.commands_processed++;
    engine->reads_weight -= request->weight;
    if (request->share > 0 || request->reply.len > REPLY_UNCOUNTED_MAX)
        replies_count(&engine->replies, &request->share, request->reply.len);
    if (is_alike(request, &engine->alike))
        engine->alike.count++;
    else
        count_time(request);
    request->on_finished(request);
}

void request_tell_left(struct request *request, int64_t left_ms)
{
    request->left_at = request->reply.len;
    request->until_ms = engine_now_ms(request->engine) + left_ms;
    resp_int(&request->reply, left_ms);
}

void request_tell_left_then(struct request *request, int64_t left_ms, int64_t then)
{
    request_tell_left(request, left_ms);
    request->then = then;
    resp_int(&request->reply, then);
}

void request_leaves(struct request *request)
{
    if (request->until_ms == 0)
        return;
    int64_t left_ms = request->until_ms - engine_now_ms(request->engine);
    request->reply.len = request->left_at;
    if (left_ms <= 0 && request->left_at > 0) { /* a grant that is over was none */
        buf_clear(&request->reply);
        resp_null_array(&request->reply, request->resp3);
        return;
    }
    resp_int(&request->reply, left_ms > 0 ? left_ms : 0);
    if (request->then != 0)
        resp_int(&request->reply, request->then);
}

bool request_room(struct request *request, size_t bytes)
{
    struct replies *replies = &request->engine->replies;

    if (bytes <= REPLY_SMALL || replies_take(replies, &request->share, bytes))
        return true;
    replies_refuse(replies, &request->reply);
    request->engine->counters.refused_busy++;
    request_finish(request);
    return false;
}

void request_show(struct request *request)
{
    if (request_room(request, request->reply.len))
        request_finish(request);
}

void request_fail(struct request *request, enum stk_error error, const char *format, ...)
{
    char reason[REASON_MAX];
    va_list args;

    buf_clear(&request->reply);
    va_start(args, format);
    if (error == STK_STORE && format == NULL && request->op.why != NULL) {
        resp_error(&request->reply, error, "%s; nothing of this command was applied",
                   request->op.why);
    } else if (error == STK_LEASEDOWN && format != NULL) {
        /* Else "connection refused" would seem to be about this daemon. */
        vsnprintf(reason, sizeof reason, format, args);
        resp_error(&request->reply, error, "lease service %s: %s",
                   lease_provider_name(request->engine->options.provider), reason);
    } else {
        resp_verror(&request->reply, error, format, args);
    }
    va_end(args);
    if (error == STK_BUSY)
        request->engine->counters.refused_busy++;
    if (error == STK_LEASEDOWN)
        request->engine->counters.lease_service_errors++;
    request_finish(request);
}

void engine_count_verdict(struct engine *engine, enum stk_error verdict)
{
    struct engine_counters *counters = &engine->counters;

    counters->refused_stale += verdict == STK_STALE;
    counters->refused_unknown += verdict == STK_UNKNOWN;
    counters->refused_notoken += verdict == STK_NOTOKEN;
}

bool request_refused(struct request *request)
{
    if (request->op.error != STK_OK) {
        request->engine->counters.store_errors++;
        request_fail(request, request->op.error, NULL);
        return true;
    }
    if (request->verdict == STK_OK)
        return false;
    engine_count_verdict(request->engine, request->verdict);
    request_fail(request, request->verdict, NULL);
    return true;
}

void request_done(struct store_op *op)
{
    struct request *request = request_of_op(op);
    if (!request_refused(request))
        request_finish(request);
}

void request_show_done(struct store_op *op)
{
    struct request *request = request_of_op(op);
    if (!request_refused(request))
        request_show(request);
}

/* In the store. */

static bool runs_sql(const struct plan *plan)
{
    for (size_t i = 0; i < plan->steps_count; i++)
        if (plan->steps[i].command->flags & COMMAND_SQL)
            return true;
    return false;
}

/* Is it so little work that the loop may do it itself? */
static bool is_brief(const struct request *request)
{
    const struct plan *plan = &request->plan;

    if (request->size > BRIEF_BYTES_MAX || plan->steps_count > BRIEF_STEPS_MAX ||
        (request->command->flags & COMMAND_LONG) != 0)
        return false;
    for (size_t i = 0; i < plan->steps_count; i++)
        if ((plan->steps[i].command->flags & COMMAND_LONG) != 0 ||
            plan->steps[i].argc > BRIEF_STEPS_MAX)
            return false;
    return true;
}

/* The resource that it is likely to be about: most commands name it first. A wrong guess costs
 * little. */
static struct bytes about(const struct request *request)
{
    const struct plan *plan = &request->plan;

    if (plan->claims_count > 0)
        return plan->claims[0].resource;
    return request->argc > 1 ? request->argv[1] : (struct bytes){"", 0};
}

size_t step_last_key(const struct step *step)
{
    const struct command *command = step->command;
    return command->key_last < 0 ? step->argc - 1 : (size_t)command->key_last;
}

/* What a step's command names: fields of a hash, or keys. */
static void hint_step(const struct step *step, store_each_hint *each, void *context)
{
    const struct command *command = step->command;
    unsigned fields = command->flags & (COMMAND_FIELD | COMMAND_FIELDS | COMMAND_PAIRS);
    size_t end = fields == COMMAND_FIELD ? 3 : step->argc, by = fields == COMMAND_PAIRS ? 2 : 1;

    for (size_t i = 2; fields != 0 && i < end && i < step->argc; i += by)
        each(context, &(struct store_hint){.resource = step->argv[1], .field = step->argv[i]});
    for (size_t i = (size_t)command->key_first; fields == 0 && i > 0 && i <= step_last_key(step);
         i += (size_t)command->key_step)
        each(context, &(struct store_hint){.resource = step->argv[i]});
}

static void hint_plan(const struct store_op *op, store_each_hint *each, void *context)
{
    const struct request *request = list_entry(op, const struct request, op);
    const struct plan *plan = &request->plan;

    for (size_t i = 0; i < plan->claims_count; i++)
        each(context,
             &(struct store_hint){.resource = plan->claims[i].resource, .receipt = plan->id});
    for (size_t i = 0; i < plan->steps_count; i++)
        hint_step(&plan->steps[i], each, context);
}

enum stk_error request_submit(struct request *request, bool writes, store_run *run,
                              store_done *done)
{
    request->op = (struct store_op){.writes = writes,
                                    .slow = runs_sql(&request->plan),
                                    .brief = is_brief(request),
                                    .about = about(request),
                                    .hints = request->plan.steps_count > 0 ? hint_plan : NULL,
                                    .run = run,
                                    .done = done,
                                    .submitted_us = request->engine->now_us};
    list_init(&request->op.link);
    return store_submit(request->engine->options.store, &request->op);
}

void request_run(struct request *request, bool writes, store_run *run, store_done *done)
{
    if (request_submit(request, writes, run, done) != STK_OK)
        request_fail(request, STK_BUSY, NULL);
}
