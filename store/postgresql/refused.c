/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/refused.h"

#include <string.h>

#include "store/postgresql/statements.h"

enum { RECORDS_BYTES_MAX = 64 * 1024 }; /* more are counted, and not told */

void pg_refused_init(struct pg_refused *refused)
{
    *refused = (struct pg_refused){.told = -1, .newest = -1};
    pthread_mutex_init(&refused->lock, NULL);
}

void pg_refused_destroy(struct pg_refused *refused)
{
    buf_free(&refused->records);
    pthread_mutex_destroy(&refused->lock);
}

static enum stk_error code_of(struct bytes text)
{
    static const enum stk_error codes[] = {STK_STALE, STK_UNKNOWN, STK_GUARDED, STK_NOTOKEN};

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (bytes_equal(text, bytes_of(stk_error_code(codes[i]))))
            return codes[i];
    return STK_OK;
}

static void take_row(struct pg_refused *refused, struct pg *pg, const PGresult *result, int at)
{
    struct store_refusal refusal = {.code = code_of(pg_value_bytes(pg, result, at, 1)),
                                    .resource = pg_value_bytes(pg, result, at, 2),
                                    .token = pg_value_int64(pg, result, at, 3),
                                    .newest = pg_value_int64(pg, result, at, 4)};

    if (refusal.code == STK_OK || refused->records.len > RECORDS_BYTES_MAX)
        return;
    buf_append(&refused->records, &refusal, sizeof refusal);
    buf_append_bytes(&refused->records, refusal.resource);
}

/* The last row has the newest number only. One that was missing at the last look, as it was not
 * written yet, may be there now; after that it is not waited for. */
static size_t take(struct pg_refused *refused, struct pg *pg, const PGresult *result)
{
    int rows = pg->pq.PQntuples(result);
    int64_t newest = pg_value_int64(pg, result, rows - 1, 0), before = refused->newest;

    refused->newest = newest;
    if (before < 0 || newest < before) { /* the first look, or an older state of the database */
        refused->told = newest;
        return 0;
    }
    pthread_mutex_lock(&refused->lock);
    for (int at = 0; at < rows - 1; at++)
        take_row(refused, pg, result, at);
    pthread_mutex_unlock(&refused->lock);
    if (rows > 1)
        refused->told = pg_value_int64(pg, result, rows - 2, 0);
    if (refused->told < before)
        refused->told = before;
    return (size_t)(newest - before);
}

bool pg_refused_look(struct pg_refused *refused, struct pg *pg, size_t *count)
{
    struct pg_params params = {.count = 0};

    *count = 0;
    pg_param_int64(&params, refused->told);
    pg_send(pg, PG_REFUSALS, &params);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    if (pg->pq.PQntuples(result) > 0)
        *count = take(refused, pg, result);
    pg->pq.PQclear(result);
    return pg_end(pg);
}

void pg_refused_collect(struct pg_refused *refused,
                        void (*on_refused)(void *context, const struct store_refusal *refusal),
                        void *context)
{
    struct store_refusal refusal;

    pthread_mutex_lock(&refused->lock);
    struct buf records = refused->records;
    refused->records = (struct buf){0};
    pthread_mutex_unlock(&refused->lock);
    for (size_t at = 0; at < records.len; at += refusal.resource.len) {
        memcpy(&refusal, records.data + at, sizeof refusal);
        at += sizeof refusal;
        refusal.resource.data = records.data + at;
        on_refused(context, &refusal);
    }
    buf_free(&records);
}
