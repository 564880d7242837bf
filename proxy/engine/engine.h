/* SPDX-License-Identifier: Apache-2.0 */
/* The engine, as its host sees it: a connection's bytes go in, and bytes to send come out. What
 * happens in between (protocol, commands, leases, waiting, fenced writes) is the engine's business.
 * It opens no socket, reads no clock and starts no thread: it is given the store, the lease
 * provider, time and chance. The simulator is a host, too.
 *
 * Everything here is called on one thread. The host's turn looks like this:
 *
 *   bytes arrived      session_input
 *   store woke us      engine_read_clock, store_collect (which runs the operations' `done`)
 *   timer              at engine_next_ms
 *   end of the turn    engine_turn: due timers, then `changed` once for each session with news
 *
 * In `changed` the host sends what session_take_output gives it, reads on or not as
 * session_wants_input says, and closes the connection where session_ended says so. It may call
 * session_close there. */
#ifndef STOCKADE_ENGINE_ENGINE_H
#define STOCKADE_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/clock.h"
#include "fence/base/log.h"
#include "fence/lease/provider.h"
#include "proxy/engine/acl/acl.h"
#include "proxy/engine/audit.h"
#include "proxy/engine/session/account.h"
#include "store/store.h"

struct engine;
struct session;

/* What the process has used so far, or uses now. */
struct engine_usage {
    uint64_t rss_bytes, rss_peak_bytes, cpu_user_us, cpu_system_us;
};

/* Work that takes long and touches nothing of the engine's: `run` is for any thread, `done`, after
 * it, for the engine's. `host` is the host's own. */
struct engine_job {
    void (*run)(struct engine_job *job);
    void (*done)(struct engine_job *job);
    void *host;
};

/* What the host does for the engine. Called on the engine's thread. */
struct engine_host {
    void (*changed)(void *connection); /* this session has something to send, or has ended */
    void (*shutdown)(void *context);   /* SHUTDOWN was asked for: drain and exit */
    /* Have the job done on another thread. NULL: it is done at once, on this one. */
    void (*run_aside)(void *context, struct engine_job *job);
    /* Read the file of users again, for ACL LOAD, and hand it to engine_set_acl. False: `why`, of
     * ACL_WHY_SIZE bytes, says what is wrong, and nothing has changed. NULL: there is no file. */
    bool (*load_acl)(void *context, char *why);
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
    const struct log *log; /* may be NULL */
    struct audit audit;    /* borrowed; may be empty */
    struct acl *acl;       /* the users (acl/acl.h); the engine's from now on */
    bool unfenced_writes;  /* --unfenced-writes allow */
    bool watch_earlier;    /* watch leases from before the start, where nobody shares the store */
    bool store_passes;     /* the store goes with the process: that is a trouble (conditions.h) */
    int64_t sql_limit_ms;  /* one SQL statement's time */
    int64_t receipts_keep_ms; /* receipts outlive their token by this */
    int64_t forget_ms;        /* resources unused for so long are removed; 0: never */
    size_t sessions_max;      /* connections; one more is told so and closed */
    struct account_limits limits, user_limits; /* in all, and of each user; more get BUSY */
    size_t replies_max;         /* bytes of replies not sent yet, in all; 0: no bound */
    size_t strangers_bytes_max; /* of all that have not logged in (strangers.h); 0: the usual */
    size_t history_max;         /* grants, and refusals, that are remembered; at least 1 */
    const char *address;        /* "127.0.0.1:7379", for INFO; copied */
    int64_t certificate_ends_s; /* of TLS, in seconds since 1970; 0: there is none */
    /* --lock-keys: valid patterns (lock_pattern.h), copied. */
    const char *const *lock_keys;
    size_t lock_keys_count;
};

/* The caller owns the engine; close every session before engine_free. */
struct engine *engine_new(const struct engine_options *options);
void engine_free(struct engine *engine);

/* Look for data under lock keys, which nobody could reach any more, and tell: `key` is one that has
 * some, or empty. Before the first client. */
void engine_find_locked_data(struct engine *engine,
                             void (*on_end)(void *context, enum stk_error error, struct bytes key),
                             void *context);

/* The users have changed; the acl is the engine's from now on. Who is logged in stays so, with the
 * rights that the user has now; a connection whose user is gone, or which waits for or listens to
 * what is not allowed any more, is closed. */
void engine_set_acl(struct engine *engine, struct acl *acl);
/* The users in force. Borrowed until engine_set_acl. */
struct acl *engine_acl(const struct engine *engine);

/* Have a job done on another thread, where the host has one. */
void engine_run_aside(const struct engine *engine, struct engine_job *job);

/* Take over the options that may change while it runs: unfenced_writes, the limits, sql_limit_ms,
 * replies_max, certificate_ends_s. */
void engine_reconfigure(struct engine *engine, const struct engine_options *options);

/* Read the engine's clock, in microseconds. Call it before store_collect, so that what the store
 * has finished is timed. */
int64_t engine_read_clock(struct engine *engine);
/* End the host's turn: fire the timers that are due, then report each changed session. */
void engine_turn(struct engine *engine);
/* Are replies held back for reads that came with them? Then collect what the store does at once,
 * and call engine_turn again, which sends them whether or not that was all. */
bool engine_wants_turn(const struct engine *engine);
/* When engine_turn is due next, on the engine's clock; -1: no timer is set. */
int64_t engine_next_ms(const struct engine *engine);

/* Stop taking commands: waiters get an error, what has begun is finished, later commands are
 * refused. */
void engine_drain(struct engine *engine);
bool engine_is_draining(const struct engine *engine);
/* Note in the audit what has happened outside the engine; the caller fills in user and address. */
void engine_audit(const struct engine *engine, const struct audit_note *note);
/* The audit's events up to this ticket are on disk: replies that waited for them leave. */
void engine_audited(struct engine *engine, uint64_t ticket);
/* The audit's later events cannot be put on disk: who waits for one gets no reply, and its
 * connection is closed. */
void engine_audit_failed(struct engine *engine);
/* Is nothing under way? */
bool engine_idle(const struct engine *engine);

/* Append INFO's text: these sections, or all where none is named; without `all`, only those that
 * are for everybody. */
void engine_info(struct engine *engine, const struct bytes *sections, size_t count, bool all,
                 struct buf *out);
/* Append the same counters, gauges and histograms in Prometheus's text format, or in that of
 * OpenMetrics 1.0. */
void engine_metrics(struct engine *engine, bool openmetrics, struct buf *out);
/* Append {"status":"ok",...}. False: somebody has to do something about the store. A write that
 * has failed only shows in the text, since the next may succeed, and a daemon without writes would
 * never be healthy again. So does a lease service that is down: holders still write. */
bool engine_health(struct engine *engine, struct buf *json);

/* Open a session for a new connection, until session_close. `peer` is copied ("127.0.0.1:5123",
 * "unix"); `trusted`: it came over loopback or a unix socket, which makes an administrator where
 * there is no password. `connection` is handed to the host's `changed`. Return NULL where
 * sessions_max is reached; `refusal` then holds the bytes to send before closing. */
struct session *session_open(struct engine *engine, const char *peer, bool trusted,
                             void *connection, struct buf *refusal);
/* Say that the connection's TLS handshake went well, before any input. `user`: whom the client's
 * certificate names; copied. NULL: nobody. */
void session_secured(struct session *session, const char *user);
/* Count a handshake that did not. */
void engine_count_failed_handshake(struct engine *engine);
/* Close the session of a connection that is gone: what waits for it leaves the line, a grant on
 * its way is given back. */
void session_close(struct session *session);
/* Take all the bytes. What comes of them is reported by `changed`. */
void session_input(struct session *session, const char *data, size_t len);
/* Say that the client sends no more: it has half-closed the connection, or it is gone. True: what
 * it has asked is answered, then the session ends by itself. False: close it now, because a lease
 * is on its way, and must not be granted to a client that may be gone. */
bool session_input_ended(struct session *session);
/* False: the session has enough to do, do not read for now (back-pressure). */
bool session_wants_input(const struct session *session);
/* How many bytes the host had better read at once. */
size_t session_read_max(const struct session *session);
/* Say how much memory the host has for this connection, beside the bytes that were taken. */
void session_set_host_bytes(struct session *session, size_t bytes);
/* Move the bytes that are ready to `out` (whose old content is dropped and memory reused). */
void session_take_output(struct session *session, struct buf *out);
/* Say how many of the bytes taken have not been sent yet: a slow reader's commands wait. */
void session_set_unsent(struct session *session, size_t bytes);
/* Count the bytes that a connection without a session still has to send: `*counted` of them were
 * counted before. The host counts 0 in the end. */
void engine_count_unsent(struct engine *engine, size_t *counted, size_t bytes);
/* Is the connection to be closed, once its output is sent? After QUIT, a broken protocol, CLIENT
 * KILL. */
bool session_ended(const struct session *session);

#endif
