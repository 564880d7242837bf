/* SPDX-License-Identifier: Apache-2.0 */
/* The engine, as a server sees it: bytes of a connection go in, bytes to send come out; what
 * happens in between (protocol, commands, leases, waiting, fenced writes) is the engine's business.
 * It opens no socket, reads no clock and starts no thread: the store, the lease provider, time and
 * chance are given to it. A simulator uses this same header.
 *
 * Everything here is called on one thread. The host's turn looks like this:
 *
 *   bytes arrived      session_input
 *   store woke us      store_collect (which runs the operations' `done`)
 *   timer              at engine_next_ms
 *   end of the turn    engine_turn: due timers, then `changed` once for each session with news
 *
 * In `changed` the host sends session_take_output, reads on or not as session_wants_input says, and
 * closes the connection where session_ended. It may call session_close there. */
#ifndef STOCKADE_ENGINE_ENGINE_H
#define STOCKADE_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/clock.h"
#include "fence/base/log.h"
#include "fence/lease/provider.h"
#include "store/store.h"

struct engine;
struct session;

/* What the process has used so far, or uses now. */
struct engine_usage {
    uint64_t rss_bytes, rss_peak_bytes, cpu_user_us, cpu_system_us;
};

/* What the host does for the engine. Called on the engine's thread. */
struct engine_host {
    void (*changed)(void *connection); /* news of this session, see above */
    void (*shutdown)(void *context);   /* SHUTDOWN was asked for: drain and exit */
    /* The i-th option as CONFIG GET shows it, or false behind the last. Borrowed until the next
     * call. May be NULL. */
    bool (*option)(void *context, size_t i, const char **name, const char **value);
    void (*usage)(struct engine_usage *usage); /* for INFO. May be NULL */
    void *context;
};

struct engine_options {
    struct engine_host host;
    struct store *store;             /* borrowed; outlives the engine */
    struct lease_provider *provider; /* borrowed; outlives the engine */
    const struct clock *clock;
    const struct chance *chance;
    const struct log *log;    /* may be NULL */
    const char *password;     /* NULL: none; copied */
    bool unfenced_writes;     /* --unfenced-writes allow */
    int64_t sql_limit_ms;     /* one SQL statement's time */
    int64_t receipts_keep_ms; /* receipts outlive their token by this */
    int64_t forget_ms;        /* resources unused for so long are removed; 0: never */
    size_t sessions_max;      /* connections; one more is told so and closed */
    size_t waiters_max;       /* ACQUIREs under way or waiting, in all; more get BUSY */
    size_t replies_max;       /* bytes of replies not sent yet, in all; 0: no bound */
    const char *address;      /* "127.0.0.1:7379", for INFO; copied */
};

/* The caller owns the engine; close every session before engine_free. */
struct engine *engine_new(const struct engine_options *options);
void engine_free(struct engine *engine);

/* Takes over what may change while it runs: password, unfenced_writes, waiters_max, sql_limit_ms,
 * replies_max. Who is connected stays so. */
void engine_reconfigure(struct engine *engine, const struct engine_options *options);

/* The end of the host's turn. */
void engine_turn(struct engine *engine);
/* Replies were held back for reads that came with them. What the store does at once is to be
 * collected first; then, whether or not that was all, engine_turn sends them. */
bool engine_wants_turn(const struct engine *engine);
/* When engine_turn is due next, on the engine's clock; -1: no timer is set. */
int64_t engine_next_ms(const struct engine *engine);

/* Stops taking commands: waiters get an error, what has begun is finished, later commands are
 * refused. engine_idle turns true when nothing is under way any more. */
void engine_drain(struct engine *engine);
bool engine_idle(const struct engine *engine);

/* INFO's text, and the same counters in Prometheus's text format. */
void engine_info(struct engine *engine, const struct bytes *sections, size_t count,
                 struct buf *out); /* no section: all */
void engine_metrics(struct engine *engine, struct buf *out);
/* True and {"status":"ok",...}: nobody has to do something about the store. A write that failed
 * shows in the text (the next may succeed: without any it would never be healthy again), as does a
 * lease service that is down: holders still write. */
bool engine_health(struct engine *engine, struct buf *json);

/* A new connection. `peer` is copied ("127.0.0.1:5123", "unix"); `trusted`: it came over loopback
 * or a unix socket, which makes an administrator where there is no password. `connection` is handed
 * to the host's `changed`. Returns NULL where sessions_max is reached; `refusal` then holds the
 * bytes to send before closing. Lives until session_close. */
struct session *session_open(struct engine *engine, const char *peer, bool trusted,
                             void *connection, struct buf *refusal);
/* The connection is gone: what waits for it leaves the line, a grant on its way is given back. */
void session_close(struct session *session);
/* All bytes are taken. */
void session_input(struct session *session, const char *data, size_t len);
/* The client sends no more: it has half-closed the connection, or it is gone. True: what it asked
 * before is answered, then the session ends by itself. False: close now, because a lease is on its
 * way, and must not be granted to a client that may be gone. */
bool session_input_ended(struct session *session);
/* False: do not read for now, the session has enough to do (back-pressure). */
bool session_wants_input(const struct session *session);
/* Moves the bytes that are ready to `out` (whose old content is dropped and memory reused). */
void session_take_output(struct session *session, struct buf *out);
/* How many bytes taken earlier are still held because not all of them were sent: a slow reader's
 * commands wait. */
void session_set_unsent(struct session *session, size_t bytes);
/* Of a connection whose session was closed: so many bytes were not sent, and now are so many. The
 * host says 0 in the end. */
void engine_count_unsent(struct engine *engine, size_t *counted, size_t bytes);
/* After the output, close: QUIT, a broken protocol, CLIENT KILL. */
bool session_ended(const struct session *session);

#endif
