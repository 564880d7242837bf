/* SPDX-License-Identifier: Apache-2.0 */
/* Commands about the connection, worded as Redis words them, so that clients connect unmodified:
 * the greeting, the password, the protocol's version; and CLIENT, by which connections see
 * themselves and each other. */
#include <stdio.h>
#include <string.h>

#include "proxy/engine/command/exec.h"
#include "proxy/engine/command/handlers.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/identity.h"
#include "proxy/engine/session/login.h"
#include "proxy/engine/session/session.h"
#include "proxy/engine/write/plan.h"

#define CLIENT_NAME_ERROR "Client names cannot contain spaces, newlines or special characters."

/* Is it a name without spaces or special characters? */
static bool is_text(struct bytes value)
{
    for (size_t i = 0; i < value.len; i++)
        if (value.data[i] < '!' || value.data[i] > '~')
            return false;
    return value.len <= SESSION_NAME_MAX;
}

/* Take such a name. False: it is not one. */
static bool set_text(char text[SESSION_NAME_MAX + 1], struct bytes value)
{
    if (!is_text(value))
        return false;
    if (value.len > 0)
        memcpy(text, value.data, value.len);
    text[value.len] = '\0';
    return true;
}

static void reply_ok(struct request *request)
{
    resp_simple(&request->reply, "OK");
    request_finish(request);
}

void connection_ping(struct request *request)
{
    if (request->argc > 2) {
        request_fail_arity(request, "ping");
        return;
    }
    if (session_only_listens(request->session)) {
        resp_array(&request->reply, 2);
        resp_bulk_text(&request->reply, "pong");
        resp_bulk(&request->reply, request->argc == 2 ? request->argv[1] : bytes_of(""));
    } else if (request->argc == 2) {
        resp_bulk(&request->reply, request->argv[1]);
    } else {
        resp_simple(&request->reply, "PONG");
    }
    request_show(request);
}

enum stk_error connection_ping_exec(struct exec *exec)
{
    if (exec->argc > 2)
        return exec_error(exec, "wrong number of arguments for 'ping' command");
    if (exec->argc == 2)
        resp_bulk(exec->out, exec->argv[1]);
    else
        resp_simple(exec->out, "PONG");
    return STK_OK;
}

void connection_echo(struct request *request)
{
    resp_bulk(&request->reply, request->argv[1]);
    request_show(request);
}

enum stk_error connection_echo_exec(struct exec *exec)
{
    return exec_bulk(exec, exec->argv[1]);
}

void connection_auth(struct request *request)
{
    if (request->argc > 3) {
        request_fail(request, STK_ERR, "syntax error");
        return;
    }
    struct bytes user = request->argc == 3 ? request->argv[1] : BYTES_LITERAL(ACL_DEFAULT_USER);
    login_start(request, user, request->argv[request->argc - 1], reply_ok);
}

static void hello_reply(struct request *request)
{
    const struct session *session = request->session;
    struct buf *out = &request->reply;

    resp_map(out, 7, session->resp3);
    resp_bulk_text(out, "server");
    resp_bulk_text(out, "stockade");
    resp_bulk_text(out, "version");
    resp_bulk_text(out, STOCKADE_VERSION);
    resp_bulk_text(out, "proto");
    resp_int(out, session->resp3 ? 3 : 2);
    resp_bulk_text(out, "id");
    resp_int(out, (int64_t)session->id);
    resp_bulk_text(out, "mode");
    resp_bulk_text(out, "standalone");
    resp_bulk_text(out, "role");
    resp_bulk_text(out, "master");
    resp_bulk_text(out, "modules");
    resp_array(out, 0);
    request_finish(request);
}

/* What HELLO's words say. */
struct hello {
    int64_t version;
    struct bytes user, password, name;
    bool logs_in, named;
};

/* False: the request has failed. */
static bool parse_hello(struct request *request, struct hello *hello)
{
    *hello = (struct hello){.version = request->session->resp3 ? 3 : 2};
    if (request->argc > 1 && !bytes_to_int64(request->argv[1], &hello->version)) {
        request_fail(request, STK_ERR, "Protocol version is not an integer or out of range");
        return false;
    }
    if (hello->version != 2 && hello->version != 3) {
        request_fail(request, STK_NOPROTO, NULL);
        return false;
    }
    for (size_t i = 2; i < request->argc;)
        if (request_is_word(request, i, "AUTH") && i + 2 < request->argc) {
            hello->user = request->argv[i + 1];
            hello->password = request->argv[i + 2];
            hello->logs_in = true;
            i += 3;
        } else if (request_is_word(request, i, "SETNAME") && i + 1 < request->argc) {
            hello->name = request->argv[i + 1];
            hello->named = true;
            i += 2;
        } else {
            request_fail(request, STK_ERR, "Syntax error in HELLO option '%.*s'",
                         BYTES_CUT(request->argv[i], 64));
            return false;
        }
    if (is_text(hello->name))
        return true;
    request_fail(request, STK_ERR, CLIENT_NAME_ERROR);
    return false;
}

static void hello_known(struct request *request)
{
    struct session *session = request->session;
    struct hello hello;

    if (!parse_hello(request, &hello))
        return;
    if (hello.named)
        (void)set_text(session->name, hello.name);
    session->resp3 = hello.version == 3;
    hello_reply(request);
}

void connection_hello(struct request *request)
{
    struct hello hello;

    if (!parse_hello(request, &hello))
        return;
    if (hello.logs_in)
        login_start(request, hello.user, hello.password, hello_known);
    else if (request->session->rights != NULL)
        hello_known(request);
    else
        request_fail(request, STK_NOAUTH,
                     "HELLO must be called with the client already authenticated, otherwise the "
                     "HELLO <proto> AUTH <user> <pass> option can be used to authenticate the "
                     "client and select the RESP protocol version at the same time");
}

void connection_quit(struct request *request)
{
    struct session *session = request->session;

    resp_simple(&request->reply, "OK");
    request_finish(request);
    session_end(session);
}

void connection_reset(struct request *request)
{
    struct session *session = request->session;

    multi_drop(session);
    pubsub_clear(session);
    session->resp3 = session->notified = false;
    session->name[0] = '\0';
    identity_forget(session);
    resp_simple(&request->reply, "RESET");
    request_finish(request);
}

/* What is wrong with a database's number; NULL: nothing. */
static const char *index_complaint(struct bytes text)
{
    int64_t index;

    if (!bytes_to_int64(text, &index))
        return "value is not an integer or out of range";
    return index != 0 ? "DB index is out of range" : NULL;
}

void connection_select(struct request *request)
{
    const char *complaint = index_complaint(request->argv[1]);

    if (complaint != NULL)
        request_fail(request, STK_ERR, "%s", complaint);
    else
        reply_ok(request);
}

enum stk_error connection_select_exec(struct exec *exec)
{
    const char *complaint = index_complaint(exec->argv[1]);

    if (complaint != NULL)
        return exec_error(exec, complaint);
    resp_simple(exec->out, "OK");
    return STK_OK;
}

/* CLIENT */

static void client_id(struct request *request)
{
    resp_int(&request->reply, (int64_t)request->session->id);
    request_finish(request);
}

static void client_setname(struct request *request)
{
    if (set_text(request->session->name, request->argv[2]))
        reply_ok(request);
    else
        request_fail(request, STK_ERR, CLIENT_NAME_ERROR);
}

static void client_getname(struct request *request)
{
    if (request->session->name[0] == '\0')
        resp_null(&request->reply, request->resp3);
    else
        resp_bulk_text(&request->reply, request->session->name);
    request_finish(request);
}

static void client_setinfo(struct request *request)
{
    bool is_name = request_is_word(request, 2, "LIB-NAME");

    if (!is_name && !request_is_word(request, 2, "LIB-VER"))
        request_fail(request, STK_ERR, "Unrecognized option '%.*s'",
                     BYTES_CUT(request->argv[2], 64));
    else if (set_text(is_name ? request->session->lib_name : request->session->lib_version,
                      request->argv[3]))
        reply_ok(request);
    else
        request_fail(request, STK_ERR, "%s cannot contain spaces, newlines or special characters.",
                     is_name ? "lib-name" : "lib-ver");
}

static void client_list(struct request *request)
{
    struct engine *engine = request->engine;
    struct buf text = {0};

    for (struct list *at = engine->sessions.next; at != &engine->sessions; at = at->next)
        session_describe(list_entry(at, struct session, link), &text);
    resp_verbatim(&request->reply, buf_bytes(&text), request->resp3);
    buf_free(&text);
    request_finish(request); /* without asking for room: it shows who does not read */
}

static void client_info(struct request *request)
{
    struct buf text = {0};

    session_describe(request->session, &text);
    resp_verbatim(&request->reply, buf_bytes(&text), request->resp3);
    buf_free(&text);
    request_finish(request);
}

struct kill_filter {
    int64_t id; /* 0: any */
    struct bytes address, user;
    bool spare_self;
};

static bool parse_kill(struct request *request, struct kill_filter *filter)
{
    for (size_t i = 2; i < request->argc; i += 2) {
        if (i + 1 == request->argc) {
            request_fail(request, STK_ERR, "syntax error");
            return false;
        }
        if (request_is_word(request, i, "ID")) {
            if (!bytes_to_int64(request->argv[i + 1], &filter->id) || filter->id < 1) {
                request_fail(request, STK_ERR, "client-id should be greater than 0");
                return false;
            }
        } else if (request_is_word(request, i, "ADDR")) {
            filter->address = request->argv[i + 1];
        } else if (request_is_word(request, i, "USER")) {
            filter->user = request->argv[i + 1];
        } else if (request_is_word(request, i, "SKIPME")) {
            filter->spare_self = request_is_word(request, i + 1, "yes");
        } else {
            request_fail(request, STK_ERR, "syntax error");
            return false;
        }
    }
    return true;
}

static int64_t kill_matching(struct request *request, const struct kill_filter *filter)
{
    struct engine *engine = request->engine;
    int64_t killed = 0;

    for (struct list *at = engine->sessions.next; at != &engine->sessions; at = at->next) {
        struct session *session = list_entry(at, struct session, link);
        if ((filter->id != 0 && (uint64_t)filter->id != session->id) ||
            (filter->address.len > 0 && !bytes_equal(filter->address, bytes_of(session->peer))) ||
            (filter->user.len > 0 && !bytes_equal(filter->user, bytes_of(session_user(session)))) ||
            (filter->spare_self && session == request->session))
            continue;
        if (session == request->session) /* its own reply still goes out */
            session_end(session);
        else
            session_kill(session);
        killed++;
    }
    return killed;
}

static void client_kill(struct request *request)
{
    struct kill_filter filter = {.spare_self = request->argc > 3};

    if (request->argc == 3)
        filter.address = request->argv[2];
    else if (!parse_kill(request, &filter))
        return;
    int64_t killed = kill_matching(request, &filter);
    if (request->argc > 3) {
        resp_int(&request->reply, killed);
        request_finish(request);
    } else if (killed > 0) {
        reply_ok(request);
    } else {
        request_fail(request, STK_ERR, "No such client");
    }
}

const struct subcommand connection_client_subcommands[] = {
    {"client|id", 2, client_id, DEED_CONNECTION},
    {"client|setname", 3, client_setname, DEED_CONNECTION},
    {"client|getname", 2, client_getname, DEED_CONNECTION},
    {"client|setinfo", 4, client_setinfo, DEED_CONNECTION},
    {"client|info", 2, client_info, DEED_CONNECTION},
    {"client|list", -2, client_list, DEED_ADMIN},
    {"client|kill", -3, client_kill, DEED_ADMIN},
    {"client|help", 2, request_help, DEED_CONNECTION},
    {.name = NULL},
};
