/* SPDX-License-Identifier: Apache-2.0 */
/* Libpq, loaded when it is first needed (store/postgresql/libpq.h); poll bounds the waits. */
#include "tools/database.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "store/postgresql/uri.h"

enum { CONNECT_LIMIT_S = 10 };

/* Keep what went wrong, on one line. Return false. */
static bool failed(struct database *database, const char *state, const char *text)
{
    (void)snprintf(database->state, sizeof database->state, "%s", state);
    (void)failure_set(&database->failure, "PostgreSQL: %s", text);
    for (char *at = database->failure.text; (at = strpbrk(at, "\n\t")) != NULL;)
        *at = at[1] == '\0' ? '\0' : ' ';
    return false;
}

bool database_open(struct database *database, const char *uri)
{
    char connect_s[16], why[256];
    const char *const words[] = {"dbname", "connect_timeout", NULL};
    char *of_libpq = pg_uri_of_libpq(uri);
    const char *const values[] = {of_libpq, connect_s, NULL};

    *database = (struct database){.conn = NULL};
    (void)snprintf(connect_s, sizeof connect_s, "%d", CONNECT_LIMIT_S);
    if (libpq_load(&database->pq, why, sizeof why))
        database->conn = database->pq.PQconnectdbParams(words, values, 1);
    mem_free_secret(of_libpq);
    if (database->conn == NULL)
        return failure_set(&database->failure, "%s", why);
    if (database->pq.PQstatus(database->conn) != CONNECTION_OK) {
        (void)failed(database, "08001", database->pq.PQerrorMessage(database->conn));
        database_close(database);
        return false;
    }
    if (!database_do(database, NULL, "SET client_min_messages = error", NULL)) {
        database_close(database);
        return false;
    }
    return true;
}

void database_close(struct database *database)
{
    if (database->conn != NULL) {
        database->pq.PQfinish(database->conn);
        database->conn = NULL;
    }
}

static void read_answer(const struct libpq *pq, PGresult *result, struct database_answer *answer)
{
    bool has_rows = pq->PQresultStatus(result) == PGRES_TUPLES_OK;

    *answer = (struct database_answer){
        .rows = has_rows ? pq->PQntuples(result) : strtoll(pq->PQcmdTuples(result), NULL, 10)};
    for (int i = 0; has_rows && answer->rows > 0 && i < DATABASE_NUMBERS; i++)
        if (i < pq->PQnfields(result))
            answer->numbers[i] = strtoll(pq->PQgetvalue(result, 0, i), NULL, 10);
}

/* Take in what the server says until it is done, or until the limit. */
static bool await(struct database *database)
{
    const struct libpq *pq = &database->pq;
    struct pollfd wait = {.fd = pq->PQsocket(database->conn), .events = POLLIN};
    int64_t limit_us = clock_now_us(&clock_monotonic) + DATABASE_LIMIT_MS * 1000;

    while (pq->PQisBusy(database->conn)) {
        int64_t left_ms = (limit_us - clock_now_us(&clock_monotonic)) / 1000;
        if (left_ms <= 0)
            return failed(database, "08000", "it does not answer");
        if (poll(&wait, 1, (int)left_ms) > 0 && !pq->PQconsumeInput(database->conn))
            break; /* the next result says so */
    }
    return true;
}

static bool run(struct database *database, struct database_answer *answer, const char *sql,
                const char *const *params)
{
    const struct libpq *pq = &database->pq;
    PGresult *result;
    int count = 0;

    while (params != NULL && params[count] != NULL)
        count++;
    database->state[0] = '\0';
    if (!pq->PQsendQueryParams(database->conn, sql, count, NULL, params, NULL, NULL, 0))
        return failed(database, "08000", pq->PQerrorMessage(database->conn));
    while (await(database) && (result = pq->PQgetResult(database->conn)) != NULL) {
        ExecStatusType status = pq->PQresultStatus(result);
        const char *state = pq->PQresultErrorField(result, PG_DIAG_SQLSTATE);
        if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
            (void)failed(database, state != NULL ? state : "08000",
                         pq->PQresultErrorMessage(result));
        else if (answer != NULL)
            read_answer(pq, result, answer);
        pq->PQclear(result);
    }
    return database->state[0] == '\0';
}

bool database_do(struct database *database, struct database_answer *answer, const char *sql,
                 const char *const *params)
{
    if (database->since_us == 0)
        database->since_us = clock_now_us(&clock_monotonic);
    bool done = run(database, answer, sql, params);
    if (database->pq.PQtransactionStatus(database->conn) != PQTRANS_INTRANS) {
        database->used_us += clock_now_us(&clock_monotonic) - database->since_us;
        database->since_us = 0;
    }
    return done;
}
