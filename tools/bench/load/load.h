/* SPDX-License-Identifier: Apache-2.0 */
/* A load generator: clients in one thread, each a connection that does one operation after the
 * other, over RESP, ZooKeeper's or etcd's protocol. It stands in where there is no neutral client.
 *
 * A work is what the clients do: a step function that sends the next bytes of an operation and says
 * how many replies they have. With a rate, operations begin at fixed moments whether or not the
 * server keeps up, and latencies count from those. Any unexpected reply ends the run. */
#ifndef STOCKADE_TOOLS_BENCH_LOAD_H
#define STOCKADE_TOOLS_BENCH_LOAD_H

#include "fence/base/bytes.h"
#include "tools/bench/load/histogram.h"

#define REPLIES_MAX  4096
#define COMMANDS_MAX 64

struct settings {
    const char *work, *record, *verify;
    const char *commands[COMMANDS_MAX]; /* of the work `resp` */
    const char *script;                 /* SHA1 of the unlock script */
    int64_t command_count, port, clients, pipeline, keys, ops, duration_ms, rate, mix_percent, seed;
    bool hot, sequential;
};

struct client;

enum turn {
    TURN_WAIT,  /* sent something; call again when all its replies are there */
    TURN_DONE,  /* the operation is over */
    TURN_RETRY, /* the operation begins anew, after a pause */
    TURN_FAILED,
};

struct protocol {
    void (*greet)(struct client *client); /* what a connection begins with; may be NULL */
    /* Finds replies in client->in until there are as many as awaited; false: not the protocol. */
    bool (*feed)(struct client *client);
};

struct work {
    const char *name;
    const struct protocol *protocol;
    enum turn (*step)(struct client *client); /* client->step counts, from 0 */
    /* Before the first operation; NULL: nothing. TURN_DONE when ready. */
    enum turn (*prepare)(struct client *client);
};

struct span {
    size_t at, len;
};

struct client {
    struct load *load;
    int fd;
    unsigned number;
    struct buf in, out, body; /* body: where a protocol puts replies together */
    size_t out_sent, in_used; /* in_used: bytes of `in` that replies cover */
    struct buf *replies_in;
    struct span replies[REPLIES_MAX];
    unsigned awaits, got, step;
    unsigned bodies; /* replies begun in `body` */
    bool prepared, paused, writing, has_left;
    uint64_t due_ns, begun_ns, done, random;
    /* The work's. */
    uint64_t key, value, token, lease, node;
    struct buf name;
    uint32_t sequence; /* request or stream number */
    bool greeted;
};

struct load {
    const struct settings *settings;
    const struct work *work;
    struct client *clients;
    struct histogram histogram;
    uint64_t *acknowledged;   /* by key: the last value, with --record */
    const uint64_t *expected; /* by key: the least value, with --verify */
    uint64_t next_key, issued, done, started_ns, ended_ns, last_done_ns, gap_max_ns, gaps;
    uint64_t verified, key_count;
    unsigned busy, paused, ready;
    int poll;
    struct template *templates;
    bool closed; /* the server went away; allowed while recording */
    char why[256];
};

/* Return a random number below a bound. */
uint64_t client_random(struct client *client, uint64_t below);
/* Return a key for the next operation: any, or one of this client's own while recording. */
uint64_t client_any_key(struct client *client);
/* Return a value for the next write: any, or while recording a larger one each time. */
uint64_t client_next_value(struct client *client);
/* Return the next number, from 0, shared by all; behind the last key it begins anew. */
uint64_t client_next_key(struct client *client);
/* Return the key of this client's lease cycles: its own, or with --hot everybody's. */
uint64_t client_cycle_key(const struct client *client);
/* Return the reply of this number to what was sent last. */
struct bytes client_reply(const struct client *client, unsigned index);
/* Say why, and return TURN_FAILED. */
enum turn client_fail(struct client *client, const char *what, struct bytes said);
/* Wait for so many replies. */
enum turn client_await(struct client *client, unsigned replies);
/* Return whether the value that arrived is the one acknowledged for the key, or a newer one. */
bool client_verify(struct client *client, uint64_t key, struct bytes value);
/* Note that a value was acknowledged, while recording. */
void client_acknowledge(struct client *client, uint64_t key, uint64_t value);
/* Note a reply at where[at..at+len], which feed has found. */
void client_found(struct client *client, struct buf *where, size_t at, size_t len);
/* Send what was written, as far as the socket takes it. */
void client_flush(struct client *client);

/* Run the load to its end. False: load->why says why. */
bool load_run(struct load *load);

extern const struct protocol resp_protocol;
extern const struct work resp_work, lease_cycle_work, lock_cycle_work;
extern const struct work zookeeper_make_work, zookeeper_set_work, zookeeper_get_work,
    zookeeper_cycle_work;
extern const struct work etcd_put_work, etcd_get_work, etcd_cycle_work;
/* Lay out the commands. False: load->why says why. */
bool resp_compile(struct load *load);
/* Free what was laid out. */
void resp_free(struct load *load);

#endif
