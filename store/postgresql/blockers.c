/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/blockers.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "store/postgresql/statements.h"
#include "store/postgresql/uri.h"

enum {
    LONG_MS = 200,          /* an operation that has waited for so long makes us look */
    LOOK_EVERY_MS = 400,    /* at a row */
    NAMED_EVERY_MS = 2000,  /* at one that is not ours: each look is a line in the server's log */
    LOOKS = 20,             /* for the holder, while the probe waits for the row */
    STILL_MS = 1500,        /* how long we see a backend wait for its client before we end it */
    FORGET_AFTER_MS = 1000, /* a row that nobody has found locked for so long */
};

void blockers_init(struct blockers *blockers, const char *uri)
{
    blockers->probe =
        (struct pg){.uri = uri, .name = "stockade probe", .timeout_ms = pg_uri_timeout_ms(uri)};
    blockers->count = 0;
    pthread_mutex_init(&blockers->lock, NULL);
}

void blockers_destroy(struct blockers *blockers)
{
    pg_drop(&blockers->probe);
    pthread_mutex_destroy(&blockers->lock);
}

bool blockers_concern(const struct store_op *op)
{
    return op->waits_since_ms != 0 &&
           clock_now_ms(&clock_monotonic) - op->waits_since_ms >= LONG_MS;
}

/* Return the row of this name, NULL if it was not noted. The lock is held. */
static struct blocked *find(struct blockers *blockers, struct bytes name)
{
    for (size_t i = 0; i < blockers->count; i++) {
        struct blocked *at = &blockers->all[i];
        if (bytes_equal((struct bytes){at->name, at->len}, name))
            return at;
    }
    return NULL;
}

/* Note that the row is locked. True: it was not noted yet. The lock is held. */
static bool note(struct blockers *blockers, struct bytes name, int64_t now_ms)
{
    struct blocked *at = find(blockers, name);
    bool added = at == NULL && blockers->count < BLOCKERS_MAX;

    if (added) {
        at = &blockers->all[blockers->count++];
        *at = (struct blocked){.len = name.len};
        memcpy(at->name, name.data, name.len);
    }
    if (at != NULL)
        at->last_ms = now_ms;
    return added;
}

bool blockers_note(struct blockers *blockers, const struct set *set)
{
    int64_t now_ms = clock_now_ms(&clock_monotonic);
    bool added = false;

    for (const struct list *at = set->rows.next; at != &set->rows; at = at->next) {
        const struct row *row = list_entry(at, const struct row, link);
        if (row->known != LOCKED || row->busy)
            continue;
        pthread_mutex_lock(&blockers->lock);
        added |= note(blockers, row->name, now_ms);
        pthread_mutex_unlock(&blockers->lock);
    }
    return added;
}

void blockers_fail(struct blockers *blockers, struct store_reasons *reasons, struct store_op *op)
{
    char why[STORE_WHY_MAX];

    pthread_mutex_lock(&blockers->lock);
    const struct blocked *at = find(blockers, op->about);
    if (at == NULL && blockers->count == 1) /* `about` is one of perhaps several resources */
        at = &blockers->all[0];
    bool known = at != NULL && at->holder[0] != '\0';
    text_print(why, sizeof why,
               "another transaction has had the resource's row locked for %d s%s%s",
               BLOCKERS_WAIT_MS / 1000, known ? ": " : "", known ? at->holder : "");
    pthread_mutex_unlock(&blockers->lock);
    reasons_fail(reasons, op, why);
}

/* Find the next row to look at, from number `*at` on; drop rows that nobody waits for any more. */
static bool next(struct blockers *blockers, size_t *at, struct blocked *out)
{
    int64_t now_ms = clock_now_ms(&clock_monotonic);
    bool found = false;

    pthread_mutex_lock(&blockers->lock);
    while (!found && *at < blockers->count) {
        struct blocked *blocked = &blockers->all[*at];
        if (now_ms - blocked->last_ms > FORGET_AFTER_MS) {
            blockers->all[*at] = blockers->all[--blockers->count];
            continue;
        }
        found = now_ms - blocked->looked_ms >= (blocked->named ? NAMED_EVERY_MS : LOOK_EVERY_MS);
        if (found) {
            blocked->looked_ms = now_ms;
            *out = *blocked;
        }
        (*at)++;
    }
    pthread_mutex_unlock(&blockers->lock);
    return found;
}

static void keep(struct blockers *blockers, const struct blocked *seen)
{
    pthread_mutex_lock(&blockers->lock);
    struct blocked *at = find(blockers, (struct bytes){seen->name, seen->len});
    if (at != NULL) {
        memcpy(at->holder, seen->holder, sizeof at->holder);
        at->pid = seen->pid;
        at->state_us = seen->state_us;
        at->named = seen->named;
        at->still_ms = seen->still_ms;
    }
    pthread_mutex_unlock(&blockers->lock);
}

/* Take the holder from a row of PG_HOLDER. */
static void take(const struct pg *pg, const PGresult *result, struct blocked *blocked)
{
    int64_t pid = pg_value_int64(pg, result, 0, 0), state_us = pg_value_int64(pg, result, 0, 1);
    bool ours = pg_value_bool(pg, result, 0, 2), stands = pg_value_bool(pg, result, 0, 3);

    pg_value_text(pg, result, 0, 4, blocked->holder, sizeof blocked->holder);
    if (!stands || pid != blocked->pid || state_us != blocked->state_us)
        blocked->still_ms = clock_now_ms(&clock_monotonic);
    blocked->pid = ours ? pid : 0;
    blocked->state_us = state_us;
    blocked->named = !ours;
}

/* Look whom the probe waits for. Nobody is found while it has not begun to wait yet. */
static bool find_holder(struct pg *pg, const struct pg_params *params, struct blocked *blocked)
{
    static const struct timespec moment = {.tv_nsec = 5 * 1000000};

    pg_send(pg, PG_HOLDER, params);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    bool found = result != NULL && pg->pq.PQntuples(result) > 0;
    if (found)
        take(pg, result, blocked);
    pg->pq.PQclear(result);
    (void)pg_end(pg);
    if (!found)
        (void)nanosleep(&moment, NULL);
    return found;
}

/* Have the probe ask for the row, look whom it waits for, and cancel it. */
static bool ask(struct blockers *blockers, struct pg *pg, struct blocked *blocked)
{
    struct pg *probe = &blockers->probe;
    struct pg_params params = {.count = 0};
    char text[96 + 2 * RESOURCE_NAME_MAX];
    bool found = false, is_free = false;
    size_t len = (size_t)snprintf(text, 96, "SELECT 1 FROM stockade.resource WHERE name = '\\x");

    bytes_to_hex((struct bytes){blocked->name, blocked->len}, text + len);
    snprintf(text + len + 2 * blocked->len, 64, "' FOR NO KEY UPDATE");
    if (probe->conn != NULL || pg_connect(probe)) {
        pg_send_text(probe, text);
        pg_sync(probe);
    }
    if (probe->conn != NULL) {
        pg_param_int64(&params, probe->pq.PQbackendPID(probe->conn));
        for (int i = 0; i < LOOKS && !found && pg->conn != NULL; i++)
            found = find_holder(pg, &params, blocked);
        pg_send(pg, PG_CANCEL, &params);
        pg_sync(pg);
        (void)pg_end(pg);
        is_free = pg_end(probe); /* false: it was cancelled */
    }
    /* On a busy machine the probe may have come too late to wait; then what was seen before stays.
     */
    if (is_free) {
        blocked->holder[0] = '\0';
        blocked->pid = 0;
        blocked->named = false;
    }
    return pg->conn != NULL;
}

/* End the holder. The statement asks once more whether it is still the same one, and waits. */
static bool end(struct pg *pg, const struct blocked *blocked)
{
    struct pg_params params = {.count = 0};
    bool ended = false;

    pg_param_int64(&params, blocked->pid);
    pg_param_int64(&params, blocked->state_us);
    pg_send(pg, PG_HOLDER_END, &params);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    if (result != NULL && pg->pq.PQntuples(result) == 1)
        ended = pg_value_bool(pg, result, 0, 0);
    pg->pq.PQclear(result);
    (void)pg_end(pg);
    return ended;
}

size_t blockers_look(struct blockers *blockers, struct pg_connection *connection,
                     const struct log *log, bool *more, bool *good)
{
    struct pg *pg = &connection->pg;
    struct blocked blocked;
    size_t at = 0, ended = 0;

    *good = true;
    while (*good && next(blockers, &at, &blocked)) {
        *good = ask(blockers, pg, &blocked);
        if (*good && blocked.pid != 0 &&
            clock_now_ms(&clock_monotonic) - blocked.still_ms >= STILL_MS && end(pg, &blocked)) {
            log_warn(log,
                     "store: a daemon stands still in mid-batch, and holds up others; ended: "
                     "%s",
                     blocked.holder);
            ended++;
            blocked.pid = 0;
        }
        keep(blockers, &blocked);
    }
    pthread_mutex_lock(&blockers->lock);
    *more = blockers->count > 0;
    pthread_mutex_unlock(&blockers->lock);
    if (!*more)
        pg_drop(&blockers->probe);
    return ended;
}
