/* SPDX-License-Identifier: Apache-2.0 */
/* A session: one connection's protocol state, told from the first byte in to the last byte out.
 *
 *   session_input ─▶ parse ─▶ next ─▶ start ─▶ pending ─▶ finished ─▶ out ─▶ session_take_output
 *                              │        └ what the command's row says: prepare, start, abandon
 *                              └ held back by order and back-pressure
 *
 * Invariants:
 * - `pending` holds the started requests whose reply is not in `out` yet, in order of arrival.
 * - Those not finished (running_count, without ORDER_NOW ones) all have the order `running_order`;
 *   an ORDER_ALONE one is alone. So one connection's commands take effect in order.
 * - All that came in, and all that is answered to it, passes one gate (admission.h).
 * - Nothing is begun while `next` is held back (behind.c only reads it), so memory is bounded: by
 *   SESSION_INPUT_MAX, the parser's limits, SESSION_REQUESTS_MAX and SESSION_REQUEST_BYTES_MAX; for
 *   replies by SESSION_OUTPUT_MAX and what is running, and for all sessions together by
 *   engine->replies.
 * A broken protocol is answered with its error after the replies before it, then closed. */
#include "proxy/engine/session/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/admission.h"
#include "proxy/engine/session/behind.h"
#include "proxy/engine/session/identity.h"

#define SESSION_FIRST_PEAK (256 << 10) /* a guess at what the first read's reply may weigh */
/* An idle connection keeps at most this much memory for its next reply. */
#define SESSION_SPARE_MAX (16 << 10)

static void on_finished(struct request *request);
static void on_audited(struct audit_wait *wait, bool on_disk);

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
    list_init(&session->places);
    list_init(&session->changed);
    list_init(&session->stranger);
    session->on_finished = on_finished;
    session->unaudited.on_end = on_audited;
    list_init(&session->unaudited.link);
    identity_forget(session);
    list_append(&engine->sessions, &session->link);
    engine->sessions_count++;
    return session;
}

void session_secured(struct session *session, const char *user)
{
    session->engine->counters.tls_handshakes++;
    if (user != NULL)
        session->certified = mem_strdup(user);
    identity_forget(session);
}

void engine_count_failed_handshake(struct engine *engine)
{
    engine->counters.tls_handshakes_failed++;
}

void session_close(struct session *session)
{
    struct engine *engine = session->engine;
    struct list *link;

    check(!list_empty(&session->pending) ||
          (session->pending_count == 0 && session->pending_bytes == 0 &&
           session->running_count == 0));
    while ((link = list_pop(&session->pending)) != NULL) {
        struct request *request = list_entry(link, struct request, link);
        request_orphan(request);
        request->on_finished = request_free;
        if (request->stage == REQUEST_FINISHED)
            request_free(request);
        else if (request->command->abandon != NULL)
            request->command->abandon(request);
    }
    engine->on_session_closed(session);
    behind_end(session);
    strangers_leave(session);
    if (session->next != NULL)
        request_free(session->next);
    replies_count(&engine->replies, &session->share, 0);
    list_remove(&session->link);
    list_remove(&session->changed);
    list_remove(&session->unaudited.link);
    engine->sessions_count--;
    resp_parser_free(session->parser);
    buf_free(&session->in);
    buf_free(&session->out);
    free(session->certified);
    free(session);
}

static void drop_input(struct session *session)
{
    behind_end(session);
    buf_free(&session->in);
    if (session->next != NULL)
        request_free(session->next);
    session->next = NULL;
}

void session_make_room(struct session *session)
{
    drop_input(session);
    if (list_empty(&session->pending))
        resp_error(&session->out, STK_BUSY,
                   "connections that have not logged in hold too much memory: log in as soon as "
                   "you have connected");
    session_kill(session);
}

/* A command was done whose event did not get into the audit: end without a reply. */
static void cut_off(struct session *session)
{
    session->life = SESSION_CUT_OFF;
    session_mark_changed(session);
}

static void take_finished(struct session *session);

static void on_audited(struct audit_wait *wait, bool on_disk)
{
    struct session *session = list_entry(wait, struct session, unaudited);

    if (!on_disk) {
        cut_off(session);
        return;
    }
    take_finished(session);
    session_mark_changed(session);
}

/* Must nothing be sent now, for the audit's sake? */
static bool is_unaudited(const struct session *session)
{
    return session->life == SESSION_CUT_OFF || !list_empty(&session->unaudited.link);
}

/* Input: bytes become requests. */

static size_t advance(struct session *session, const char *data, size_t len);

void session_input(struct session *session, const char *data, size_t len)
{
    session->active_ms = engine_read_clock_us(session->engine) / 1000;
    size_t used = session->in.len == 0 ? advance(session, data, len) : 0;
    if (used < len) /* until something finishes or is sent */
        buf_append(&session->in, data + used, len - used);
    if (session->behind != NULL)
        behind_arrived(session);
    if (session_is_stranger(session))
        strangers_count(session);
}

bool session_wants_input(const struct session *session)
{
    /* An ending session reads on, and drops it, to learn that its client has gone. */
    size_t max = session_is_stranger(session) ? STRANGER_INPUT_MAX : SESSION_INPUT_MAX;

    return session->in.len < max && !session->input_ended;
}

size_t session_read_max(const struct session *session)
{
    return session_is_stranger(session) ? STRANGER_INPUT_MAX : SIZE_MAX;
}

void session_set_host_bytes(struct session *session, size_t bytes)
{
    session->host_bytes = bytes;
    if (session_is_stranger(session))
        strangers_count(session);
}

bool session_input_ended(struct session *session)
{
    for (struct list *at = session->pending.next; at != &session->pending; at = at->next) {
        struct request *request = list_entry(at, struct request, link);
        if (request->stage != REQUEST_FINISHED && request->command->abandon != NULL)
            return false;
    }
    session->input_ended = true;
    session_mark_changed(session);
    return true;
}

static size_t parse(struct session *session, const char *data, size_t len);

/* Parse and start as much as order and bounds allow. Return how many of `len` bytes it used. While
 * a password is checked nothing is parsed: limits, IDs and protocol are those of who has logged in.
 */
static size_t advance(struct session *session, const char *data, size_t len)
{
    size_t at = 0;

    while (session->life == SESSION_OPEN)
        if (session->next != NULL) {
            if (!admission_start_next(session))
                return at;
        } else if (at == len || session->login != NULL) {
            return at;
        } else {
            at += parse(session, data + at, len - at);
        }
    return len; /* ending: the rest is not read */
}

void session_count_queued(struct session *session, size_t bytes)
{
    session->queued_bytes = bytes;
    session_count_bytes(session);
}

void session_hand_over_queued(struct session *session, struct request *exec)
{
    exec->size += session->queued_bytes;
    session->pending_bytes += session->queued_bytes;
    session->queued_bytes = 0;
}

/* A started request of no command, for an answer in its place in the order of replies. */
static struct request *place(struct session *session)
{
    static const struct command no_command = {.name = "", .deed = DEED_NOTHING, .order = ORDER_NOW};
    struct request *request = request_new(session, &no_command, NULL, 0);

    admission_take_place(session, request);
    return request;
}

void session_answer(struct session *session, struct bytes reply)
{
    if (list_empty(&session->pending)) { /* the usual: nothing is to be said before it */
        session->engine->counters.commands_processed++;
        buf_append_bytes(&session->out, reply);
        session_mark_changed(session);
        return;
    }
    struct request *request = place(session);
    buf_append_bytes(&request->reply, reply);
    request_finish(request);
}

/* Parse up to one request. Return how many bytes it used. */
static size_t parse(struct session *session, const char *data, size_t len)
{
    const struct resp_limits *limits =
        session->rights != NULL ? &resp_limits_default : &resp_limits_unauthenticated;
    size_t used, none;
    enum resp_status status = resp_parse(session->parser, limits, data, len, &used);

    if (status == RESP_REQUEST) {
        admission_take(session, resp_argv(session->parser), resp_argc(session->parser));
        /* What a large request needed must not stay with an idle connection. */
        if (session->next != NULL && session->next->size > SESSION_SPARE_MAX)
            resp_parse(session->parser, limits, "", 0, &none);
    } else if (status == RESP_BROKEN) {
        admission_take_broken(session, resp_broken_text(session->parser));
    }
    return used;
}

/* Finished: replies go to the output in the order in which their requests arrived. */

static void count_output(struct session *session)
{
    size_t bytes = session->out.len + session->unsent;

    bool counts = bytes > REPLY_SMALL && !session_is_stranger(session);

    replies_count(&session->engine->replies, &session->share, counts ? bytes : 0);
    session_count_bytes(session);
}

/* A large reply is not copied. */
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
    count_output(session);
}

static void take_finished(struct session *session)
{
    while (!list_empty(&session->pending)) {
        struct request *first = list_entry(session->pending.next, struct request, link);
        if (first->stage != REQUEST_FINISHED)
            break;
        list_remove(&first->link);
        session->pending_count--;
        session->pending_bytes -= first->size;
        request_leaves(first);
        take_reply(session, &first->reply);
        request_free(first);
    }
}

/* A request's on_finished. Behind what has to be in the audit first, replies wait in their places.
 */
static void on_finished(struct request *request)
{
    struct session *session = request->session;

    if (request->order != ORDER_NOW)
        session->running_count--;
    if (request->order == ORDER_READ) {
        size_t decayed = session->reply_peak - session->reply_peak / 8;
        session->reply_peak = request->reply.len > decayed ? request->reply.len : decayed;
    }
    if (session->awaited == request)
        session->awaited = NULL;
    if (!is_unaudited(session))
        take_finished(session);
    session_mark_changed(session);
}

void session_pushed(struct session *session)
{
    count_output(session);
    session_mark_changed(session);
}

/* Output. */

/* Start what was held back, mostly by the command whose reply is to be sent now. Where that is a
 * read it may well be done within this turn: then the output waits, for one packet with both
 * replies. True: it waits. */
static bool resume(struct session *session)
{
    bool was_running = session->running_count > 0;
    size_t used = advance(session, session->in.data, session->in.len);

    buf_consume(&session->in, used);
    behind_used(session, used);
    if (session->in.len == 0 && session->in.cap > 0)
        buf_free(&session->in);
    session->deferred = !session->deferred && !was_running && session->running_count > 0 &&
                        session->running_order == ORDER_READ && session->out.len > 0;
    if (session->deferred) {
        list_remove(&session->changed);
        list_append(&session->engine->deferred, &session->changed);
    }
    return session->deferred;
}

void session_take_output(struct session *session, struct buf *out)
{
    struct buf old = *out;

    if (session->awaited != NULL || is_unaudited(session) ||
        ((session->next != NULL || session->in.len > 0) && resume(session))) {
        buf_clear(out);
        return;
    }
    session->deferred = false;
    /* The old memory is used again unless one big reply made it large. */
    if (old.cap > SESSION_SPARE_MAX || session_is_stranger(session))
        buf_free(&old);
    buf_clear(&old);
    *out = session->out;
    session->out = old;
    session->unsent += out->len;
    if (session_is_stranger(session))
        strangers_count(session);
}

void session_set_unsent(struct session *session, size_t bytes)
{
    bool less = session->unsent >= REPLY_SMALL && bytes < session->unsent;
    session->unsent = bytes;
    count_output(session);
    if (session_is_stranger(session))
        strangers_count(session);
    if (less)
        session_mark_changed(session);
}

bool session_ended(const struct session *session)
{
    bool no_more = session->life != SESSION_OPEN ||
                   (session->input_ended && session->next == NULL && session->in.len == 0);
    return session->life >= SESSION_KILLED || (no_more && list_empty(&session->pending) &&
                                               session->out.len == 0 && !is_unaudited(session));
}
