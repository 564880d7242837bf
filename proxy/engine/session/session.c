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
 * - All answers to what came in pass one gate, may_start(): errors, too, are requests that take
 *   their turn.
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
#include "fence/base/log.h"
#include "fence/base/mem.h"
#include "proxy/engine/acl/log.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/behind.h"
#include "proxy/engine/session/identity.h"
#include "proxy/engine/session/rights.h"

/* What the replies of the reads under way may weigh together, guessed from the latest ones. */
#define SESSION_READS_WEIGHT (4 << 20)
#define SESSION_FIRST_PEAK   (256 << 10)
/* An idle connection keeps at most this much memory for its next reply. */
#define SESSION_SPARE_MAX (16 << 10)

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
        if (request->finished)
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

/* There is news for the host, which hears of it at the end of the turn. */
static void mark_changed(struct session *session)
{
    if (list_empty(&session->changed))
        list_append(&session->engine->changed, &session->changed);
}

void session_end(struct session *session)
{
    session->ending = true;
    mark_changed(session);
}

void session_kill(struct session *session)
{
    session->killed = true;
    session_end(session);
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

bool session_is_admin(const struct session *session)
{
    return session->rights != NULL && session->rights->admin;
}

void session_describe(const struct session *session, struct buf *text)
{
    int64_t now_ms = engine_now_ms(session->engine);
    char lower[COMMAND_LOWER_SIZE];

    buf_printf(text,
               "id=%llu addr=%s name=%s age=%lld idle=%lld db=0 pending=%zu in=%zu out=%zu cmd=%s "
               "resp=%d lib-name=%s lib-ver=%s user=%s\n",
               (unsigned long long)session->id, session->peer, session->name,
               (long long)(now_ms - session->opened_ms) / 1000,
               (long long)(now_ms - session->active_ms) / 1000, session->pending_count,
               session->in.len, session->out.len + session->unsent,
               session->last_command == NULL ? "NULL" : command_lower(session->last_command, lower),
               session->resp3 ? 3 : 2, session->lib_name, session->lib_version,
               session_user(session));
}

void session_describe_like(const struct session *session, char text[SESSION_LIKE_SIZE])
{
    const char *colon = strrchr(session->peer, ':');
    size_t host = colon == NULL ? strlen(session->peer) : (size_t)(colon - session->peer);
    int len = snprintf(text, SESSION_LIKE_SIZE, "%.*s", (int)host, session->peer);

    if (session->lib_name[0] != '\0')
        len += snprintf(text + len, SESSION_LIKE_SIZE - (size_t)len, " lib=%s(%s)",
                        session->lib_name, session->lib_version);
    if (session->name[0] != '\0')
        snprintf(text + len, SESSION_LIKE_SIZE - (size_t)len, " name=%s", session->name);
}

bool session_is_like(const struct session *session, const struct session *other)
{
    char mine[SESSION_LIKE_SIZE], theirs[SESSION_LIKE_SIZE];

    session_describe_like(session, mine);
    session_describe_like(other, theirs);
    return session->account == other->account && strcmp(mine, theirs) == 0;
}

void session_log_denial(struct session *session, const char *reason, struct bytes object,
                        struct bytes user)
{
    int64_t now_ms = clock_wall_us(session->engine->options.clock) / 1000;
    struct buf client = {0};

    session_describe(session, &client);
    acl_log_add(session->engine->acl_log,
                &(struct acl_log_entry){.reason = reason,
                                        .context = session->multi != NULL ? "multi" : "toplevel",
                                        .created_ms = now_ms,
                                        .updated_ms = now_ms},
                object, user, (struct bytes){client.data, client.len - 1});
    buf_free(&client);
}

/* A command was done whose event did not get into the audit: end without a reply. */
static void cut_off(struct session *session)
{
    session->untold = true;
    session_kill(session);
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
    mark_changed(session);
}

void session_audit(struct session *session, struct audit_note note)
{
    const struct audit *audit = &session->engine->options.audit;

    if (audit->note == NULL)
        return;
    if (note.user.len == 0)
        note.user = bytes_of(session_user(session));
    note.address = bytes_of(session->peer);
    audit_await(session->engine, &session->unaudited, audit->note(audit->context, &note));
}

void request_audit(const struct request *request, struct audit_note note)
{
    if (request->session != NULL) {
        session_audit(request->session, note);
        return;
    }
    note.user = request_client(request).user;
    note.address = request_client(request).address;
    (void)audit_tell(&request->engine->options.audit, &note);
}

bool request_may_audit(struct request *request, uint32_t events)
{
    const char *failing = audit_refuses(&request->engine->options.audit, events);

    if (failing != NULL)
        request_fail(request, STK_STORE,
                     "the audit cannot be written, and this would have to be in it: %s; nothing of "
                     "this command was applied",
                     failing);
    return failing == NULL;
}

/* Must nothing be sent now, for the audit's sake? */
static bool is_unaudited(const struct session *session)
{
    return session->untold || !list_empty(&session->unaudited.link);
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
        if (!request->finished && request->command->abandon != NULL)
            return false;
    }
    session->input_ended = true;
    mark_changed(session);
    return true;
}

static bool start_next(struct session *session);
static size_t parse(struct session *session, const char *data, size_t len);

/* Parse and start as much as order and bounds allow. Return how many of `len` bytes it used. While
 * a password is checked nothing is parsed: limits, IDs and protocol are those of who has logged in.
 */
static size_t advance(struct session *session, const char *data, size_t len)
{
    size_t at = 0;

    while (!session->ending)
        if (session->next != NULL) {
            if (!start_next(session))
                return at;
        } else if (at == len || session->logging_in) {
            return at;
        } else {
            at += parse(session, data + at, len - at);
        }
    return len; /* ending: the rest is not read */
}

static void finished(struct request *request);

static void count_bytes(struct session *session)
{
    if (!session_is_stranger(session)) /* whose account is another's */
        account_count_bytes(session->account, &session->bytes,
                            session->pending_bytes + session->queued_bytes + session->share);
}

void session_count_queued(struct session *session, size_t bytes)
{
    session->queued_bytes = bytes;
    count_bytes(session);
}

void session_hand_over_queued(struct session *session, struct request *exec)
{
    exec->size += session->queued_bytes;
    session->pending_bytes += session->queued_bytes;
    session->queued_bytes = 0;
}

/* From now on its reply has a place in the order. */
static inline void take_place(struct session *session, struct request *request)
{
    request->started = true;
    request->started_us = session->engine->now_us;
    request->on_finished = finished;
    session->engine->requests_open++;
    list_append(&session->pending, &request->link);
    session->pending_count++;
    session->pending_bytes += request->size;
    count_bytes(session);
}

/* A started request of no command, for an answer in its place in the order of replies. */
static struct request *place(struct session *session)
{
    static const struct command no_command = {.name = "", .deed = DEED_NOTHING, .order = ORDER_NOW};
    struct request *request = request_new(session, &no_command, NULL, 0);

    take_place(session, request);
    return request;
}

void session_answer(struct session *session, struct bytes reply)
{
    if (list_empty(&session->pending)) { /* the usual: nothing is to be said before it */
        session->engine->counters.commands_processed++;
        buf_append_bytes(&session->out, reply);
        mark_changed(session);
        return;
    }
    struct request *request = place(session);
    buf_append_bytes(&request->reply, reply);
    request_finish(request);
}

/* A command was refused, before it began or because it has no place here. A transaction that misses
 * one of its commands is not applied. And where MULTI itself was refused, what was sent behind it
 * would be done one by one: that is refused, too. */
static void note_refused_command(struct session *session, const struct command *command)
{
    session->exec_refused = true;
    if (command->flags & COMMAND_BEGINS)
        session->refused = session->refused != NULL ? session->refused : command;
}

/* What is answered without a command's start: its reply is there. It takes its turn as all do, so
 * that what is bounded and counted for a command is so for an error. */
static const struct command wrong_command = {.name = "",
                                             .deed = DEED_NOTHING,
                                             .flags = COMMAND_NO_AUTH | COMMAND_DRAINING |
                                                      COMMAND_PUBSUB,
                                             .order = ORDER_NOW,
                                             .start = request_finish};

static void end_broken(struct request *request)
{
    struct session *session = request->session;

    request_finish(request);
    session_end(session);
}

/* The same, and the connection ends with it. */
static const struct command broken_protocol = {.name = "",
                                               .deed = DEED_NOTHING,
                                               .flags = COMMAND_NO_AUTH | COMMAND_DRAINING |
                                                        COMMAND_PUBSUB | COMMAND_STATE,
                                               .order = ORDER_NOW,
                                               .start = end_broken};

/* Make it `next`; the caller writes the error. */
static struct buf *answer_next(struct session *session, const struct command *what)
{
    session->next = request_new(session, what, NULL, 0);
    return &session->next->reply;
}

/* "ERR unknown command 'FOO', with args beginning with: 'a' 'b' " as Redis words it. */
static void reply_unknown(struct session *session, const struct bytes *argv, size_t argc)
{
    char text[200];
    int len =
        snprintf(text, sizeof text,
                 "unknown command '%.*s', with args beginning with: ", BYTES_CUT(argv[0], 128));
    for (size_t i = 1; i < argc && len < 128; i++) {
        int room = 128 - len;
        len += snprintf(text + len, sizeof text - (size_t)len, "'%.*s' ",
                        argv[i].len < (size_t)room ? (int)argv[i].len : room, argv[i].data);
    }
    note_refused_command(session, &wrong_command);
    resp_error(answer_next(session, &wrong_command), STK_ERR, "%s", text);
}

static void reply_misfit(struct session *session, const struct command *command, size_t argc)
{
    note_refused_command(session, command);
    answer_next(session, &wrong_command);
    request_reply_misfit(session->next, command, argc);
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
        session_kill(session);
    } else if (command == NULL) {
        reply_unknown(session, argv, argc);
    } else if (!words_fit(command, argc)) {
        reply_misfit(session, command, argc);
    } else {
        struct engine *engine = session->engine;
        if (engine->on_parsed != NULL && session->multi == NULL)
            command = engine->on_parsed(engine, command, argv, argc);
        struct request *request = session->next = request_new(session, command, argv, argc);
        request->queued = session->multi != NULL && !(command->flags & COMMAND_UNQUEUED);
        if (request->queued)
            request->order = ORDER_NOW;
        else if (command->prepare != NULL)
            command->prepare(request);
    }
}

/* Parse up to one request. Return how many bytes it used. */
static size_t parse(struct session *session, const char *data, size_t len)
{
    const struct resp_limits *limits =
        session->rights != NULL ? &resp_limits_default : &resp_limits_unauthenticated;
    size_t used, none;
    enum resp_status status = resp_parse(session->parser, limits, data, len, &used);

    if (status == RESP_REQUEST) {
        take_parsed(session);
        /* What a large request needed must not stay with an idle connection. */
        if (session->next != NULL && session->next->size > SESSION_SPARE_MAX)
            resp_parse(session->parser, limits, "", 0, &none);
    } else if (status == RESP_BROKEN) {
        session->engine->counters.protocol_errors++;
        resp_error(answer_next(session, &broken_protocol), STK_ERR, "%s",
                   resp_broken_text(session->parser));
    }
    return used;
}

/* Start: what was parsed goes to its command, when its turn has come. */

/* May the parsed request start now, or must what is under way finish first? */
static bool may_start(const struct session *session, const struct request *request)
{
    bool strange = session_is_stranger(session);

    if (session->pending_count >= (strange ? STRANGER_REQUESTS_MAX : SESSION_REQUESTS_MAX) ||
        session->pending_bytes >= SESSION_REQUEST_BYTES_MAX ||
        session->out.len + session->unsent >= (strange ? STRANGER_OUTPUT_MAX : SESSION_OUTPUT_MAX))
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

bool session_permits(struct session *session, struct request *request)
{
    static const char *const reasons[] = {[DENIED_FOR_COMMAND] = "command",
                                          [DENIED_FOR_KEY] = "key",
                                          [DENIED_FOR_CHANNEL] = "channel"};
    struct buf text = {0};
    struct denial denial;
    char title[COMMAND_LOWER_SIZE], lower[COMMAND_LOWER_SIZE];

    if (session->rights == NULL || session->rights->all ||
        rights_permit(session->rights, request, &denial))
        return true;
    struct bytes command = bytes_of(command_lower(denial.command, lower));
    bool of_command = denial.reason == DENIED_FOR_COMMAND;
    session_audit(session,
                  (struct audit_note){.event = AUDIT_DENIED,
                                      .code = STK_NOPERM,
                                      .resource = denial.object,
                                      .reason = bytes_of(command_title(denial.command, title))});
    session_log_denial(session, reasons[denial.reason], of_command ? command : denial.object,
                       bytes_of(session_user(session)));
    rights_explain(session->rights, &denial, &text);
    request->verdict = STK_OK; /* its plan's refusal is not told */
    buf_free(&request->reply); /* what its plan was refused for */
    resp_error(&request->reply, STK_NOPERM, acl_has_file(session->engine->acl) ? "%.*s" : NULL,
               (int)text.len, text.data);
    buf_free(&text);
    return false;
}

/* The row or subcommand that a request is about: its name, and its category. */
static const char *kind_of(const struct request *request, enum command_category *category)
{
    const struct command *command = request->command;
    const struct subcommand *subcommand = command->subcommands == NULL || request->argc < 2
                                              ? NULL
                                              : subcommand_find(command, request->argv[1]);

    *category = subcommand != NULL ? subcommand_category(subcommand) : command_category(command);
    if (request->plan.only_step.sql_right == SQL_MAY_DEFINE)
        *category = CATEGORY_ADMIN;
    return subcommand != NULL ? subcommand->name : command->name;
}

static bool may_be_administration(const struct request *request)
{
    const struct command *command = request->command;

    return command_category(command) == CATEGORY_ADMIN || command->subcommands != NULL ||
           request->plan.only_step.sql_right == SQL_MAY_DEFINE;
}

/* Note in the audit what only administrators do. False: the request has failed. */
static bool audit_administration(struct session *session, struct request *request)
{
    enum command_category category;
    char title[COMMAND_LOWER_SIZE];
    const char *name = kind_of(request, &category);

    if (category != CATEGORY_ADMIN || (request->command->flags & COMMAND_TELLS))
        return true;
    if (!request_may_audit(request, AUDIT_BIT(AUDIT_ADMIN)))
        return false;
    session_audit(session, (struct audit_note){.event = AUDIT_ADMIN,
                                               .reason = bytes_of(command_title(name, title))});
    return true;
}

/* Does its user send too much? What changes the meaning of the next commands is never refused for
 * that: they would be taken for something else. */
static bool is_over_limit(struct session *session, const struct command *command,
                          char why[ACCOUNT_WHY_SIZE])
{
    const struct engine_options *options = &session->engine->options;

    if (options->limits.rate == 0 && options->user_limits.rate == 0 &&
        options->user_limits.bytes == 0)
        return false;
    bool over =
        !account_take_command(session->account, why) || !account_bytes_fit(session->account, why);
    return over && !(command->flags & COMMAND_STATE);
}

/* Was a command refused that it belongs to? A refused MULTI ends with EXEC, DISCARD or another
 * MULTI, and takes in what could be queued; a refused login ends with another login. */
static bool is_part_of_refused(const struct session *session, const struct command *command)
{
    if (session->refused == NULL || (command->flags & COMMAND_NO_AUTH))
        return false;
    return !(session->refused->flags & COMMAND_BEGINS) ||
           !(command->flags & (COMMAND_UNQUEUED | COMMAND_PUBSUB));
}

bool session_admits(struct session *session, struct request *request)
{
    const struct command *command = request->command;
    struct buf reply = {0};
    char lower[COMMAND_LOWER_SIZE], why[ACCOUNT_WHY_SIZE];

    if (session->engine->draining && !(command->flags & COMMAND_DRAINING)) {
        session->engine->counters.refused_busy++;
        resp_error(&reply, STK_BUSY, "the daemon is stopping; try again elsewhere or later");
    } else if (session->rights == NULL && !(command->flags & COMMAND_NO_AUTH)) {
        resp_error(&reply, STK_NOAUTH, NULL);
    } else if (session->crowded && !(command->flags & COMMAND_NO_AUTH)) {
        resp_error(&reply, STK_BUSY,
                   "too many connections: user '%s' has %zu, and may have no more "
                   "(max-connections-per-user)",
                   session_user(session),
                   session->engine->options.user_limits.things[ACCOUNT_CONNECTIONS]);
        session->engine->counters.refused_busy++;
        session_end(session);
    } else if (!session_permits(session, request)) {
        return false;
    } else if (session->rights != NULL && is_over_limit(session, command, why)) {
        session->engine->counters.refused_busy++;
        resp_error(&reply, STK_BUSY, "%s", why);
    } else if (session_only_listens(session) && !(command->flags & COMMAND_PUBSUB)) {
        resp_error(&reply, STK_ERR,
                   "Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / "
                   "RESET are allowed in this context",
                   command_lower(command->name, lower));
    } else if (is_part_of_refused(session, command)) {
        bool multi = (session->refused->flags & COMMAND_BEGINS) != 0;
        resp_error(&reply, multi ? STK_EXECABORT : STK_BUSY,
                   multi ? "MULTI was refused, and so is what follows it up to EXEC or DISCARD"
                         : "the login before it was refused, and so is what follows it: log in "
                           "again");
        session->engine->counters.refused_busy += !multi;
    } else {
        return true;
    }
    buf_free(&request->reply); /* what its plan was refused for */
    request->reply = reply;
    return false;
}

/* Is not everything allowed, so that it has to be looked at? */
static inline bool is_restricted(const struct session *session)
{
    return session->rights != NULL && !session->rights->all;
}

bool session_looks_on(struct session *session, struct request *request)
{
    if (!is_restricted(session) || rights_look(session->rights, request))
        return false;
    list_remove(&session->changed);
    list_append(&session->engine->deferred, &session->changed);
    return true;
}

/* Start the request that was parsed. False: it has to wait. */
static bool start_next(struct session *session)
{
    struct request *request = session->next;

    if (!may_start(session, request) ||
        (is_restricted(session) && !request->queued && session_looks_on(session, request)))
        return false;
    if (session->input_ended && request->command->abandon != NULL) {
        session_kill(session); /* as session_input_ended says */
        return true;
    }
    if (request->queued)
        return session->on_queued(request);
    session->next = NULL;
    take_place(session, request);
    if (request->order != ORDER_NOW) {
        session->running_order = request->order;
        session->running_count++;
    }
    if (request->order == ORDER_READ) {
        request->weight = REPLY_SMALL;
        session->engine->reads_weight += request->weight;
    }
    if (!session_admits(session, request)) {
        note_refused_command(session, request->command);
        request_finish(request);
        return true;
    }
    if (is_restricted(session))
        request_take_rights(request, session->rights); /* which the store's threads may ask */
    if (may_be_administration(request) && !audit_administration(session, request))
        return true;
    request->command->start(request);
    return true;
}

/* Finished: replies go to the output in the order in which their requests arrived. */

static void count_output(struct session *session)
{
    size_t bytes = session->out.len + session->unsent;

    bool counts = bytes > REPLY_SMALL && !session_is_stranger(session);

    replies_count(&session->engine->replies, &session->share, counts ? bytes : 0);
    count_bytes(session);
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
        if (!first->finished)
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
static void finished(struct request *request)
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
    mark_changed(session);
}

void session_pushed(struct session *session)
{
    count_output(session);
    mark_changed(session);
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
        mark_changed(session);
}

bool session_ended(const struct session *session)
{
    bool no_more =
        session->ending || (session->input_ended && session->next == NULL && session->in.len == 0);
    return session->killed || (no_more && list_empty(&session->pending) && session->out.len == 0 &&
                               !is_unaudited(session));
}
