/* SPDX-License-Identifier: Apache-2.0 */
/* See services.h. A service is ready when it answers a question on its port. */
#include "tests/unit/fence/services.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/unit/deadline.h"
#include "tests/unit/folder.h"

#define ASK_S_MAX   10
#define OPTIONS_MAX 32
#define SHARED_MAX  3

/* Both services answer this question and then close the connection. */
struct service_kind {
    const char *question;
    const char *answer, *not_yet;               /* once it is ready; while it is still loading */
    void (*run)(const struct service *service); /* in the child: become the service */
};

static struct sockaddr_in local_address(int port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons((uint16_t)port)};
}

static int new_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(fd >= 0);
    return fd;
}

/* Return a socket bound to a port that nobody else has. */
static int bound(int *port)
{
    struct sockaddr_in address = local_address(0);
    socklen_t len = sizeof address;
    int fd = new_socket();

    check(bind(fd, (struct sockaddr *)&address, len) == 0);
    check(getsockname(fd, (struct sockaddr *)&address, &len) == 0);
    *port = ntohs(address.sin_port);
    return fd;
}

int silent_server(int *port)
{
    int fd = bound(port);

    check(listen(fd, 64) == 0);
    return fd;
}

/* Return a port on which nothing listens. It is held until this program ends, as in
 * tests/system/harness/ports.py: our servers can listen there, and nobody else is given it. */
static int free_port(void)
{
    int port, yes = 1;
    int fd = bound(&port);

    check(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
    return port;
}

/* Starting and stopping. */

static void run_redis(const struct service *redis)
{
    char port[16], bus_port[16];
    const char *argv[OPTIONS_MAX] = {
        "redis-server",
        "--port",
        port,
        "--bind",
        "127.0.0.1 -::1",
        "--unixsocket",
        redis->socket,
        "--dir",
        redis->folder,
        "--save",
        "",
        "--appendonly",
        "no",
        "--enable-debug-command",
        "local",
    };
    size_t count = 15;

    snprintf(port, sizeof port, "%d", redis->port);
    for (const char *const *option = redis->options; option != NULL && *option != NULL; option++) {
        check(count + 1 < OPTIONS_MAX);
        argv[count++] = *option;
    }
    if (redis->bus_port != 0) {
        const char *const node[] = {
            "--cluster-enabled", "yes",   "--cluster-require-full-coverage", "no",
            "--cluster-port",    bus_port};
        snprintf(bus_port, sizeof bus_port, "%d", redis->bus_port);
        check(count + sizeof node / sizeof *node < OPTIONS_MAX);
        memcpy(argv + count, node, sizeof node);
    }
    execvp(argv[0], (char *const *)(uintptr_t)argv);
}

static void run_zookeeper(const struct service *zookeeper)
{
    char path[96];

    snprintf(path, sizeof path, "%s/zoo.cfg", zookeeper->folder);
    FILE *config = fopen(path, "we");
    check(config != NULL);
    fprintf(config,
            "tickTime=100\nmaxSessionTimeout=60000\ndataDir=%s\nclientPort=%d\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            "forceSync=no\n4lw.commands.whitelist=srvr\n",
            zookeeper->folder, zookeeper->port);
    check(fclose(config) == 0);
    execlp("java", "java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
           "/usr/share/java/zookeeper.jar", "org.apache.zookeeper.server.ZooKeeperServerMain", path,
           (char *)NULL);
}

static const struct service_kind redis_kind = {"PING\r\nQUIT\r\n", "+OK\r\n", "-LOADING",
                                               run_redis},
                                 zookeeper_kind = {"srvr", "Mode: standalone",
                                                   "not currently serving", run_zookeeper};

static bool answers(const struct service *service)
{
    struct sockaddr_in address = local_address(service->port);
    struct timeval patience = {.tv_sec = 5};
    const char *question = service->kind->question;
    char text[4096];
    size_t len = 0;
    ssize_t got = 0;
    int fd = new_socket();

    check(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, question, strlen(question), MSG_NOSIGNAL) > 0)
        while (len + 1 < sizeof text && (got = read(fd, text + len, sizeof text - len - 1)) > 0)
            len += (size_t)got;
    text[len] = '\0';
    close(fd);
    return strstr(text, service->kind->answer) != NULL &&
           strstr(text, service->kind->not_yet) == NULL;
}

void service_start(struct service *service)
{
    struct deadline deadline = deadline_in(HANG_MS);

    check(service->pid == 0);
    service->pid = fork();
    check(service->pid >= 0);
    if (service->pid == 0) {
        int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(nothing, STDOUT_FILENO);
        dup2(nothing, STDERR_FILENO);
        service->kind->run(service);
        _exit(127);
    }
    while (!answers(service)) {
        deadline_keep(&deadline);
        check(waitpid(service->pid, NULL, WNOHANG) == 0 && "it ended at once (is it installed?)");
        usleep(2000); /* between two questions */
    }
}

static struct service *service_new(const struct service_kind *kind, const char *const *options,
                                   int bus_port)
{
    struct service *service = mem_zalloc(sizeof *service);

    service->kind = kind;
    service->options = options;
    service->port = free_port();
    service->bus_port = bus_port;
    folder_make(service->folder, sizeof service->folder);
    snprintf(service->socket, sizeof service->socket, "%s/redis.sock", service->folder);
    service_start(service);
    return service;
}

struct service *redis_new(const char *const *options)
{
    return service_new(&redis_kind, options, 0);
}

struct service *redis_node_new(void)
{
    return service_new(&redis_kind, NULL, free_port());
}

void service_kill(struct service *service)
{
    check(service->pid > 0 && kill(service->pid, SIGKILL) == 0);
    check(waitpid(service->pid, NULL, 0) == service->pid);
    service->pid = 0;
}

void service_pause(const struct service *service)
{
    int status;

    check(kill(service->pid, SIGSTOP) == 0);
    check(waitpid(service->pid, &status, WUNTRACED) == service->pid && WIFSTOPPED(status));
}

void service_resume(const struct service *service)
{
    check(kill(service->pid, SIGCONT) == 0);
}

void service_free(struct service *service)
{
    if (service->pid != 0)
        service_kill(service);
    folder_remove(service->folder);
    free(service);
}

/* The program's own. */

static struct service *shared[SHARED_MAX + 1]; /* the last one is the ZooKeeper */

static void free_shared(void)
{
    for (int i = 0; i <= SHARED_MAX; i++)
        if (shared[i] != NULL)
            service_free(shared[i]);
}

static struct service *share(int number, const struct service_kind *kind)
{
    static bool freed_at_exit;

    if (!freed_at_exit)
        check(atexit(free_shared) == 0);
    freed_at_exit = true;
    if (shared[number] == NULL)
        shared[number] = service_new(kind, NULL, 0);
    else if (shared[number]->pid == 0)
        service_start(shared[number]);
    service_resume(shared[number]);
    return shared[number];
}

struct service *redis_shared(int number)
{
    struct service *redis = share(number, &redis_kind);

    redis_do(redis, "REPLICAOF NO ONE");
    redis_do(redis, "CONFIG SET maxmemory 0 maxclients 1000");
    redis_do(redis, "FLUSHALL");
    return redis;
}

struct service *zookeeper_shared(void)
{
    const char *left_out = getenv("STOCKADE_SKIP_SERVICES");
    bool is_left_out = left_out != NULL && strstr(left_out, "zookeeper") != NULL;

    return is_left_out ? NULL : share(SHARED_MAX, &zookeeper_kind);
}

/* Asking a Redis. */

static redisReply *ask(const struct service *redis, const char *format, va_list args)
{
    redisContext *context =
        redisConnectUnixWithTimeout(redis->socket, (struct timeval){.tv_sec = ASK_S_MAX});

    check(context != NULL && context->err == 0);
    check(redisSetTimeout(context, (struct timeval){.tv_sec = ASK_S_MAX}) == REDIS_OK);
    redisReply *reply = redisvCommand(context, format, args);
    check(reply != NULL);
    redisFree(context);
    return reply;
}

redisReply *redis_ask(const struct service *redis, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    redisReply *reply = ask(redis, format, args);
    va_end(args);
    return reply;
}

void redis_do(const struct service *redis, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    redisReply *reply = ask(redis, format, args);
    va_end(args);
    check(reply->type != REDIS_REPLY_ERROR);
    freeReplyObject(reply);
}
