/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/session/admission.h"

#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/log.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/rights.h"

/* What the replies of the reads under way may weigh together, guessed from the latest ones. */
#define SESSION_READS_WEIGHT (4 << 20)

/* What came in becomes a request. */

/* A command was refused, before it began or because it has no place here. A transaction that misses
 * one of its commands is not applied. And where MULTI itself was refused, what was sent behind it
 * would be done one by one: that is refused, too. */
static void note_refused_command(struct session *session, const struct command *command)
{
    if (session->transaction == TRANSACTION_QUEUES)
        session->transaction = TRANSACTION_REFUSED;
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

/* "ERR unknown command 'GTE', with args beginning with: 'a' 'b' " as Redis words it, and what may
 * have been meant behind it. */
static void reply_unknown(struct session *session, const struct bytes *argv, size_t argc)
{
    char text[200], room_for_hint[NEAREST_HINT_MAX];
    const char *hint = command_hint(&session->engine->index, argv[0], room_for_hint);
    int len =
        snprintf(text, sizeof text,
                 "unknown command '%.*s', with args beginning with: ", BYTES_CUT(argv[0], 128));
    for (size_t i = 1; i < argc && len < 128; i++) {
        int room = 128 - len;
        len += snprintf(text + len, sizeof text - (size_t)len, "'%.*s' ",
                        argv[i].len < (size_t)room ? (int)argv[i].len : room, argv[i].data);
    }
    note_refused_command(session, &wrong_command);
    resp_error(answer_next(session, &wrong_command), STK_ERR, "%s%s", text,
               hint + (hint[0] == ' ')); /* the text has one already */
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

void admission_take(struct session *session, const struct bytes *argv, size_t argc)
{
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
        if (session->multi != NULL && !(command->flags & COMMAND_UNQUEUED)) {
            request->stage = REQUEST_QUEUED;
            request->order = ORDER_NOW;
        } else if (command->prepare != NULL) {
            command->prepare(request);
        }
    }
}

void admission_take_broken(struct session *session, const char *why)
{
    session->engine->counters.protocol_errors++;
    resp_error(answer_next(session, &broken_protocol), STK_ERR, "%s", why);
}

/* May it start now, or must what is under way finish first? */

static bool has_turn(const struct session *session, const struct request *request)
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

/* May it be done at all? */

void session_deny(struct session *session, struct request *request, const struct denial *denial)
{
    static const char *const reasons[] = {[DENIED_FOR_COMMAND] = "command",
                                          [DENIED_FOR_KEY] = "key",
                                          [DENIED_FOR_CHANNEL] = "channel"};
    struct buf text = {0};
    char title[COMMAND_LOWER_SIZE], lower[COMMAND_LOWER_SIZE];
    struct bytes command = bytes_of(command_lower(denial->command, lower));
    bool of_command = denial->reason == DENIED_FOR_COMMAND;

    session_audit(session,
                  (struct audit_note){.event = AUDIT_DENIED,
                                      .code = STK_NOPERM,
                                      .resource = denial->object,
                                      .reason = bytes_of(command_title(denial->command, title))});
    session_log_denial(session, reasons[denial->reason], of_command ? command : denial->object,
                       bytes_of(session_user(session)));
    rights_explain(session->rights, denial, &text);
    request->verdict = STK_OK; /* its plan's refusal is not told */
    buf_free(&request->reply); /* what its plan was refused for */
    resp_error(&request->reply, STK_NOPERM, acl_has_file(session->engine->acl) ? "%.*s" : NULL,
               (int)text.len, text.data);
    buf_free(&text);
}

bool session_permits(struct session *session, struct request *request)
{
    struct denial denial;

    if (session->rights == NULL || session->rights->all ||
        rights_permit(session->rights, request, &denial))
        return true;
    session_deny(session, request, &denial);
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
    } else if (session->seat == SEAT_TOO_MANY && !(command->flags & COMMAND_NO_AUTH)) {
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

/* False: it has been answered. */
static bool lets_begin(struct session *session, struct request *request)
{
    if (!session_admits(session, request)) {
        note_refused_command(session, request->command);
        request_finish(request);
        return false;
    }
    if (is_restricted(session))
        request_take_rights(request, session->rights); /* which the store's threads may ask */
    return !may_be_administration(request) || audit_administration(session, request);
}

void admission_take_place(struct session *session, struct request *request)
{
    check(request->stage == REQUEST_PARSED);
    request->stage = REQUEST_STARTED;
    request->started_us = session->engine->now_us;
    request->on_finished = session->on_finished;
    session->engine->requests_open++;
    list_append(&session->pending, &request->link);
    session->pending_count++;
    session->pending_bytes += request->size;
    session_count_bytes(session);
}

bool admission_start_next(struct session *session)
{
    struct request *request = session->next;

    if (!has_turn(session, request) ||
        (is_restricted(session) && request->stage == REQUEST_PARSED &&
         session_looks_on(session, request)))
        return false;
    if (session->input_ended && request->command->abandon != NULL) {
        session_kill(session); /* as session_input_ended says */
        return true;
    }
    if (request->stage == REQUEST_QUEUED)
        return session->on_queued(request);
    session->next = NULL;
    admission_take_place(session, request);
    if (request->order != ORDER_NOW) {
        session->running_order = request->order;
        session->running_count++;
    }
    if (request->order == ORDER_READ) {
        request->weight = REPLY_SMALL;
        session->engine->reads_weight += request->weight;
    }
    if (lets_begin(session, request))
        request->command->start(request);
    return true;
}
