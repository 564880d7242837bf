/* SPDX-License-Identifier: Apache-2.0 */
/* Real lease services for tests: a redis-server or a ZooKeeper as a child process, on a free port,
 * in a temporary folder. It dies with the test program, however that ends. Whatever goes wrong here
 * fails the test. */
#ifndef STOCKADE_TESTS_SERVICES_H
#define STOCKADE_TESTS_SERVICES_H

#include <hiredis/hiredis.h>
#include <sys/types.h>

struct service {
    const struct service_kind *kind;
    pid_t pid; /* 0: not running */
    int port;
    int bus_port; /* Redis: of a node of a cluster; else 0 */
    char folder[64];
    char socket[96];            /* Redis: its unix socket */
    const char *const *options; /* Redis: further arguments, NULL at the end; borrowed; or NULL */
};

/* Start a Redis without persistence, and wait until it answers. Ends with service_free. */
struct service *redis_new(const char *const *options);
/* The same for a node of a cluster, which has no slots yet, and knows no other node. */
struct service *redis_node_new(void);
/* The program's own Redis of this number (0 to 2), which runs from the first time that a test asks
 * for it until the program ends: a master without limits, empty, whatever the last test left. */
struct service *redis_shared(int number);
/* The program's own ZooKeeper, running; NULL: the user does without one
 * (STOCKADE_SKIP_SERVICES, as in tests/system). */
struct service *zookeeper_shared(void);

/* Kill it (as kill -9). */
void service_kill(struct service *service);
/* Start it again on the same port: Redis empty, ZooKeeper with what it had written. */
void service_start(struct service *service);
/* Stop and continue the process, as a paused machine. */
void service_pause(const struct service *service);
void service_resume(const struct service *service);
void service_free(struct service *service);

/* Ask a Redis, past the provider under test. The caller frees the reply. */
redisReply *redis_ask(const struct service *redis, const char *format, ...);
/* The same, for commands whose reply is of no interest but must not be an error. */
void redis_do(const struct service *redis, const char *format, ...);

/* Open a socket that neither accepts nor answers, on a free port, which is written to `port`. The
 * caller closes it. */
int silent_server(int *port);

#endif
