/* SPDX-License-Identifier: Apache-2.0 */
/* A session: one connection's protocol state. Requests are parsed, started when order and
 * back-pressure allow, and replied in the order in which they arrived.
 *
 * Invariants:
 * - `pending` holds the started requests whose reply is not in `out` yet, in order of arrival.
 * - Those not finished (running_count, without ORDER_NOW ones) all have the order `running_order`;
 *   an ORDER_ALONE one is alone. So one connection's commands take effect in order.
 * - Nothing is parsed while `next` is held back, so memory is bounded by SESSION_INPUT_MAX, the
 *   parser's limits, SESSION_REQUESTS_MAX and SESSION_REQUEST_BYTES_MAX, and for replies by
 *   SESSION_OUTPUT_MAX plus what is running, and for all sessions together by engine->replies.
 * A broken protocol is answered with its error after the replies before it, then closed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/internal.h"

/* What the replies of the reads under way may weigh together, guessed from the latest ones. */
#define SESSION_READS_WEIGHT (4 << 20)
#define SESSION_FIRST_PEAK   (256 << 10)
/* An idle connection keeps at most this much memory for its next reply. */
#define SESSION_SPARE_MAX (16 << 10)

struct session *session_open(struct engine *engine, const char *peer, bool trusted,
                             void *connection, struct buf *refusal)
{
    engine->counters.connections_received++;
    if (engine->sessions_count >= engine->options.sessions_max) {
        engine->counters.connections_rejected++;
        resp_error(refusal, STK_ERR, "max number of clients reached");
        return NULL;
    }
    struct session *session = mem_zalloc(sizeof *session);
    session->engine = engine;
    session->connection = connection;
    session->id = ++engine->session_last;
    snprintf(session->peer, sizeof session->peer, "%s", peer);
    session->opened_ms = session->active_ms = engine_now_ms(engine);
    session->trusted = trusted;
    session->parser = resp_parser_new();
    session->reply_peak = SESSION_FIRST_PEAK;
    list_init(&session->pending);
    list_init(&session->held);
    list_init(&session->dirty);
    list_append(&engine->sessions, &session->link);
    engine->sessions_count++;
    return session;
}

void session_close(struct session *session)
{
    struct engine *engine = session->engine;
    struct list *link;

    while ((link = list_pop(&session->pending)) != NULL) {
        struct request *request = list_entry(link, struct request, link);
        request->session = NULL;
        if (request->finished)
            request_free(request);
        else if (request->command->start == lease_acquire)
            acquire_abandon(request);
        else if (request->command->start == lease_acquire_all)
            acquire_all_abandon(request);
        else if (request->command->start == lease_renew)
            renew_abandon(request);
    }
    release_session_closed(session);
    if (session->next != NULL)
        request_free(session->next);
    multi_free(session->multi);
    pubsub_clear(session);
    replies_count(&engine->replies, &session->share, 0);
    list_remove(&session->link);
    list_remove(&session->dirty);
    engine->sessions_count--;
    resp_parser_free(session->parser);
    buf_free(&session->in);
    buf_free(&session->out);
    free(session);
}

void session_mark(struct session *session)
{
    if (list_empty(&session->dirty))
        list_append(&session->engine->dirty, &session->dirty);
}

void session_end(struct session *session)
{
    session->ending = true;
    session_mark(session);
}

bool session_is_authenticated(const struct session *session)
{
    return session->authenticated || session->engine->options.password == NULL;
}

bool session_is_admin(const struct session *session)
{
    return session->engine->options.password != NULL ? session->authenticated : session->trusted;
}

void session_count(struct session *session)
{
    size_t bytes = session->out.len + session->unsent;

    replies_count(&session->engine->replies, &session->share, bytes > REPLY_SMALL ? bytes : 0);
}

/* May the parsed request start now, or must what is under way finish first? */
static bool may_start(const struct session *session, const struct request *request)
{
    if (session->pending_count >= SESSION_REQUESTS_MAX ||
        session->pending_bytes >= SESSION_REQUEST_BYTES_MAX ||
        session->out.len + session->unsent >= SESSION_OUTPUT_MAX)
        return false;
    /* Who has read what came before may always ask for one thing more. */
    if (replies_full(&session->engine->replies, session->engine->reads_weight) &&
        (session->pending_count > 0 || session->out.len + session->unsent >= REPLY_SMALL))
        return false;
    if (request->order == ORDER_NOW || session->running_count == 0)
        return true;
    if (request->order == ORDER_ALONE || request->order != session->running_order)
        return false;
    return request->order != ORDER_READ ||
           session->running_count * session->reply_peak < SESSION_READS_WEIGHT;
}

bool session_admits(struct session *session, struct request *request)
{
    const struct command *command = request->command;
    enum stk_error error;

    if (session->engine->draining && !(command->flags & COMMAND_DRAINING))
        error = STK_BUSY;
    else if (!session_is_authenticated(session) && !(command->flags & COMMAND_NO_AUTH))
        error = STK_NOAUTH;
    else if ((command->flags & COMMAND_ADMIN) && !session_is_admin(session))
        error = STK_NOPERM;
    else if (pubsub_restricts(session) && !(command->flags & COMMAND_PUBSUB))
        return pubsub_refuse(request);
    else
        return true;
    session->engine->counters.refused_busy += error == STK_BUSY;
    buf_clear(&request->reply);
    resp_error(&request->reply, error,
               error == STK_BUSY ? "the daemon is stopping; try again elsewhere or later" : NULL);
    return false;
}

/* From now on its reply has a place in the order. */
static void take_place(struct session *session, struct request *request)
{
    request->started = true;
    session->engine->requests_open++;
    list_append(&session->pending, &request->link);
    session->pending_count++;
    session->pending_bytes += request->size;
}

static void start(struct session *session, struct request *request)
{
    if (multi_takes(session, request->command)) {
        multi_queue(request);
        return;
    }
    take_place(session, request);
    if (request->order != ORDER_NOW) {
        session->running_order = request->order;
        session->running_count++;
    }
    if (request->order == ORDER_READ) {
        request->weight = REPLY_SMALL;
        session->engine->reads_weight += request->weight;
    }
    if (!session_admits(session, request))
        request_finish(request);
    else if (request->command->start != NULL)
        request->command->start(request);
    else
        data_start(request);
}

/* Something that is no command gets its error in its place in the order of replies. */
static const struct command no_command = {.name = "", .order = ORDER_NOW};

struct request *session_place(struct session *session)
{
    struct request *request = request_new(session, &no_command, NULL, 0);
    take_place(session, request);
    return request;
}

void session_answer(struct session *session, struct bytes reply)
{
    if (list_empty(&session->pending)) { /* the usual: nothing is to be said before it */
        session->engine->counters.commands_processed++;
        buf_append_bytes(&session->out, reply);
        session_mark(session);
        return;
    }
    struct request *request = session_place(session);
    buf_append_bytes(&request->reply, reply);
    request_finish(request);
}

/* "ERR unknown command 'FOO', with args beginning with: 'a' 'b' " as Redis words it. */
static void reply_unknown(struct session *session, const struct bytes *argv, size_t argc)
{
    char text[200];
    int len = snprintf(text, sizeof text, "unknown command '%.*s', with args beginning with: ",
                       (int)(argv[0].len < 128 ? argv[0].len : 128), argv[0].data);
    for (size_t i = 1; i < argc && len < 128; i++) {
        int room = 128 - len;
        len += snprintf(text + len, sizeof text - (size_t)len, "'%.*s' ",
                        argv[i].len < (size_t)room ? (int)argv[i].len : room, argv[i].data);
    }
    multi_spoil(session);
    request_fail(session_place(session), STK_ERR, "%s", text);
}

/* A browser that a web page made talk to this port: its first lines look like inline commands, and
 * the commands of the page's choosing would follow in the body. */
static bool is_browser(struct bytes name)
{
    return bytes_equal_nocase(name, "POST") || bytes_equal_nocase(name, "Host:");
}

/* One complete request is in the parser: make it `next`, or reply its error. */
static void take_parsed(struct session *session)
{
    size_t argc = resp_argc(session->parser);
    const struct bytes *argv = resp_argv(session->parser);
    const struct command *command = command_find(&session->engine->index, argv[0]);

    session->last_command = command == NULL ? NULL : command->name;
    if (command == NULL && is_browser(argv[0])) {
        session->engine->counters.protocol_errors++;
        log_warn(session->engine->options.log, "closed %s: it speaks HTTP, not RESP",
                 session->peer);
        session->killed = true;
        session_end(session);
    } else if (command == NULL) {
        reply_unknown(session, argv, argc);
    } else if (!command_arity_fits(command, argc)) {
        multi_spoil(session);
        request_fail_arity(session_place(session), command->name);
    } else {
        session->next = request_new(session, command, argv, argc);
        if (multi_takes(session, command))
            session->next->order = ORDER_NOW;
        else if (command->start == NULL || command->start == data_fenced ||
                 command->start == data_fenced_all)
            plan_make(session->next, false);
        else if (command->start == lease_acquire)
            acquire_prepare(session->next);
    }
}

static bool is_acquire(const struct request *request)
{
    return request->command->start == lease_acquire || request->command->start == lease_acquire_all;
}

/* Parses and starts as much as order and bounds allow. Returns how many of `len` bytes it used. */
static size_t advance(struct session *session, const char *data, size_t len)
{
    size_t at = 0;

    while (!session->ending) {
        if (session->next != NULL) {
            if (!may_start(session, session->next))
                return at;
            if (session->input_ended && is_acquire(session->next)) {
                session->killed = true; /* as session_input_ended says */
                session_end(session);
                return at;
            }
            struct request *request = session->next;
            session->next = NULL;
            start(session, request);
            continue;
        }
        if (at == len || session->pending_count >= SESSION_REQUESTS_MAX)
            return at;
        size_t used;
        const struct resp_limits *limits =
            session_is_authenticated(session) ? &resp_limits_default : &resp_limits_unauthenticated;
        enum resp_status status = resp_parse(session->parser, limits, data + at, len - at, &used);
        at += used;
        if (status == RESP_REQUEST) {
            take_parsed(session);
            /* What a large request needed must not stay with an idle connection. */
            if (session->next != NULL && session->next->size > SESSION_SPARE_MAX)
                resp_parse(session->parser, limits, "", 0, &used);
        } else if (status == RESP_BROKEN) {
            session->engine->counters.protocol_errors++;
            request_fail(session_place(session), STK_ERR, "%s", resp_broken_text(session->parser));
            session_end(session);
        }
    }
    return len; /* ending: the rest is not read */
}

/* Starts what was held back, from the bytes that were kept. */
static void resume(struct session *session)
{
    size_t used = advance(session, session->in.data, session->in.len);
    buf_consume(&session->in, used);
    if (session->in.len == 0 && session->in.cap > 0)
        buf_free(&session->in);
}

void session_input(struct session *session, const char *data, size_t len)
{
    session->active_ms = engine_now_ms(session->engine);
    size_t used = session->in.len == 0 ? advance(session, data, len) : 0;
    buf_append(&session->in, data + used, len - used);
    session_mark(session);
}

bool session_input_ended(struct session *session)
{
    for (struct list *at = session->pending.next; at != &session->pending; at = at->next) {
        struct request *request = list_entry(at, struct request, link);
        if (!request->finished && is_acquire(request))
            return false;
    }
    session->input_ended = true;
    session_mark(session);
    return true;
}

bool session_wants_input(const struct session *session)
{
    /* An ending session reads on, and drops it, to learn that its client has gone. */
    return session->in.len < SESSION_INPUT_MAX && !session->input_ended;
}

/* A large one is not copied. */
static void take_reply(struct session *session, struct buf *reply)
{
    if (session->out.len == 0 && reply->len > REPLY_SMALL) {
        struct buf old = session->out;
        session->out = *reply;
        *reply = old;
        buf_clear(reply);
    } else {
        buf_append_bytes(&session->out, buf_bytes(reply));
    }
    session_count(session);
}

void session_replied(struct session *session, struct request *request)
{
    if (request->order != ORDER_NOW)
        session->running_count--;
    if (request->order == ORDER_READ) {
        size_t decayed = session->reply_peak - session->reply_peak / 8;
        session->reply_peak = request->reply.len > decayed ? request->reply.len : decayed;
    }
    if (request->multi != NULL)
        session->exec_under_way = false;
    while (!list_empty(&session->pending)) {
        struct request *first = list_entry(session->pending.next, struct request, link);
        if (!first->finished)
            break;
        list_remove(&first->link);
        session->pending_count--;
        session->pending_bytes -= first->size;
        take_reply(session, &first->reply);
        request_free(first);
    }
    session_mark(session);
}

/* Starts what was held back, mostly by the command whose reply is to be sent now. Where that is a
 * read it may well be done within this turn: one write for both replies then. */
static bool resume_and_wait(struct session *session)
{
    struct engine *engine = session->engine;
    bool was_running = session->running_count > 0;

    resume(session);
    session->waited = !session->waited && !was_running && session->running_count > 0 &&
                      session->running_order == ORDER_READ && session->out.len > 0;
    if (session->waited) {
        list_remove(&session->dirty);
        list_append(&engine->waiting_a_turn, &session->dirty);
    }
    return session->waited;
}

void session_take_output(struct session *session, struct buf *out)
{
    struct buf old = *out;

    if (session->exec_under_way ||
        ((session->next != NULL || session->in.len > 0) && resume_and_wait(session))) {
        buf_clear(out);
        return;
    }
    session->waited = false;
    /* The old memory is reused unless one big reply made it large. */
    if (old.cap > SESSION_SPARE_MAX)
        buf_free(&old);
    buf_clear(&old);
    *out = session->out;
    session->out = old;
    session->unsent += out->len;
}

void session_set_unsent(struct session *session, size_t bytes)
{
    bool less = session->unsent >= REPLY_SMALL && bytes < session->unsent;
    session->unsent = bytes;
    session_count(session);
    if (less)
        session_mark(session);
}

bool session_ended(const struct session *session)
{
    bool no_more =
        session->ending || (session->input_ended && session->next == NULL && session->in.len == 0);
    return session->killed || (no_more && list_empty(&session->pending) && session->out.len == 0);
}
