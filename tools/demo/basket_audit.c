/* SPDX-License-Identifier: Apache-2.0 */
/* The audit of a sale of baskets compares the stocks, the orders, and what buyers were told. */
#include <stdlib.h>

#include "fence/base/mem.h"
#include "tools/demo/basket.h"

void basket_rows_add(struct basket_rows *rows, struct basket_row row)
{
    if (rows->count == rows->room) {
        rows->room = rows->room * 2 + 256;
        rows->list = mem_realloc(rows->list, rows->room * sizeof *rows->list);
    }
    rows->list[rows->count++] = row;
}

static int compare_rows(const void *a, const void *b)
{
    const struct basket_row *one = a, *other = b;

    if (one->order != other->order)
        return one->order < other->order ? -1 : 1;
    return (one->sku > other->sku) - (one->sku < other->sku);
}

/* Count the orders, and those whose rows are not one for each of `lines` articles. */
static void count_orders(struct basket_rows *rows, int64_t lines, int64_t *orders, int64_t *wrong)
{
    *orders = *wrong = 0;
    if (rows->count > 0)
        qsort(rows->list, rows->count, sizeof *rows->list, compare_rows);
    for (size_t i = 0, first; i < rows->count;) {
        bool twice = false;
        for (first = i++; i < rows->count && rows->list[i].order == rows->list[first].order; i++)
            twice |= rows->list[i].sku == rows->list[i - 1].sku;
        ++*orders;
        *wrong += twice || (int64_t)(i - first) != lines;
    }
}

bool basket_audit(struct buyer *referee, struct basket_rows *rows, struct sale_result *result)
{
    const struct sale *sale = referee->sale;
    int64_t ordered[SKUS_MAX] = {0}, left[SKUS_MAX], orders;
    bool read = basket_read(referee, "stock", left);

    count_orders(rows, sale->lines, &orders, &result->orders_wrong);
    result->is_right = result->orders_wrong == 0 && orders == result->baskets;
    for (size_t i = 0; i < rows->count; i++)
        if (rows->list[i].sku >= 0 && rows->list[i].sku < sale->skus)
            ordered[rows->list[i].sku] += rows->list[i].quantity;
        else
            result->is_right = false;
    free(rows->list);
    for (int sku = 0; read && sku < (int)sale->skus; sku++) {
        int64_t sold = atomic_load(&referee->ledger->sold[sku]), gone = sale->stock - left[sku];
        result->left += left[sku];
        result->oversold += left[sku] < 0 ? -left[sku] : 0;
        result->twice += gone > sold ? gone - sold : 0;
        result->is_right &= gone == sold && left[sku] >= 0 && ordered[sku] == gone;
    }
    return read;
}
