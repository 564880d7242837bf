/* SPDX-License-Identifier: Apache-2.0 */
/* A client: where it goes, its idle connections, its leases, and calls over them.
 *
 * A call takes a connection of its own from those that idle, or a new one, and puts it back when it
 * is answered: so callers do not wait for each other, and the store commits them together. What
 * comes back broken or late is closed: a reply that is still on its way must not be taken for the
 * next one's. */
#ifndef STOCKADE_CLIENT_CLIENT_H
#define STOCKADE_CLIENT_CLIENT_H

#include <pthread.h>

#include "proxy/client/own.h"
#include "proxy/client/peer.h"
#include "proxy/client/stockade.h"
#include "proxy/engine/command/command.h"

struct keepalive;

struct stk_client {
    /* Set once. */
    pid_t pid;
    struct target target;
    int64_t timeout_ms;
    struct embedded *embedded; /* NULL: a daemon */
    struct command_index commands;

    pthread_mutex_t lock;
    /* Under the lock. */
    struct list idle; /* peers; the latest first */
    size_t idle_count;
    struct list leases;       /* whose handles are not freed */
    struct keepalive *keeper; /* NULL: nothing was ever to be kept alive */
};

/* STK_OK, or fail(STK_FORKED): this is another process. Every call begins with it. */
enum stk_error client_check(const stk_client *client);
/* Is the command one that only reads, and may be sent twice? Unknown ones are not. */
bool client_command_reads(const stk_client *client, struct bytes name);

/* One request, or several that go together, and their replies. */
struct call {
    /* Set by the caller. */
    stk_client *client;
    struct buf request;
    size_t replies_count;
    bool repeatable; /* harmless to send again */
    bool changes;    /* where the answer stays out, it may have been applied */
    bool alone;      /* on a new connection, not on one that idles */
    bool keeps_peer; /* the connection goes to `peer` rather than back */
    int64_t deadline_ms;
    /* Writes the request anew before each attempt; may be NULL. */
    void (*compose)(struct call *call);

    /* The result. */
    redisReply **replies; /* replies_count of them, on STK_OK */
    struct peer *peer;
    int64_t asked_ms; /* when the attempt that was answered began */
    /* Its own. */
    bool sent; /* in any attempt */
};

/* STK_OK: there are replies, which may be errors (reply_error). Whatever it says, call_end follows.
 */
enum stk_error call_run(struct call *call);
void call_end(struct call *call);

#endif
