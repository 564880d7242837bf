/* SPDX-License-Identifier: Apache-2.0 */
/* Starting, awaiting and ending private servers. A server is ready when it says so: Redis when it
 * answers with our child's process id (another program may have taken the port), stockaded when it
 * prints its line. The last words of a server that does not come up go into the message. */
#include "tools/servers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"

enum { START_LIMIT_MS = 10000, END_LIMIT_MS = 3000, POLL_MS = 10, PORT_TRIES = 5 };

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

/* Run argv (found in PATH). Its stderr, and its stdout where `out` is -1, go to FOLDER/NAME.log. It
 * does not get the environment's STOCKADE_ settings, which are meant for the user's own daemon.
 * Where argv[0] cannot be run, the program ends early. */
static bool program_start(struct program *program, char *const *argv, const char *name,
                          const char *folder, int out, const struct signals *signals,
                          struct failure *failure)
{
    pid_t parent = getpid();

    (void)snprintf(program->log_path, sizeof program->log_path, "%s/%s.log", folder, name);
    int log = open(program->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0) {
        return failure_set(failure, "cannot write %s: %s", program->log_path, strerror(errno));
    }
    program->pid = fork();
    if (program->pid == 0) {
        signals_before_exec(signals, parent);
        forget_stockade_settings();
        (void)dup2(out >= 0 ? out : log, STDOUT_FILENO);
        (void)dup2(log, STDERR_FILENO);
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
    if (program->pid != 0 && waitpid(program->pid, NULL, WNOHANG) == program->pid) {
        program->pid = 0;
    }
    return program->pid == 0;
}

/* End it by SIGTERM, or by SIGKILL where that takes too long. */
static void program_end(struct program *program, struct signals *signals)
{
    int64_t deadline_ms = clock_now_ms(&clock_monotonic) + END_LIMIT_MS;

    if (program->pid == 0) {
        return;
    }
    (void)kill(program->pid, SIGTERM);
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
    if (file == NULL) {
        return out;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != '\0') {
            (void)snprintf(out, size, "; it said: %s", line);
        }
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

    if (servers->folder[0] != '\0') {
        return true;
    }
    if (parent == NULL || parent[0] == '\0') {
        parent = "/tmp";
    }
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
        getsockname(fd, (struct sockaddr *)&address, &size) == 0) {
        port = ntohs(address.sin_port);
    }
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

    if (!client_open(&client, uri)) {
        return false;
    }
    redisReply *reply = client_call(&client, "INFO server");
    (void)snprintf(mark, sizeof mark, "\r\nprocess_id:%d\r\n", (int)pid);
    if (reply != NULL && reply->type == REDIS_REPLY_STRING) {
        ours = strstr(reply->str, mark) != NULL;
    }
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

    if (number == 0) {
        return failure_set(failure, "no free port on 127.0.0.1 for a private redis-server: %s",
                           strerror(errno));
    }
    (void)snprintf(text, sizeof text, "redis://127.0.0.1:%d", number);
    check(client_uri_parse(&servers->redis, "redis", text, failure));
    char *port = strrchr(text, ':') + 1;
    char *argv[] = {
        "redis-server", "--port", port,    "--bind",        "127.0.0.1",   "--save", "",
        "--appendonly", "no",     "--dir", servers->folder, "--daemonize", "no",     NULL};
    if (!program_start(&servers->redis_program, argv, "redis-server", servers->folder, -1,
                       servers->signals, failure)) {
        return false;
    }
    while (!program_has_ended(&servers->redis_program)) {
        if (redis_is_ours(&servers->redis, servers->redis_program.pid)) {
            return true;
        }
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
    if (!servers_make_folder(servers, failure)) {
        return false;
    }
    for (int i = 0; i < PORT_TRIES && servers->signals->ending == 0; i++) {
        if (redis_try(servers, failure)) {
            return true;
        }
    }
    return false;
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
        if (access(path, X_OK) == 0) {
            return;
        }
    }
    (void)snprintf(path, size, "stockaded");
}

/* Read the first address in "stockaded ready: listen=127.0.0.1:41233 admin=127.0.0.1:40121". */
static bool ready_line_parse(const char *line, struct client_uri *uri)
{
    char text[128];
    struct failure failure;
    const char *listen = strstr(line, " listen=");

    if (strncmp(line, "stockaded ready:", 16) != 0 || listen == NULL) {
        return false;
    }
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
        if (left_ms <= 0 || servers->signals->ending != 0) {
            return failure_set(failure, "the private stockaded was not ready within %d s",
                               START_LIMIT_MS / 1000);
        }
        if (!signals_wait(servers->signals, servers->stockaded_out, left_ms)) {
            continue;
        }
        ssize_t got = read(servers->stockaded_out, line + length, sizeof line - 1 - length);
        if (got <= 0 || length + (size_t)got >= sizeof line - 1) {
            break;
        }
        length += (size_t)got;
        line[length] = '\0';
        if (strchr(line, '\n') != NULL) {
            if (ready_line_parse(line, &servers->stockade)) {
                return true;
            }
            break;
        }
    }
    return failure_set(failure, "a private stockaded did not start%s",
                       program_last_words(&servers->stockaded_program, said, sizeof said));
}

bool servers_start_stockaded(struct servers *servers, const char *lease, struct failure *failure)
{
    char program[PATH_MAX], store[PATH_MAX], lease_copy[512];
    int ends[2];

    if (!servers_make_folder(servers, failure)) {
        return false;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return failure_set(failure, "cannot make a pipe: %s", strerror(errno));
    }
    find_stockaded(program, sizeof program);
    (void)snprintf(store, sizeof store, "sqlite:%s/stockade.db", servers->folder);
    (void)snprintf(lease_copy, sizeof lease_copy, "%s", lease);
    char *argv[] = {program, "--listen", "127.0.0.1:0", "--admin",     "127.0.0.1:0", "--store",
                    store,   "--lease",  lease_copy,    "--lock-keys", "lock:*",      NULL};
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
    if (servers->stockaded_out >= 0) {
        (void)close(servers->stockaded_out);
        servers->stockaded_out = -1;
    }
    if (servers->folder[0] != '\0' &&
        nftw(servers->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0) {
        fprintf(stderr, "stockade: cannot remove %s: %s\n", servers->folder, strerror(errno));
    }
    servers->folder[0] = '\0';
}
