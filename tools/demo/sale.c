/* SPDX-License-Identifier: Apache-2.0 */
/* One sale, from its opening to the audit: the buyers, each a process, and the referee.
 *
 * A buyer that is to be stopped raises SIGSTOP itself, so each stop lies between a read and a write
 * for certain, however busy the machine is. The referee sees that the process has stopped, lets the
 * pause pass, and continues it. */
#include <inttypes.h>
#include <signal.h>
#include <time.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "tools/demo/demo.h"

enum { GRACE_MS = 20000, RETRY_MS = 20, RETRY_JITTER_MS = 5 };

/* A buyer's work, and its entries in the ledger. */

void buyer_work(const struct buyer *buyer)
{
    int64_t work_ms = buyer->sale->work_ms;
    struct timespec delay = {.tv_sec = work_ms / 1000, .tv_nsec = work_ms % 1000 * 1000000};

    (void)nanosleep(&delay, NULL);
}

bool ledger_count(_Atomic int64_t *counter, int64_t max)
{
    int64_t count = atomic_load(counter);

    while (count < max)
        if (atomic_compare_exchange_weak(counter, &count, count + 1))
            return true;
    return false;
}

void buyer_stop(struct buyer *buyer, int64_t stops_max)
{
    if (ledger_count(&buyer->ledger->stops, stops_max)) {
        if (buyer->companion != 0)
            (void)kill(buyer->companion, SIGSTOP);
        buyer_note(buyer, TRACE_PAUSED, 0, 0);
        (void)raise(SIGSTOP); /* it takes all threads of the process along */
        if (buyer->companion != 0)
            (void)kill(buyer->companion, SIGCONT);
        buyer_note(buyer, TRACE_WOKEN, 0, 0);
    }
}

/* Raise a number, which never falls. */
static void raise_to(_Atomic int64_t *highest, int64_t value)
{
    int64_t old = atomic_load(highest);

    while (value > old && !atomic_compare_exchange_weak(highest, &old, value)) {
    }
}

void buyer_sold(struct buyer *buyer, int sku, int64_t pieces)
{
    struct ledger *ledger = buyer->ledger;
    int64_t now_ms = clock_now_ms(&clock_monotonic), last_ms = atomic_load(&ledger->last_sale_ms);

    atomic_fetch_add(&ledger->sold[sku], pieces);
    atomic_fetch_add(&ledger->pieces, pieces);
    raise_to(&ledger->stood_ms, last_ms > 0 ? now_ms - last_ms : 0);
    raise_to(&ledger->last_sale_ms, now_ms);
}

void buyer_note(const struct buyer *buyer, enum trace_kind kind, int sku, int64_t value)
{
    trace_note(buyer->trace, buyer->index, kind, sku, value);
}

void buyer_note_stale(struct buyer *buyer, bool tried, bool refused)
{
    atomic_fetch_add(&buyer->ledger->stale_tried, tried ? 1 : 0);
    atomic_fetch_add(&buyer->ledger->stale_refused, refused ? 1 : 0);
    if (tried || refused)
        buyer_note(buyer, refused ? TRACE_REFUSED : TRACE_STALE, 0, 0);
}

bool buyer_is_late(const struct buyer *buyer)
{
    return clock_now_ms(&clock_monotonic) > buyer->deadline_ms;
}

enum purchase buyer_failed(struct buyer *buyer, const char *doing, redisReply *reply)
{
    struct failure *failure = &buyer->client.failure;

    if (reply == NULL) {
        (void)failure_set(failure, "%s: %s", doing, failure->text);
    } else {
        (void)failure_set(failure, "%s: the server said: %s", doing, client_text(reply));
        freeReplyObject(reply);
    }
    return PURCHASE_FAILED;
}

bool buyer_sql(struct buyer *buyer, const char *doing, struct database_answer *answer,
               const char *sql, const char *const *params)
{
    return database_do(&buyer->database, answer, sql, params) ||
           failure_set(&buyer->client.failure, "%s: %s", doing, buyer->database.failure.text);
}

void buyer_pause(void)
{
    unsigned char byte;
    struct timespec delay = {.tv_sec = 0};

    chance_system.fill(&chance_system, &byte, 1);
    delay.tv_nsec = (RETRY_MS - RETRY_JITTER_MS + byte % (2 * RETRY_JITTER_MS + 1)) * 1000000L;
    (void)nanosleep(&delay, NULL);
}

void buyer_passes(struct buyer *buyer, int sku, int64_t mark)
{
    raise_to(&buyer->ledger->newest[sku], mark);
}

bool buyer_has_passed(const struct buyer *buyer, int sku, int64_t mark)
{
    return atomic_load(&buyer->ledger->newest[sku]) > mark;
}

/* Coming and going. */

static bool enter(struct buyer *buyer)
{
    const struct contender *contender = buyer->contender;

    if (contender->by_sql && !database_open(&buyer->database, buyer->sale->postgresql)) {
        buyer->client.failure = buyer->database.failure;
        return false;
    }
    return (contender->by_sql || contender->by_library ||
            (client_open(&buyer->client, buyer->server) &&
             client_limit(&buyer->client, 2 * CLIENT_LIMIT_MS))) &&
           (contender->join == NULL || contender->join(buyer));
}

static void leave(struct buyer *buyer)
{
    if (buyer->own != NULL) {
        buyer->contender->leave(buyer);
        buyer->own = NULL;
    }
    client_close(&buyer->client);
    database_close(&buyer->database);
}

/* The referee. */

struct referee {
    struct buyer buyer;
    struct signals *signals;
    struct term *term;
    int64_t began_ms;
};

/* In the child. */
static int on_buyer_started(void *context, unsigned index)
{
    const struct referee *referee = context;
    struct buyer buyer = referee->buyer;
    struct failure *failure = &buyer.client.failure;
    enum purchase purchase = PURCHASE_FAILED;

    buyer.index = index;
    buyer.trace = buyer.sale->trace;
    if (enter(&buyer)) {
        do {
            purchase = buyer.contender->buy(&buyer);
        } while ((purchase == PURCHASE_MADE || purchase == PURCHASE_AGAIN) &&
                 !buyer_is_late(&buyer));
        if (purchase == PURCHASE_MADE || purchase == PURCHASE_AGAIN)
            (void)failure_set(failure, "the sale was not over within %" PRId64 " s (--limit)",
                              buyer.sale->limit_ms / 1000);
    }
    if (purchase != PURCHASE_SOLD_OUT)
        (void)failure_set(&buyer.ledger->failures[index], "buyer %u: %s", index + 1, failure->text);
    atomic_fetch_add(&buyer.ledger->used_us, buyer.database.used_us);
    leave(&buyer);
    return purchase == PURCHASE_SOLD_OUT ? 0 : 1;
}

static bool on_progress(void *context, int64_t took_ms, struct failure *failure)
{
    const struct referee *referee = context;
    const struct sale *sale = referee->buyer.sale;
    const struct ledger *ledger = referee->buyer.ledger;

    term_progress(
        referee->term,
        "%-20s  sold %" PRId64 "  left %" PRId64 "  stopped %" PRId64 " of %" PRId64 "  %.1f s",
        referee->buyer.contender->title, atomic_load(&ledger->pieces), atomic_load(&ledger->left),
        atomic_load(&ledger->stops), sale->stops, (double)took_ms / 1000);
    return took_ms <= sale->limit_ms + sale->pause_ms + GRACE_MS ||
           failure_set(failure, "buyers hang");
}

static bool hold(struct referee *referee, struct failure *failure)
{
    struct buyer *buyer = &referee->buyer;
    struct crew_work work = {
        .member = "buyer",
        .count = (unsigned)buyer->sale->buyers,
        .function = on_buyer_started,
        .context = referee,
        .failures = buyer->ledger->failures,
        .pause_ms = buyer->sale->pause_ms,
        .progress = on_progress,
        .signals = referee->signals,
    };

    trace_begin(buyer->sale->trace);
    referee->began_ms = clock_now_ms(&clock_monotonic);
    buyer->deadline_ms = referee->began_ms + buyer->sale->limit_ms;
    bool held = crew_run(&work, failure);
    term_clear(referee->term);
    return held;
}

static bool count_up(struct referee *referee, struct sale_result *result)
{
    struct buyer *buyer = &referee->buyer;
    const struct ledger *ledger = buyer->ledger;
    int64_t took_ms = atomic_load(&ledger->last_sale_ms) - referee->began_ms;

    *result = (struct sale_result){
        .contender = buyer->contender,
        .baskets = atomic_load(&ledger->baskets),
        .pieces = atomic_load(&ledger->pieces),
        .stops = atomic_load(&ledger->stops),
        .losses = atomic_load(&ledger->losses),
        .stale_tried = atomic_load(&ledger->stale_tried),
        .stale_refused = atomic_load(&ledger->stale_refused),
        .took_ms = took_ms > 0 ? took_ms : 1,
        .used_ms = atomic_load(&ledger->used_us) / 1000,
        .stood_ms = atomic_load(&ledger->stood_ms),
    };
    return buyer->contender->audit(buyer, result);
}

bool sale_run(const struct sale *sale, const struct contender *contender,
              const struct client_uri *server, struct signals *signals, struct term *term,
              struct sale_result *result, struct failure *failure)
{
    struct referee referee = {.buyer = {.contender = contender, .sale = sale, .server = server},
                              .signals = signals,
                              .term = term};
    struct buyer *buyer = &referee.buyer;

    buyer->ledger = crew_share(sizeof *buyer->ledger);
    atomic_store(&buyer->ledger->left, sale->skus * sale->stock);
    atomic_store(&buyer->ledger->lowest, sale->stock);
    bool opened = enter(buyer) && contender->open(buyer);
    (void)failure_set(failure, "%s", buyer->client.failure.text);
    leave(buyer); /* the buyers' processes inherit nothing that is open */
    bool held = opened && hold(&referee, failure);
    bool entered = enter(buyer);
    bool counted = held && entered && count_up(&referee, result);
    if (held && !counted)
        (void)failure_set(failure, "%s", buyer->client.failure.text);
    if (entered)
        (void)contender->clear(buyer); /* our own keys; a private server goes anyway */
    leave(buyer);
    crew_unshare(buyer->ledger, sizeof *buyer->ledger);
    return counted;
}
