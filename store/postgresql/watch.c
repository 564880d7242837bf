/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/watch.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/thread.h"
#include "store/postgresql/load.h"
#include "store/postgresql/statements.h"

enum {
    REST_MS = 1000,
    LOOK_MS = 100,  /* while operations wait for rows */
    AGAIN_MS = 250, /* where the database is away */
    CHORES_MS = 10 * 1000,
    GUARDS_MS = 3 * 1000,
    NAMES_BYTES_MAX = 256 * 1024, /* of each list; more are dropped: waiters also poll */
};

/* Names. */

static void add(struct buf *names, struct bytes name)
{
    uint16_t len = (uint16_t)name.len;

    if (names->len + sizeof len + len > NAMES_BYTES_MAX)
        return;
    buf_append(names, &len, sizeof len);
    buf_append_bytes(names, name);
}

/* Return the next name from `*at` on. Empty: there is none. */
static struct bytes next(const struct buf *names, size_t *at)
{
    uint16_t len;

    if (*at >= names->len)
        return (struct bytes){"", 0};
    memcpy(&len, names->data + *at, sizeof len);
    struct bytes name = {names->data + *at + sizeof len, len};
    *at += sizeof len + len;
    return name;
}

/* Take all names out of a list. */
static struct buf take(struct pg_watch *watch, struct buf *list)
{
    pthread_mutex_lock(&watch->lock);
    struct buf names = *list;
    *list = (struct buf){0};
    pthread_mutex_unlock(&watch->lock);
    return names;
}

static void wake(struct pg_watch *watch)
{
    (void)eventfd_write(watch->wake_fd, 1);
}

void pg_watch_locked(struct pg_watch *watch, const struct set *set)
{
    if (blockers_note(&watch->blockers, set))
        wake(watch);
}

void pg_watch_notify(struct pg_watch *watch, const struct set *set)
{
    bool any = false;

    for (const struct list *at = set->rows.next; at != &set->rows; at = at->next) {
        const struct row *row = list_entry(at, const struct row, link);
        const struct content *now = &row->now;
        if (!(row->was_waited || now->waited) || now->resource.fence.state == FENCE_LIVE)
            continue;
        pthread_mutex_lock(&watch->lock);
        add(&watch->freed, row->name);
        pthread_mutex_unlock(&watch->lock);
        any = true;
    }
    if (any)
        wake(watch);
}

void pg_watch_collect(struct pg_watch *watch, const struct store_news *news)
{
    struct buf heard = take(watch, &watch->heard);
    struct bytes name;
    size_t at = 0;

    while ((name = next(&heard, &at)).len > 0)
        news->on_freed(news->context, name);
    buf_free(&heard);
    pg_refused_collect(&watch->refused, news->on_refused, news->context);
}

/* The thread's part: each returns false where the connection failed. */

static bool listen_for(struct pg_watch *watch)
{
    struct pg *pg = &watch->connection.pg;

    pg_send(pg, PG_LISTEN_QUICKLY, NULL);
    pg_send(pg, PG_LISTEN, NULL);
    pg_sync(pg);
    watch->listening = pg_end(pg);
    return watch->listening;
}

/* The payload is a resource's name in hexadecimal digits; but anybody can send anything. */
static void on_news(void *context, const char *payload)
{
    struct pg_watch *watch = context;
    char name[RESOURCE_NAME_MAX];
    size_t len = strlen(payload) / 2;

    if (len == 0 || len > sizeof name)
        return;
    for (size_t i = 0; i < len; i++) {
        int high = bytes_hex_digit(payload[2 * i]), low = bytes_hex_digit(payload[2 * i + 1]);
        if (high < 0 || low < 0)
            return;
        name[i] = (char)(high << 4 | low);
    }
    pthread_mutex_lock(&watch->lock);
    add(&watch->heard, (struct bytes){name, len});
    pthread_mutex_unlock(&watch->lock);
}

static bool hear(struct pg_watch *watch)
{
    size_t heard = 0;
    bool good = pg_news(&watch->connection.pg, on_news, watch, &heard);

    if (heard > 0 && watch->finished->wake != NULL)
        watch->finished->wake(watch->finished->context);
    return good;
}

static bool notify(struct pg_watch *watch)
{
    struct pg *pg = &watch->connection.pg;
    struct buf freed = take(watch, &watch->freed);
    struct pg_params params = {.count = 0};
    struct pg_array names;
    struct bytes name;
    size_t at = 0;

    if (freed.len == 0)
        return true;
    pg_array_start(&names, PG_BYTEA);
    while ((name = next(&freed, &at)).len > 0)
        pg_array_bytes(&names, name);
    pg_param_array(&params, &names);
    pg_send(pg, PG_NOTIFY, &params);
    pg_sync(pg);
    bool good = pg_end(pg);
    buf_free(&names.buf);
    buf_free(&freed);
    return good;
}

static void count(struct pg_watch *watch, size_t ended, int64_t snapshot_s)
{
    struct list none;

    list_init(&none);
    struct store_stats *stats = finished_add(watch->finished, &none);
    stats->backends_ended += ended;
    if (snapshot_s >= 0)
        stats->oldest_snapshot_s = (uint64_t)snapshot_s;
    finished_close(watch->finished, true);
}

static bool look_at_blockers(struct pg_watch *watch)
{
    int64_t now_ms = clock_now_ms(&clock_monotonic);
    bool good;

    if (now_ms < watch->look_ms)
        return true;
    size_t ended =
        blockers_look(&watch->blockers, &watch->connection, watch->log, &watch->blocked, &good);
    watch->look_ms = now_ms + LOOK_MS;
    if (ended > 0)
        count(watch, ended, -1);
    return good;
}

/* Find the age of the oldest snapshot. The server does not tell every role when one began, but it
 * tells its transaction id: so we note since when we see the same one. */
static bool look_at_snapshots(struct pg_watch *watch)
{
    struct pg *pg = &watch->connection.pg;
    int64_t now_ms = clock_now_ms(&clock_monotonic);

    pg_send(pg, PG_OLDEST_SNAPSHOT, NULL);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    if (result != NULL) {
        int64_t oldest = pg_value_int64(pg, result, 0, 0);
        if (oldest != watch->snapshot)
            watch->snapshot_at_ms = now_ms;
        watch->snapshot = oldest;
        count(watch, 0, oldest == 0 ? 0 : (now_ms - watch->snapshot_at_ms) / 1000);
    }
    pg->pq.PQclear(result);
    return pg_end(pg);
}

/* Note the time and remove old marks, by a time that has just been found right. */
static bool do_chores(struct pg_watch *watch)
{
    struct pg_txn *txn = &watch->connection.txn;
    struct pg_params wall = {.count = 0}, before = {.count = 0};

    txn->kind = PG_READS;
    set_clear(&txn->set);
    if (!pg_load_all(txn)) {
        pg_roll_back(txn);
        return false;
    }
    if (txn->differs != PG_SAME)
        return true; /* pg_connection_ready sees to it */
    pg_param_int64(&wall, clock_wall_us(&clock_monotonic) / 1000);
    pg_param_int64(&before, txn->now_ms - PG_MARK_KEPT_MS);
    pg_send(txn->pg, PG_CLOCK_NOTE, &wall);
    pg_send(txn->pg, PG_MARKS_FORGET, &before);
    pg_sync(txn->pg);
    return pg_end(txn->pg) && look_at_snapshots(watch);
}

static bool look_at_refusals(struct pg_watch *watch)
{
    size_t refused;
    struct list none;

    if (!pg_refused_look(&watch->refused, &watch->connection.pg, &refused))
        return false;
    if (refused == 0)
        return true;
    list_init(&none);
    finished_add(watch->finished, &none)->guard_refusals += refused;
    finished_close(watch->finished, false);
    return true;
}

/* A trigger that somebody makes while we run may change what we write, and our own statements'
 * results would not show it. */
static bool look_at_tables(struct pg_watch *watch)
{
    struct pg *pg = &watch->connection.pg;
    int64_t now_ms = clock_now_ms(&clock_monotonic);

    if (now_ms < watch->tables_ms)
        return true;
    watch->tables_ms = now_ms + REST_MS;
    size_t ended = atomic_exchange(&watch->connection.txn.shared->kept_out.ended, 0);
    if (ended > 0)
        count(watch, ended, -1);
    bool ours = pg_schema_is_ours(pg);
    if (pg->conn == NULL || pg->failed)
        return false;
    atomic_store(&watch->connection.txn.shared->harmed, !ours);
    return look_at_refusals(watch);
}

/* The owner of a guarded table may rename it, or take the guard off: tell that soon. */
static bool look_at_guards(struct pg_watch *watch)
{
    struct pg *pg = &watch->connection.pg;
    int64_t now_ms = clock_now_ms(&clock_monotonic);
    char guard[STORE_WHY_MAX] = "";
    struct list none;

    if (now_ms < watch->guards_ms)
        return true;
    watch->guards_ms = now_ms + GUARDS_MS;
    pg_send(pg, PG_GUARD_BROKEN, NULL);
    pg_sync(pg);
    PGresult *result = pg_take(pg);
    if (result != NULL && pg->pq.PQntuples(result) > 0)
        pg_value_text(pg, result, 0, 0, guard, sizeof guard);
    pg->pq.PQclear(result);
    if (!pg_end(pg))
        return false;
    if (strcmp(guard, watch->guard) == 0)
        return true;
    if (guard[0] != '\0')
        log_error(watch->log, "store %s: %s", pg->name, guard);
    else
        log_info(watch->log, "store %s: the guards are whole again", pg->name);
    memcpy(watch->guard, guard, sizeof guard);
    list_init(&none);
    struct store_stats *stats = finished_add(watch->finished, &none);
    memcpy(stats->guard, guard, sizeof guard);
    finished_close(watch->finished, true);
    return true;
}

static bool is_stopping(struct pg_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    bool stopping = watch->stopping;
    pthread_mutex_unlock(&watch->lock);
    return stopping;
}

/* Sleep until the server says something, or one of the other threads. */
static void rest(struct pg_watch *watch, int ms)
{
    const struct pg *pg = &watch->connection.pg;
    struct pollfd fds[] = {
        {.fd = watch->wake_fd, .events = POLLIN},
        {.fd = pg->conn != NULL ? pg->pq.PQsocket(pg->conn) : -1, .events = POLLIN}};
    eventfd_t none;

    (void)poll(fds, sizeof fds / sizeof *fds, ms);
    (void)eventfd_read(watch->wake_fd, &none);
}

static void have_the_writer_look(struct pg_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    if (watch->writes != NULL)
        worker_nudge(watch->writes);
    pthread_mutex_unlock(&watch->lock);
}

static void *watch_main(void *context)
{
    struct pg_watch *watch = context;
    struct pg *pg = &watch->connection.pg;

    while (!is_stopping(watch)) {
        if (pg->conn == NULL)
            watch->listening = false;
        bool reached = pg_connection_ready(&watch->connection);
        if (!reached)
            have_the_writer_look(watch);
        bool good = reached && (watch->listening || listen_for(watch)) && notify(watch) &&
                    look_at_blockers(watch) && look_at_tables(watch) && look_at_guards(watch);
        int64_t now_ms = clock_now_ms(&clock_monotonic);
        if (good && now_ms >= watch->chores_ms) {
            watch->chores_ms = now_ms + CHORES_MS;
            good = do_chores(watch);
        }
        /* Last of all: news that came with a trip's results are in memory, where poll() does not
         * see them. */
        good = good && hear(watch);
        rest(watch, !good ? AGAIN_MS : watch->blocked ? LOOK_MS : REST_MS);
    }
    return NULL;
}

bool pg_watch_start(struct pg_watch *watch)
{
    pthread_mutex_init(&watch->lock, NULL);
    blockers_init(&watch->blockers, watch->connection.pg.uri);
    pg_refused_init(&watch->refused);
    watch->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch->wake_fd < 0)
        return false;
    watch->started = thread_start(&watch->thread, "store-watch", watch_main, watch);
    return watch->started;
}

void pg_watch_alone(struct pg_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->writes = NULL;
    pthread_mutex_unlock(&watch->lock);
}

void pg_watch_stop(struct pg_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->stopping = true;
    pthread_mutex_unlock(&watch->lock);
    if (watch->started) {
        wake(watch);
        pthread_join(watch->thread, NULL);
    }
    if (watch->wake_fd >= 0)
        close(watch->wake_fd);
    pg_connection_free(&watch->connection);
    buf_free(&watch->freed);
    buf_free(&watch->heard);
    blockers_destroy(&watch->blockers);
    pg_refused_destroy(&watch->refused);
    pthread_mutex_destroy(&watch->lock);
}
