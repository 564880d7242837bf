/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's life.
 *
 *   start ─▶ RUNNING ─▶ DRAINING ─▶ HANGING_UP ─▶ ENDING ─▶ exit
 *     │        SIGTERM,   nothing is   connections   everything is closed,
 *     │        SIGINT,    under way,   are closed,   the loop runs dry
 *     │        SHUTDOWN   all is sent  so is what
 *     │                   (or 10 s)    that began
 *     └── a part that cannot be opened ──────────▶ ENDING
 *
 * Store, provider and engine are the host's (proxy/host), which turns them; here are the sockets
 * around it, the signals and the stages.
 *
 * How it fails: a part that cannot be opened is one line in the log and exit status 1. A commit
 * whose outcome is unknown ends the process with status 70 and without a word to clients: what is
 * on disk decides, at the next start. */
#include "proxy/server/daemon.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/host/host.h"
#include "proxy/server/admin.h"
#include "proxy/server/process.h"
#include "proxy/server/server.h"

enum {
    DRAIN_MS = 10000,
    EXIT_STORE_LOST = 70,
    WHY_SIZE = 512,
};

enum stage { RUNNING, DRAINING, HANGING_UP, ENDING };

struct daemon {
    struct options *options;
    const struct log *log;
    uv_loop_t loop;
    uv_timer_t drain_timer;
    uv_signal_t sigterm, sigint;
    enum stage stage;
    bool signalled, shutdown_asked;
    char *password;
    size_t connections_max;
    /* The parts, in the order in which they are opened. NULL: not yet. */
    struct server *server;
    struct host *host;
    struct engine *engine; /* the host's */
    struct admin *admin;
};

static const char *option(const struct daemon *daemon, enum option option)
{
    return options_text(daemon->options, option);
}

/* The end. */

static void close_own_handles(void *context)
{
    struct daemon *daemon = context;
    uv_handle_t *const handles[] = {
        (uv_handle_t *)&daemon->drain_timer,
        (uv_handle_t *)&daemon->sigterm,
        (uv_handle_t *)&daemon->sigint,
    };
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
        uv_close(handles[i], NULL);
}

/* Closes what is open; the loop runs dry after it. */
static void end(struct daemon *daemon)
{
    daemon->stage = ENDING;
    if (daemon->admin != NULL)
        admin_close(daemon->admin);
    server_close(daemon->server);
    host_close(daemon->host, close_own_handles);
}

static void free_parts(struct daemon *daemon)
{
    host_free(daemon->host);
    server_free(daemon->server);
    check(uv_loop_close(&daemon->loop) == 0);
    free(daemon->password);
    free(daemon);
}

static void hang_up(struct daemon *daemon)
{
    daemon->stage = HANGING_UP;
    server_hang_up(daemon->server);
}

static void on_drain_timeout(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;

    if (engine_idle(daemon->engine)) {
        log_warn(daemon->log, "some clients did not take their replies in time");
        hang_up(daemon);
        return;
    }
    log_error(daemon->log, "what was begun did not end within %d s; giving up", DRAIN_MS / 1000);
    _exit(EXIT_FAILURE);
}

static void drain(struct daemon *daemon)
{
    if (daemon->stage != RUNNING)
        return;
    daemon->stage = DRAINING;
    log_info(daemon->log, "stopping: no new connections, finishing what was begun");
    server_stop_listening(daemon->server);
    engine_drain(daemon->engine);
    uv_timer_start(&daemon->drain_timer, on_drain_timeout, DRAIN_MS, 0);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;

    if (daemon->signalled) {
        log_warn(daemon->log, "second signal: stopping at once");
        _exit(EXIT_FAILURE);
    }
    daemon->signalled = true;
    log_info(daemon->log, "signal %d (%s)", number, strsignal(number));
    drain(daemon);
}

/* The host's turn. */

static void on_turned(void *context)
{
    struct daemon *daemon = context;

    if (daemon->shutdown_asked && daemon->stage == RUNNING) {
        drain(daemon);
        engine_turn(daemon->engine);
    }
    if (daemon->stage == DRAINING && engine_idle(daemon->engine) &&
        server_is_flushed(daemon->server))
        hang_up(daemon);
    if (daemon->stage == HANGING_UP && engine_idle(daemon->engine))
        end(daemon);
}

static void on_lost(void *context)
{
    struct daemon *daemon = context;

    log_error(daemon->log, "a commit has an unknown outcome (its fsync failed): ending without "
                           "answering what is open; start again to recover");
    _exit(EXIT_STORE_LOST);
}

/* The engine's host. */

static void on_shutdown_command(void *context)
{
    struct daemon *daemon = context;
    daemon->shutdown_asked = true;
}

static bool show_option(void *context, size_t i, const char **name, const char **value)
{
    struct daemon *daemon = context;

    if (i >= OPTIONS)
        return false;
    *name = options_name((enum option)i);
    *value = options_shown(daemon->options, (enum option)i);
    return true;
}

/* The start. */

static void init_loop(struct daemon *daemon)
{
    check(uv_loop_init(&daemon->loop) == 0);
    check(uv_timer_init(&daemon->loop, &daemon->drain_timer) == 0);
    check(uv_signal_init(&daemon->loop, &daemon->sigterm) == 0);
    check(uv_signal_init(&daemon->loop, &daemon->sigint) == 0);
    daemon->drain_timer.data = daemon->sigterm.data = daemon->sigint.data = daemon;
    daemon->host = host_new(
        &(struct host_options){.loop = &daemon->loop,
                               .log = daemon->log,
                               .cache_mb = (int)options_number(daemon->options, OPTION_CACHE_SIZE),
                               .turned = on_turned,
                               .lost = on_lost,
                               .context = daemon});
    check(daemon->host != NULL);
    daemon->server = server_new(&daemon->loop, daemon->log);
}

/* The lease URI was checked when the options were read. */
static bool open_host(struct daemon *daemon, char *why)
{
    return host_open(daemon->host, option(daemon, OPTION_STORE) + strlen("sqlite:"),
                     option(daemon, OPTION_LEASE), why, WHY_SIZE);
}

static void open_engine(struct daemon *daemon)
{
    const struct options *options = daemon->options;
    const struct engine_options engine_options = {
        .host = {.changed = server_changed,
                 .shutdown = on_shutdown_command,
                 .option = show_option,
                 .usage = process_usage,
                 .context = daemon},
        .password = daemon->password,
        .unfenced_writes = options_is(options, OPTION_UNFENCED_WRITES, "allow"),
        .sessions_max = daemon->connections_max,
        .waiters_max = (size_t)options_number(options, OPTION_MAX_WAITERS),
        .sql_limit_ms = options_number(options, OPTION_SQL_TIME_LIMIT),
        .receipts_keep_ms = options_number(options, OPTION_RECEIPTS_KEEP) * 1000,
        .forget_ms = options_number(options, OPTION_FORGET_AFTER) * 1000,
        .address = server_address(daemon->server, 0),
    };
    daemon->engine = host_open_engine(daemon->host, engine_options);
}

static bool bind_all(struct daemon *daemon, char *why)
{
    const char *address;

    for (size_t i = 0; (address = options_at(daemon->options, OPTION_LISTEN, i)) != NULL; i++)
        if (!server_bind(daemon->server, address, why, WHY_SIZE))
            return false;
    if (server_is_exposed(daemon->server) && daemon->password == NULL)
        log_warn(daemon->log, "other machines can connect and there is no password: set "
                              "password-file, or listen on 127.0.0.1 or a unix socket only");
    return true;
}

static bool open_password(struct daemon *daemon, char *why)
{
    const char *path = option(daemon, OPTION_PASSWORD_FILE);
    char reason[128];

    if (*path == '\0')
        return true;
    daemon->password = process_read_password(path, daemon->log, reason, sizeof reason);
    if (daemon->password == NULL)
        snprintf(why, WHY_SIZE, "%s %s: %s", options_origin(daemon->options, OPTION_PASSWORD_FILE),
                 path, reason);
    return daemon->password != NULL;
}

static bool open_admin(struct daemon *daemon, char *why)
{
    if (options_is(daemon->options, OPTION_ADMIN, "off"))
        return true;
    daemon->admin =
        admin_open(&daemon->loop, daemon->engine, option(daemon, OPTION_ADMIN), why, WHY_SIZE);
    return daemon->admin != NULL;
}

static bool open_parts(struct daemon *daemon, char *why)
{
    daemon->connections_max = process_fit_connections(
        (size_t)options_number(daemon->options, OPTION_MAX_CONNECTIONS), daemon->log);
    if (!open_password(daemon, why) || !open_host(daemon, why) || !bind_all(daemon, why))
        return false;
    open_engine(daemon);
    return server_open(daemon->server, daemon->engine, why, WHY_SIZE) && open_admin(daemon, why);
}

/* The one line on stdout. */
static void say_ready(void *context)
{
    struct daemon *daemon = context;
    const char *address;

    printf("stockaded ready:");
    for (size_t i = 0; (address = server_address(daemon->server, i)) != NULL; i++)
        printf(" listen=%s", address);
    if (daemon->admin != NULL)
        printf(" admin=%s", admin_address(daemon->admin));
    printf("\n");
    fflush(stdout);
}

static void start(struct daemon *daemon)
{
    uv_signal_start(&daemon->sigterm, on_signal, SIGTERM);
    uv_signal_start(&daemon->sigint, on_signal, SIGINT);
    log_info(daemon->log, "store %s, leases by %s", option(daemon, OPTION_STORE),
             lease_provider_name(host_provider(daemon->host)));
    host_start(daemon->host, say_ready);
}

int daemon_run(struct options *options, const struct log *log)
{
    struct daemon *daemon = mem_zalloc(sizeof *daemon);
    char why[WHY_SIZE];
    int status = EXIT_SUCCESS;

    daemon->options = options;
    daemon->log = log;
    process_prepare();
    init_loop(daemon);
    if (open_parts(daemon, why)) {
        start(daemon);
    } else {
        log_error(log, "%s", why);
        status = EXIT_FAILURE;
        end(daemon);
    }
    check(uv_run(&daemon->loop, UV_RUN_DEFAULT) == 0);
    free_parts(daemon);
    if (status == EXIT_SUCCESS)
        log_info(log, "stopped");
    return status;
}
