/* SPDX-License-Identifier: Apache-2.0 */
/* The sale of baskets: what is on sale, the ledger that all processes of one sale share, a buyer,
 * and the two ways to sell, which differ in nothing but their locks and in what they queue between
 * MULTI and EXEC.
 *
 * A stock is a string key and the resource of its lock; its number follows in the name, so the
 * order of the numbers is one order for all buyers, and nobody waits in a circle.
 *
 * What counts as a stale write: an EXEC sent when one of its locks had passed to another, as the
 * ledger knows it (see oversell.h, which explains the marks), or that was refused as STALE. */
#ifndef STOCKADE_TOOLS_DEMO_BASKET_H
#define STOCKADE_TOOLS_DEMO_BASKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/client.h"
#include "tools/crew.h"
#include "tools/demo/demo.h"

enum { BASKET_SKUS_MAX = 32, BASKET_LINES_MAX = 8, BASKET_KEY_MAX = 96 };

struct basket_sale {
    int64_t skus, stock; /* articles, and the pieces of each */
    int64_t lines;       /* articles in a basket */
    int64_t buyers, stops, losses;
    int64_t ttl_ms, pause_ms, work_ms;
    int64_t limit_ms;             /* a sale that takes longer has failed */
    char key[BASKET_KEY_MAX / 2]; /* what its keys begin with */
    char table[64];               /* of the orders, in Stockade's store */
};

/* In shared memory. */
struct basket_ledger {
    _Atomic int64_t baskets;               /* confirmed to buyers */
    _Atomic int64_t pieces;                /* in those */
    _Atomic int64_t sold[BASKET_SKUS_MAX]; /* the same, by article */
    _Atomic int64_t stops, losses;         /* how many there have been */
    _Atomic int64_t stale_tried, stale_refused;
    _Atomic int64_t newest[BASKET_SKUS_MAX]; /* who has it passed to: microseconds or a token */
    _Atomic int64_t last_sale_ms;            /* on the monotonic clock */
    struct failure failures[CREW_MAX];
};

struct basket_line {
    int sku;
    int64_t stock, quantity, price; /* price: for one, in cents, as charged */
    int64_t mark;                   /* of its lock: when it was granted, or its token */
};

struct basket_buyer {
    const struct basket_sale *sale;
    const struct basket_contender *contender;
    const struct client_uri *server;
    struct basket_ledger *ledger;
    struct client client;
    int64_t deadline_ms;
    char lock_value[33]; /* Redis's */
    int64_t order;       /* the id of the basket in hand: never used again */
    size_t count;        /* its lines */
    struct basket_line lines[BASKET_LINES_MAX];
};

/* Called for each order row. */
typedef void basket_each_row(void *context, int64_t order, int64_t sku, int64_t quantity);

struct basket_contender {
    const char *name;   /* on the command line */
    const char *title;  /* in the table */
    bool uses_stockade; /* its server is Stockade, not Redis */

    /* The referee's: open the sale, read the orders, clear away. */
    bool (*open)(struct client *client, const struct basket_sale *sale);
    bool (*orders)(struct client *client, const struct basket_sale *sale, basket_each_row *each,
                   void *context);
    bool (*clear)(struct client *client, const struct basket_sale *sale);

    /* The buyer's. Takes the lock of one line: PURCHASE_MADE, PURCHASE_AGAIN (not to be had now) or
     * PURCHASE_FAILED. */
    enum purchase (*lock)(struct basket_buyer *buyer, struct basket_line *line);
    bool (*unlock)(struct basket_buyer *buyer, const struct basket_line *line);
    /* Appends the commands between MULTI and EXEC; how many. */
    int (*queue)(struct basket_buyer *buyer);
};

extern const struct basket_contender basket_redis_locks;
extern const struct basket_contender basket_stockade;

/* Write the key of an article's "stock" or "price"; return `out`. */
const char *basket_key(const struct basket_sale *sale, const char *what, int sku,
                       char out[BASKET_KEY_MAX]);
/* Return what an article costs at the opening, in cents. */
int64_t basket_price(int sku);
/* Read `count` keys of one kind by MGET. False: the server failed us, and client.failure says how.
 */
bool basket_read(struct client *client, const struct basket_sale *sale, const char *what,
                 const int *skus, size_t count, int64_t *numbers);

/* Buy one basket, from choosing to unlocking. PURCHASE_SOLD_OUT: too few articles are left. */
enum purchase basket_buy(struct basket_buyer *buyer);

struct basket_result {
    const struct basket_contender *contender;
    int64_t baskets, pieces; /* as confirmed to buyers */
    int64_t left;            /* pieces in the stocks; below zero, where they are */
    int64_t oversold;        /* pieces by which stocks are below zero */
    int64_t twice;           /* pieces that left a stock and were confirmed to nobody */
    int64_t orders_wrong;    /* orders whose rows are not one whole basket */
    bool is_right;           /* see below */
    int64_t stops, losses, stale_tried, stale_refused;
    int64_t took_ms; /* from the opening to the last sale; at least 1 */
};

/* Hold one sale, and block until the last buyer has left. False: no result, and the reason; also
 * where a signal asks for the end.
 *
 * is_right: for each article sold + left = opening stock, nothing negative, and the order rows sum
 * to what is gone; each order has one row for each of its articles, and there are as many orders as
 * confirmed baskets. */
bool basket_sale_run(struct demo *demo, const struct basket_contender *contender,
                     const struct basket_sale *sale, struct basket_result *result,
                     struct failure *failure);

#endif
