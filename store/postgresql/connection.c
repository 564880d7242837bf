/* SPDX-License-Identifier: Apache-2.0 */
/* A fresh connection is used only once all of this holds: the schema is there and ours, no move
 * keeps the store closed, the statements are prepared, and the store is the one that it was. */
#include "store/postgresql/connection.h"

#include <string.h>

#include "store/postgresql/identity.h"
#include "store/postgresql/operation.h"
#include "store/postgresql/schema.h"
#include "store/postgresql/sql.h"
#include "store/postgresql/statements.h"
#include "store/postgresql/uri.h"

enum {
    AGAIN_MS = 250,
    LOG_EVERY_MS = 10 * 1000, /* at least, between two reasons of the same outage */
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

/* In the order of enum pg_connection_id. */
static const char *const connection_names[] = {
    "stockade writer", "stockade writer 2", "stockade apart",
    "stockade reader", "stockade slow",     "stockade watch",
};

void pg_connection_init(struct pg_connection *connection, const char *uri, enum pg_connection_id id,
                        struct pg_shared *shared, struct store_reasons *reasons,
                        const struct log *log)
{
    *connection = (struct pg_connection){
        .pg = {.uri = uri,
               .name = connection_names[id],
               .names = names,
               .texts = texts,
               .statements = PG_STATEMENTS,
               .timeout_ms = pg_uri_timeout_ms(uri)},
        .txn.pg = &connection->pg,
        .txn.connection = id,
        .txn.shared = shared,
        .reasons = reasons,
        .log = log,
    };
    pg_operations_init(&connection->txn);
}

void pg_connection_free(struct pg_connection *connection)
{
    pg_drop(&connection->pg);
    set_free(&connection->txn.set);
}

static bool writes(const struct pg_txn *txn)
{
    return txn->connection <= PG_CONNECTION_OWN_TXN;
}

/* Has nobody changed our tables? Where somebody has, reads go on all the same, but a store that
 * was not open yet is not opened. */
static bool check_tables(struct pg_txn *txn, int64_t opening)
{
    if (!writes(txn) && opening != 0)
        return true;
    if (!pg_schema_is_ours(txn->pg))
        return false;
    atomic_store(&txn->shared->harmed, false);
    return true;
}

static bool connect(struct pg_connection *connection)
{
    struct pg_txn *txn = &connection->txn;
    struct pg *pg = &connection->pg;
    struct pg_anew anew;
    int64_t opening = atomic_load(&txn->shared->opening);

    txn->begun = txn->needs_reset = txn->must_drop = false;
    txn->sql_state = SQL_UNTRIED;
    txn->next_id = txn->ids_end = 0;
    if (!pg_connect(pg) || !pg_schema_prepare(pg) || !pg_check_open(pg) || !pg_prepare(pg) ||
        !check_tables(txn, opening) || !pg_check_identity(txn, &anew))
        return false;
    if (anew.why != NULL)
        log_warn(txn->shared->log, "store: %s: tokens go on above %lld%s", anew.why,
                 (long long)anew.floor, anew.ended ? "; all leases have ended" : "");
    /* The writer's connection counts the opening; until it has, the others are refused. */
    if (opening == 0 && txn->connection == PG_CONNECTION_WRITER) {
        if (!pg_schema_count_opening(pg, &opening))
            return false;
        if (atomic_load(&txn->shared->unsafe))
            log_warn(connection->log,
                     "store: the server has fsync = off, so a loss of power may lose "
                     "or damage what was acknowledged");
        atomic_store(&txn->shared->opening, opening);
    }
    if (opening == 0)
        text_print(pg->why, sizeof pg->why, "the store is being opened");
    txn->differs = PG_SAME;
    return opening != 0;
}

/* False: pg->why says why not, and who keeps us out. */
static bool attempt(struct pg_connection *connection)
{
    struct pg *pg = &connection->pg;

    connection->txn.differs = PG_SAME; /* from here on, pg->why says what is wrong */
    if (connect(connection)) {
        atomic_fetch_add(&connection->txn.shared->connections_made, 1);
        return true;
    }
    if (connection->txn.begun) /* a rollback, too, finds out who keeps us out */
        pg_roll_back(&connection->txn);
    else if (kept_out_is_why(pg))
        kept_out_explain(&connection->txn.shared->kept_out, pg, connection->txn.shared->log);
    return false;
}

/* Until the next attempt. */
static void give_up(struct pg_connection *connection)
{
    pg_connection_failed(connection);
    pg_drop(&connection->pg);
    connection->retry.again_ms = clock_now_ms(&clock_monotonic) + AGAIN_MS;
}

bool pg_connection_ready(struct pg_connection *connection)
{
    struct pg *pg = &connection->pg;
    int64_t now_ms = clock_now_ms(&clock_monotonic);

    bool harmed = writes(&connection->txn) && atomic_load(&connection->txn.shared->harmed);

    if (pg->conn != NULL && pg->pq.PQstatus(pg->conn) == CONNECTION_OK &&
        connection->txn.differs == PG_SAME && !harmed) {
        pg_sql_make_ready(&connection->txn);
        return true;
    }
    int64_t made = atomic_load(&connection->txn.shared->connections_made);
    if (now_ms < connection->retry.again_ms && made == connection->retry.made)
        return false;
    connection->retry.made = made;
    if (attempt(connection))
        return true;
    give_up(connection);
    return false;
}

bool pg_connection_open(struct pg_connection *connection, char *why, size_t why_size)
{
    struct pg *pg = &connection->pg;
    char said[STORE_WHY_MAX];

    /* Once more where the connection broke on the way: the server gives up on a daemon that pauses
     * with a transaction open. */
    bool good = attempt(connection);
    if (!good && pg->reached && pg->conn == NULL && !pg->timed_out && !pg->lasts)
        good = attempt(connection);
    if (good)
        return true;
    text_print(said, sizeof said, "%s", pg->why);
    const char *remedy = pg_remedy(pg);
    if (remedy == NULL) {
        give_up(connection);
        return true;
    }
    text_print(why, why_size, "the store: %s%s%s", said, *remedy != '\0' ? "; " : "", remedy);
    return false;
}

void pg_connection_note(struct pg_connection *connection)
{
    static const char *const of_differs[] = {"",
#define X(name, sql, text) text,
                                             PG_DIFFERS_MAP(X)
#undef X
    };
    enum pg_differs differs = connection->txn.differs;
    struct pg_retry *retry = &connection->retry;

    text_print(retry->why, sizeof retry->why, "%s",
               differs != PG_SAME ? of_differs[differs] : connection->pg.why);
}

void pg_connection_failed(struct pg_connection *connection)
{
    struct pg_retry *retry = &connection->retry;
    int64_t now_ms = clock_now_ms(&clock_monotonic);

    pg_connection_note(connection);
    if (!retry->reported ||
        (now_ms - retry->logged_ms >= LOG_EVERY_MS && strcmp(retry->why, retry->logged) != 0)) {
        log_error(connection->log, "store %s: %s", connection->pg.name, retry->why);
        memcpy(retry->logged, retry->why, sizeof retry->logged);
        retry->logged_ms = now_ms;
    }
    retry->reported = true;
}

void pg_connection_works(struct pg_connection *connection)
{
    if (connection->retry.reported)
        log_info(connection->log, "store %s: it answers again", connection->pg.name);
    connection->retry.reported = false;
    connection->retry.why[0] = '\0';
}

void pg_connection_fail_op(struct pg_connection *connection, struct store_op *op)
{
    reasons_fail(connection->reasons, op, connection->retry.why);
}
