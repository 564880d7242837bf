/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/identity.h"

#include "fence/base/clock.h"
#include "store/postgresql/load.h"
#include "store/postgresql/statements.h"
#include "store/transfer.h"

enum { CORRECTIONS_MAX = 5 };

/* An old primary that does not know of its successor has an older timeline. */
static bool is_newest(struct pg_txn *txn, int64_t timeline)
{
    int64_t seen = atomic_load(&txn->shared->timeline);

    while (timeline > seen)
        if (atomic_compare_exchange_weak(&txn->shared->timeline, &seen, timeline))
            return true;
    if (timeline < seen)
        text_print(txn->pg.why, sizeof txn->pg.why,
                   "this server is on timeline %lld, older than %lld, which was seen before: it is "
                   "no longer the primary",
                   (long long)timeline, (long long)seen);
    return timeline == seen;
}

/* Of the two columns of meta that begin at `column`. */
static bool is_open(struct pg *pg, const PGresult *result, int column)
{
    struct transfer_mark mark = {.part = (enum transfer_part)pg_value_int64(pg, result, 0, column)};

    pg_value_text(pg, result, 0, column + 1, mark.where, sizeof mark.where);
    return !transfer_is_closed(&mark, "this store", pg->why, sizeof pg->why);
}

bool pg_check_open(struct pg *pg)
{
    pg_send_text(pg, "SELECT move_part::int8, move_where FROM stockade.meta");
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    bool asked = pg_end(pg), open = asked && is_open(pg, result, 0);
    pg->pq.PQclear(result);
    return open;
}

/* Who the server is, beside what the store remembers. */
struct identity {
    bool other, replicated, fresh;
    bool stale; /* what is remembered of its replication */
    int64_t timeline;
    bool open; /* no move keeps it closed */
};

static bool read_identity(struct pg_txn *txn, struct identity *identity)
{
    struct pg *pg = &txn->pg;

    pg_send(pg, PG_IDENTITY, NULL);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    if (result != NULL) {
        *identity = (struct identity){
            .other = pg_value_bool(pg, result, 0, 0) || pg_value_bool(pg, result, 0, 1),
            .timeline = pg_value_int64(pg, result, 0, 2),
            .replicated = pg_value_bool(pg, result, 0, 3),
            .fresh = pg_value_bool(pg, result, 0, 4),
            .stale = pg_value_bool(pg, result, 0, 6),
            .open = is_open(pg, result, 7),
        };
        atomic_store(&txn->shared->unsafe, pg_value_bool(pg, result, 0, 5));
    }
    pg->pq.PQclear(result);
    return pg_end(pg) && is_newest(txn, identity->timeline) && identity->open;
}

/* The store's time, and what is known of it. */
static bool read_clock(struct pg_txn *txn, struct pg_clock_look *look, struct pg_clock_note *note)
{
    struct pg *pg = &txn->pg;
    struct pg_clock *clock = &txn->shared->clock;

    pg_send(pg, PG_CLOCK, NULL);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    if (result != NULL) {
        look->now_ms = txn->now_ms = pg_value_int64(pg, result, 0, 0);
        look->number = pg_value_int64(pg, result, 0, 1);
        look->sent_ms = pg->sent_ms;
        look->got_ms = clock_now_ms(&clock_monotonic);
        note->now_ms = pg_value_int64(pg, result, 0, 2);
        note->wall_ms = pg_value_int64(pg, result, 0, 3);
        pg_clock_of(clock, pg_value_bytes(pg, result, 0, 4));
    }
    pg->pq.PQclear(result);
    return pg_end(pg);
}

/* Of several who see that it is wrong, one corrects it. */
static bool correct_clock(struct pg_txn *txn, int64_t error_ms, int64_t number)
{
    struct pg_params params = {.count = 0};

    pg_param_int64(&params, error_ms);
    pg_param_int64(&params, number);
    pg_send(&txn->pg, PG_CLOCK_PUT, &params);
    pg_sync(&txn->pg);
    return pg_end(&txn->pg) && !txn->pg.warned;
}

static bool settle_clock(struct pg_txn *txn)
{
    struct pg_clock *clock = &txn->shared->clock;
    struct pg_clock_look look = {0};
    struct pg_clock_note note = {0};
    int64_t error_ms;

    for (int i = 0; i < CORRECTIONS_MAX; i++) {
        if (!read_clock(txn, &look, &note))
            return false;
        bool known = pg_clock_error_ms(clock, &look, &error_ms);
        if (!known && !pg_clock_is_known(clock))
            error_ms = pg_clock_gap_error_ms(&note, &look, clock_wall_us(&clock_monotonic) / 1000);
        if (error_ms == 0) {
            pg_clock_follow(clock, &look);
            return true;
        }
        if (!correct_clock(txn, error_ms, look.number))
            return false;
    }
    text_print(txn->pg.why, sizeof txn->pg.why, "the server's clock is being set again and again");
    return false;
}

/* The time is the server's: only once it is known to be the primary. */
bool pg_check_identity(struct pg_txn *txn)
{
    struct pg *pg = &txn->pg;
    struct pg_params leap = {.count = 0}, now = {.count = 0};
    struct identity identity = {0};

    if (!read_identity(txn, &identity) || !settle_clock(txn))
        return false;
    if (!identity.other && !identity.stale)
        return true;
    /* Again, under the lock: another daemon may have been quicker. */
    txn->kind = PG_ALONE;
    if (!pg_begin_floor(txn) || !read_identity(txn, &identity))
        return false;
    bool other = identity.other, leaps = other && !identity.fresh;
    pg_param_int64(&leap, leaps ? TOKEN_LEAP_MAX : 0);
    pg_send(pg, other ? PG_IDENTITY_PUT : PG_REPLICATED_PUT, other ? &leap : NULL);
    if (leaps && !identity.replicated) {
        pg_param_int64(&now, txn->now_ms);
        pg_send(pg, PG_FLUSH_RETIRE, &now);
        pg_send(pg, PG_REVOKE_ALL, &now);
    }
    pg_send(pg, PG_COMMIT, NULL);
    pg_sync(pg);
    txn->begun = false;
    return pg_end(pg) && !pg->warned;
}
