/* SPDX-License-Identifier: Apache-2.0 */
/* The contenders with redis-py's Lock, on Redis and on Stockade: buyer.py, which is built in. Each
 * buyer starts one, does the work between its read and its write, and keeps its books. Where the
 * buyer is stopped, its Python program is stopped, too. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/embed.h"
#include "fence/base/mem.h"
#include "tools/demo/oversell.h"

EMBED_FILE(buyer_py, "tools/demo/buyer.py");

enum { LINE_MAX_BYTES = 512 };

/* Its stdin and stdout are one socket. */
struct python {
    pid_t pid;
    int fd;
    char text[LINE_MAX_BYTES]; /* what it said, and nobody has heard yet */
    size_t len;
};

static const char *const interpreters[] = {"python3", "/usr/bin/python3"};

/* In the child. */
static void run_python(const char *interpreter, char *const *argv, int fd, pid_t parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && dup2(fd, STDIN_FILENO) >= 0 && dup2(fd, STDOUT_FILENO) >= 0)
        (void)execvp(interpreter, argv);
    _exit(127);
}

/* The one on this machine that has redis-py, or NULL. */
static const char *find_python(void)
{
    char *const argv[] = {"python3", "-c", "import redis.lock", NULL};

    for (size_t i = 0; i < sizeof interpreters / sizeof *interpreters; i++) {
        pid_t parent = getpid(), pid = fork();
        int status = 1;
        if (pid == 0) {
            check(freopen("/dev/null", "r+", stderr) != NULL);
            run_python(interpreters[i], argv, fileno(stderr), parent);
        }
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        if (pid > 0 && status == 0)
            return interpreters[i];
    }
    return NULL;
}

static bool python_missing(struct sale *sale, const struct client_uri *server,
                           struct failure *failure)
{
    if (server->is_unix)
        return !failure_set(failure, "its program takes host and port, not a unix socket");
    if (server->login.password[0] != '\0' || server->db != 0)
        return !failure_set(failure, "its program takes no password and no database's number");
    if (sale->python == NULL)
        sale->python = find_python();
    return sale->python == NULL &&
           !failure_set(failure, "there is no redis-py: apt-get install python3-redis");
}

/* Has the server a pattern for this demo's locks? */
static bool lock_keys_missing(struct sale *sale, const struct client_uri *server,
                              struct failure *failure)
{
    struct client client;
    bool found = false;

    if (python_missing(sale, server, failure))
        return true;
    if (!client_open(&client, server))
        return !failure_set(failure, "%s", client.failure.text);
    redisReply *reply = client_call(&client, "SET lock:%s probe NX PX 10", sale->key);
    found = reply != NULL && reply->type != REDIS_REPLY_ERROR; /* null: granted, and over by now */
    if (!found)
        (void)failure_set(failure, "%s has no lock keys (%s): start it with --lock-keys 'lock:*'",
                          server->text, reply != NULL ? client_text(reply) : client.failure.text);
    freeReplyObject(reply);
    client_close(&client);
    return !found;
}

static bool start(struct buyer *buyer)
{
    const struct client_uri *server = buyer->server;
    char port[16], ttl[32], text[sizeof buyer->sale->key];
    pid_t parent = getpid();
    int ends[2];

    (void)snprintf(port, sizeof port, "%d", server->host.port);
    (void)snprintf(ttl, sizeof ttl, "%g", (double)buyer->sale->ttl_ms / 1000);
    (void)snprintf(text, sizeof text, "%s", buyer->sale->key);
    char *const argv[] = {"python3",
                          "-c",
                          (char *)buyer_py,
                          (char *)server->host.name,
                          port,
                          text,
                          ttl,
                          buyer->contender->uses_stockade ? "stockade" : "redis",
                          NULL};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return failure_set(&buyer->client.failure, "cannot make a socket: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0)
        run_python(buyer->sale->python, argv, ends[1], parent);
    (void)close(ends[1]);
    if (pid < 0) {
        (void)close(ends[0]);
        return failure_set(&buyer->client.failure, "cannot start python3: %s", strerror(errno));
    }
    struct python *python = mem_zalloc(sizeof *python);
    python->pid = pid;
    python->fd = ends[0];
    buyer->own = python;
    buyer->companion = pid;
    return true;
}

static void leave(struct buyer *buyer)
{
    struct python *python = buyer->own;

    (void)close(python->fd);
    (void)kill(python->pid, SIGKILL);
    (void)waitpid(python->pid, NULL, 0);
    free(python);
}

/* What it says next. False: it said nothing before the sale's limit, or has ended. */
static bool hear(struct buyer *buyer, char line[LINE_MAX_BYTES])
{
    struct python *python = buyer->own;
    char *end;

    while ((end = memchr(python->text, '\n', python->len)) == NULL) {
        struct pollfd wait = {.fd = python->fd, .events = POLLIN};
        int64_t left_ms = buyer->deadline_ms - clock_now_ms(&clock_monotonic);
        if (left_ms <= 0 || python->len == sizeof python->text)
            return failure_set(&buyer->client.failure, "its Python program said nothing in time");
        if (poll(&wait, 1, (int)left_ms) <= 0)
            continue;
        ssize_t got =
            read(python->fd, python->text + python->len, sizeof python->text - python->len);
        if (got <= 0)
            return failure_set(&buyer->client.failure, "its Python program has ended");
        python->len += (size_t)got;
    }
    size_t len = (size_t)(end - python->text);
    memcpy(line, python->text, len);
    line[len] = '\0';
    python->len -= len + 1;
    memmove(python->text, end + 1, python->len);
    return true;
}

static void go_on(struct buyer *buyer)
{
    struct python *python = buyer->own;

    (void)send(python->fd, "\n", 1, MSG_NOSIGNAL); /* else hear() finds that it has ended */
}

static enum purchase buy(struct buyer *buyer)
{
    char line[LINE_MAX_BYTES];
    bool stale = false;
    int64_t left;

    if (buyer->own == NULL && !start(buyer))
        return PURCHASE_FAILED;
    while (hear(buyer, line)) {
        if (strcmp(line, "work") == 0) {
            int64_t granted_us = clock_now_us(&clock_monotonic);
            buyer_passes(buyer, 0, granted_us);
            buyer_note(buyer, TRACE_LOCKED, 0, 0);
            oversell_work(buyer);
            stale = buyer_has_passed(buyer, 0, granted_us);
        } else if (sscanf(line, "sold %" SCNd64, &left) == 1) {
            buyer_note_stale(buyer, stale, false);
            enum purchase purchase = oversell_sold(buyer, left);
            go_on(buyer);
            return purchase;
        } else if (strncmp(line, "refused STALE", 13) == 0) {
            buyer_note_stale(buyer, true, true);
            go_on(buyer);
            return PURCHASE_AGAIN;
        } else if (strcmp(line, "sold out") == 0) {
            return PURCHASE_SOLD_OUT;
        } else if (strcmp(line, "ready") != 0) {
            (void)failure_set(&buyer->client.failure, "its Python program said: %s", line);
            return PURCHASE_FAILED;
        }
        go_on(buyer);
    }
    return PURCHASE_FAILED;
}

/* The referee's, at Stockade: as a client that knows tokens. */

static bool open_sale(struct buyer *referee)
{
    char stock[32];

    (void)snprintf(stock, sizeof stock, "%" PRId64, referee->sale->stock);
    return lease_write(&referee->client, "SET", referee->sale->key, stock);
}

static bool clear(struct buyer *referee)
{
    return lease_write(&referee->client, "DEL", referee->sale->key, NULL);
}

const struct contender contender_redis_py = {
    .name = "redis-py",
    .title = "redis-py's Lock",
    .missing = python_missing,
    .leave = leave,
    .open = oversell_stock_open,
    .audit = oversell_stock_audit,
    .clear = oversell_stock_clear,
    .buy = buy,
};

const struct contender contender_redis_py_stockade = {
    .name = "redis-py-stockade",
    .title = "redis-py, Stockade",
    .uses_stockade = true,
    .missing = lock_keys_missing,
    .leave = leave,
    .open = open_sale,
    .audit = oversell_stock_audit,
    .clear = clear,
    .buy = buy,
};
