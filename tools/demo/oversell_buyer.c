/* SPDX-License-Identifier: Apache-2.0 */
/* What all buyers of single pieces do, and when their books balance. */
#include "tools/demo/oversell.h"

/* Stops are spread over the sale: the i-th of n is due when the stock has fallen to
 * (n+1-i)/(n+1). */
void oversell_work(struct buyer *buyer)
{
    const struct sale *sale = buyer->sale;
    int64_t stops = atomic_load(&buyer->ledger->stops);

    buyer_work(buyer);
    if (stops < sale->stops && atomic_load(&buyer->ledger->left) <=
                                   sale->stock - (stops + 1) * sale->stock / (sale->stops + 1))
        buyer_stop(buyer, stops + 1);
}

enum purchase oversell_under_lock(struct buyer *buyer, const struct oversell_stock *stock,
                                  int64_t granted_us)
{
    int64_t left;
    enum purchase purchase = stock->read(buyer, &left);

    if (purchase != PURCHASE_MADE)
        return purchase;
    oversell_work(buyer);
    buyer_note_stale(buyer, buyer_has_passed(buyer, 0, granted_us), false);
    return stock->write(buyer, left - 1) ? oversell_sold(buyer, left - 1) : PURCHASE_FAILED;
}

enum purchase oversell_sold(struct buyer *buyer, int64_t left)
{
    _Atomic int64_t *lowest = &buyer->ledger->lowest;
    int64_t old = atomic_load(lowest);

    buyer_sold(buyer, 0, 1);
    buyer_note(buyer, TRACE_WRITTEN, 0, left);
    buyer_note(buyer, TRACE_SOLD, 0, 1);
    atomic_store(&buyer->ledger->left, left);
    while (left < old && !atomic_compare_exchange_weak(lowest, &old, left)) {
    }
    return PURCHASE_MADE;
}

bool oversell_audit(const struct buyer *referee, int64_t left, struct sale_result *result)
{
    int64_t stock = referee->sale->stock;

    result->left = left;
    result->oversold = result->pieces - (stock - left);
    result->is_right =
        result->pieces + left == stock && left >= 0 && atomic_load(&referee->ledger->lowest) >= 0;
    return true;
}
