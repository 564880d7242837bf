/* SPDX-License-Identifier: Apache-2.0 */
/* A real ZooKeeper server of a test's own: on a free port, in a temporary folder. It dies with the
 * test, however that ends. Whatever goes wrong here fails the test. */
#ifndef STOCKADE_TESTS_ZOOKEEPER_SERVER_H
#define STOCKADE_TESTS_ZOOKEEPER_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

struct zookeeper_server {
    pid_t pid;
    int port;
    char folder[64];
};

/* Starts one and waits until it answers. Ends with zookeeper_server_free. */
struct zookeeper_server *zookeeper_server_new(void);
void zookeeper_server_free(struct zookeeper_server *server);
/* It stands still, and so does all that is sent to it, until it goes on. */
void zookeeper_server_pause(struct zookeeper_server *server);
void zookeeper_server_resume(struct zookeeper_server *server);
/* It dies with all that it has not read. */
void zookeeper_server_kill(struct zookeeper_server *server);
/* Again, with what it had written. */
void zookeeper_server_start(struct zookeeper_server *server);
/* Does the user do without, by STOCKADE_SKIP_SERVICES as in tests/system? */
bool zookeeper_left_out(void);

#endif
