/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/identity.h"

#include "store/postgresql/statements.h"
#include "store/transfer.h"

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

/* Who the server is, beside what the store remembers. */
struct identity {
    bool other, replicated, fresh;
    bool stale; /* what is remembered of its replication */
    int64_t timeline;
    struct transfer_mark mark;
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
            .mark.part = (enum transfer_part)pg_value_int64(pg, result, 0, 7),
        };
        struct bytes where = pg_value_bytes(pg, result, 0, 8);
        text_print(identity->mark.where, sizeof identity->mark.where, "%.*s", (int)where.len,
                   where.data);
        atomic_store(&txn->shared->unsafe, pg_value_bool(pg, result, 0, 5));
    }
    pg->pq.PQclear(result);
    return pg_end(pg) && is_newest(txn, identity->timeline) &&
           !transfer_is_closed(&identity->mark, "this store", pg->why, sizeof pg->why);
}

bool pg_check_identity(struct pg_txn *txn)
{
    struct pg *pg = &txn->pg;
    struct pg_params leap = {.count = 0};
    struct identity identity = {0};

    if (!read_identity(txn, &identity))
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
        pg_send(pg, PG_FLUSH_RETIRE, NULL);
        pg_send(pg, PG_REVOKE_ALL, NULL);
    }
    pg_send(pg, PG_COMMIT, NULL);
    pg_sync(pg);
    txn->begun = false;
    return pg_end(pg) && !pg->warned;
}
