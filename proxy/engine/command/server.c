/* SPDX-License-Identifier: Apache-2.0 */
/* Commands about the daemon, worded as Redis words them: TIME, CONFIG, SHUTDOWN, FLUSHALL, and
 * COMMAND, the table of commands as clients read it. (INFO is in info.c.) */
#include <stdio.h>
#include <string.h>

#include "fence/base/glob.h"
#include "fence/base/mem.h"
#include "proxy/engine/acl/acl.h"
#include "proxy/engine/command/handlers.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/session.h"

void server_time(struct request *request)
{
    int64_t us = clock_wall_us(request->engine->options.clock);

    resp_array(&request->reply, 2);
    resp_bulk_int(&request->reply, us / 1000000);
    resp_bulk_int(&request->reply, us % 1000000);
    request_finish(request);
}

/* What redis-benchmark asks for, answered for a store that is durable at each reply. */
static const char *const config_constants[][2] = {{"appendonly", "yes"}, {"save", ""}};

enum { CONFIG_PATTERNS_MAX = 64 };

struct config_ask {
    struct glob *patterns[CONFIG_PATTERNS_MAX];
    size_t count;
};

static bool config_asked(const struct config_ask *ask, const char *name)
{
    for (size_t i = 0; i < ask->count; i++)
        if (glob_matches(ask->patterns[i], bytes_of(name)))
            return true;
    return false;
}

static void config_collect(struct request *request, const struct config_ask *ask, struct buf *body,
                           size_t *count)
{
    const struct engine_host *host = &request->engine->options.host;
    const char *name, *value;
    size_t constants = sizeof config_constants / sizeof *config_constants;

    for (size_t i = 0;; i++) {
        if (i < constants) {
            name = config_constants[i][0];
            value = config_constants[i][1];
        } else if (host->option == NULL ||
                   !host->option(host->context, i - constants, &name, &value)) {
            return;
        }
        if (!config_asked(ask, name))
            continue;
        resp_bulk_text(body, name);
        resp_bulk_text(body, value);
        (*count)++;
    }
}

static void config_reply(struct request *request, const struct config_ask *ask)
{
    struct buf body = {0};
    size_t count = 0;

    config_collect(request, ask, &body, &count);
    resp_map(&request->reply, count, request->resp3);
    buf_append_bytes(&request->reply, buf_bytes(&body));
    buf_free(&body);
    request_show(request);
}

static void config_get(struct request *request)
{
    const size_t patterns = request->argc - 2;
    struct config_ask ask = {.count = 0};

    if (patterns > CONFIG_PATTERNS_MAX) {
        request_fail(request, STK_ERR, "CONFIG GET takes at most %d patterns", CONFIG_PATTERNS_MAX);
        return;
    }
    while (ask.count < patterns && request_glob(request, ask.count + 2, &ask.patterns[ask.count]))
        ask.count++;
    if (ask.count == patterns)
        config_reply(request, &ask);
    while (ask.count > 0)
        glob_free(ask.patterns[--ask.count]);
}

static void config_set(struct request *request)
{
    request_fail(request, STK_ERR, "options are set where the daemon starts: stockaded --help");
}

const struct subcommand server_config_subcommands[] = {
    {"config|get", -3, config_get, DEED_ADMIN},
    {"config|set", -2, config_set, DEED_ADMIN},
    {"config|help", 2, request_help, DEED_ADMIN},
    {.name = NULL},
};

void server_shutdown(struct request *request)
{
    struct engine *engine = request->engine;

    session_end(request->session);
    request_finish(request); /* as in Redis: no reply, the connection closes */
    engine->shutdown_asked = true;
}

/* FLUSHALL goes in small transactions, between which everybody else's writes pass: each resource
 * loses its value and its lease at once, but not all of them do. One that fails has done a part. */

enum { FLUSH_ROWS_MAX = 2048 };

struct flushing {
    struct flush_walk walk; /* as far as it is committed */
    struct flush_walk next; /* the operation's */
};

static enum stk_error flush_run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);
    struct flushing *flushing = request->state;

    buf_clear(&request->reply);
    resp_simple(&request->reply, "OK");
    flushing->next = flushing->walk;
    return txn_flush(txn, FLUSH_ROWS_MAX, &flushing->next);
}

static void flush_done(struct store_op *op);

static void flush_fail(struct request *request, enum stk_error error)
{
    const struct flushing *flushing = request->state;
    const char *why = error == STK_BUSY ? "a queue is full" : request->op.why;

    request->engine->counters.store_errors += error != STK_BUSY;
    if (flushing->walk.after == 0) /* the first step */
        request_fail(request, error, NULL);
    else
        request_fail(request, error,
                     "%s; a part of this command was applied, and the same again does the rest",
                     why != NULL ? why : "the store failed");
}

/* Take the next step. */
static void flush_on(struct request *request)
{
    if (request_submit(request, true, flush_run, flush_done) != STK_OK)
        flush_fail(request, STK_BUSY);
}

static void flush_done(struct store_op *op)
{
    struct request *request = request_of_op(op);
    struct flushing *flushing = request->state;

    if (op->error != STK_OK) {
        flush_fail(request, op->error);
        return;
    }
    flushing->walk = flushing->next;
    if (flushing->walk.more)
        flush_on(request);
    else
        request_finish(request);
}

void server_flushall(struct request *request)
{
    bool right = request->argc == 1 ||
                 (request->argc == 2 &&
                  (request_is_word(request, 1, "SYNC") || request_is_word(request, 1, "ASYNC")));

    if (!right) {
        request_fail(request, STK_ERR, "syntax error");
    } else if (!request->engine->options.unfenced_writes) {
        request_fail(request, STK_NOPERM, "%s needs a daemon with --unfenced-writes allow",
                     request->command->name);
    } else {
        request->state = mem_zalloc(sizeof(struct flushing));
        flush_on(request);
    }
}

/* COMMAND */

/* Take room for what is said of each command named, be it the same one a million times. */
static bool has_reply_room(struct request *request)
{
    enum { DESCRIPTION_MAX = 640 };

    return request_room(request, (request->argc - 2) * DESCRIPTION_MAX);
}

static void flags(struct buf *out, const struct command *command, bool resp3)
{
    const struct {
        bool on;
        const char *name;
    } all[] = {
        {command->flags & COMMAND_WRITES, "write"},
        {command_only_reads(command), "readonly"},
        {command_category(command) == CATEGORY_ADMIN, "admin"},
        {command->flags & COMMAND_NO_AUTH, "no_auth"},
        {command->flags & COMMAND_BLOCKING, "blocking"},
    };
    size_t count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        count += all[i].on;
    resp_set(out, count, resp3);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].on)
            resp_simple(out, all[i].name);
}

static void name(struct buf *out, const struct command *command)
{
    char lower[COMMAND_LOWER_SIZE];
    resp_bulk_text(out, command_lower(command->name, lower));
}

/* "@read": the category of an access control list. */
static void categories(struct buf *out, const struct command *command, bool resp3)
{
    char name[16];

    resp_set(out, command_category(command) != CATEGORY_NONE, resp3);
    if (command_category(command) == CATEGORY_NONE)
        return;
    snprintf(name, sizeof name, "@%s", acl_category_name(command_category(command)));
    resp_simple(out, name);
}

static void key_flags(struct buf *out, const struct command *command, bool resp3)
{
    const char *words = deed_needs(command->deed)->spec, *variable = " variable_flags";
    char text[64];
    size_t count = 1;

    snprintf(text, sizeof text, "%s%s", words, command->act != NULL ? variable : "");
    for (const char *at = text; *at != '\0'; at++)
        count += *at == ' ';
    resp_set(out, count, resp3);
    for (char *word = text; count > 0; count--, word += strlen(word) + 1) {
        word[strcspn(word, " ")] = '\0';
        resp_simple(out, word);
    }
}

static void place(struct buf *out, bool resp3, const char *type, const char *const *names,
                  const int64_t *values, size_t count)
{
    resp_map(out, 2, resp3);
    resp_bulk_text(out, "type");
    resp_bulk_text(out, type);
    resp_bulk_text(out, "spec");
    resp_map(out, count, resp3);
    for (size_t i = 0; i < count; i++) {
        resp_bulk_text(out, names[i]);
        resp_int(out, values[i]);
    }
}

/* Where the keys are and what is done to them, in the form of Redis 7. */
static void key_specs(struct buf *out, const struct command *command, bool resp3)
{
    bool is_counted = command->flags & COMMAND_COUNTED;
    bool has_keys = (is_counted || command->key_first > 0) && deed_needs(command->deed)->keys != 0;

    resp_array(out, has_keys);
    if (!has_keys)
        return;
    resp_map(out, 3, resp3);
    resp_bulk_text(out, "flags");
    key_flags(out, command, resp3);
    resp_bulk_text(out, "begin_search");
    place(out, resp3, "index", (const char *const[]){"index"},
          (const int64_t[]){is_counted ? 2 : command->key_first}, 1);
    resp_bulk_text(out, "find_keys");
    if (is_counted)
        place(out, resp3, "keynum", (const char *const[]){"keynumidx", "firstkey", "keystep"},
              (const int64_t[]){0, 1, 1}, 3);
    else
        place(out, resp3, "range", (const char *const[]){"lastkey", "keystep", "limit"},
              (const int64_t[]){command->key_last < 0 ? command->key_last
                                                      : command->key_last - command->key_first,
                                command->key_step, 0},
              3);
}

static void describe(struct buf *out, const struct command *command, bool resp3)
{
    resp_array(out, 10);
    name(out, command);
    resp_int(out, command->arity);
    flags(out, command, resp3);
    resp_int(out, command->key_first);
    resp_int(out, command->key_last);
    resp_int(out, command->key_step);
    categories(out, command, resp3);
    resp_array(out, 0); /* tips */
    key_specs(out, command, resp3);
    resp_array(out, 0); /* subcommands */
}

static void document(struct buf *out, const struct command *command, bool resp3)
{
    name(out, command);
    resp_map(out, 3, resp3);
    resp_bulk_text(out, "summary");
    resp_bulk_text(out, command->summary);
    resp_bulk_text(out, "since");
    resp_bulk_text(out, "0.1.0");
    resp_bulk_text(out, "group");
    resp_bulk_text(out, command->group);
}

static void command_count(struct request *request)
{
    resp_int(&request->reply, (int64_t)request->engine->index.count);
    request_finish(request);
}

/* [name ...]; none: all of them. */
static void command_docs(struct request *request)
{
    const struct command_index *index = &request->engine->index;
    struct buf body = {0};
    size_t count = 0;

    if (!has_reply_room(request))
        return;
    if (request->argc == 2)
        for (; count < index->count; count++)
            document(&body, &index->all[count], request->resp3);
    for (size_t i = 2; i < request->argc; i++) {
        const struct command *command = command_find(index, request->argv[i]);
        if (command == NULL)
            continue;
        document(&body, command, request->resp3);
        count++;
    }
    resp_map(&request->reply, count, request->resp3);
    buf_append_bytes(&request->reply, buf_bytes(&body));
    buf_free(&body);
    request_show(request);
}

/* [name ...]; none: all of them. COMMAND alone is the same. */
static void command_info(struct request *request)
{
    const struct command_index *index = &request->engine->index;
    struct buf *out = &request->reply;

    if (request->argc > 2 && !has_reply_room(request))
        return;
    if (request->argc <= 2) {
        resp_array(out, index->count);
        for (size_t i = 0; i < index->count; i++)
            describe(out, &index->all[i], request->resp3);
    } else {
        resp_array(out, request->argc - 2);
    }
    for (size_t i = 2; i < request->argc; i++) {
        const struct command *command = command_find(index, request->argv[i]);
        if (command != NULL)
            describe(out, command, request->resp3);
        else
            resp_null_array(out, request->resp3);
    }
    request_show(request);
}

const struct subcommand server_command_subcommands[] = {
    {"command|count", 2, command_count, DEED_CONNECTION},
    {"command|docs", -2, command_docs, DEED_CONNECTION},
    {"command|info", -2, command_info, DEED_CONNECTION},
    {"command|help", 2, request_help, DEED_CONNECTION},
    {.name = NULL},
};

void server_command(struct request *request)
{
    if (request->argc == 1)
        command_info(request);
    else
        request_start_subcommand(request);
}
