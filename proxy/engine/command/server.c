/* SPDX-License-Identifier: Apache-2.0 */
/* Commands about the connection and the server, worded as Redis words them, so that clients and
 * tools connect unmodified. */
#include <stdio.h>
#include <string.h>

#include "proxy/engine/internal.h"
#include "proxy/engine/write/exec.h"

void server_ping(struct request *request)
{
    if (request->argc > 2) {
        request_fail_arity(request, "ping");
        return;
    }
    if (pubsub_restricts(request->session)) {
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

enum stk_error server_ping_exec(struct exec *exec)
{
    if (exec->argc > 2)
        return exec_error(exec, "wrong number of arguments for 'ping' command");
    if (exec->argc == 2)
        resp_bulk(exec->out, exec->argv[1]);
    else
        resp_simple(exec->out, "PONG");
    return STK_OK;
}

void server_echo(struct request *request)
{
    resp_bulk(&request->reply, request->argv[1]);
    request_show(request);
}

/* Takes as long for a wrong password as for the right one. */
static bool password_fits(const char *password, struct bytes given)
{
    size_t len = strlen(password);
    unsigned differs = len != given.len;
    for (size_t i = 0; i < given.len; i++)
        differs |= (unsigned char)given.data[i] ^ (unsigned char)password[len ? i % len : 0];
    return differs == 0;
}

/* False: the request has failed. */
static bool authenticate(struct request *request, struct bytes user, struct bytes password)
{
    struct session *session = request->session;
    const char *wanted = request->engine->options.password;

    if (wanted != NULL && bytes_equal(user, BYTES_LITERAL("default")) &&
        password_fits(wanted, password)) {
        session->authenticated = true;
        return true;
    }
    if (wanted == NULL)
        request_fail(request, STK_ERR,
                     "AUTH <password> called without any password configured for the default "
                     "user. Are you sure your configuration is correct?");
    else
        request_fail(request, STK_WRONGPASS, NULL);
    return false;
}

void server_auth(struct request *request)
{
    if (request->argc > 3) {
        request_fail(request, STK_ERR, "syntax error");
        return;
    }
    struct bytes user = request->argc == 3 ? request->argv[1] : BYTES_LITERAL("default");
    if (!authenticate(request, user, request->argv[request->argc - 1]))
        return;
    resp_simple(&request->reply, "OK");
    request_finish(request);
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

void server_hello(struct request *request)
{
    struct session *session = request->session;
    struct bytes name = {0};
    bool named = false;
    int64_t version = session->resp3 ? 3 : 2;

    if (request->argc > 1 && !bytes_to_int64(request->argv[1], &version)) {
        request_fail(request, STK_ERR, "Protocol version is not an integer or out of range");
        return;
    }
    if (version != 2 && version != 3) {
        request_fail(request, STK_NOPROTO, NULL);
        return;
    }
    for (size_t i = 2; i < request->argc;) {
        if (request_is_word(request, i, "AUTH") && i + 2 < request->argc) {
            if (!authenticate(request, request->argv[i + 1], request->argv[i + 2]))
                return;
            i += 3;
        } else if (request_is_word(request, i, "SETNAME") && i + 1 < request->argc) {
            name = request->argv[i + 1];
            named = true;
            i += 2;
        } else {
            request_fail(request, STK_ERR, "Syntax error in HELLO option '%.*s'",
                         (int)(request->argv[i].len < 64 ? request->argv[i].len : 64),
                         request->argv[i].data);
            return;
        }
    }
    if (!session_is_authenticated(session)) {
        request_fail(request, STK_NOAUTH,
                     "HELLO must be called with the client already authenticated, otherwise the "
                     "HELLO <proto> AUTH <user> <pass> option can be used to authenticate the "
                     "client and select the RESP protocol version at the same time");
        return;
    }
    if (named && !session_set_text(session->name, name)) {
        request_fail(request, STK_ERR, CLIENT_NAME_ERROR);
        return;
    }
    session->resp3 = version == 3;
    hello_reply(request);
}

void server_quit(struct request *request)
{
    struct session *session = request->session;

    resp_simple(&request->reply, "OK");
    request_finish(request);
    session_end(session);
}

void server_reset(struct request *request)
{
    struct session *session = request->session;

    multi_free(session->multi);
    session->multi = NULL;
    pubsub_clear(session);
    session->resp3 = session->authenticated = session->notified = false;
    session->name[0] = '\0';
    resp_simple(&request->reply, "RESET");
    request_finish(request);
}

void server_select(struct request *request)
{
    int64_t index;

    if (!bytes_to_int64(request->argv[1], &index)) {
        request_fail(request, STK_ERR, "value is not an integer or out of range");
        return;
    }
    if (index != 0) {
        request_fail(request, STK_ERR, "DB index is out of range");
        return;
    }
    resp_simple(&request->reply, "OK");
    request_finish(request);
}

void server_time(struct request *request)
{
    const struct clock *clock = request->engine->options.clock;
    int64_t us = clock->wall_us != NULL ? clock->wall_us(clock) : clock_now_ms(clock) * 1000;

    resp_array(&request->reply, 2);
    resp_bulk_int(&request->reply, us / 1000000);
    resp_bulk_int(&request->reply, us % 1000000);
    request_finish(request);
}

/* What redis-benchmark asks for, answered for a store that is durable at each reply. */
static const char *const config_constants[][2] = {{"appendonly", "yes"}, {"save", ""}};

static bool config_asked(const struct request *request, const char *name)
{
    for (size_t i = 2; i < request->argc; i++)
        if (bytes_match_glob(request->argv[i], bytes_of(name)))
            return true;
    return false;
}

static void config_collect(struct request *request, struct buf *body, size_t *count)
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
        if (!config_asked(request, name))
            continue;
        resp_bulk_text(body, name);
        resp_bulk_text(body, value);
        (*count)++;
    }
}

void server_config(struct request *request)
{
    struct buf body = {0};
    size_t count = 0;

    if (request_is_word(request, 1, "SET")) {
        request_fail(request, STK_ERR, "options are set where the daemon starts: stockaded --help");
        return;
    }
    request->session->last_command = "config|get";
    if (!request_is_word(request, 1, "GET")) {
        request_fail_subcommand(request);
        return;
    }
    if (request->argc < 3) {
        request_fail_arity(request, "config|get");
        return;
    }
    config_collect(request, &body, &count);
    resp_map(&request->reply, count, request->resp3);
    buf_append_bytes(&request->reply, buf_bytes(&body));
    buf_free(&body);
    request_show(request);
}

void server_shutdown(struct request *request)
{
    struct engine *engine = request->engine;

    session_end(request->session);
    request_finish(request); /* as in Redis: no reply, the connection closes */
    engine->shutdown_asked = true;
}

static enum stk_error flush_run(struct store_op *op, struct store_txn *txn)
{
    (void)op;
    return txn_flush(txn);
}

static void flush_done(struct store_op *op)
{
    struct request *request = request_of_op(op);

    if (request_refused(request))
        return;
    resp_simple(&request->reply, "OK");
    request_finish(request);
}

void server_flushall(struct request *request)
{
    bool right = request->argc == 1 ||
                 (request->argc == 2 &&
                  (request_is_word(request, 1, "SYNC") || request_is_word(request, 1, "ASYNC")));

    if (!right)
        request_fail(request, STK_ERR, "syntax error");
    else if (!request->engine->options.unfenced_writes)
        request_fail(request, STK_NOPERM, "%s needs a daemon with --unfenced-writes allow",
                     request->command->name);
    else if (request_submit(request, true, flush_run, flush_done) != STK_OK)
        request_fail(request, STK_BUSY, NULL);
}
