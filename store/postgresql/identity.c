/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/identity.h"

#include "fence/base/clock.h"
#include "store/floor.h"
#include "store/postgresql/anew.h"
#include "store/postgresql/load.h"
#include "store/postgresql/statements.h"
#include "store/transfer.h"

enum { CORRECTIONS_MAX = 5 };

/* Is this the newest primary that was seen? An old one that does not know of its successor has an
 * older timeline. */
static bool is_newest(struct pg_txn *txn, int64_t system, int64_t timeline)
{
    struct pg_shared *shared = txn->shared;

    pthread_mutex_lock(&shared->place_lock);
    int64_t seen = shared->system == system ? shared->timeline : 0;
    if (timeline >= seen) {
        shared->system = system;
        shared->timeline = timeline;
    }
    pthread_mutex_unlock(&shared->place_lock);
    if (timeline < seen)
        text_print(txn->pg->why, sizeof txn->pg->why,
                   "this server is on timeline %lld, older than %lld, which was seen before: it is "
                   "no longer the primary",
                   (long long)timeline, (long long)seen);
    return timeline >= seen;
}

/* Judge by the two columns of meta that begin at `column`. */
static bool is_open(struct pg *pg, const PGresult *result, int column)
{
    struct transfer_mark mark = {.part = (enum transfer_part)pg_value_int64(pg, result, 0, column)};

    pg_value_text(pg, result, 0, column + 1, mark.where, sizeof mark.where);
    pg->lasts |= mark.part == TRANSFER_GONE;
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

/* What the server is, compared with what the store remembers. */
struct identity {
    struct pg_signs signs;
    bool stale; /* the store remembers another state of its replication */
    int64_t timeline;
    bool open; /* no move keeps the store closed */
};

/* List the commits that somebody was told of and whose marks are not too old to be there, each with
 * the token up to which leases had ended then. (Where all leases were ended later, a commit that
 * the store lacks is no reason to end them once more.) */
static void list_told(const struct pg_txn *txn, struct pg_array *marks, struct pg_array *ends)
{
    pg_array_start(marks, PG_INT8);
    pg_array_start(ends, PG_INT8);
    for (int i = 0; i < PG_WRITING_CONNECTIONS; i++) {
        int64_t mark = atomic_load(&txn->shared->told[i].mark);
        int64_t age_ms = txn->now_ms - atomic_load(&txn->shared->told[i].at_ms);
        if (mark == 0 || age_ms >= PG_MARK_KEPT_MS / 2)
            continue;
        pg_array_int64(marks, mark);
        pg_array_int64(ends, atomic_load(&txn->shared->told[i].ended));
    }
}

static bool read_identity(struct pg_txn *txn, struct identity *identity)
{
    struct pg *pg = txn->pg;
    struct pg_params params = {.count = 0};
    struct pg_array marks, ends;
    int64_t system = 0;

    list_told(txn, &marks, &ends);
    pg_param_int64(&params, atomic_load(&txn->shared->opening));
    pg_param_array(&params, &marks);
    pg_param_array(&params, &ends);
    pg_send(pg, PG_IDENTITY, NULL);
    pg_send(pg, PG_MARKS_GONE, &params);
    pg_sync(pg);
    buf_free(&marks.buf);
    buf_free(&ends.buf);
    PGresult *result = pg_take(pg);
    if (result != NULL) {
        *identity = (struct identity){
            .signs = {.other = pg_value_bool(pg, result, 0, 0),
                      .promoted = pg_value_bool(pg, result, 0, 1),
                      .replicated = pg_value_bool(pg, result, 0, 3),
                      .fresh = pg_value_bool(pg, result, 0, 4),
                      .restarted = pg_value_bool(pg, result, 0, 9),
                      .witness = atomic_load(&txn->shared->opening) != 0,
                      .unreplicated = atomic_load(&txn->shared->unreplicated_ms) != 0},
            .timeline = pg_value_int64(pg, result, 0, 2),
            .stale = pg_value_bool(pg, result, 0, 6),
            .open = is_open(pg, result, 7),
        };
        system = pg_value_int64(pg, result, 0, 10);
        atomic_store(&txn->shared->unsafe, pg_value_bool(pg, result, 0, 5));
    }
    pg->pq.PQclear(result);
    result = pg_take(pg);
    if (result != NULL)
        identity->signs.lost =
            pg_value_int64(pg, result, 0, 0) > 0 || pg_value_bool(pg, result, 0, 1);
    pg->pq.PQclear(result);
    return pg_end(pg) && is_newest(txn, system, identity->timeline) && identity->open;
}

/* Read the store's time, and when it was noted last. */
static bool read_clock(struct pg_txn *txn, struct server_clock_look *look,
                       struct server_clock_note *note)
{
    struct pg *pg = txn->pg;
    struct server_clock *clock = &txn->shared->clock;

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
        server_clock_of(clock, pg_value_bytes(pg, result, 0, 4));
    }
    pg->pq.PQclear(result);
    return pg_end(pg);
}

/* Correct the clock. Of several daemons that see that it is wrong, one does so: that whose `number`
 * is still the newest. */
static bool correct_clock(struct pg_txn *txn, int64_t error_ms, int64_t number)
{
    struct pg_params params = {.count = 0};

    pg_param_int64(&params, error_ms);
    pg_param_int64(&params, number);
    pg_send(txn->pg, PG_CLOCK_PUT, &params);
    pg_sync_deciding(txn->pg);
    return pg_end(txn->pg) && txn->pg->decision == PG_DECIDED;
}

static bool settle_clock(struct pg_txn *txn)
{
    struct server_clock *clock = &txn->shared->clock;
    struct server_clock_look look = {0};
    struct server_clock_note note = {0};
    int64_t error_ms;

    for (int i = 0; i < CORRECTIONS_MAX; i++) {
        if (!read_clock(txn, &look, &note))
            return false;
        bool known = server_clock_error_ms(clock, &look, &error_ms);
        if (!known && !server_clock_is_known(clock))
            error_ms =
                server_clock_gap_error_ms(&note, &look, clock_wall_us(&clock_monotonic) / 1000);
        if (error_ms == 0) {
            server_clock_follow(clock, &look);
            return true;
        }
        if (!correct_clock(txn, error_ms, look.number))
            return false;
    }
    text_print(txn->pg->why, sizeof txn->pg->why,
               "the server's clock is being set again and again");
    return false;
}

/* Begin the store anew, with the floor locked. It takes a look at all rows to find how far tokens
 * may have come. */
static bool begin_anew(struct pg_txn *txn, struct pg_anew *anew)
{
    struct pg *pg = txn->pg;
    struct pg_params floor = {.count = 0}, now = {.count = 0};
    int64_t known = 0;

    pg_send(pg, PG_TOKEN_LARGEST, NULL);
    pg_sync_within(pg, PG_LONG_TIMEOUT_MS);
    PGresult *result = pg_take(pg);
    if (result != NULL) {
        known = pg_value_int64(pg, result, 0, 0);
        txn->now_ms = pg_value_int64(pg, result, 0, 1);
    }
    pg->pq.PQclear(result);
    if (!pg_end(pg))
        return false;
    anew->floor = store_floor_anew(known, txn->now_ms * 1000);
    if (anew->floor == 0) {
        text_print(pg->why, sizeof pg->why, "no token is left above %lld", (long long)known);
        return false;
    }
    pg_param_int64(&floor, anew->floor);
    pg_send(pg, PG_BEGIN_ANEW, &floor);
    if (anew->ended) {
        pg_param_int64(&now, txn->now_ms);
        pg_send(pg, PG_RETIRE_ALL, &now);
        pg_send(pg, PG_END_ALL, NULL);
    }
    pg_send(pg, PG_SEQUENCES_RAISE, NULL);
    pg_sync_within(pg, PG_LONG_TIMEOUT_MS);
    return pg_end(pg); /* COMMIT is a trip of its own: it waits no longer than any other */
}

/* Nothing is granted or written before this has succeeded as a whole. */
static bool begin_anew_or_say_why(struct pg_txn *txn, struct pg_anew *anew)
{
    struct pg *pg = txn->pg;
    char why[STORE_WHY_MAX];

    log_info(txn->shared->log, "store: %s: finding out how far tokens have come", anew->why);
    bool begun = begin_anew(txn, anew);
    if (!begun) {
        text_print(why, sizeof why, "%s", pg->why);
        text_print(pg->why, sizeof pg->why, "%s, and the store could not begin anew: %s", anew->why,
                   why);
    }
    return begun;
}

/* Look again under the lock, so that one of several daemons begins the store anew. */
static bool settle_identity(struct pg_txn *txn, struct pg_anew *anew)
{
    struct pg *pg = txn->pg;
    struct identity identity = {0};

    txn->kind = PG_OWN;
    /* The table is locked, so nobody makes a trigger on it after this look. */
    if (!pg_begin_floor(txn) || !pg_schema_is_ours(txn->pg) || !read_identity(txn, &identity))
        return false;
    anew->why = pg_anew_why(&identity.signs);
    anew->ended = pg_anew_ends_all(&identity.signs);
    if (anew->why != NULL && !begin_anew_or_say_why(txn, anew))
        return false;
    pg_send(pg, anew->why != NULL || identity.signs.fresh ? PG_IDENTITY_PUT : PG_REPLICATED_PUT,
            NULL);
    pg_send_deciding(pg, PG_COMMIT, NULL);
    pg_sync(pg);
    txn->begun = false;
    return pg_end(pg) && pg->decision == PG_DECIDED;
}

/* The time is read after the server is known to be the primary: an old one may tell another time.
 */
bool pg_check_identity(struct pg_txn *txn, struct pg_anew *anew)
{
    struct identity identity = {0};

    *anew = (struct pg_anew){0};
    if (!read_identity(txn, &identity))
        return false;
    int64_t sent_ms = txn->pg->sent_ms, got_ms = clock_now_ms(&clock_monotonic);
    if (!settle_clock(txn))
        return false;
    if (identity.signs.fresh || pg_anew_why(&identity.signs) != NULL || identity.stale) {
        if (!settle_identity(txn, anew))
            return false;
    }
    pg_replication_found(txn->shared, identity.signs.replicated != identity.stale, sent_ms, got_ms);
    return true;
}
