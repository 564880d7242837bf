/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine counts of what clients have here: one table gives the gauges in INFO and
 * /metrics, and what has to be nought once they have gone and what they began has ended. A count
 * that is not has leaked: the engine says so when it ends, and the tests ask for it in between. */
#ifndef STOCKADE_ENGINE_COUNTS_H
#define STOCKADE_ENGINE_COUNTS_H

struct engine;

/* X(name, the value in `engine`, help) */
#define ENGINE_COUNTS(X)                                                                           \
    X(connections, engine->sessions_count, "Connections open")                                     \
    X(connections_counted, engine->use.things[ACCOUNT_CONNECTIONS],                                \
      "Connections that count as one of their user's")                                             \
    X(requests_open, engine->requests_open, "Commands and errands under way")                      \
    X(request_bytes, accounts_bytes(engine),                                                       \
      "Memory of commands under way or queued, and of large replies, of all users")                \
    X(reply_bytes, engine->replies.bytes, "Large replies that clients have not read yet")          \
    X(read_bytes, engine->reads_weight, "What the replies of reads under way may take")            \
    X(stranger_bytes, engine->strangers.bytes,                                                     \
      "Memory that connections hold which have not logged in")                                     \
    X(logins, engine->logins, "Passwords that are being checked")                                  \
    X(acquires_open, engine->use.things[ACCOUNT_WAITERS] - engine->places.count,                   \
      "ACQUIREs under way or waiting, but for places of QUEUE")                                    \
    X(waiters, engine->waiters, "ACQUIREs that wait in line")                                      \
    X(leases_reserved, engine->use.things[ACCOUNT_LEASES] - engine->held.count,                    \
      "Leases that ACQUIREs under way may be granted")                                             \
    X(subscribers, engine->pubsub.subscribers, "Connections that have subscribed")                 \
    X(subscriptions, engine->pubsub.subscriptions, "Their channels and patterns")                  \
    X(subscription_weight, engine->pubsub.weight, "Their size, in short channels")

/* Abort, by name, where one is not nought: no client is connected, and nothing is under way. */
void counts_check(const struct engine *engine);

#endif
