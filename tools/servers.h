/* SPDX-License-Identifier: Apache-2.0 */
/* Private servers: a redis-server and a stockaded of one's own, on free ports of the loopback, in a
 * temporary folder; gone when the command ends, whatever ends it.
 *
 * The Redis keeps nothing on disk (save "", appendonly no): the way most lock services run it. The
 * stockaded commits to a file in the folder. Both end when this process dies; the folder alone
 * stays where this process is killed with SIGKILL. */
#ifndef STOCKADE_TOOLS_SERVERS_H
#define STOCKADE_TOOLS_SERVERS_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "tools/client.h"
#include "tools/failure.h"
#include "tools/signals.h"

/* A program that we start. Its stderr goes to a log in a folder, it ends with its parent, and we
 * end it by its process id. */
struct program {
    pid_t pid; /* 0: not started, or ended and reaped */
    char log_path[PATH_MAX];
};

struct servers {
    struct signals *signals;
    char folder[256]; /* empty: none yet */
    struct program redis_program, stockaded_program;
    int stockaded_out;                 /* its stdout, kept open as long as it lives; -1 */
    struct client_uri redis, stockade; /* where they listen, once started */
};

/* Begin with no server; the folder is made with the first one. */
void servers_open(struct servers *servers, struct signals *signals);
/* Make the folder, where there is none yet. */
bool servers_make_folder(struct servers *servers, struct failure *failure);
/* Start a Redis, and wait until it answers. */
bool servers_start_redis(struct servers *servers, struct failure *failure);
/* Start a stockaded, which is looked for beside this program, then in PATH, and wait until it is
 * ready. `lease`: as its --lease. It takes lock keys: lock:*. */
bool servers_start_stockaded(struct servers *servers, const char *lease, struct failure *failure);
/* End what was started, and remove the folder. */
void servers_close(struct servers *servers);

#endif
