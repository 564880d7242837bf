/* SPDX-License-Identifier: Apache-2.0 */
/* Private servers: a redis-server, a PostgreSQL and a stockaded of one's own, on free ports of the
 * loopback, in a temporary folder; gone when the command ends, whatever ends it.
 *
 * The Redis keeps nothing on disk (save "", appendonly no): the way most lock services run it. The
 * stockaded commits to a file in the folder, or to a database; PostgreSQL commits to the disk. They
 * end when this process dies; the folder alone (and a database on a server that is not private)
 * stays where this process is killed with SIGKILL. */
#ifndef STOCKADE_TOOLS_SERVERS_H
#define STOCKADE_TOOLS_SERVERS_H

#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <sys/types.h>

#include "tools/client.h"
#include "tools/failure.h"
#include "tools/signals.h"

/* A program that we start. Its stderr goes to a log in a folder, it ends with its parent, and we
 * end it by its process id. */
struct program {
    pid_t pid;  /* 0: not started, or ended and reaped */
    int status; /* once it has ended: waitpid's */
    /* Of a server that refuses to run as root, where we are: who runs it; NULL: we. */
    const struct passwd *user;
    int end_signal; /* asks it to end; also sent when its parent dies. 0: SIGTERM, and SIGKILL */
    char log_path[PATH_MAX];
};

struct servers {
    struct signals *signals;
    char folder[256]; /* empty: none yet */
    struct program redis_program, postgresql_program, stockaded_program;
    int stockaded_out;                 /* its stdout, kept open as long as it lives; -1 */
    struct client_uri redis, stockade; /* where they listen, once started */
    /* Libpq URIs: of the server, and of the database that was made in it; empty: none. */
    char postgresql[1024], database[1024];
    char database_name[64];
};

/* Begin with no server; the folder is made with the first one. */
void servers_open(struct servers *servers, struct signals *signals);
/* Make the folder, where there is none yet. */
bool servers_make_folder(struct servers *servers, struct failure *failure);
/* Start a Redis, and wait until it answers. */
bool servers_start_redis(struct servers *servers, struct failure *failure);
/* Start a PostgreSQL, and wait until it answers; root starts it as the user postgres. */
bool servers_start_postgresql(struct servers *servers, struct failure *failure);
/* Make a database of this name in a PostgreSQL that runs; it goes at the end. `uri`: libpq's. */
bool servers_make_database(struct servers *servers, const char *uri, const char *name,
                           struct failure *failure);
/* Start a stockaded, which is looked for beside this program, then in PATH, and wait until it is
 * ready. `store` (NULL: a file in the folder), `lease`: as its --store and --lease. It takes lock
 * keys: lock:*. */
bool servers_start_stockaded(struct servers *servers, const char *store, const char *lease,
                             struct failure *failure);
/* End what was started, and remove the database and the folder. */
void servers_close(struct servers *servers);

#endif
