/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/reach.h"

#include <string.h>

#include "store/postgresql/identity.h"
#include "store/postgresql/operation.h"
#include "store/postgresql/schema.h"
#include "store/postgresql/sql.h"
#include "store/postgresql/statements.h"

enum {
    AGAIN_MS = 250,
    LOG_EVERY_MS = 10 * 1000, /* where the reason of an outage has become another one */
};

static const char *const names[] = {
#define X(name, sql) #name,
    PG_STATEMENT_MAP(X)
#undef X
};

static const char *const texts[] = {
#define X(name, sql) sql,
    PG_STATEMENT_MAP(X)
#undef X
};

static const char *const connection_names[] = {
    "stockade writer", "stockade writer 2", "stockade apart",
    "stockade reader", "stockade slow",     "stockade watch",
};

void reach_init(struct reach *reach, const char *uri, enum pg_connection connection,
                struct pg_shared *shared, struct store_reasons *reasons, const struct log *log)
{
    *reach = (struct reach){
        .txn.pg = {.uri = uri,
                   .name = connection_names[connection],
                   .names = names,
                   .texts = texts,
                   .statements = PG_STATEMENTS,
                   .timeout_ms = PG_TIMEOUT_MS},
        .txn.connection = connection,
        .txn.shared = shared,
        .reasons = reasons,
        .log = log,
    };
    pg_operations_init(&reach->txn);
}

void reach_free(struct reach *reach)
{
    pg_drop(&reach->txn.pg);
    set_free(&reach->txn.set);
}

static bool writes(const struct pg_txn *txn)
{
    return txn->connection <= PG_CONNECTION_APART;
}

/* Reads go on where somebody has changed our tables; what has never been open stays closed. */
static bool check_tables(struct pg_txn *txn, int64_t session)
{
    if (!writes(txn) && session != 0)
        return true;
    if (!pg_schema_is_ours(&txn->pg))
        return false;
    atomic_store(&txn->shared->harmed, false);
    return true;
}

static bool connect(struct reach *reach)
{
    struct pg_txn *txn = &reach->txn;
    struct pg *pg = &txn->pg;
    struct pg_anew anew;
    int64_t session = atomic_load(&txn->shared->session);

    txn->begun = txn->soiled = txn->spoilt = false;
    txn->sql_state = SQL_UNTRIED;
    txn->next_id = txn->ids_end = 0;
    if (!pg_connect(pg) || !pg_schema_prepare(pg) || !pg_check_open(pg) || !pg_prepare(pg) ||
        !check_tables(txn, session) || !pg_check_identity(txn, &anew))
        return false;
    if (anew.why != NULL)
        log_warn(txn->shared->log, "store: %s: tokens go on above %lld%s", anew.why,
                 (long long)anew.floor, anew.ended ? "; all leases have ended" : "");
    /* The first who comes counts the opening; the others are refused until then. */
    if (session == 0 && txn->connection == PG_CONNECTION_WRITER) {
        if (!pg_schema_session(pg, &session))
            return false;
        if (atomic_load(&txn->shared->unsafe))
            log_warn(reach->log, "store: the server has fsync = off, so a loss of power may lose "
                                 "or damage what was acknowledged");
        atomic_store(&txn->shared->session, session);
    }
    if (session == 0)
        text_print(pg->why, sizeof pg->why, "the store is being opened");
    txn->differs = PG_SAME;
    return session != 0;
}

bool reach_ready(struct reach *reach)
{
    struct pg *pg = &reach->txn.pg;
    int64_t now_ms = clock_now_ms(&clock_monotonic);

    bool harmed = writes(&reach->txn) && atomic_load(&reach->txn.shared->harmed);

    if (pg->conn != NULL && pg->pq.PQstatus(pg->conn) == CONNECTION_OK &&
        reach->txn.differs == PG_SAME && !harmed) {
        pg_sql_make_ready(&reach->txn);
        return true;
    }
    int64_t reached = atomic_load(&reach->txn.shared->reached);
    if (now_ms < reach->again_ms && reached == reach->reached)
        return false;
    reach->reached = reached;
    reach->txn.differs = PG_SAME; /* what is wrong now says pg->why */
    if (connect(reach)) {
        atomic_fetch_add(&reach->txn.shared->reached, 1);
        return true;
    }
    if (reach->txn.begun) /* says who is in the way, as it does below */
        pg_roll_back(&reach->txn);
    else if (kept_out_is_why(pg))
        kept_out_explain(&reach->txn.shared->kept_out, pg, reach->txn.shared->log);
    reach_failed(reach);
    pg_drop(pg);
    reach->again_ms = clock_now_ms(&clock_monotonic) + AGAIN_MS;
    return false;
}

void reach_note(struct reach *reach)
{
    static const char *const of_differs[] = {"",
#define X(name, sql, text) text,
                                             PG_DIFFERS_MAP(X)
#undef X
    };
    enum pg_differs differs = reach->txn.differs;

    text_print(reach->why, sizeof reach->why, "%s",
               differs != PG_SAME ? of_differs[differs] : reach->txn.pg.why);
}

void reach_failed(struct reach *reach)
{
    int64_t now_ms = clock_now_ms(&clock_monotonic);

    reach_note(reach);
    if (!reach->reported ||
        (now_ms - reach->logged_ms >= LOG_EVERY_MS && strcmp(reach->why, reach->logged) != 0)) {
        log_error(reach->log, "store %s: %s", reach->txn.pg.name, reach->why);
        memcpy(reach->logged, reach->why, sizeof reach->logged);
        reach->logged_ms = now_ms;
    }
    reach->reported = true;
}

void reach_good(struct reach *reach)
{
    if (reach->reported)
        log_info(reach->log, "store %s: it answers again", reach->txn.pg.name);
    reach->reported = false;
    reach->why[0] = '\0';
}

void reach_fail(struct reach *reach, struct store_op *op)
{
    reasons_fail(reach->reasons, op, reach->why);
}
