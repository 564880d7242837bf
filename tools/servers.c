/* SPDX-License-Identifier: Apache-2.0 */
/* Starting, awaiting and ending private servers. A server is ready when it says so: Redis when it
 * answers with our child's process id (another program may have taken the port), PostgreSQL when it
 * takes the password that only we know, stockaded when it prints its line. The last words of a
 * server that does not come up go into the message. */
#include "tools/servers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "tools/database.h"
#include "tools/term.h"

enum { START_LIMIT_MS = 10000, CLUSTER_LIMIT_MS = 60000, END_LIMIT_MS = 3000 };
enum { POLL_MS = 10, PORT_TRIES = 5 };

extern char **environ;

/* In the child. */
static void forget_stockade_settings(void)
{
    char name[128];

    for (char **entry = environ; *entry != NULL;) {
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "STOCKADE_", 9) == 0 && length < sizeof name) {
            memcpy(name, *entry, length);
            name[length] = '\0';
            (void)unsetenv(name); /* moves the rest up */
        } else {
            entry++;
        }
    }
}

/* In the child. */
static void become(const struct passwd *user)
{
    if (initgroups(user->pw_name, user->pw_gid) != 0 || setgid(user->pw_gid) != 0 ||
        setuid(user->pw_uid) != 0) {
        dprintf(STDERR_FILENO, "cannot become %s: %s\n", user->pw_name, strerror(errno));
        _exit(127);
    }
}

/* Run argv (found in PATH) in that folder. Its stderr, and its stdout where `out` is -1, go to
 * FOLDER/NAME.log. It does not get the environment's STOCKADE_ settings, which are meant for the
 * user's own daemon. Where argv[0] cannot be run, the program ends early. */
static bool program_start(struct program *program, char *const *argv, const char *name,
                          const char *folder, int out, const struct signals *signals,
                          struct failure *failure)
{
    pid_t parent = getpid();

    (void)snprintf(program->log_path, sizeof program->log_path, "%s/%s.log", folder, name);
    int log = open(program->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0)
        return failure_set(failure, "cannot write %s: %s", program->log_path, strerror(errno));
    program->pid = fork();
    if (program->pid == 0) {
        (void)dup2(out >= 0 ? out : log, STDOUT_FILENO);
        (void)dup2(log, STDERR_FILENO);
        if (program->user != NULL)
            become(program->user);
        signals_before_exec(signals, parent, program->end_signal);
        forget_stockade_settings();
        (void)execvp(argv[0], argv);
        dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    (void)close(log);
    if (program->pid < 0) {
        program->pid = 0;
        return failure_set(failure, "cannot start %s: %s", name, strerror(errno));
    }
    return true;
}

/* Return whether it has ended, and reap it. */
static bool program_has_ended(struct program *program)
{
    if (program->pid != 0 && waitpid(program->pid, &program->status, WNOHANG) == program->pid)
        program->pid = 0;
    return program->pid == 0;
}

/* End it by its signal, or by SIGKILL where that takes too long. */
static void program_end(struct program *program, struct signals *signals)
{
    int64_t deadline_ms = clock_now_ms(&clock_monotonic) + END_LIMIT_MS;

    if (program->pid == 0)
        return;
    (void)kill(program->pid, program->end_signal != 0 ? program->end_signal : SIGTERM);
    while (!program_has_ended(program)) {
        int64_t left_ms = deadline_ms - clock_now_ms(&clock_monotonic);
        if (left_ms <= 0) {
            (void)kill(program->pid, SIGKILL);
            (void)waitpid(program->pid, NULL, 0);
            program->pid = 0;
            return;
        }
        (void)signals_wait(signals, -1, left_ms);
    }
}

/* Write "; it said: ..." with the last line of the log, or nothing; return `out`. */
static const char *program_last_words(const struct program *program, char *out, size_t size)
{
    char line[256];
    FILE *file = fopen(program->log_path, "re");

    out[0] = '\0';
    if (file == NULL)
        return out;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != '\0')
            (void)snprintf(out, size, "; it said: %s", line);
    }
    (void)fclose(file);
    return out;
}

void servers_open(struct servers *servers, struct signals *signals)
{
    *servers = (struct servers){.signals = signals, .stockaded_out = -1};
}

bool servers_make_folder(struct servers *servers, struct failure *failure)
{
    const char *parent = getenv("TMPDIR");

    if (servers->folder[0] != '\0')
        return true;
    if (parent == NULL || parent[0] == '\0')
        parent = "/tmp";
    int length = snprintf(servers->folder, sizeof servers->folder, "%s/stockade-XXXXXX", parent);
    if (length >= (int)sizeof servers->folder || mkdtemp(servers->folder) == NULL) {
        servers->folder[0] = '\0';
        return failure_set(failure, "cannot make a temporary folder in %s: %s (set TMPDIR)", parent,
                           strerror(errno));
    }
    return true;
}

/* A port that is free now, or 0: none can be had, and errno says why. Another program may take it
 * before the server binds it: the caller tries again. */
static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int port = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &size) == 0)
        port = ntohs(address.sin_port);
    if (fd >= 0) {
        int saved = errno;
        (void)close(fd);
        errno = saved;
    }
    return port;
}

/* Return whether the Redis on the port answers and is the child that we started. */
static bool redis_is_ours(const struct client_uri *uri, pid_t pid)
{
    struct client client;
    char mark[48];
    bool ours = false;

    if (!client_open(&client, uri))
        return false;
    redisReply *reply = client_call(&client, "INFO server");
    (void)snprintf(mark, sizeof mark, "\r\nprocess_id:%d\r\n", (int)pid);
    if (reply != NULL && reply->type == REDIS_REPLY_STRING)
        ours = strstr(reply->str, mark) != NULL;
    freeReplyObject(reply);
    client_close(&client);
    return ours;
}

/* One try on one port. */
static bool redis_try(struct servers *servers, struct failure *failure)
{
    int64_t deadline_ms = clock_now_ms(&clock_monotonic) + START_LIMIT_MS;
    char text[64], said[300];
    int number = free_port();

    if (number == 0)
        return failure_set(failure, "no free port on 127.0.0.1 for a private redis-server: %s",
                           strerror(errno));
    (void)snprintf(text, sizeof text, "redis://127.0.0.1:%d", number);
    check(client_uri_parse(&servers->redis, "redis", text, failure));
    char *port = strrchr(text, ':') + 1;
    char *argv[] = {
        "redis-server", "--port", port,    "--bind",        "127.0.0.1",   "--save", "",
        "--appendonly", "no",     "--dir", servers->folder, "--daemonize", "no",     NULL};
    if (!program_start(&servers->redis_program, argv, "redis-server", servers->folder, -1,
                       servers->signals, failure))
        return false;
    while (!program_has_ended(&servers->redis_program)) {
        if (redis_is_ours(&servers->redis, servers->redis_program.pid))
            return true;
        if (servers->signals->ending != 0 || clock_now_ms(&clock_monotonic) > deadline_ms) {
            program_end(&servers->redis_program, servers->signals);
            return failure_set(failure, "the private redis-server did not answer within %d s",
                               START_LIMIT_MS / 1000);
        }
        (void)signals_wait(servers->signals, -1, POLL_MS);
    }
    return failure_set(failure, "a private redis-server did not start (is it installed?)%s",
                       program_last_words(&servers->redis_program, said, sizeof said));
}

bool servers_start_redis(struct servers *servers, struct failure *failure)
{
    if (!servers_make_folder(servers, failure))
        return false;
    for (int i = 0; i < PORT_TRIES && servers->signals->ending == 0; i++)
        if (redis_try(servers, failure))
            return true;
    return false;
}

/* PostgreSQL. */

/* Find one of its programs where Debian has them, the newest; or give the bare name, which execvp
 * looks for in PATH. */
static void find_postgresql(const char *name, char *path, size_t size)
{
    char pattern[PATH_MAX];
    glob_t found = {.gl_pathc = 0};

    (void)snprintf(pattern, sizeof pattern, "/usr/lib/postgresql/*/bin/%s", name);
    (void)snprintf(path, size, "%s", name);
    if (glob(pattern, 0, NULL, &found) == 0) {
        const char *newest = found.gl_pathv[0];
        for (size_t i = 1; i < found.gl_pathc; i++)
            newest = strverscmp(found.gl_pathv[i], newest) > 0 ? found.gl_pathv[i] : newest;
        (void)snprintf(path, size, "%s", newest);
    }
    globfree(&found);
}

/* PostgreSQL refuses to run as root. False: there is nobody else. */
static bool choose_user(struct program *program, struct failure *failure)
{
    program->end_signal = SIGQUIT; /* it ends at once, and leaves no memory behind */
    if (geteuid() == 0 && (program->user = getpwnam("postgres")) == NULL)
        return failure_set(failure,
                           "PostgreSQL does not run as root, and there is no user postgres "
                           "(is it installed? apt-get install postgresql)");
    return true;
}

/* Make its own folder, with the password in it. The user may pass through ours. */
static bool make_postgresql_folder(struct servers *servers, const char *folder,
                                   const char *password_path, const char *password,
                                   struct failure *failure)
{
    const struct passwd *user = servers->postgresql_program.user;
    int fd = -1;
    bool made = mkdir(folder, 0700) == 0 && (user == NULL || chmod(servers->folder, 0711) == 0);

    if (made) {
        fd = open(password_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        made = fd >= 0 && dprintf(fd, "%s\n", password) > 0;
    }
    if (made && user != NULL)
        made = fchown(fd, user->pw_uid, user->pw_gid) == 0 &&
               chown(folder, user->pw_uid, user->pw_gid) == 0;
    if (!made)
        (void)failure_set(failure, "cannot make %s: %s", folder, strerror(errno));
    if (fd >= 0)
        (void)close(fd);
    return made;
}

/* Run initdb to its end. */
static bool make_cluster(struct servers *servers, char *folder, char *password_path,
                         struct failure *failure)
{
    int64_t deadline_ms = clock_now_ms(&clock_monotonic) + CLUSTER_LIMIT_MS;
    struct program *program = &servers->postgresql_program;
    char path[PATH_MAX], data[PATH_MAX], said[300];

    find_postgresql("initdb", path, sizeof path);
    (void)snprintf(data, sizeof data, "%s/data", folder);
    char *argv[] = {
        path, "-D",   data,          "-U",        "demo",     "-A",          "scram-sha-256",
        "-E", "UTF8", "--no-locale", "--no-sync", "--pwfile", password_path, NULL};
    if (!program_start(program, argv, "initdb", servers->folder, -1, servers->signals, failure))
        return false;
    while (!program_has_ended(program)) {
        if (servers->signals->ending != 0 || clock_now_ms(&clock_monotonic) > deadline_ms) {
            program_end(program, servers->signals);
            return failure_set(failure, "initdb took longer than %d s", CLUSTER_LIMIT_MS / 1000);
        }
        (void)signals_wait(servers->signals, -1, POLL_MS);
    }
    return program->status == 0 ||
           failure_set(failure,
                       "a private PostgreSQL cannot be made (is it installed? apt-get install "
                       "postgresql)%s",
                       program_last_words(program, said, sizeof said));
}

/* One try on one port. */
static bool postgresql_try(struct servers *servers, const char *folder, const char *password,
                           struct failure *failure)
{
    int64_t deadline_ms = clock_now_ms(&clock_monotonic) + START_LIMIT_MS;
    struct program *program = &servers->postgresql_program;
    char path[PATH_MAX], data[PATH_MAX], port[16], said[300];
    struct database database;
    int number = free_port();

    if (number == 0)
        return failure_set(failure, "no free port on 127.0.0.1 for a private PostgreSQL: %s",
                           strerror(errno));
    find_postgresql("postgres", path, sizeof path);
    (void)snprintf(data, sizeof data, "%s/data", folder);
    (void)snprintf(port, sizeof port, "%d", number);
    (void)snprintf(servers->postgresql, sizeof servers->postgresql,
                   "postgresql://demo:%s@127.0.0.1:%d/postgres", password, number);
    char *argv[] = {path,
                    "-D",
                    data,
                    "-p",
                    port,
                    "-c",
                    "listen_addresses=127.0.0.1",
                    "-c",
                    "unix_socket_directories=",
                    "-c",
                    "max_connections=600",
                    NULL};
    if (!program_start(program, argv, "postgresql", servers->folder, -1, servers->signals, failure))
        return false;
    while (!program_has_ended(program)) {
        if (database_open(&database, servers->postgresql)) {
            database_close(&database);
            return true;
        }
        if (servers->signals->ending != 0 || clock_now_ms(&clock_monotonic) > deadline_ms) {
            program_end(program, servers->signals);
            return failure_set(failure, "the private PostgreSQL did not answer within %d s: %s",
                               START_LIMIT_MS / 1000, database.failure.text);
        }
        (void)signals_wait(servers->signals, -1, POLL_MS);
    }
    return failure_set(failure, "a private PostgreSQL did not start%s",
                       program_last_words(program, said, sizeof said));
}

bool servers_start_postgresql(struct servers *servers, struct failure *failure)
{
    char folder[300], password_path[320], password[33];
    uint64_t secret[2];

    chance_system.fill(&chance_system, secret, sizeof secret);
    (void)snprintf(password, sizeof password, "%016" PRIx64 "%016" PRIx64, secret[0], secret[1]);
    if (!servers_make_folder(servers, failure) ||
        !choose_user(&servers->postgresql_program, failure))
        return false;
    (void)snprintf(folder, sizeof folder, "%s/postgresql", servers->folder);
    (void)snprintf(password_path, sizeof password_path, "%s/password", folder);
    if (!make_postgresql_folder(servers, folder, password_path, password, failure) ||
        !make_cluster(servers, folder, password_path, failure))
        return false;
    for (int i = 0; i < PORT_TRIES && servers->signals->ending == 0; i++)
        if (postgresql_try(servers, folder, password, failure))
            return true;
    return false;
}

/* Run a statement that no transaction may hold, on the server. */
static bool on_server(struct servers *servers, const char *sql, struct failure *failure)
{
    struct database database;
    bool done =
        database_open(&database, servers->postgresql) && database_do(&database, NULL, sql, NULL);

    if (!done)
        *failure = database.failure;
    database_close(&database);
    return done;
}

bool servers_make_database(struct servers *servers, const char *uri, const char *name,
                           struct failure *failure)
{
    char sql[128];

    if (strlen(uri) + strlen(name) + sizeof "?dbname=" > sizeof servers->database)
        return failure_set(failure, "the database's URI is too long");
    (void)memmove(servers->postgresql, uri, strlen(uri) + 1);
    (void)snprintf(sql, sizeof sql, "CREATE DATABASE %s", name);
    if (!on_server(servers, sql, failure))
        return false;
    (void)snprintf(servers->database_name, sizeof servers->database_name, "%s", name);
    (void)snprintf(servers->database, sizeof servers->database, "%s%cdbname=%s", uri,
                   strchr(uri, '?') != NULL ? '&' : '?', name);
    return true;
}

static void drop_database(struct servers *servers)
{
    struct failure failure;
    char sql[128];

    (void)snprintf(sql, sizeof sql, "DROP DATABASE %s WITH (FORCE)", servers->database_name);
    if (!on_server(servers, sql, &failure))
        term_error("stockade: cannot remove the database %s: %s", servers->database_name,
                   failure.text);
}

/* Find it beside this program; or give the bare name, which execvp looks for in PATH. */
static void find_stockaded(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - sizeof "/stockaded");
    char *slash;

    if (length > 0) {
        path[length] = '\0';
        slash = strrchr(path, '/');
        (void)strcpy(slash != NULL ? slash : path, "/stockaded");
        if (access(path, X_OK) == 0)
            return;
    }
    (void)snprintf(path, size, "stockaded");
}

/* Read the first address in "stockaded ready: listen=127.0.0.1:41233 admin=127.0.0.1:40121". */
static bool ready_line_parse(const char *line, struct client_uri *uri)
{
    char text[128];
    struct failure failure;
    const char *listen = strstr(line, " listen=");

    if (strncmp(line, "stockaded ready:", 16) != 0 || listen == NULL)
        return false;
    listen += strlen(" listen=");
    (void)snprintf(text, sizeof text, "stockade://%.*s", (int)strcspn(listen, " \n"), listen);
    return client_uri_parse(uri, "stockade", text, &failure);
}

static bool stockaded_await(struct servers *servers, struct failure *failure)
{
    int64_t deadline_ms = clock_now_ms(&clock_monotonic) + START_LIMIT_MS;
    char line[512], said[300];
    size_t length = 0;

    for (;;) {
        int64_t left_ms = deadline_ms - clock_now_ms(&clock_monotonic);
        if (left_ms <= 0 || servers->signals->ending != 0)
            return failure_set(failure, "the private stockaded was not ready within %d s",
                               START_LIMIT_MS / 1000);
        if (!signals_wait(servers->signals, servers->stockaded_out, left_ms))
            continue;
        ssize_t got = read(servers->stockaded_out, line + length, sizeof line - 1 - length);
        if (got <= 0 || length + (size_t)got >= sizeof line - 1)
            break;
        length += (size_t)got;
        line[length] = '\0';
        if (strchr(line, '\n') != NULL) {
            if (ready_line_parse(line, &servers->stockade))
                return true;
            break;
        }
    }
    return failure_set(failure, "a private stockaded did not start%s",
                       program_last_words(&servers->stockaded_program, said, sizeof said));
}

bool servers_start_stockaded(struct servers *servers, const char *store, const char *lease,
                             struct failure *failure)
{
    char program[PATH_MAX], store_copy[PATH_MAX], lease_copy[512];
    int ends[2];

    if (!servers_make_folder(servers, failure))
        return false;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return failure_set(failure, "cannot make a pipe: %s", strerror(errno));
    find_stockaded(program, sizeof program);
    if (store != NULL)
        (void)snprintf(store_copy, sizeof store_copy, "%s", store);
    else
        (void)snprintf(store_copy, sizeof store_copy, "sqlite:%s/stockade.db", servers->folder);
    (void)snprintf(lease_copy, sizeof lease_copy, "%s", lease);
    char *argv[] = {program,    "--listen", "127.0.0.1:0", "--admin",     "127.0.0.1:0", "--store",
                    store_copy, "--lease",  lease_copy,    "--lock-keys", "lock:*",      NULL};
    bool started = program_start(&servers->stockaded_program, argv, "stockaded", servers->folder,
                                 ends[1], servers->signals, failure);
    (void)close(ends[1]);
    servers->stockaded_out = ends[0];
    return started && stockaded_await(servers, failure);
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *at)
{
    (void)status;
    (void)type;
    (void)at;
    return remove(path);
}

void servers_close(struct servers *servers)
{
    program_end(&servers->stockaded_program, servers->signals);
    program_end(&servers->redis_program, servers->signals);
    if (servers->database_name[0] != '\0' && servers->postgresql_program.pid == 0)
        drop_database(servers);
    program_end(&servers->postgresql_program, servers->signals);
    if (servers->stockaded_out >= 0) {
        (void)close(servers->stockaded_out);
        servers->stockaded_out = -1;
    }
    if (servers->folder[0] != '\0' &&
        nftw(servers->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0)
        term_error("stockade: cannot remove %s: %s", servers->folder, strerror(errno));
    servers->folder[0] = '\0';
}
