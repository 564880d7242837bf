/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated world: virtual time, the queue of events, parties that can be paused and die, and
 * everybody who takes part. One thread; nothing here reads a real clock.
 *
 * An event belongs to a party (or to the world itself). A paused party's events wait until it wakes
 * and then come in their old order, all at once; those of a party that died meanwhile are dropped.
 */
#ifndef STOCKADE_TESTS_SIM_WORLD_H
#define STOCKADE_TESTS_SIM_WORLD_H

#include "fence/base/bytes.h"
#include "fence/base/heap.h"
#include "tests/sim/chance.h"
#include "tests/sim/plan.h"

struct party {
    uint64_t life; /* counted up when it dies: what was meant for the earlier life is dropped */
    int64_t paused_until_us;
};

struct event {
    struct heap_node node; /* in the queue */
    int64_t at_us;
    int64_t number; /* in order of scheduling, among those of one time */
    struct party *party;
    uint64_t life;
    void (*run)(void *context, struct event *event); /* the event is freed after */
    void *context;
    struct buf bytes; /* freed with the event */
    int64_t value;
};

struct oracle;
struct daemon;
struct client;
struct redis;
struct disk;
struct link;

/* How often each thing happened: printed at the end, so that one sees that it does happen. */
struct tally {
    uint64_t events, virtual_ms, ops;
    uint64_t moves; /* of owners who got LEASEDOWN and went on at another daemon */
    uint64_t faults[FAULT_KINDS];
    uint64_t checks[PROMISES];
};

struct world {
    const struct plan *plan;
    int64_t now_us;
    int64_t wall_ahead_us; /* the wall clock was set so far ahead, or back */
    int64_t booted_us;     /* the machine that has the disk and the daemons, the last time */
    int boots;
    struct heap events;   /* to come */
    int64_t events_count; /* that were scheduled */
    struct digest digest;
    struct tally *tally;
    struct oracle *oracle;
    struct redis *redises[MASTERS_MAX]; /* as many as the plan has masters */
    struct disk *disk;
    struct daemon *daemons;
    struct client **clients;
    struct link *links; /* all that there ever were, newest first */
    int links_count;
    int slow_net_per_mille, lossy_per_mille; /* the network's weather, for everybody */
    int doubling_per_mille, cutting_per_mille;
    int64_t trouble_us;  /* until when some fault was at work */
    int64_t amnesia_us;  /* until when the lease service's state or time was wrong */
    bool calm;           /* faults are over: everybody finishes */
    struct buf *story;   /* NULL: nobody listens */
    enum promise broken; /* the first violation; PROMISE_NONE: none */
    char why[400];
};

/* Schedule an event, and return it, so that `bytes` and `value` can be filled in; it stays the
 * world's. `party` may be NULL. */
struct event *world_at(struct world *world, int64_t at_us, struct party *party,
                       void (*run)(void *context, struct event *event), void *context);
/* Schedule an event right after the one under way, before everything else. */
void world_at_once(struct world *world, void (*run)(void *context, struct event *event),
                   void *context);
/* Run the next event. False: there is none, or it is later than `until_us`. */
bool world_step(struct world *world, int64_t until_us);
void world_free_events(struct world *world);

void party_pause(struct world *world, struct party *party, int64_t us);
bool party_is_paused(const struct world *world, const struct party *party);

/* Draw how long one message is on its way between two processes, in microseconds. */
int64_t world_latency_us(const struct world *world, struct rng *rng);

int64_t world_wall_us(const struct world *world);
void world_count_fault(struct world *world, enum fault_kind kind);
/* Add a line to the story. */
void world_tell(struct world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Say that a promise is broken. The first one is reported, and ends the run. */
void world_break(struct world *world, enum promise promise, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
