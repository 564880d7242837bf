/* SPDX-License-Identifier: Apache-2.0 */
/* The flash sale of one article: what is on sale, the ledger that all processes of one sale share,
 * a buyer, and the contenders. A contender is one way to sell a piece. Each is written as people
 * write it, against plain Redis or against Stockade; all share the sale, the delay and the pauses.
 *
 * What counts as a stale write. A buyer reads the stock, works, and writes. Its write is stale when
 * what it rests on has passed to another meanwhile. The ledger keeps the newest such passing, and a
 * buyer checks it just before it sends its write:
 *   - no lock: another's write that was sent after our read was answered, and was acknowledged;
 *   - Redis lock: another's grant that was asked for after ours was answered (both are times of
 *     the machine's one monotonic clock);
 *   - Stockade: a token larger than ours. A write that the server refused as STALE counts as tried
 *     in any case: the server has seen the newer grant before the ledger;
 *   - compare and set: it failed. Nothing is known better than that answer;
 *   - conditional decrement: never; it rests on nothing that was read before.
 * So no write is counted as stale that was not; one that crosses its successor's in flight may be
 * missed. The ledger is how the referee counts: no contender's sale depends on it. */
#ifndef STOCKADE_TOOLS_DEMO_OVERSELL_H
#define STOCKADE_TOOLS_DEMO_OVERSELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/client.h"
#include "tools/crew.h"
#include "tools/demo/demo.h"

struct sale {
    int64_t stock, buyers, stops;
    int64_t ttl_ms, pause_ms, work_ms;
    int64_t limit_ms; /* a sale that takes longer has failed */
    char key[64];
    char store[300]; /* a path for the contender that needs no server */
};

/* In shared memory. */
struct ledger {
    _Atomic int64_t sold; /* confirmed to buyers */
    _Atomic int64_t left; /* as last written: for the progress line and the choice of moments */
    _Atomic int64_t lowest;
    _Atomic int64_t stops; /* how many buyers have stopped between read and write */
    _Atomic int64_t stale_tried, stale_refused;
    _Atomic int64_t newest;            /* see above: microseconds or a token */
    _Atomic int64_t last_sale_ms;      /* on the monotonic clock */
    struct failure failures[CREW_MAX]; /* each buyer's, written before its process ends */
};

struct buyer {
    const struct sale *sale;
    const struct client_uri *server;
    struct ledger *ledger;
    struct client client;
    int64_t deadline_ms;
    void *own; /* the contender's */
};

struct contender {
    const char *name;   /* on the command line */
    const char *title;  /* in the table */
    bool uses_stockade; /* its server is Stockade, not Redis */
    bool embedded;      /* it has no server: it opens sale->store by itself */

    /* The referee's: open the sale; count what is left, where a missing stock is an error; clear
     * away. */
    bool (*stock)(struct client *client, const struct sale *sale);
    bool (*left)(struct client *client, const struct sale *sale, int64_t *left);
    bool (*clear)(struct client *client, const struct sale *sale);

    /* The buyer's: `open` and `close` may be NULL. */
    bool (*open)(struct buyer *buyer);
    enum purchase (*buy)(struct buyer *buyer);
    void (*close)(struct buyer *buyer);
};

extern const struct contender contender_no_lock;
extern const struct contender contender_redis_lock;
extern const struct contender contender_watchdog;
extern const struct contender contender_decrement;
extern const struct contender contender_version;
extern const struct contender contender_stockade;
extern const struct contender contender_library;

/* Work between read and write (demo_work). Where a stop is due the process stops here (SIGSTOP),
 * until the referee continues it. */
void buyer_work(struct buyer *buyer);
/* Note a purchase that was confirmed, with the stock written as `left`. */
void buyer_sold(struct buyer *buyer, int64_t left);
/* Count a stale write, tried or refused. */
void buyer_note_stale(struct buyer *buyer, bool tried, bool refused);
/* Return whether the sale takes too long. */
bool buyer_is_late(const struct buyer *buyer);
/* Fail the purchase: set what the server said where a reply (or NULL) was not expected, and free
 * it.
 */
enum purchase buyer_failed(struct buyer *buyer, const char *doing, redisReply *reply);

/* Note that another may act from `mark` on: a token, or the time at which a grant or write was
 * sent.
 */
void ledger_passes(struct ledger *ledger, int64_t mark);
/* Return whether it has passed to another since `mark`: our token, or the time of our answer. */
bool ledger_has_passed(const struct ledger *ledger, int64_t mark);

/* The stock as a plain string key: read it. False: the server failed us, and client.failure says
 * how. */
bool stock_left(struct client *client, const struct sale *sale, int64_t *left);

struct sale_result {
    const struct contender *contender;
    int64_t sold, left, lowest;
    int64_t oversold; /* sold beyond what has left the stock; 0 is right */
    int64_t stale_tried, stale_refused;
    int64_t stops;   /* how many buyers were stopped between read and write */
    int64_t took_ms; /* from the opening to the last sale; at least 1 */
};

/* Return whether sold + left = opening stock and nothing is negative. */
bool sale_is_right(const struct sale *sale, const struct sale_result *result);

/* Hold one sale, and block until the last buyer has left. False: no result, and the reason; also
 * where a signal asks for the end. */
bool sale_run(struct demo *demo, const struct contender *contender, const struct sale *sale,
              struct sale_result *result, struct failure *failure);

#endif
