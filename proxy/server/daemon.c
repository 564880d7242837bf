/* SPDX-License-Identifier: Apache-2.0 */
/* stockaded: the daemon's life, from top to bottom.
 *
 *   start ─▶ RUNNING ─▶ DRAINING ─▶ HANGING_UP ─▶ ENDING ─▶ exit
 *     │        SIGTERM,   nothing is   connections   everything is closed,
 *     │        SIGINT,    under way,   are closed,   the loop runs dry
 *     │        SHUTDOWN   all is sent  so is what
 *     │                   (or 10 s)    that began (or 10 s)
 *     └── a part that cannot be opened ──────────▶ ENDING
 *
 * The host (proxy/host) owns store, lease provider and engine, and gives them their turns. Around
 * it are the sockets, the signals and the stages. SIGHUP has the options read again.
 *
 * How it fails: wrong options are exit status 2. A part that cannot be opened is one line in the
 * log and exit status 1. A commit whose outcome is unknown ends the process with status 70 and
 * without a word to clients: the next start goes by what is on disk. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "fence/base/check.h"
#include "fence/base/log.h"
#include "fence/base/mem.h"
#include "fence/base/plain.h"
#include "proxy/engine/show/show.h"
#include "proxy/host/host.h"
#include "proxy/server/access.h"
#include "proxy/server/admin.h"
#include "proxy/server/audit/auditing.h"
#include "proxy/server/conn.h"
#include "proxy/server/environment.h"
#include "proxy/server/memory_store.h"
#include "proxy/server/options.h"
#include "proxy/server/process.h"
#include "proxy/server/server.h"
#include "proxy/server/service.h"
#include "proxy/server/watchdog.h"
#include "store/kinds.h"

enum {
    DRAIN_MS = 10000,
    STATUS_EVERY_MS = 1000,
    EXIT_USAGE = 2,
    EXIT_STORE_LOST = 70,
    WHY_SIZE = ACCESS_WHY_SIZE,
};

enum stage { RUNNING, DRAINING, HANGING_UP, ENDING };

struct daemon {
    struct options *options;
    struct log *log;
    uv_loop_t loop;
    uv_timer_t drain_timer;
    uv_signal_t signals[5]; /* see the table `signals` */
    struct watchdog watchdog;
    enum stage stage;
    bool signalled, shutdown_asked, ready;
    int status;        /* that the process ends with */
    struct buf wrong;  /* as the service manager was told last */
    uint64_t told_ms;  /* when that was looked at, by the loop's clock */
    struct acl *users; /* until the engine has them */
    size_t connections_max;
    struct tls_context *tls; /* NULL: there is no tls: address */
    struct service_sockets inherited;
    bool admin_exposed;         /* other machines reach the admin address */
    struct memory_store memory; /* --store :memory: */
    /* The parts, in the order in which they are opened. NULL: not yet. */
    struct server *server;
    struct host *host;
    struct auditing *auditing; /* --audit */
    struct engine *engine;     /* the host's */
    struct admin *admin;
};

static const char *option(const struct daemon *daemon, enum option option)
{
    return options_text(daemon->options, option);
}

static bool store_passes(const struct daemon *daemon)
{
    return store_uri_is_memory(option(daemon, OPTION_STORE));
}

static const char *store_uri(const struct daemon *daemon)
{
    return store_passes(daemon) ? daemon->memory.uri : option(daemon, OPTION_STORE);
}

/* Events; they follow below in this order. */
static void on_turned(void *context);
static void on_lost(void *context);
static void on_shutdown_command(void *context);
static void on_hangup(uv_signal_t *handle, int number);
static void on_user_signal(uv_signal_t *handle, int number);
static void on_signal(uv_signal_t *handle, int number);

static const struct {
    uv_signal_cb on_signal;
    int number;
    bool ends; /* it stops the daemon, once all is open; the others are handled from the start */
} signals[] = {
    {on_signal, SIGTERM, true},       {on_signal, SIGINT, true},        {on_hangup, SIGHUP, false},
    {on_user_signal, SIGUSR1, false}, {on_user_signal, SIGUSR2, false},
};
enum { SIGNALS = sizeof signals / sizeof *signals };

static void start_signals(struct daemon *daemon, bool ends)
{
    for (size_t i = 0; i < SIGNALS; i++)
        if (signals[i].ends == ends)
            uv_signal_start(&daemon->signals[i], signals[i].on_signal, signals[i].number);
}

/* Nothing is closed. */
static _Noreturn void exit_at_once(struct daemon *daemon, int status)
{
    memory_store_remove(&daemon->memory);
    _exit(status);
}

/* The start. */

static void init_loop(struct daemon *daemon)
{
    check(uv_loop_init(&daemon->loop) == 0);
    check(uv_timer_init(&daemon->loop, &daemon->drain_timer) == 0);
    daemon->drain_timer.data = daemon;
    watchdog_init(&daemon->watchdog, &daemon->loop);
    for (size_t i = 0; i < SIGNALS; i++) {
        check(uv_signal_init(&daemon->loop, &daemon->signals[i]) == 0);
        daemon->signals[i].data = daemon;
    }
    start_signals(daemon, false); /* they must not end a daemon that is about to start */
    daemon->host = host_new(
        &(struct host_options){.loop = &daemon->loop,
                               .log = daemon->log,
                               .cache_mb = (int)options_number(daemon->options, OPTION_CACHE_SIZE),
                               .store_passes = store_passes(daemon),
                               .turned = on_turned,
                               .lost = on_lost,
                               .context = daemon});
    check(daemon->host != NULL);
    daemon->server = server_new(&daemon->loop, daemon->log);
}

static bool admin_needs_tls(const struct daemon *daemon)
{
    return uri_after(option(daemon, OPTION_ADMIN), "tls:") != NULL;
}

/* Read the certificates, where there is a tls: address. NULL: `why` is one line, empty where none
 * are needed. */
static struct tls_context *read_tls(const struct daemon *daemon, const struct options *options,
                                    char *why)
{
    why[0] = '\0';
    if (!server_needs_tls(daemon->server) && !admin_needs_tls(daemon))
        return NULL;
    return access_tls(options, why);
}

static bool open_tls(struct daemon *daemon, char *why)
{
    daemon->tls = read_tls(daemon, daemon->options, why);
    access_warn_of_end(daemon->options, daemon->tls, daemon->log);
    if (daemon->tls != NULL)
        server_set_tls(daemon->server, tls_context_share(daemon->tls),
                       access_tls_user(daemon->options));
    return *why == '\0';
}

/* Open the store and the lease service; the URI was checked when the options were read. */
static bool open_host(struct daemon *daemon, char *why)
{
    if (strcmp(options_shown(daemon->options, OPTION_LEASE), option(daemon, OPTION_LEASE)) != 0 ||
        store_is_in_network(option(daemon, OPTION_STORE)))
        process_hide_memory(); /* a password is in it */
    if (store_passes(daemon) && !memory_store_make(&daemon->memory, why, WHY_SIZE))
        return false;
    return host_open(daemon->host, store_uri(daemon), option(daemon, OPTION_LEASE), why, WHY_SIZE);
}

static bool open_audit(struct daemon *daemon, char *why)
{
    const struct auditing_options options = {
        .loop = &daemon->loop,
        .log = daemon->log,
        .store = host_store(daemon->host),
        .store_uri = store_uri(daemon),
        .path = option(daemon, OPTION_AUDIT),
        .durable = option(daemon, OPTION_AUDIT_DURABLE),
        .bytes_max = options_number(daemon->options, OPTION_AUDIT_MAX_SIZE) << 20,
    };

    if (options.path[0] != '\0')
        return auditing_open(&daemon->auditing, &options, why, WHY_SIZE);
    if (options.durable[0] != '\0')
        log_warn(daemon->log, "audit-durable is of no use without audit");
    return true;
}

/* Check that no address is open to everybody by mistake, with these options and users. False: `why`
 * is one line. */
static bool check_doors(const struct daemon *daemon, const struct options *options,
                        const struct acl *users, char *why)
{
    bool tls_too = !options_is(options, OPTION_TLS_CLIENTS, "required");
    const char *address = server_exposed(daemon->server, tls_too);

    if (address == NULL && daemon->admin_exposed && (tls_too || !admin_needs_tls(daemon)))
        address =
            daemon->admin != NULL ? admin_address(daemon->admin) : option(daemon, OPTION_ADMIN);
    return access_check(users, address,
                        options_is(daemon->options, OPTION_INSECURE_LISTEN, "allow"), daemon->log,
                        why);
}

static bool bind_admin(struct daemon *daemon, char *why)
{
    const char *address = option(daemon, OPTION_ADMIN);

    if (daemon->inherited.admin >= 0)
        daemon->admin_exposed = admin_socket_is_exposed(daemon->inherited.admin);
    if (daemon->inherited.admin >= 0 || options_is(daemon->options, OPTION_ADMIN, "off"))
        return true;
    if (!admin_look(address, &daemon->admin_exposed, why, WHY_SIZE))
        return false;
    if (!options_only_check(daemon->options))
        daemon->inherited.admin = admin_bind(address, why, WHY_SIZE);
    return options_only_check(daemon->options) || daemon->inherited.admin >= 0;
}

/* Sockets that were handed over take the place of the addresses in the options. */
static bool bind_all(struct daemon *daemon, char *why)
{
    const struct service_sockets *inherited = &daemon->inherited;
    const char *address;

    if (!service_take_sockets(&daemon->inherited, why, WHY_SIZE))
        return false;
    for (size_t i = 0; i < inherited->listen_count; i++)
        if (!server_take(daemon->server, inherited->listen[i], why, WHY_SIZE))
            return false;
    if (inherited->listen_count == 0)
        for (size_t i = 0; (address = options_at(daemon->options, OPTION_LISTEN, i)) != NULL; i++)
            if (!server_bind(daemon->server, address, why, WHY_SIZE))
                return false;
    return bind_admin(daemon, why);
}

/* A job of the engine's, on a thread of libuv's. */
static void on_job(uv_work_t *work)
{
    struct engine_job *job = work->data;
    job->run(job);
}

static void on_job_done(uv_work_t *work, int status)
{
    struct engine_job *job = work->data;

    (void)status; /* nobody cancels it */
    free(work);
    job->done(job);
}

static void run_aside(void *context, struct engine_job *job)
{
    struct daemon *daemon = context;
    uv_work_t *work = mem_alloc(sizeof *work);

    work->data = job;
    check(uv_queue_work(&daemon->loop, work, on_job, on_job_done) == 0);
}

/* ACL LOAD */
static bool load_acl(void *context, char *why)
{
    struct daemon *daemon = context;
    char reason[WHY_SIZE];
    struct acl *users = access_users(daemon->options, daemon->log, reason);

    if (users != NULL && check_doors(daemon, daemon->options, users, reason)) {
        engine_set_acl(daemon->engine, users);
        return true;
    }
    acl_drop(users);
    snprintf(why, ACL_WHY_SIZE, "%.*s", ACL_WHY_SIZE - 1, reason);
    return false;
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

static size_t count_of(const struct options *options, enum option option)
{
    return (size_t)options_number(options, option);
}

/* Return the engine's options, at the start and on SIGHUP. */
static struct engine_options engine_options_of(const struct daemon *daemon)
{
    const struct options *options = daemon->options;

    return (struct engine_options){
        .host = {.changed = conn_on_change,
                 .shutdown = on_shutdown_command,
                 .run_aside = run_aside,
                 .load_acl = load_acl,
                 .option = show_option,
                 .usage = process_usage,
                 .context = (void *)(uintptr_t)daemon},
        .unfenced_writes = options_is(options, OPTION_UNFENCED_WRITES, "allow"),
        .watch_earlier = true,
        .store_passes = store_passes(daemon),
        .sessions_max = daemon->connections_max,
        .limits = {.things = {[ACCOUNT_LEASES] = count_of(options, OPTION_MAX_LEASES),
                              [ACCOUNT_WAITERS] = count_of(options, OPTION_MAX_WAITERS)},
                   .rate = count_of(options, OPTION_MAX_RATE)},
        .user_limits = {.things = {[ACCOUNT_CONNECTIONS] =
                                       count_of(options, OPTION_MAX_CONNECTIONS_PER_USER),
                                   [ACCOUNT_LEASES] = count_of(options, OPTION_MAX_LEASES_PER_USER),
                                   [ACCOUNT_WAITERS] =
                                       count_of(options, OPTION_MAX_WAITERS_PER_USER)},
                        .rate = count_of(options, OPTION_MAX_RATE_PER_USER),
                        .bytes = count_of(options, OPTION_MAX_MEMORY_PER_USER) << 20},
        .history_max = count_of(options, OPTION_HISTORY),
        .replies_max = count_of(options, OPTION_MAX_REPLY_MEMORY) << 20,
        .sql_limit_ms = options_number(options, OPTION_SQL_TIME_LIMIT),
        .receipts_keep_ms = options_number(options, OPTION_RECEIPTS_KEEP) * 1000,
        .forget_ms = options_number(options, OPTION_FORGET_AFTER) * 1000,
        .certificate_ends_s = daemon->tls != NULL ? tls_context_ends_s(daemon->tls) : 0,
        .address = server_address(daemon->server, 0),
        .lock_keys = options_all(options, OPTION_LOCK_KEYS),
        .lock_keys_count = options_count(options, OPTION_LOCK_KEYS),
    };
}

static void open_engine(struct daemon *daemon)
{
    struct engine_options options = engine_options_of(daemon);

    options.acl = daemon->users;
    daemon->users = NULL;
    if (daemon->auditing != NULL)
        options.audit = auditing_audit(daemon->auditing);
    daemon->engine = host_open_engine(daemon->host, options);
    if (daemon->auditing != NULL)
        auditing_start(daemon->auditing, daemon->engine);
}

static bool open_admin(struct daemon *daemon, char *why)
{
    struct options *options = daemon->options;
    const struct admin_options admin = {
        .address = option(daemon, OPTION_ADMIN),
        .inherited = daemon->inherited.admin,
        .service_uri = options_shown(options, OPTION_LEASE),
        .names = options_all(options, OPTION_ADMIN_NAME),
        .names_count = options_count(options, OPTION_ADMIN_NAME),
        .show_values = options_is(options, OPTION_PAGE_VALUES, "show"),
        .tls = admin_needs_tls(daemon) ? daemon->tls : NULL,
        .tls_user = access_tls_user(daemon->options),
        .log = daemon->log,
    };

    if (admin.inherited < 0)
        return true;
    daemon->inherited.admin = -1; /* it is the page's */
    daemon->admin = admin_open(&daemon->loop, daemon->engine, &admin, why, WHY_SIZE);
    return daemon->admin != NULL;
}

/* What can be known before there is a store: a start that fails for it leaves none behind. It is
 * all that --check looks at. */
static bool open_doors(struct daemon *daemon, char *why)
{
    if (options_only_check(daemon->options))
        server_only_look(daemon->server);
    daemon->users = access_users(daemon->options, daemon->log, why);
    return daemon->users != NULL && bind_all(daemon, why) && open_tls(daemon, why) &&
           check_doors(daemon, daemon->options, daemon->users, why);
}

static bool open_parts(struct daemon *daemon, char *why)
{
    daemon->connections_max = process_fit_connections(
        (size_t)options_number(daemon->options, OPTION_MAX_CONNECTIONS), daemon->log);
    if (!open_doors(daemon, why) || !open_host(daemon, why) || !open_audit(daemon, why))
        return false;
    open_engine(daemon);
    return open_admin(daemon, why) && server_open(daemon->server, daemon->engine, why, WHY_SIZE);
}

/* Tell the service manager what is wrong, as /ready does, where that has changed. */
static void tell_wrong(struct daemon *daemon)
{
    struct buf wrong = {0}, told = daemon->wrong;

    (void)show_ready(daemon->engine, &wrong);
    daemon->told_ms = uv_now(&daemon->loop);
    daemon->wrong = wrong;
    if (!bytes_equal(buf_bytes(&wrong), buf_bytes(&told)))
        service_status(buf_bytes(&wrong));
    buf_free(&told);
}

/* Print the one line on stdout, and tell the service manager. */
static void say_ready(struct daemon *daemon)
{
    const char *address;

    if (daemon->stage != RUNNING) /* it has been stopped meanwhile */
        return;
    tell_wrong(daemon);
    printf("stockaded ready:");
    for (size_t i = 0; (address = server_address(daemon->server, i)) != NULL; i++)
        printf(" listen=%s", address);
    if (daemon->admin != NULL)
        printf(" admin=%s", admin_address(daemon->admin));
    if (daemon->wrong.len > 0)
        printf(" (but %.*s)", (int)daemon->wrong.len, daemon->wrong.data);
    printf("\n");
    fflush(stdout);
    daemon->ready = true;
    service_ready();
    watchdog_start(&daemon->watchdog, host_store(daemon->host));
}

static void drain(struct daemon *daemon);

/* Data under a lock key would be out of everybody's reach. */
static void on_searched(void *context, enum stk_error error, struct bytes key)
{
    struct daemon *daemon = context;
    char quoted[256];

    if (error == STK_OK && key.len == 0) {
        say_ready(daemon);
        return;
    }
    if (error != STK_OK)
        log_error(daemon->log, "lock-keys: the store cannot be read");
    else
        log_error(daemon->log,
                  "lock-keys: the store has data under %s, which would be a lock key: remove the "
                  "data, or take another pattern",
                  log_quoted(key, quoted, sizeof quoted));
    daemon->status = EXIT_FAILURE;
    drain(daemon);
}

/* The lease service is there, or it is not. */
static void on_attempted(void *context)
{
    struct daemon *daemon = context;

    if (options_count(daemon->options, OPTION_LOCK_KEYS) > 0)
        engine_find_locked_data(daemon->engine, on_searched, daemon);
    else
        say_ready(daemon);
}

static void start(struct daemon *daemon)
{
    start_signals(daemon, true);
    log_info(daemon->log, "store %s, leases by %s", options_shown(daemon->options, OPTION_STORE),
             lease_provider_name(host_provider(daemon->host)));
    if (store_passes(daemon))
        log_warn(daemon->log,
                 "store :memory: is for tests: all that is in it goes with this daemon");
    host_start(daemon->host, on_attempted);
}

/* Running: the host's events, then signals that do not end the daemon. */

static void hang_up(struct daemon *daemon);
static void end(struct daemon *daemon);

static void on_turned(void *context)
{
    struct daemon *daemon = context;

    if (daemon->shutdown_asked && daemon->stage == RUNNING) {
        drain(daemon);
        engine_turn(daemon->engine);
    }
    if (daemon->auditing != NULL)
        auditing_turned(daemon->auditing);
    if (daemon->ready && daemon->stage == RUNNING &&
        uv_now(&daemon->loop) - daemon->told_ms >= STATUS_EVERY_MS)
        tell_wrong(daemon);
    if (daemon->stage == DRAINING && engine_idle(daemon->engine) &&
        server_is_flushed(daemon->server))
        hang_up(daemon);
    if (daemon->stage == HANGING_UP && engine_idle(daemon->engine) &&
        server_is_empty(daemon->server) &&
        (daemon->auditing == NULL || auditing_finish(daemon->auditing)))
        end(daemon);
}

static void on_lost(void *context)
{
    struct daemon *daemon = context;

    log_error(daemon->log,
              "a commit has an unknown outcome (its fsync failed, or the store's files "
              "went away under it): ending without answering what is open; start "
              "again to recover");
    exit_at_once(daemon, EXIT_STORE_LOST);
}

static void on_shutdown_command(void *context)
{
    struct daemon *daemon = context;
    daemon->shutdown_asked = true;
}

static void configure_log(struct log *log, const struct options *options)
{
    enum log_level level = LOG_INFO_LEVEL;

    log_level_parse(options_text(options, OPTION_LOG_LEVEL), &level);
    log_set_level(log, level);
    log_set_format(log, options_is(options, OPTION_LOG_FORMAT, "json") ? LOG_JSON : LOG_TEXT);
}

/* Say what is written now, what stays in force, and what to do. */
static void warn_restart(struct daemon *daemon, struct options *fresh, enum option option)
{
    log_warn(daemon->log, "SIGHUP: %s is '%s' now, and stays '%s' until you restart the daemon",
             options_origin(fresh, option), options_shown(fresh, option),
             options_shown(daemon->options, option));
}

static void take_options(struct daemon *daemon, struct options *fresh)
{
    size_t taken = 0;

    for (int i = 0; i < OPTIONS; i++) {
        enum option option = (enum option)i;
        if (!options_differ(daemon->options, fresh, option))
            continue;
        if (!options_reloads(option)) {
            warn_restart(daemon, fresh, option);
            continue;
        }
        options_take(daemon->options, fresh, option);
        taken++;
        log_info(daemon->log, "SIGHUP: %s is now '%s', was '%s'", options_name(option),
                 options_shown(daemon->options, option), options_shown(fresh, option));
    }
    log_info(daemon->log, "SIGHUP: the options were read again, changed: %zu", taken);
}

static void take_users(struct daemon *daemon, struct acl *users)
{
    const struct acl *before = engine_acl(daemon->engine);
    bool same = !acl_has_file(before) && !acl_has_file(users) && acl_same_default(before, users);

    if (acl_has_file(users))
        log_info(daemon->log, "SIGHUP: the users are those of %s as it is now",
                 option(daemon, OPTION_ACL_FILE));
    else if (!same)
        log_info(daemon->log, "SIGHUP: %s; who is logged in stays so",
                 acl_newcomer(users, true) != NULL ? "there is no password any more"
                                                   : "the password has changed");
    engine_set_acl(daemon->engine, users);
}

static void take_tls(struct daemon *daemon, struct tls_context *tls)
{
    if (tls == NULL)
        return;
    tls_context_free(daemon->tls);
    daemon->tls = tls;
    server_set_tls(daemon->server, tls_context_share(tls), access_tls_user(daemon->options));
    if (daemon->admin != NULL)
        admin_set_tls(daemon->admin, tls, access_tls_user(daemon->options));
    log_info(daemon->log, "SIGHUP: new TLS connections get the certificate in %s as it is now",
             option(daemon, OPTION_TLS_CERT));
    access_warn_of_end(daemon->options, tls, daemon->log);
}

static void reload(struct daemon *daemon)
{
    struct buf message = {0};
    char why[WHY_SIZE] = "";
    struct acl *users = NULL;
    struct tls_context *tls = NULL;
    struct options *fresh = options_again(daemon->options, &message);

    if (fresh == NULL) {
        log_error(daemon->log, "SIGHUP: %.*s; what was in force stays in force", (int)message.len,
                  message.data);
    } else if ((users = access_users(fresh, daemon->log, why)) == NULL ||
               ((tls = read_tls(daemon, fresh, why)) == NULL && *why != '\0') ||
               !check_doors(daemon, fresh, users, why)) {
        log_error(daemon->log, "SIGHUP: %s; what was in force stays in force", why);
        tls_context_free(tls);
        acl_drop(users);
    } else {
        take_options(daemon, fresh);
        take_users(daemon, users);
        take_tls(daemon, tls);
        struct engine_options options = engine_options_of(daemon);
        engine_reconfigure(daemon->engine, &options);
        configure_log(daemon->log, daemon->options);
    }
    if (fresh != NULL)
        options_free(fresh);
    buf_free(&message);
}

static void on_hangup(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;

    (void)number;
    if (daemon->stage == RUNNING) {
        if (daemon->ready)
            service_reloading();
        reload(daemon);
        if (daemon->ready)
            service_ready();
    } else {
        log_info(daemon->log, "SIGHUP: the daemon is stopping, and reads nothing any more");
    }
}

/* The log's file was moved away: go on in a new one. */
static void reopen_log(struct daemon *daemon)
{
    const char *path = option(daemon, OPTION_LOG_FILE);

    if (log_file_reopen(daemon->log->file, path))
        log_info(daemon->log, "SIGUSR1: the log goes on here");
    else
        log_error(daemon->log, "SIGUSR1: %s cannot be opened: %s; the log stays where it is", path,
                  plain_errno(errno));
}

static void on_user_signal(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;
    bool has_file = *option(daemon, OPTION_LOG_FILE) != '\0';

    if (number == SIGUSR1 && has_file)
        reopen_log(daemon);
    if (number == SIGUSR1 && daemon->auditing != NULL && daemon->stage < ENDING)
        auditing_reopen(daemon->auditing);
    if (number != SIGUSR1)
        log_info(daemon->log, "signal %d (%s) is ignored", number, plain_signal(number));
    else if (!has_file && daemon->auditing == NULL)
        log_info(daemon->log,
                 "signal %d (%s) is ignored: the log goes to stderr, so there is no file to open "
                 "again",
                 number, plain_signal(number));
}

/* The end. */

static void on_signal(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;

    if (daemon->signalled) {
        log_warn(daemon->log, "second signal: stopping at once");
        exit_at_once(daemon, EXIT_FAILURE);
    }
    daemon->signalled = true;
    log_info(daemon->log, "signal %d (%s)", number, plain_signal(number));
    drain(daemon);
}

static void on_drain_timeout(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;

    if (engine_idle(daemon->engine) && daemon->stage == DRAINING) {
        log_warn(daemon->log, "some clients did not take their replies in time");
        hang_up(daemon);
        return;
    }
    log_error(daemon->log, "what was begun did not end within %d s; giving up", DRAIN_MS / 1000);
    exit_at_once(daemon, EXIT_FAILURE);
}

static void drain(struct daemon *daemon)
{
    if (daemon->stage != RUNNING)
        return;
    daemon->stage = DRAINING;
    service_stopping();
    log_info(daemon->log, "stopping: no new connections, finishing what was begun");
    server_stop_listening(daemon->server);
    engine_drain(daemon->engine);
    uv_timer_start(&daemon->drain_timer, on_drain_timeout, DRAIN_MS, 0);
}

static void hang_up(struct daemon *daemon)
{
    daemon->stage = HANGING_UP;
    uv_timer_start(&daemon->drain_timer, on_drain_timeout, DRAIN_MS, 0);
    server_hang_up(daemon->server);
}

static void close_own_handles(void *context)
{
    struct daemon *daemon = context;
    sigset_t blocked;

    /* Without their handles the harmless ones would end the process, which still has its store to
     * close. */
    sigemptyset(&blocked);
    for (size_t i = 0; i < SIGNALS; i++)
        if (!signals[i].ends)
            sigaddset(&blocked, signals[i].number);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    uv_close((uv_handle_t *)&daemon->drain_timer, NULL);
    for (size_t i = 0; i < SIGNALS; i++) {
        uv_close((uv_handle_t *)&daemon->signals[i], NULL);
        if (!signals[i].ends)
            signal(signals[i].number, SIG_IGN);
    }
}

/* Close what is open; the loop runs dry after it. The limit on draining has nothing to cut short
 * any more, and what closes has limits of its own. */
static void end(struct daemon *daemon)
{
    daemon->stage = ENDING;
    uv_timer_stop(&daemon->drain_timer);
    watchdog_close(&daemon->watchdog);
    if (daemon->admin != NULL)
        admin_close(daemon->admin);
    server_close(daemon->server);
    if (daemon->auditing != NULL)
        auditing_close(daemon->auditing);
    host_close(daemon->host, close_own_handles);
}

static void free_parts(struct daemon *daemon)
{
    host_free(daemon->host);
    memory_store_remove(&daemon->memory);
    auditing_free(daemon->auditing);
    server_free(daemon->server);
    check(uv_loop_close(&daemon->loop) == 0);
    free(daemon->inherited.listen);
    if (daemon->inherited.admin >= 0)
        close(daemon->inherited.admin);
    acl_drop(daemon->users);
    tls_context_free(daemon->tls);
    buf_free(&daemon->wrong);
    free(daemon);
}

static void warn_of_variables(const struct log *log)
{
    char text[200];

    for (char *const *setting = environ; *setting != NULL; setting++)
        if (environment_complaint(*setting, text, sizeof text) != NULL)
            log_warn(log, "%s", text);
}

static int daemon_run(struct options *options, struct log *log)
{
    struct daemon *daemon = mem_zalloc(sizeof *daemon);
    char why[WHY_SIZE];

    daemon->options = options;
    daemon->log = log;
    daemon->inherited.admin = -1;
    process_prepare();
    init_loop(daemon);
    if (options_only_check(options) && open_doors(daemon, why)) {
        printf("stockaded: options, users, certificates and addresses are in order; the store %s\n",
               store_passes(daemon) ? "is in memory, and goes with the daemon" : "was not opened");
        end(daemon);
    } else if (!options_only_check(options) && open_parts(daemon, why)) {
        start(daemon);
    } else {
        log_error(log, "%s", why);
        if (log->file->fd != STDERR_FILENO) /* whoever starts it looks there first */
            fprintf(stderr, "stockaded: %s\n", why);
        daemon->status = EXIT_FAILURE;
        end(daemon);
    }
    check(uv_run(&daemon->loop, UV_RUN_DEFAULT) == 0);
    int status = daemon->status;
    free_parts(daemon);
    if (status == EXIT_SUCCESS && !options_only_check(options))
        log_info(log, "stopped");
    return status;
}

/* With a log: on stderr, or in its file. A check makes no file, which might not be the daemon's. */
static int run(struct options *options)
{
    const char *path = options_only_check(options) ? "" : options_text(options, OPTION_LOG_FILE);
    struct log_file file = LOG_FILE(STDERR_FILENO);
    struct log log = {.file = &file};

    configure_log(&log, options);
    if (*path != '\0') {
        int fd = log_file_open(path);
        if (fd < 0) {
            log_error(&log, "%s %s: %s", options_origin(options, OPTION_LOG_FILE), path,
                      plain_errno(errno));
            return EXIT_FAILURE;
        }
        file.fd = fd;
    }
    warn_of_variables(&log);
    store_sqlite_uncounted();
    int status = daemon_run(options, &log);
    if (*path != '\0')
        close(file.fd);
    return status;
}

int main(int argc, char **argv)
{
    struct options *options = NULL;
    struct buf message = {0};
    char **arguments = process_take_arguments(argc, argv);
    enum options_outcome outcome = options_load(&options, argc, arguments, environ, &message);
    int status = outcome == OPTIONS_SHOW ? EXIT_SUCCESS : EXIT_USAGE;

    if (outcome == OPTIONS_READY) {
        status = run(options);
        options_free(options);
    } else if (outcome == OPTIONS_SHOW) {
        if (fwrite(message.data, 1, message.len, stdout) != message.len || fflush(stdout) != 0) {
            fprintf(stderr, "stockaded: cannot write to stdout: %s\n", plain_errno(errno));
            status = EXIT_FAILURE;
        }
    } else {
        fprintf(stderr, "stockaded: %.*s\n", (int)message.len, message.data);
    }
    buf_free(&message);
    process_free_arguments(arguments);
    return status;
}
