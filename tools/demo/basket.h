/* SPDX-License-Identifier: Apache-2.0 */
/* Baskets of several articles. The two ways to sell one differ in nothing but their locks and in
 * what they queue between MULTI and EXEC.
 *
 * A stock is a string key and the resource of its lock; its number follows in the name, so the
 * order of the numbers is one order for all buyers, and nobody waits in a circle.
 *
 * A stale write is an EXEC sent when one of its locks had passed to another, as the ledger knows
 * it, or one that was refused as STALE. */
#ifndef STOCKADE_TOOLS_DEMO_BASKET_H
#define STOCKADE_TOOLS_DEMO_BASKET_H

#include "tools/demo/demo.h"

enum { BASKET_LINES_MAX = 8, BASKET_KEY_MAX = 96 };

struct basket_line {
    int sku;
    int64_t stock, quantity, price; /* price: for one, in cents, as charged */
    int64_t mark;                   /* of its lock: when it was granted, or its token */
};

/* A buyer's basket, from basket_join to basket_leave. */
struct basket {
    char lock_value[33]; /* Redis's */
    int64_t order;       /* the id of the basket in hand: never used again */
    size_t count;        /* its lines */
    struct basket_line lines[BASKET_LINES_MAX];
};

/* How a basket is sold. */
struct basket_way {
    /* Take the lock of one line: PURCHASE_MADE, PURCHASE_AGAIN (not to be had now) or
     * PURCHASE_FAILED. */
    enum purchase (*lock)(struct buyer *buyer, struct basket_line *line);
    bool (*unlock)(struct buyer *buyer, const struct basket_line *line);
    /* Append the commands between MULTI and EXEC; return how many. */
    int (*queue)(struct buyer *buyer);
    size_t step; /* from one line's command to the next line's: its reply is the stock then */
};

extern const struct contender basket_redis_locks;
extern const struct contender basket_stockade;

/* Write the key of an article's "stock" or "price"; return `out`. */
const char *basket_key(const struct sale *sale, const char *what, int sku,
                       char out[BASKET_KEY_MAX]);
/* Return what an article costs at the opening, in cents. */
int64_t basket_price(int sku);
/* Read the numbers of all articles. */
bool basket_read(struct buyer *buyer, const char *what, int64_t numbers[SKUS_MAX]);

bool basket_join(struct buyer *buyer);
void basket_leave(struct buyer *buyer);
/* Buy one basket, from choosing to unlocking. PURCHASE_SOLD_OUT: too few articles are left. */
enum purchase basket_buy(struct buyer *buyer, const struct basket_way *way);

/* Every order row that there is. */
struct basket_rows {
    struct basket_row {
        int64_t order, sku, quantity;
    } * list;
    size_t count, room;
};
void basket_rows_add(struct basket_rows *rows, struct basket_row row);

/* Compare stocks, orders and confirmed sales, article by article; free the rows. The books balance
 * where for each article sold + left = opening stock, nothing is negative, and the order rows sum
 * to what is gone; each order has one row for each of its articles, and there are as many orders as
 * confirmed baskets. */
bool basket_audit(struct buyer *referee, struct basket_rows *rows, struct sale_result *result);

#endif
