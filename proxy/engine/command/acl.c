/* SPDX-License-Identifier: Apache-2.0 */
/* ACL: the users in force and their rights, as Redis shows them. They are changed in their file
 * (--acl-file), which ACL LOAD reads again. */
#include "proxy/engine/acl/acl.h"

#include <stdio.h>
#include <string.h>

#include "proxy/engine/acl/log.h"
#include "proxy/engine/command/handlers.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/rights.h"
#include "proxy/engine/session/session.h"

static void whoami(struct request *request)
{
    resp_bulk_text(&request->reply, session_user(request->session));
    request_finish(request);
}

static void show_all(struct request *request,
                     void (*show)(const struct acl_user *user, struct buf *out))
{
    const struct acl *acl = request->engine->acl;
    const struct acl_user *user;
    struct buf text = {0};
    size_t count = 0;

    while (acl_at(acl, count) != NULL)
        count++;
    resp_array(&request->reply, count);
    for (size_t i = 0; (user = acl_at(acl, i)) != NULL; i++) {
        buf_clear(&text);
        show(user, &text);
        resp_bulk(&request->reply, buf_bytes(&text));
    }
    buf_free(&text);
    request_show(request);
}

static void list(struct request *request)
{
    show_all(request, acl_show_user);
}

static void show_name(const struct acl_user *user, struct buf *out)
{
    buf_append_text(out, user->name);
}

static void users(struct request *request)
{
    show_all(request, show_name);
}

static void add_password(void *context, struct bytes hash)
{
    resp_bulk(context, hash);
}

static void put_words(struct request *request, const char *name, const struct acl_user *user,
                      void (*show)(const struct acl_user *user, struct buf *out))
{
    struct buf text = {0};

    show(user, &text);
    resp_bulk_text(&request->reply, name);
    resp_bulk(&request->reply, buf_bytes(&text));
    buf_free(&text);
}

static void getuser(struct request *request)
{
    const struct acl_user *user = acl_find(request->engine->acl, request->argv[2]);
    struct buf *out = &request->reply;

    if (user == NULL) {
        resp_null_array(out, request->resp3);
        request_finish(request);
        return;
    }
    resp_map(out, 6, request->resp3);
    resp_bulk_text(out, "flags");
    resp_set(out, 1 + user->nopass, request->resp3);
    resp_bulk_text(out, user->on ? "on" : "off");
    if (user->nopass)
        resp_bulk_text(out, "nopass");
    resp_bulk_text(out, "passwords");
    resp_array(out, user->passwords_count);
    acl_show_passwords(user, add_password, out);
    put_words(request, "commands", user, acl_show_commands);
    put_words(request, "keys", user, acl_show_keys);
    put_words(request, "channels", user, acl_show_channels);
    resp_bulk_text(out, "selectors");
    resp_array(out, 0);
    request_show(request);
}

/* CAT: names in an array, whose length is not known before. */
struct names {
    struct buf body;
    size_t count;
    enum command_category category;
};

static void add_right(void *context, const char *name, enum command_category category)
{
    struct names *names = context;
    char lower[COMMAND_LOWER_SIZE];

    if (category != names->category)
        return;
    resp_bulk_text(&names->body, command_lower(name, lower));
    names->count++;
}

static void cat(struct request *request)
{
    struct names names = {.category = CATEGORY_NONE};

    if (request->argc > 3) {
        request_fail_arity(request, "acl|cat");
        return;
    }
    if (request->argc == 3) {
        names.category = acl_category(request->argv[2]);
        if (names.category == CATEGORY_NONE) {
            request_fail(request, STK_ERR, "Unknown category '%.*s'",
                         BYTES_CUT(request->argv[2], 64));
            return;
        }
        acl_each_name(request->session->rights, add_right, &names);
    }
    for (int i = CATEGORY_NONE + 1; i < CATEGORIES && request->argc == 2; i++, names.count++)
        resp_bulk_text(&names.body, acl_category_name((enum command_category)i));
    resp_array(&request->reply, names.count);
    buf_append_bytes(&request->reply, buf_bytes(&names.body));
    buf_free(&names.body);
    request_show(request);
}

/* DRYRUN user command [arg ...]: what would be said of it, in the words of the error. */
static void dryrun(struct request *request)
{
    struct engine *engine = request->engine;
    const struct acl_user *user = acl_find(engine->acl, request->argv[2]);
    const struct bytes *argv = request->argv + 3;
    size_t argc = request->argc - 3;
    const struct command *command = command_find(&engine->index, argv[0]);
    struct buf text = {0};
    struct denial denial;

    if (user == NULL) {
        request_fail(request, STK_ERR, "User '%.*s' not found", BYTES_CUT(request->argv[2], 64));
        return;
    }
    if (command == NULL) {
        request_fail(request, STK_ERR, "Command '%.*s' not found", BYTES_CUT(argv[0], 64));
        return;
    }
    if (!words_fit(command, argc)) {
        request_reply_misfit(request, command, argc);
        request_finish(request);
        return;
    }
    if (engine->on_parsed != NULL)
        command = engine->on_parsed(engine, command, argv, argc);
    struct request *tried = request_new(request->session, command, argv, argc);
    if (command->prepare != NULL)
        command->prepare(tried);
    if (rights_permit(user, tried, &denial)) {
        resp_simple(&request->reply, "OK");
    } else {
        rights_explain(user, &denial, &text);
        resp_bulk(&request->reply, buf_bytes(&text));
        buf_free(&text);
    }
    request_free(tried);
    request_finish(request);
}

static void load(struct request *request)
{
    const struct engine_host *host = &request->engine->options.host;
    char why[ACL_WHY_SIZE];

    if (host->load_acl == NULL || !acl_has_file(request->engine->acl)) {
        request_fail(request, STK_ERR,
                     "there is no file of users: start stockaded with --acl-file FILE");
        return;
    }
    if (!host->load_acl(host->context, why)) {
        request_fail(request, STK_ERR, "%s; the users are as before", why);
        return;
    }
    resp_simple(&request->reply, "OK");
    request_finish(request);
}

static void put_text(struct buf *out, const char *name, const char *value)
{
    resp_bulk_text(out, name);
    resp_bulk_text(out, value);
}

static void put_int(struct buf *out, const char *name, int64_t value)
{
    resp_bulk_text(out, name);
    resp_int(out, value);
}

static void put_entry(struct request *request, const struct acl_log_entry *entry, int64_t now_ms)
{
    struct buf *out = &request->reply;

    resp_map(out, 10, request->resp3);
    put_int(out, "count", (int64_t)entry->count);
    put_text(out, "reason", entry->reason);
    put_text(out, "context", entry->context);
    put_text(out, "object", entry->object);
    put_text(out, "username", entry->user);
    resp_bulk_text(out, "age-seconds");
    resp_double(out, (double)(now_ms - entry->updated_ms) / 1000, request->resp3);
    put_text(out, "client-info", entry->client);
    put_int(out, "entry-id", (int64_t)entry->id);
    put_int(out, "timestamp-created", entry->created_ms);
    put_int(out, "timestamp-last-updated", entry->updated_ms);
}

/* LOG [count | RESET] */
static void show_log(struct request *request)
{
    struct acl_log *log = request->engine->acl_log;
    int64_t now_ms = clock_wall_us(request->engine->options.clock) / 1000, count = 10;
    size_t there = 0;

    if (request->argc > 3) {
        request_fail_arity(request, "acl|log");
        return;
    }
    if (request_is_word(request, 2, "RESET")) {
        acl_log_clear(log);
        resp_simple(&request->reply, "OK");
        request_finish(request);
        return;
    }
    if (request->argc == 3 && !request_int(request, 2, 0, INT32_MAX, "count", &count))
        return;
    while (there < (size_t)count && acl_log_at(log, there) != NULL)
        there++;
    resp_array(&request->reply, there);
    for (size_t i = 0; i < there; i++)
        put_entry(request, acl_log_at(log, i), now_ms);
    request_show(request);
}

static void refuse(struct request *request)
{
    request_fail(request, STK_ERR,
                 "users are changed in the file of --acl-file, which ACL LOAD reads again");
}

const struct subcommand acl_subcommands[] = {
    {"acl|whoami", 2, whoami, DEED_CONNECTION},
    {"acl|list", 2, list, DEED_ADMIN},
    {"acl|users", 2, users, DEED_ADMIN},
    {"acl|getuser", 3, getuser, DEED_ADMIN},
    {"acl|cat", -2, cat, DEED_ADMIN},
    {"acl|dryrun", -4, dryrun, DEED_ADMIN},
    {"acl|load", 2, load, DEED_ADMIN},
    {"acl|log", -2, show_log, DEED_ADMIN},
    {"acl|setuser", -3, refuse, DEED_ADMIN},
    {"acl|deluser", -3, refuse, DEED_ADMIN},
    {"acl|save", 2, refuse, DEED_ADMIN},
    {"acl|help", 2, request_help, DEED_CONNECTION},
    {.name = NULL},
};
