/* SPDX-License-Identifier: Apache-2.0 */
/* COMMAND: the table of commands as clients read it. */
#include <ctype.h>

#include "proxy/engine/internal.h"

static void lower_bulk(struct buf *out, const char *name)
{
    char lower[40];
    size_t len = 0;
    for (; name[len] != '\0' && len < sizeof lower; len++)
        lower[len] = (char)tolower((unsigned char)name[len]);
    resp_bulk(out, (struct bytes){lower, len});
}

static void flags(struct buf *out, const struct command *command, bool resp3)
{
    const struct {
        bool on;
        const char *name;
    } all[] = {
        {command->flags & COMMAND_WRITES, "write"},
        {command->order == ORDER_READ, "readonly"},
        {command->flags & COMMAND_ADMIN, "admin"},
        {command->flags & COMMAND_NO_AUTH, "no_auth"},
        {command->start == lease_acquire, "blocking"},
    };
    size_t count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        count += all[i].on;
    resp_set(out, count, resp3);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].on)
            resp_simple(out, all[i].name);
}

static void describe(struct buf *out, const struct command *command, bool resp3)
{
    resp_array(out, 10);
    lower_bulk(out, command->name);
    resp_int(out, command->arity);
    flags(out, command, resp3);
    resp_int(out, command->key_first);
    resp_int(out, command->key_last);
    resp_int(out, command->key_step);
    resp_set(out, 0, resp3); /* categories of access control lists */
    resp_array(out, 0);      /* tips */
    resp_array(out, 0);      /* key specifications */
    resp_array(out, 0);      /* subcommands */
}

static void document(struct buf *out, const struct command *command, bool resp3)
{
    lower_bulk(out, command->name);
    resp_map(out, 3, resp3);
    resp_bulk_text(out, "summary");
    resp_bulk_text(out, command->summary);
    resp_bulk_text(out, "since");
    resp_bulk_text(out, "0.1.0");
    resp_bulk_text(out, "group");
    resp_bulk_text(out, command->group);
}

static void docs(struct request *request)
{
    struct buf body = {0};
    size_t count = 0;

    if (request->argc == 2)
        for (; count < commands_count; count++)
            document(&body, &commands[count], request->resp3);
    for (size_t i = 2; i < request->argc; i++) {
        const struct command *command = command_find(&request->engine->index, request->argv[i]);
        if (command == NULL)
            continue;
        document(&body, command, request->resp3);
        count++;
    }
    resp_map(&request->reply, count, request->resp3);
    buf_append_bytes(&request->reply, buf_bytes(&body));
    buf_free(&body);
}

void server_command(struct request *request)
{
    struct buf *out = &request->reply;

    if (request->argc > 1)
        request->session->last_command = request_is_word(request, 1, "COUNT")  ? "command|count"
                                         : request_is_word(request, 1, "DOCS") ? "command|docs"
                                                                               : "command|info";
    if (request->argc == 1 || (request->argc == 2 && request_is_word(request, 1, "INFO"))) {
        resp_array(out, commands_count);
        for (size_t i = 0; i < commands_count; i++)
            describe(out, &commands[i], request->resp3);
    } else if (request->argc == 2 && request_is_word(request, 1, "COUNT")) {
        resp_int(out, (int64_t)commands_count);
    } else if (request_is_word(request, 1, "DOCS")) {
        docs(request);
    } else if (request_is_word(request, 1, "INFO")) {
        resp_array(out, request->argc - 2);
        for (size_t i = 2; i < request->argc; i++) {
            const struct command *command = command_find(&request->engine->index, request->argv[i]);
            if (command != NULL)
                describe(out, command, request->resp3);
            else
                resp_null_array(out, request->resp3);
        }
    } else {
        request_fail_subcommand(request);
        return;
    }
    request_show(request);
}
