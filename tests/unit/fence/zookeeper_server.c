/* SPDX-License-Identifier: Apache-2.0 */
/* ZooKeeper as a child process, in a small Java machine; that it names its mode is the sign that it
 * is ready. */
#include "tests/unit/fence/zookeeper_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
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
#include "tests/unit/fence/redis_server.h"
#include "tests/unit/folder.h"

#define START_MS_MAX 30000

static void write_config(const struct zookeeper_server *server, const char *path)
{
    FILE *config = fopen(path, "we");

    check(config != NULL);
    fprintf(config,
            "tickTime=100\nmaxSessionTimeout=60000\ndataDir=%s\nclientPort=%d\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            "forceSync=no\n4lw.commands.whitelist=srvr\n",
            server->folder, server->port);
    check(fclose(config) == 0);
}

static void run(const char *config)
{
    int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
    execlp("java", "java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
           "/usr/share/java/zookeeper.jar", "org.apache.zookeeper.server.ZooKeeperServerMain",
           config, (char *)NULL);
    _exit(127);
}

static bool answers(const struct zookeeper_server *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons((uint16_t)server->port)};
    struct timeval patience = {.tv_sec = 5};
    char text[4096];
    size_t len = 0;
    ssize_t got = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    check(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, "srvr", 4, MSG_NOSIGNAL) == 4)
        while (len + 1 < sizeof text && (got = read(fd, text + len, sizeof text - len - 1)) > 0)
            len += (size_t)got;
    text[len] = '\0';
    close(fd);
    return strstr(text, "Mode: standalone") != NULL;
}

void zookeeper_server_start(struct zookeeper_server *server)
{
    char config[96];
    struct deadline deadline = deadline_in(START_MS_MAX);

    snprintf(config, sizeof config, "%s/zoo.cfg", server->folder);
    write_config(server, config);
    server->pid = fork();
    check(server->pid >= 0);
    if (server->pid == 0)
        run(config);
    while (!answers(server)) {
        deadline_keep(&deadline);
        check(waitpid(server->pid, NULL, WNOHANG) == 0 && "ZooKeeper ended (is it installed?)");
        usleep(10000);
    }
}

struct zookeeper_server *zookeeper_server_new(void)
{
    struct zookeeper_server *server = mem_zalloc(sizeof *server);

    server->port = free_port();
    folder_make(server->folder, sizeof server->folder);
    zookeeper_server_start(server);
    return server;
}

void zookeeper_server_pause(struct zookeeper_server *server)
{
    int status;

    check(kill(server->pid, SIGSTOP) == 0);
    check(waitpid(server->pid, &status, WUNTRACED) == server->pid && WIFSTOPPED(status));
}

void zookeeper_server_resume(struct zookeeper_server *server)
{
    check(kill(server->pid, SIGCONT) == 0);
}

void zookeeper_server_kill(struct zookeeper_server *server)
{
    check(kill(server->pid, SIGKILL) == 0);
    check(waitpid(server->pid, NULL, 0) == server->pid);
}

bool zookeeper_left_out(void)
{
    const char *names = getenv("STOCKADE_SKIP_SERVICES");
    return names != NULL && strstr(names, "zookeeper") != NULL;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

void zookeeper_server_free(struct zookeeper_server *server)
{
    zookeeper_server_kill(server);
    nftw(server->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(server);
}
