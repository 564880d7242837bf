/* SPDX-License-Identifier: Apache-2.0 */
/* What all calls of a client share, and one call: a request, sent again and again over new
 * connections, with growing pauses, until there is an answer, the time is over, the thread's
 * descriptor cancels it, or a repeat could do harm.
 *
 * A call takes a connection of its own from those that idle, or a new one, and puts it back when it
 * is answered: so callers do not wait for each other, and the store commits them together. What
 * comes back broken or late is closed: a reply that is still on its way must not be taken for the
 * next one's. */
#ifndef STOCKADE_CLIENT_CALL_H
#define STOCKADE_CLIENT_CALL_H

#include <pthread.h>
#include <stdatomic.h>

#include "proxy/client/connection.h"
#include "proxy/client/stockade.h"
#include "proxy/client/thread.h"
#include "proxy/engine/command/command.h"

struct renewer;

struct stk_client {
    /* Set once. */
    pid_t pid;
    struct target target;
    struct embedded *embedded; /* NULL: a daemon */
    struct command_index commands;

    _Atomic int64_t timeout_ms;
    pthread_mutex_t lock;
    /* Under the lock. */
    char name[STK_NAME_MAX + 1]; /* for connections that are made */
    struct list idle;            /* connections; the latest first */
    size_t idle_count;
    struct list leases;      /* whose handles are not freed */
    struct renewer *renewer; /* NULL: there never was a lease to keep alive */
};

/* STK_OK, or fail(STK_FORKED): this is another process. Every call begins with it. */
enum stk_error client_check(const stk_client *client);
/* A new connection, as connection_open makes it. */
struct connection *client_connect(stk_client *client, int64_t deadline_ms, int wake_fd,
                                  enum stk_error *error);
/* Whether the command only reads, and may be sent twice. An unknown one does not. */
bool client_command_reads(const stk_client *client, struct bytes name);

/* One request, or several that go together, and their replies. */
struct call {
    /* Set by the caller. */
    stk_client *client;
    struct buf request;
    size_t replies_count;
    bool repeatable;       /* harmless to send again */
    bool changes;          /* where the answer stays out, it may have been applied */
    bool alone;            /* on a new connection, not on one that idles */
    bool keeps_connection; /* it goes to `connection` rather than back */
    int64_t deadline_ms;
    /* Write the request anew before each attempt; may be NULL. */
    void (*compose)(struct call *call);

    /* The result. */
    redisReply **replies; /* replies_count of them, on STK_OK */
    struct connection *connection;
    int64_t asked_ms; /* when the attempt that was answered began */
    bool cancelled;   /* that is why it was not answered */
    /* Its own. */
    bool sent;            /* in any attempt */
    bool unheard;         /* an answer was lost */
    bool looked_for_http; /* where the connection broke */
    int64_t pause_ms;
};

/* STK_OK: there are replies, which may be errors (reply_error). Whatever it returns, call_end
 * follows. */
enum stk_error call_run(struct call *call);
void call_end(struct call *call);
/* Let a moment pass before the next attempt, a longer one each time. IO_LATE: it has; IO_BROKEN:
 * the deadline would come first; IO_WOKEN: the thread's descriptor cancels it. */
enum io_result call_pause(struct call *call);

#endif
