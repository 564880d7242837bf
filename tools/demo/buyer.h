/* SPDX-License-Identifier: Apache-2.0 */
/* The flash sale: what is on sale, the ledger that all processes of one sale share, and a buyer.
 *
 * What counts as a stale write. A buyer reads the stock, works, and writes. Its write is stale when
 * what it rests on has passed to another meanwhile. The ledger keeps the newest such passing, and a
 * buyer looks at it just before it sends its write:
 *   - no lock: another's write that was sent after our read was answered, and was acknowledged;
 *   - Redis lock: another's grant that was asked for after ours was answered (times, both on the
 * one monotonic clock of the machine);
 *   - Stockade: a token larger than ours. A write that the server refused as STALE counts as tried
 *     in any case: the server has seen the newer grant before the ledger;
 *   - compare and set: it failed. Nothing is known better than that answer;
 *   - conditional decrement: never; it rests on nothing that was read before.
 * So no write is taken for stale that was not; one that crosses its successor's in flight may be
 * missed. The ledger is how the referee counts: no contender's sale depends on it. */
#ifndef STOCKADE_TOOLS_DEMO_BUYER_H
#define STOCKADE_TOOLS_DEMO_BUYER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/client.h"
#include "tools/crew.h"
#include "tools/failure.h"

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

enum purchase {
    PURCHASE_MADE,
    PURCHASE_SOLD_OUT,
    PURCHASE_AGAIN,  /* nothing was bought: another came first */
    PURCHASE_FAILED, /* the server failed us: client.failure says how */
};

/* The delay between read and write: a price rule, a call to a payment service. Where a stop is due
 * the process stops here (SIGSTOP), until the referee continues it. */
void buyer_work(struct buyer *buyer);
/* The purchase was confirmed and the stock written as `left`. */
void buyer_sold(struct buyer *buyer, int64_t left);
void buyer_note_stale(struct buyer *buyer, bool tried, bool refused);
bool buyer_is_late(const struct buyer *buyer);
/* Fails the purchase with what the server said where a reply (or NULL) was not expected; frees it.
 */
enum purchase buyer_failed(struct buyer *buyer, const char *doing, redisReply *reply);

/* Another may act from `mark` on: a token, or the time at which a grant or write was sent. */
void ledger_passes(struct ledger *ledger, int64_t mark);
/* Whether it has passed to another since `mark`: our token, or the time of our answer. */
bool ledger_has_passed(const struct ledger *ledger, int64_t mark);
/* Raises a number that processes share; it never falls. */
void ledger_raise(_Atomic int64_t *highest, int64_t value);
/* The monotonic clock, for those marks. */
int64_t ledger_now_us(void);

#endif
