/* SPDX-License-Identifier: Apache-2.0 */
/* redis-server as a child process; its log line is the sign that it is ready. */
#include "tests/unit/fence/redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "tests/unit/deadline.h"
#include "tests/unit/folder.h"

#define START_MS_MAX 10000
#define ASK_S_MAX    10
#define OPTIONS_MAX  32
/* Below those that the system gives to whoever names none; some for each process. */
#define PORT_MIN   12000
#define PORTS      20000
#define PORTS_EACH 50

/* A socket that listens there, or -1 where that port has another. */
static int listener(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    check(fd >= 0);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 64) == 0)
        return fd;
    close(fd);
    return -1;
}

int silent_server(int *port)
{
    struct sockaddr_in address;
    socklen_t len = sizeof address;
    int fd = listener(0);

    check(fd >= 0 && getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    *port = ntohs(address.sin_port);
    return fd;
}

int free_port(void)
{
    static int tried;

    for (;;) {
        int port = PORT_MIN + (getpid() % (PORTS / PORTS_EACH) * PORTS_EACH + tried) % PORTS;
        check(tried++ < PORTS);
        int fd = listener(port);
        if (fd < 0)
            continue;
        close(fd);
        return port;
    }
}

static void run(const struct redis_server *server, const char *const *options, int log)
{
    char port[16];
    const char *argv[OPTIONS_MAX] = {
        "redis-server",
        "--port",
        port,
        "--bind",
        "127.0.0.1 -::1",
        "--unixsocket",
        server->socket,
        "--dir",
        server->folder,
        "--save",
        "",
        "--appendonly",
        "no",
        "--logfile",
        "",
        "--enable-debug-command",
        "local",
    };
    size_t count = 17;

    snprintf(port, sizeof port, "%d", server->port);
    for (; options != NULL && *options != NULL; options++) {
        check(count + 1 < OPTIONS_MAX);
        argv[count++] = *options;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(log, STDOUT_FILENO);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    perror("redis-server");
    _exit(127);
}

static void await_ready(const struct redis_server *server)
{
    char text[65536];
    size_t len = 0;
    struct deadline deadline = deadline_in(START_MS_MAX);

    text[0] = '\0';
    while (strstr(text, "Ready to accept connections") == NULL) {
        struct pollfd ready = {.fd = server->log, .events = POLLIN};
        check(len + 1 < sizeof text && "redis-server says too much");
        deadline_keep(&deadline);
        if (poll(&ready, 1, 100) <= 0)
            continue;
        ssize_t got = read(server->log, text + len, sizeof text - len - 1);
        if (got <= 0) {
            fprintf(stderr, "%s", text);
            check(got > 0 && "redis-server ended at once");
        }
        len += (size_t)got;
        text[len] = '\0';
    }
}

void redis_server_start(struct redis_server *server, const char *const *options)
{
    int ends[2];

    check(server->pid == 0 && pipe2(ends, O_CLOEXEC) == 0);
    server->pid = fork();
    check(server->pid >= 0);
    if (server->pid == 0)
        run(server, options, ends[1]);
    close(ends[1]);
    server->log = ends[0];
    await_ready(server);
}

struct redis_server *redis_server_new(const char *const *options)
{
    struct redis_server *server = mem_zalloc(sizeof *server);

    server->port = free_port();
    folder_make(server->folder, sizeof server->folder);
    snprintf(server->socket, sizeof server->socket, "%s/redis.sock", server->folder);
    redis_server_start(server, options);
    return server;
}

void redis_server_kill(struct redis_server *server)
{
    check(server->pid > 0 && kill(server->pid, SIGKILL) == 0);
    check(waitpid(server->pid, NULL, 0) == server->pid);
    close(server->log);
    server->pid = 0;
}

void redis_server_pause(const struct redis_server *server)
{
    int status;

    check(kill(server->pid, SIGSTOP) == 0);
    check(waitpid(server->pid, &status, WUNTRACED) == server->pid && WIFSTOPPED(status));
}

void redis_server_resume(const struct redis_server *server)
{
    check(kill(server->pid, SIGCONT) == 0);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

void redis_server_free(struct redis_server *server)
{
    if (server->pid != 0)
        redis_server_kill(server);
    nftw(server->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(server);
}

static redisReply *ask(const struct redis_server *server, const char *format, va_list args)
{
    redisContext *redis =
        redisConnectUnixWithTimeout(server->socket, (struct timeval){.tv_sec = ASK_S_MAX});

    check(redis != NULL && redis->err == 0);
    check(redisSetTimeout(redis, (struct timeval){.tv_sec = ASK_S_MAX}) == REDIS_OK);
    redisReply *reply = redisvCommand(redis, format, args);
    check(reply != NULL);
    redisFree(redis);
    return reply;
}

redisReply *redis_server_ask(const struct redis_server *server, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    redisReply *reply = ask(server, format, args);
    va_end(args);
    return reply;
}

void redis_server_do(const struct redis_server *server, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    redisReply *reply = ask(server, format, args);
    va_end(args);
    check(reply->type != REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}

void redis_server_reset(struct redis_server *server)
{
    if (server->pid == 0)
        redis_server_start(server, NULL);
    redis_server_resume(server);
    redis_server_do(server, "REPLICAOF NO ONE");
    redis_server_do(server, "CONFIG SET maxmemory 0 maxclients 1000");
    redis_server_do(server, "FLUSHALL");
}
