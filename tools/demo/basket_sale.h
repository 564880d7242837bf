/* SPDX-License-Identifier: Apache-2.0 */
/* One sale of baskets, from the opening to the audit. */
#ifndef STOCKADE_TOOLS_DEMO_BASKET_SALE_H
#define STOCKADE_TOOLS_DEMO_BASKET_SALE_H

#include "tools/demo/basket.h"
#include "tools/signals.h"
#include "tools/term.h"

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

/* Blocks until the last buyer has left. False: no result, and the reason; also where a signal asked
 * for the end.
 *
 * is_right: for each article sold + left = opening stock, nothing negative, and the order rows sum
 * to what is gone; each order has one row for each of its articles, and there are as many orders as
 * confirmed baskets. */
bool basket_sale_run(const struct basket_contender *contender, const struct basket_sale *sale,
                     const struct client_uri *server, struct signals *signals, struct term *term,
                     struct basket_result *result, struct failure *failure);

#endif
