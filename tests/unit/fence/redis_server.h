/* SPDX-License-Identifier: Apache-2.0 */
/* A real redis-server of a test's own: on a free port, in a temporary folder, without persistence.
 * It dies with the test, however that ends. Whatever goes wrong here fails the test. */
#ifndef STOCKADE_TESTS_REDIS_SERVER_H
#define STOCKADE_TESTS_REDIS_SERVER_H

#include <hiredis/hiredis.h>
#include <sys/types.h>

struct redis_server {
    pid_t pid; /* 0: not running */
    int port;
    char folder[64];
    char socket[96]; /* its unix socket */
    int log;         /* the read end of its stdout */
};

/* Starts one and waits until it takes connections. `options` are further arguments, NULL at the
 * end; may be NULL. Ends with redis_server_free. */
struct redis_server *redis_server_new(const char *const *options);
/* Kills it (as kill -9); starts it again on the same port, empty. */
void redis_server_kill(struct redis_server *server);
void redis_server_start(struct redis_server *server, const char *const *options);
/* Stops and continues the process, as a paused machine. */
void redis_server_pause(const struct redis_server *server);
void redis_server_resume(const struct redis_server *server);
/* For the next test, whatever the last one left: running, a master without limits, empty. */
void redis_server_reset(struct redis_server *server);
void redis_server_free(struct redis_server *server);

/* Asks it, past the provider under test. The caller frees the reply. */
redisReply *redis_server_ask(const struct redis_server *server, const char *format, ...);
/* The same, for commands whose reply is of no interest but must not be an error. */
void redis_server_do(const struct redis_server *server, const char *format, ...);

/* A listening socket that accepts nothing and answers nothing; its port. close() it. */
int silent_server(int *port);

/* A port on which nothing listens, and that no other test takes meanwhile. */
int free_port(void);

#endif
