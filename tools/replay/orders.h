/* SPDX-License-Identifier: Apache-2.0 */
/* An orders file in memory: the lines that are well formed, the invoices in order of time, the SKUs
 * with their demand. Read once, before the workers are forked, and not changed after. */
#ifndef STOCKADE_TOOLS_REPLAY_ORDERS_H
#define STOCKADE_TOOLS_REPLAY_ORDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/table.h"
#include "tools/failure.h"

enum { ORDER_NONE = -1 };

struct order {
    uint32_t line;    /* number in the file, the header being line 1 */
    uint32_t sku;     /* index */
    int32_t quantity; /* negative: returned */
    int32_t next;     /* index of the invoice's next order, or ORDER_NONE */
    bool stop;        /* who works on it is stopped between read and write */
};

struct invoice {
    int64_t invoiced_at; /* as its first line says */
    int32_t first, last; /* index of orders */
};

struct sku {
    const char *name; /* owned by sku_names */
    int64_t demand;   /* sum of the positive quantities */
};

struct orders {
    struct order *orders;
    struct invoice *invoices; /* in order of time; those of the same time as in the file */
    struct sku *skus;
    size_t order_count, invoice_count, sku_count;
    size_t malformed;       /* lines skipped */
    struct table sku_names; /* by name */
};

/* Load `path`, .csv or .csv.gz, up to `limit` lines below the header (0: all). A malformed line is
 * skipped, and named on stderr with its number, where there are not too many; where `strict`, it is
 * the failure. Free with orders_free in either case. */
bool orders_load(struct orders *orders, const char *path, int64_t limit, bool strict,
                 struct failure *failure);
void orders_free(struct orders *orders);

/* Mark one order in each `every` for a stop: the first one whose SKU is asked for again soon after
 * by another invoice, so that there is a successor while its worker sleeps. Return how many. */
size_t orders_plan_stops(struct orders *orders, size_t every);

#endif
