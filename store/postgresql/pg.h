/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to PostgreSQL by libpq: prepared statements, sent in pipelines, with a limit to
 * every wait. It is owned by one thread.
 *
 *   pg_connect ─▶ { pg_send, pg_send, ... pg_sync ─▶ pg_take, pg_take, ... pg_end }*  ─▶ pg_drop
 *                   └────────────────────── one trip ──────────────────────┘
 *
 * - Where a statement fails, those behind it in the trip are skipped, and pg_end() returns false.
 *   The server's error is in `why` and `sqlstate`, and the connection stays.
 * - Where the connection fails, or no answer comes within the trip's limit, the connection is
 *   dropped: `conn` is NULL. It is then unknown what the server made of the trip.
 * - Parameters and results are binary. */
#ifndef STOCKADE_STORE_POSTGRESQL_PG_H
#define STOCKADE_STORE_POSTGRESQL_PG_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/log.h"
#include "store/postgresql/libpq.h"
#include "store/store.h"

#define PG_PARAMS_MAX 24
/* Bytes of a text that says who has something locked, its end included. */
#define PG_HOLDER_MAX 192
/* The name of connections of backup, restore and move. Those of daemons begin with "stockade ". */
#define PG_MAINTENANCE_NAME "stockade-maintenance"
/* The limit of a trip that looks at all rows of a table: to begin a store anew, to guard a table.
 */
#define PG_LONG_TIMEOUT_MS (120 * 1000)

/* What became of a transaction. COMMIT's own result decides it, or the end of the trip where that
 * commits; not the other statements of the trip, which may fail for reasons of their own. */
enum pg_decision {
    PG_UNDECIDED, /* no result has come */
    PG_DECIDED,   /* it has succeeded, and is replicated as the server's settings demand */
    PG_DENIED,    /* it has failed, or was skipped, or has rolled back */
    PG_DOUBTFUL,  /* it has succeeded, and may not be replicated */
};

struct pg {
    /* Set once. */
    const char *uri;          /* borrowed */
    const char *name;         /* of the connection, for pg_stat_activity */
    const char *const *names; /* the prepared statements' names, by number */
    const char *const *texts; /* and their texts */
    size_t statements;
    int timeout_ms; /* the limit of a trip, unless pg_sync_within sets a longer one */
    /* Called every now and then while the server is waited for; may be NULL. False: give up. */
    bool (*go_on)(void *context);
    void *go_on_context;

    struct libpq pq; /* loaded by the first pg_connect */
    PGconn *conn;    /* NULL: not connected */
    int64_t sent_ms; /* when the trip began, by clock_monotonic */
    int limit_ms;    /* how long the server may take for its answer, and until when */
    int64_t deadline_ms;
    size_t expected; /* results of the trip's statements that were not taken yet */
    size_t deciding; /* after so many more results the deciding one is taken; 0: it has been */
    enum pg_decision decision;
    bool end_decides; /* the trip's end is what decides */
    bool failed;      /* a statement of the trip has failed */
    bool doubtful;    /* a commit of the trip may not be replicated */
    bool timed_out;   /* the connection was dropped because the server did not answer */
    int silent_pid;   /* the backend that did not answer; the next pg_connect ends it; 0: none */
    bool reached;     /* the last pg_connect was good */
    bool lasts;       /* since pg_connect: waiting does not mend what `why` tells of */
    char sqlstate[6]; /* of the last error; empty: it was the connection that failed */
    char why[STORE_WHY_MAX];
};

/* The parameters of a statement. The bytes that they point to must live until pg_send returns. */
struct pg_params {
    const char *values[PG_PARAMS_MAX];
    int lengths[PG_PARAMS_MAX], formats[PG_PARAMS_MAX];
    uint64_t numbers[PG_PARAMS_MAX]; /* in network order */
    int count;
};

/* The settings of each of our sessions, whatever the server, the database or the role have, as the
 * columns of a SELECT. They are those that our own statements and functions rely on, and those that
 * say how values are written in users' SQL. Settings that say what users' SQL means stay as the
 * database has them: search_path, TimeZone, the order of days and months.
 *
 * Our statements look rows up by key, so one plan fits all. Sequential scans are off, since the
 * plan for a table that is small now would be kept until somebody analyses the table. */
#define PG_SETTING_MAP(X)                                                                          \
    X("client_min_messages", "'warning'")                                                          \
    X("search_path", "'pg_catalog, pg_temp'")                                                      \
    X("role", "'none'")                                                                            \
    X("row_security", "'on'")                                                                      \
    X("exit_on_error", "'off'")                                                                    \
    X("default_transaction_isolation", "'read committed'")                                         \
    X("default_transaction_read_only", "'off'")                                                    \
    X("default_transaction_deferrable", "'off'")                                                   \
    X("statement_timeout", "'0'")                                                                  \
    X("lock_timeout", "'3s'")                                                                      \
    X("idle_in_transaction_session_timeout", "'3s'")                                               \
    X("idle_session_timeout", "'0'")                                                               \
    X("tcp_user_timeout", "'3s'")                                                                  \
    X("jit", "'off'")                                                                              \
    X("plan_cache_mode", "'force_generic_plan'")                                                   \
    X("enable_seqscan", "'off'")                                                                   \
    X("enable_bitmapscan", "'off'")                                                                \
    X("gin_fuzzy_search_limit", "'0'")                                                             \
    X("default_table_access_method", "'heap'")                                                     \
    X("default_tablespace", "''")                                                                  \
    X("plpgsql.extra_errors", "'none'")                                                            \
    X("standard_conforming_strings", "'on'")                                                       \
    X("backslash_quote", "'safe_encoding'")                                                        \
    X("quote_all_identifiers", "'off'")                                                            \
    X("array_nulls", "'on'")                                                                       \
    X("transform_null_equals", "'off'")                                                            \
    X("bytea_output", "'hex'")                                                                     \
    X("extra_float_digits", "'1'")                                                                 \
    X("DateStyle", "'ISO'")                                                                        \
    X("IntervalStyle", "'postgres'")                                                               \
    X("xmlbinary", "'base64'")                                                                     \
    X("xmloption", "'content'")                                                                    \
    X("synchronous_commit", "CASE pg_catalog.current_setting('synchronous_commit')"                \
                            " WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END")
/* Settings that older servers do not have. */
#define PG_NEWER_SETTING_MAP(X)                                                                    \
    X("restrict_nonsystem_relation_kind", "''")                                                    \
    X("transaction_timeout", "'0'")

#define PG_SET(name, value) "pg_catalog.set_config('" name "', " value ", false), "
#define PG_SET_IF_KNOWN(name, value)                                                               \
    "CASE WHEN pg_catalog.current_setting('" name "', true) IS NOT NULL"                           \
    " THEN pg_catalog.set_config('" name "', " value ", false) END, "
#define PG_SETTINGS PG_SETTING_MAP(PG_SET) PG_NEWER_SETTING_MAP(PG_SET_IF_KNOWN) "NULL"

/* Connect, within the limit, or say in `why` why not. */
bool pg_connect(struct pg *pg);
/* The way to a store has failed, by the last pg_connect or behind it. Waiting does not mend it:
 * what to do, behind `why`; "": that says it. NULL: waiting may mend it. */
const char *pg_remedy(struct pg *pg);
/* Close the connection, if there is one. */
void pg_drop(struct pg *pg);
/* Prepare all statements. The schema has to be there. */
bool pg_prepare(struct pg *pg);
/* Run commands without parameters that give no rows, and wait. */
bool pg_run(struct pg *pg, const char *commands);

void pg_param_int64(struct pg_params *params, int64_t value);
void pg_param_bytes(struct pg_params *params, struct bytes value);

/* An array that is put together to be a parameter. */
enum pg_type { PG_BOOL = 16, PG_BYTEA = 17, PG_INT8 = 20, PG_TEXT = 25 };
struct pg_array {
    struct buf buf;
    uint32_t count;
};
void pg_array_start(struct pg_array *array, enum pg_type type);
void pg_array_int64(struct pg_array *array, int64_t value);
void pg_array_bool(struct pg_array *array, bool value);
void pg_array_bytes(struct pg_array *array, struct bytes value);
void pg_array_null(struct pg_array *array);
/* Add the array as a parameter; its buffer must live until pg_send returns. */
void pg_param_array(struct pg_params *params, struct pg_array *array);

/* Queue a statement of the trip. `params` may be NULL. */
void pg_send(struct pg *pg, size_t statement, const struct pg_params *params);
/* Queue the one statement of a trip whose result is to be pg->decision. */
void pg_send_deciding(struct pg *pg, size_t statement, const struct pg_params *params);
/* Queue a text without parameters that was not prepared. */
void pg_send_text(struct pg *pg, const char *text);
/* Have the server parse a text without running it. It refuses more than one statement. */
void pg_send_parse(struct pg *pg, const char *text);
/* Ask for the columns of a portal that is open by then. */
void pg_send_describe(struct pg *pg, const char *portal);
/* End the trip's statements: from now on their results come. */
void pg_sync(struct pg *pg);
/* End a trip for whose answer the server has another limit. */
void pg_sync_within(struct pg *pg, int limit_ms);
/* End a trip whose end is to be pg->decision. The end commits the statements behind the last
 * COMMIT, though these have given their results before, and it waits for the standby. */
void pg_sync_deciding(struct pg *pg);
/* Wait for the result of the next statement; the caller frees it with PQclear. NULL: the statement,
 * one before it in the trip, or the connection has failed. */
PGresult *pg_take(struct pg *pg);
/* Take the results of the next `count` statements, and drop them. */
void pg_skip(struct pg *pg, size_t count);
/* Wait for the end of the trip, and drop results that nobody took. False: something failed. */
bool pg_end(struct pg *pg);

/* COPY in its binary format. Nothing else may be asked between its start and its end. These return
 * false where they have failed. */
bool pg_copy_start(struct pg *pg, const char *copy);
/* Append the next piece of a COPY TO to `data`. `*more` false: there was none left, and the COPY
 * has ended. */
bool pg_copy_take(struct pg *pg, struct buf *data, bool *more);
/* Send a piece of a COPY FROM. Only pg_copy_put_end tells whether the server took it. */
bool pg_copy_put(struct pg *pg, struct bytes data);
/* End a COPY FROM. `failure` not NULL: give it up, for this reason. */
bool pg_copy_put_end(struct pg *pg, const char *failure);
/* Between trips: take in what has come. False: it was that the server has gone. */
bool pg_listens(struct pg *pg);
/* Between trips: call `each` for the NOTIFYs of others that have come meanwhile, and add their
 * number to `*count`. False: the connection has failed. */
bool pg_news(struct pg *pg, void (*each)(void *context, const char *payload), void *context,
             size_t *count);

/* Values of a result's row. Bytes are the result's. */
int64_t pg_value_int64(const struct pg *pg, const PGresult *result, int row, int column);
bool pg_value_bool(const struct pg *pg, const PGresult *result, int row, int column);
struct bytes pg_value_bytes(const struct pg *pg, const PGresult *result, int row, int column);
/* Copy it into `out`, cut to its size. */
void pg_value_text(const struct pg *pg, const PGresult *result, int row, int column, char *out,
                   size_t size);

#endif
