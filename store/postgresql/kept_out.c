/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/kept_out.h"

#include <string.h>

#include "fence/base/clock.h"
#include "store/postgresql/statements.h"

#define LOCK_NOT_AVAILABLE "55P03"

/* The holder, as PG_META_HOLDER tells it. */
struct holder {
    int64_t pid, state_us, progress;
    bool stands; /* it is maintenance of ours, in COPY, and waits for its client */
    char text[PG_HOLDER_MAX];
};

void kept_out_init(struct kept_out *kept_out)
{
    *kept_out = (struct kept_out){.pid = 0};
    pthread_mutex_init(&kept_out->lock, NULL);
}

void kept_out_destroy(struct kept_out *kept_out)
{
    pthread_mutex_destroy(&kept_out->lock);
}

bool kept_out_is_why(const struct pg *pg)
{
    return strcmp(pg->sqlstate, LOCK_NOT_AVAILABLE) == 0;
}

/* Has it stood still for so long that it is to be ended? */
static bool is_still(struct kept_out *kept_out, const struct holder *holder)
{
    int64_t now_ms = clock_now_ms(&clock_monotonic);
    bool still;

    pthread_mutex_lock(&kept_out->lock);
    if (!holder->stands || holder->pid != kept_out->pid || holder->state_us != kept_out->state_us ||
        holder->progress != kept_out->progress) {
        kept_out->pid = holder->pid;
        kept_out->state_us = holder->state_us;
        kept_out->progress = holder->progress;
        kept_out->since_ms = now_ms;
    }
    still = holder->stands && now_ms - kept_out->since_ms >= KEPT_OUT_STILL_MS;
    pthread_mutex_unlock(&kept_out->lock);
    return still;
}

static bool find(struct pg *pg, struct holder *holder)
{
    pg_send_text(pg, PG_META_HOLDER);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    bool found = result != NULL && pg->pq.PQntuples(result) > 0;
    if (found) {
        holder->pid = pg_value_int64(pg, result, 0, 0);
        holder->state_us = pg_value_int64(pg, result, 0, 1);
        holder->stands = pg_value_bool(pg, result, 0, 2);
        holder->progress = pg_value_int64(pg, result, 0, 3);
        pg_value_text(pg, result, 0, 4, holder->text, sizeof holder->text);
    }
    pg->pq.PQclear(result);
    return pg_end(pg) && found;
}

/* End the holder. The statement asks once more whether it still stands there. */
static bool end(struct pg *pg, const struct holder *holder)
{
    char text[sizeof PG_META_HOLDER + 200];
    bool ended = false;

    text_print(text, sizeof text,
               "SELECT pg_terminate_backend(pid::int4) FROM (" PG_META_HOLDER
               ") AS h(pid, state_us, stands, progress) WHERE stands AND pid = %lld"
               " AND state_us = %lld AND progress = %lld",
               (long long)holder->pid, (long long)holder->state_us, (long long)holder->progress);
    pg_send_text(pg, text);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    ended = pg->pq.PQntuples(result) > 0 && pg_value_bool(pg, result, 0, 0);
    pg->pq.PQclear(result);
    return pg_end(pg) && ended;
}

void kept_out_explain(struct kept_out *kept_out, struct pg *pg, const struct log *log)
{
    struct holder holder;
    char why[STORE_WHY_MAX];

    text_print(why, sizeof why, "%s", pg->why);
    if (pg->conn == NULL || !find(pg, &holder)) {
        text_print(pg->why, sizeof pg->why, "%s", why);
        return;
    }
    if (is_still(kept_out, &holder) && end(pg, &holder)) {
        log_warn(
            log,
            "store: a stockade move or restore stood still for %d s with the store locked: its "
            "backend was ended, and what it had done is undone (%s)",
            KEPT_OUT_STILL_MS / 1000, holder.text);
        atomic_fetch_add(&kept_out->ended, 1);
    }
    text_print(pg->why, sizeof pg->why, "%s: the store is locked by %s", why, holder.text);
}
