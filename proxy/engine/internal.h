/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's inside, shared by its own files only. Everything runs on the loop's thread but the
 * `run` and `exec` functions, which see nothing of this. */
#ifndef STOCKADE_ENGINE_INTERNAL_H
#define STOCKADE_ENGINE_INTERNAL_H

#include "fence/base/heap.h"
#include "fence/base/table.h"
#include "proxy/engine/engine.h"
#include "proxy/engine/metrics.h"
#include "proxy/engine/session/pubsub.h"
#include "proxy/engine/session/replies.h"
#include "proxy/engine/session/request.h"
#include "proxy/engine/session/session.h"

struct timer {
    struct heap_node node;
    void (*fire)(struct timer *timer);
};

/* Removes what is old, a little at a time. */
struct sweeper {
    struct timer timer;
    struct store_op op;
    struct engine *engine;
    bool under_way;
    int64_t resources_after; /* where the walk over the resources is: an id */
    int64_t walk_due_ms;
    /* The operation's. */
    bool walks, ends_abandoned, due, more;
    int64_t walked_to;
    size_t receipts_removed, resources_removed;
};

/* notes.c: how many lines of one kind go into the log. */
enum note_kind { NOTE_REFUSED, NOTE_REVOKED, NOTES };

struct note_limit {
    struct timer timer; /* runs while lines are left out */
    struct engine *engine;
    const char *what;
    int64_t from_ms; /* when this second began */
    unsigned lines;  /* in it */
    uint64_t left_out;
};

struct line; /* lease/line.c: the ACQUIREs under way for one resource */

struct engine {
    struct engine_options options;
    struct command_index index;
    struct engine_counters counters;
    struct heap timers;
    struct list sessions, dirty, waiting_a_turn;
    struct request *spares; /* request.c: to be used again */
    size_t sessions_count, acquires_count, spares_count;
    uint64_t session_last; /* client ids handed out so far */
    size_t requests_open;  /* started and not finished */
    struct replies replies;
    size_t reads_weight; /* what the replies of the reads under way may take unasked */
    unsigned marks_left; /* so many transactions go with a mark, since one failed lately */
    struct line *lines;  /* a uthash by resource */
    struct table held;   /* lease/held.c: leases that were granted and have not ended */
    struct pubsub pubsub;
    bool draining, shutdown_asked;
    int64_t started_ms, behind_said_ms;
    struct sweeper sweeper;
    struct note_limit notes[NOTES];
};

/* engine.c */
void timer_set(struct engine *engine, struct timer *timer, int64_t at_ms);
void timer_stop(struct engine *engine, struct timer *timer);
int64_t engine_now_ms(const struct engine *engine);

/* lease/renew.c: how often at most a renewal goes without a date in the store. */
#define RENEWAL_WRITTEN_MS (60 * 60 * 1000)

/* A mark costs each transaction a tenth; going without costs the batch of one that fails a lot. */
#define MARKS_AFTER_FAILURE 1000

/* data.c */
/* Runs the request's plan in the store. */
void data_start(struct request *request);
/* True: the store failed, or the token rule refused: replies so, counts it, frees the request. */
bool request_refused(struct request *request);

/* What was refused by the token rule: counts it, and notes it. */
void request_count_refusal(struct request *request);

/* notes.c */
void notes_init(struct engine *engine);
void notes_end(struct engine *engine);
/* STALE, UNKNOWN, NOTOKEN or GUARDED. */
void note_refused(struct request *request, enum stk_error error);
void note_revoked(struct request *request, int64_t token, bool ended);

/* multi.c: a connection's MULTI, from there to EXEC. */
/* Must this command go into the transaction, rather than be run? */
bool multi_takes(const struct session *session, const struct command *command);
/* Queues the request, or answers why not, in its place in the order of replies. */
void multi_queue(struct request *request);
void multi_spoil(struct session *session); /* a command could not be queued: EXEC will refuse */
void multi_free(struct multi *multi);      /* may be NULL */

/* sweep.c */
void sweeper_start(struct engine *engine);
void sweeper_stop(struct engine *engine);

/* command/string.c: is this a SET with an expiry, the usual recipe for a lock? */
bool string_set_expires(const struct bytes *argv, size_t argc);
#define SET_EXPIRES_ERROR                                                                          \
    "values do not expire here: SET takes NX, XX and GET; for a lock: ACQUIRE key ttl_ms"

/* command/sql.c: the statement among SQL's arguments; whether it is DDL. */
struct bytes sql_statement(const struct bytes *argv, size_t argc);
bool sql_is_definition(struct bytes statement);

/* lease/acquire.c, lease/line.c */
void acquire_prepare(struct request *request); /* the order: does it wait? */
void acquire_abandon(struct request *request); /* the client is gone */
void acquire_all_abandon(struct request *request);
void renew_abandon(struct request *request);
void release_session_closed(struct session *session);

/* Functions named in the command table. */
command_start server_ping, server_echo, server_hello, server_auth, server_quit, server_reset,
    server_select, server_time, server_info, server_command, server_client, server_config,
    server_shutdown, server_flushall;
command_start lease_acquire, lease_acquire_all, lease_renew, lease_release, lease_revoke,
    lease_show, lease_list, data_fenced, data_fenced_all, receipt_show;
command_start multi_begin, multi_exec, multi_discard, multi_watch, guard_command;
command_start pubsub_subscribe, pubsub_unsubscribe, pubsub_psubscribe, pubsub_punsubscribe,
    pubsub_publish, pubsub_command;
command_exec server_ping_exec, sql_exec;
command_exec string_get, string_set, string_setnx, string_getset, string_getdel, string_mget,
    string_mset, string_append, string_strlen, string_incr, string_decr, string_incrby,
    string_decrby, string_incrbyfloat, string_getrange, string_setrange;
command_exec key_del, key_exists, key_type, key_scan, key_dbsize;
command_exec hash_get, hash_set, hash_setnx, hash_mget, hash_mset, hash_getall, hash_del,
    hash_exists, hash_len, hash_keys, hash_vals, hash_incrby, hash_incrbyfloat, hash_strlen,
    hash_scan;

#endif
