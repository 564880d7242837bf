/* SPDX-License-Identifier: Apache-2.0 */
/* What a seed means: how many take part, what they like to do, which faults happen when. Everything
 * in it can be left out piece by piece, which is how a failing run is made small. */
#ifndef STOCKADE_TESTS_SIM_PLAN_H
#define STOCKADE_TESTS_SIM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define DAEMONS_MAX 3
#define CLIENTS_MAX 20
#define MASTERS_MAX 5
#define FAULTS_MAX  64
#define ROUNDS_MAX  256 /* of one client */

enum promise {
    PROMISE_NONE,
    P1_FENCED,
    P2_RISING,
    P3_ISSUED,
    P4_DURABLE,
    P5_ATOMIC,
    P6_ONCE,
    P8_LIVE,
    TOLD, /* HISTORY and REFUSALS tell what clients were told */
    SANE, /* the product aborted, or answered what makes no sense */
    PROMISES
};

#define FAULT_MAP(X)                                                                               \
    X(DAEMON_CRASH, "daemon crashes")                                                              \
    X(DAEMON_DRAIN, "daemon stops in order")                                                       \
    X(DAEMON_PAUSE, "daemon pauses")                                                               \
    X(CLIENT_PAUSE, "client pauses")                                                               \
    X(CLIENT_DEATH, "client dies")                                                                 \
    X(CUT, "connection cut")                                                                       \
    X(SLOW, "message late")                                                                        \
    X(LOST, "lease message lost")                                                                  \
    X(DOUBLED, "lease message doubled")                                                            \
    X(REDIS_DOWN, "lease service down")                                                            \
    X(REDIS_FLUSH, "lease service loses all")                                                      \
    X(REDIS_BACK, "lease service loses its tail")                                                  \
    X(REDIS_STALE, "fail-over to a stale replica")                                                 \
    X(REDIS_DRIFT, "lease service's clock drifts")                                                 \
    X(DISK_FULL, "disk full")                                                                      \
    X(DISK_REFUSES, "commit fails cleanly")                                                        \
    X(DISK_UNSURE, "sync fails, outcome unknown")                                                  \
    X(DISK_TORN, "power lost within a commit")                                                     \
    X(WALL_JUMP, "wall clock jumps")

enum fault_kind {
#define X(name, text) FAULT_##name,
    FAULT_MAP(X)
#undef X
        FAULT_KINDS
};

struct fault {
    enum fault_kind kind;
    int64_t at_ms, length_ms;
    int who;        /* daemon or client */
    int64_t amount; /* per mille, or what the kind needs */
    bool left_out;
};

enum provider_kind { PROVIDER_REDIS, PROVIDER_LOCAL, PROVIDER_REDLOCK };
enum disk_kind { DISK_MEMORY, DISK_SQLITE };

struct plan {
    uint64_t seed;
    int daemons, clients;
    enum provider_kind provider;
    int masters; /* Redises: 1, or as many as Redlock has */
    enum disk_kind disk;
    int64_t faults_end_ms; /* from then on all is calm */
    int64_t end_ms;        /* by then everybody has to be done */
    int64_t ttl_max_ms;
    int64_t forget_ms;
    int batch_max;
    int logs;            /* resources that clients append to: the fewer, the more they compete */
    int weights[8];      /* of what a client does: client_rounds.c */
    int quick_per_mille; /* how much they hurry */
    int queue_per_mille; /* of the ACQUIREs that stand in line by QUEUE, not by WAIT */
    int looks_per_mille; /* of the rounds that end with HISTORY or REFUSALS */
    int again_per_mille; /* of the batches of which nothing comes at first: they run once more */
    bool calm_messages;  /* no chance in the time that messages take (a shrunk run) */
    struct fault faults[FAULTS_MAX];
    int faults_count;
    bool client_left_out[CLIENTS_MAX];
    bool round_left_out[CLIENTS_MAX][ROUNDS_MAX];
    /* A round that is left out takes as long as it took: what follows begins at these times. 0: at
     * once. */
    int64_t round_starts_us[CLIENTS_MAX][ROUNDS_MAX + 1];
};

void plan_of_seed(struct plan *plan, uint64_t seed);
const char *fault_name(enum fault_kind kind);
const char *promise_name(enum promise promise);
const char *provider_name(enum provider_kind provider);

#endif
