/* SPDX-License-Identifier: Apache-2.0 */
/* CLIENT: connections look at themselves and at each other. */
#include <stdio.h>
#include <string.h>

#include "proxy/engine/internal.h"

bool session_set_text(char text[SESSION_NAME_MAX + 1], struct bytes value)
{
    if (value.len > SESSION_NAME_MAX)
        return false;
    for (size_t i = 0; i < value.len; i++)
        if (value.data[i] < '!' || value.data[i] > '~')
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

static void client_id(struct request *request)
{
    resp_int(&request->reply, (int64_t)request->session->id);
    request_finish(request);
}

static void client_setname(struct request *request)
{
    if (session_set_text(request->session->name, request->argv[2]))
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
                     (int)(request->argv[2].len < 64 ? request->argv[2].len : 64),
                     request->argv[2].data);
    else if (session_set_text(is_name ? request->session->lib_name : request->session->lib_version,
                              request->argv[3]))
        reply_ok(request);
    else
        request_fail(request, STK_ERR, "%s cannot contain spaces, newlines or special characters.",
                     is_name ? "lib-name" : "lib-ver");
}

static void describe(const struct session *session, int64_t now_ms, struct buf *text)
{
    char lower[COMMAND_LOWER_SIZE];

    buf_printf(text,
               "id=%llu addr=%s name=%s age=%lld idle=%lld db=0 pending=%zu in=%zu out=%zu cmd=%s "
               "resp=%d lib-name=%s lib-ver=%s user=default\n",
               (unsigned long long)session->id, session->peer, session->name,
               (long long)(now_ms - session->opened_ms) / 1000,
               (long long)(now_ms - session->active_ms) / 1000, session->pending_count,
               session->in.len, session->out.len + session->unsent,
               session->last_command == NULL ? "NULL" : command_lower(session->last_command, lower),
               session->resp3 ? 3 : 2, session->lib_name, session->lib_version);
}

static void client_list(struct request *request)
{
    struct engine *engine = request->engine;
    struct buf text = {0};

    for (struct list *at = engine->sessions.next; at != &engine->sessions; at = at->next)
        describe(list_entry(at, struct session, link), engine_now_ms(engine), &text);
    resp_verbatim(&request->reply, buf_bytes(&text), request->resp3);
    buf_free(&text);
    if (session_is_admin(request->session)) /* who looks for those that do not read */
        request_finish(request);
    else
        request_show(request);
}

static void client_info(struct request *request)
{
    struct buf text = {0};

    describe(request->session, engine_now_ms(request->engine), &text);
    resp_verbatim(&request->reply, buf_bytes(&text), request->resp3);
    buf_free(&text);
    request_finish(request);
}

struct kill_filter {
    int64_t id; /* 0: any */
    struct bytes address;
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
            (filter->spare_self && session == request->session))
            continue;
        session->killed = session != request->session; /* its own reply still goes out */
        session_end(session);
        killed++;
    }
    return killed;
}

static void client_kill(struct request *request)
{
    struct kill_filter filter = {.spare_self = request->argc > 3};

    if (!session_is_admin(request->session)) {
        request_fail(request, STK_NOPERM, NULL);
        return;
    }
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

static const struct {
    const char *name, *full_name;
    int arity; /* with CLIENT; negative: at least */
    command_start *start;
} subcommands[] = {
    {"id", "client|id", 2, client_id},
    {"setname", "client|setname", 3, client_setname},
    {"getname", "client|getname", 2, client_getname},
    {"setinfo", "client|setinfo", 4, client_setinfo},
    {"list", "client|list", -2, client_list},
    {"info", "client|info", 2, client_info},
    {"kill", "client|kill", -3, client_kill},
};

void server_client(struct request *request)
{
    for (size_t i = 0; i < sizeof subcommands / sizeof *subcommands; i++) {
        if (!request_is_word(request, 1, subcommands[i].name))
            continue;
        int arity = subcommands[i].arity;
        request->session->last_command = subcommands[i].full_name;
        if (arity >= 0 ? request->argc == (size_t)arity : request->argc >= (size_t)-arity)
            subcommands[i].start(request);
        else
            request_fail_arity(request, subcommands[i].full_name);
        return;
    }
    request_fail_subcommand(request);
}
