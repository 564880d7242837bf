/* SPDX-License-Identifier: Apache-2.0 */
/* From lines to orders, invoices and SKUs. Arrays double as they grow. The orders of an invoice are
 * chained, because they need not stand together in the file. */
#include "tools/replay/orders.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/bytes.h"
#include "fence/base/mem.h"
#include "tools/replay/orders_file.h"
#include "tools/term.h"

enum { NAMED_MAX = 50, ORDERS_MAX = INT32_MAX, SUCCESSOR_ORDERS = 400 };

/* A name, numbered from 0 in order of its first appearance. */
struct name {
    struct table_node node;
    uint32_t number;
    uint32_t len;
    char text[];
};

struct loading {
    struct orders *orders;
    struct line_reader reader;
    struct csv_record record;
    struct table invoice_names;
    size_t order_room, invoice_room, sku_room;
    bool strict;
    struct failure *failure;
};

static struct bytes name_of(const struct table_node *node)
{
    const struct name *name = (const void *)node;

    return (struct bytes){name->text, name->len};
}

static const struct name *name_in(struct table *names, struct bytes text)
{
    struct table_node *found = table_find(names, text);

    if (found != NULL)
        return (const void *)found;
    struct name *name = mem_alloc(sizeof *name + text.len + 1);
    name->number = (uint32_t)names->count;
    name->len = (uint32_t)text.len;
    memcpy(name->text, text.data, text.len);
    name->text[text.len] = '\0';
    table_add(names, &name->node);
    return name;
}

static void name_free(struct table_node *node)
{
    free(node);
}

/* Make room for one more element. */
static void *array_grow(void *array, size_t count, size_t *room, size_t size)
{
    if (count < *room)
        return array;
    *room = *room == 0 ? 1024 : *room * 2;
    return mem_realloc(array, *room * size);
}

static uint32_t sku_of(struct loading *loading, const struct order_line *line)
{
    struct orders *orders = loading->orders;
    const struct name *name = name_in(&orders->sku_names, line->sku);
    uint32_t sku = name->number;

    if (sku == orders->sku_count) {
        orders->skus =
            array_grow(orders->skus, orders->sku_count, &loading->sku_room, sizeof *orders->skus);
        orders->skus[orders->sku_count++] = (struct sku){.name = name->text};
    }
    if (line->quantity > 0)
        orders->skus[sku].demand += line->quantity;
    return sku;
}

/* Append the order to its invoice's chain. */
static void invoice_add(struct loading *loading, const struct order_line *line, int32_t order)
{
    struct orders *orders = loading->orders;
    uint32_t number = name_in(&loading->invoice_names, line->invoice)->number;

    if (number == orders->invoice_count) {
        orders->invoices = array_grow(orders->invoices, orders->invoice_count,
                                      &loading->invoice_room, sizeof *orders->invoices);
        orders->invoices[orders->invoice_count++] =
            (struct invoice){.invoiced_at = line->invoiced_at, .first = order};
    } else {
        orders->orders[orders->invoices[number].last].next = order;
    }
    orders->invoices[number].last = order;
}

static bool order_add(struct loading *loading, const struct order_line *line)
{
    struct orders *orders = loading->orders;

    if (orders->order_count == ORDERS_MAX)
        return failure_set(loading->failure, "%s has more than %d lines; use --limit",
                           loading->reader.path, ORDERS_MAX);
    orders->orders = array_grow(orders->orders, orders->order_count, &loading->order_room,
                                sizeof *orders->orders);
    orders->orders[orders->order_count] = (struct order){.line = loading->reader.number,
                                                         .sku = sku_of(loading, line),
                                                         .quantity = (int32_t)line->quantity,
                                                         .next = ORDER_NONE};
    invoice_add(loading, line, (int32_t)orders->order_count);
    orders->order_count++;
    return true;
}

/* False: strict, and this is the failure. */
static bool malformed(struct loading *loading, const char *why)
{
    struct orders *orders = loading->orders;
    uint32_t number = loading->reader.number;

    orders->malformed++;
    if (loading->strict)
        return failure_set(loading->failure, "line %u of %s: %s (--strict)", number,
                           loading->reader.path, why);
    if (orders->malformed <= NAMED_MAX)
        term_error("line %u skipped: %s", number, why);
    else if (orders->malformed == NAMED_MAX + 1)
        term_error("line %u skipped; further ones are only counted", number);
    return true;
}

static bool load_line(struct loading *loading, struct bytes text)
{
    struct order_line line;
    const char *why = csv_parse(text, &loading->record);

    if (why == NULL)
        why = order_line_parse(&loading->record, &line);
    if (why != NULL)
        return malformed(loading, why);
    return order_add(loading, &line);
}

static bool load_header(struct loading *loading)
{
    struct bytes text;
    enum line_result result = line_reader_next(&loading->reader, &text, loading->failure);

    if (result == LINE_FAILED)
        return false;
    if (result != LINE_READ || csv_parse(text, &loading->record) != NULL ||
        !order_line_is_header(&loading->record))
        return failure_set(loading->failure,
                           "%s is no orders file: its first line must be "
                           "invoice,invoiced_at,sku,quantity,customer",
                           loading->reader.path);
    return true;
}

static bool load_lines(struct loading *loading, int64_t limit)
{
    struct bytes text;

    for (int64_t count = 0; limit == 0 || count < limit; count++)
        switch (line_reader_next(&loading->reader, &text, loading->failure)) {
        case LINE_READ:
            if (!load_line(loading, text))
                return false;
            break;
        case LINE_TOO_LONG:
            if (!malformed(loading, "the line is too long"))
                return false;
            break;
        case LINE_END: return true;
        case LINE_FAILED: return false;
        }
    return true;
}

static int invoice_compare(const void *a, const void *b)
{
    const struct invoice *left = a, *right = b;

    if (left->invoiced_at != right->invoiced_at)
        return left->invoiced_at < right->invoiced_at ? -1 : 1;
    return left->first < right->first ? -1 : 1;
}

bool orders_load(struct orders *orders, const char *path, int64_t limit, bool strict,
                 struct failure *failure)
{
    struct loading loading = {.orders = orders, .strict = strict, .failure = failure};

    *orders = (struct orders){.orders = NULL};
    table_init(&orders->sku_names, name_of);
    table_init(&loading.invoice_names, name_of);
    bool loaded = line_reader_open(&loading.reader, path, failure) && load_header(&loading) &&
                  load_lines(&loading, limit);
    line_reader_close(&loading.reader);
    table_drain(&loading.invoice_names, name_free);
    table_free(&loading.invoice_names);
    if (loaded && orders->order_count == 0)
        loaded = failure_set(failure, "%s has no order line to replay", path);
    if (loaded)
        qsort(orders->invoices, orders->invoice_count, sizeof *orders->invoices, invoice_compare);
    return loaded;
}

void orders_free(struct orders *orders)
{
    table_drain(&orders->sku_names, name_free);
    table_free(&orders->sku_names);
    free(orders->skus);
    free(orders->invoices);
    free(orders->orders);
    *orders = (struct orders){.orders = NULL};
}

/* Return for each order whether another invoice asks for its SKU soon after, in the replay's order.
 */
static bool *find_successors(const struct orders *orders)
{
    size_t *next_of_sku = mem_alloc(orders->sku_count * sizeof *next_of_sku);
    bool *has_successor = mem_zalloc(orders->order_count);
    size_t place = 0; /* counted from the end */

    memset(next_of_sku, 0xff, orders->sku_count * sizeof *next_of_sku); /* SIZE_MAX: never again */
    for (size_t i = orders->invoice_count; i-- > 0;) {
        int32_t first = orders->invoices[i].first;
        for (int32_t at = first; at != ORDER_NONE; at = orders->orders[at].next) {
            size_t next = next_of_sku[orders->orders[at].sku];
            has_successor[at] = next != SIZE_MAX && place - next <= SUCCESSOR_ORDERS;
        }
        for (int32_t at = first; at != ORDER_NONE; at = orders->orders[at].next)
            place++;
        for (int32_t at = first; at != ORDER_NONE; at = orders->orders[at].next)
            next_of_sku[orders->orders[at].sku] = place;
    }
    free(next_of_sku);
    return has_successor;
}

size_t orders_plan_stops(struct orders *orders, size_t every)
{
    bool *has_successor = find_successors(orders);
    size_t place = 0, due = every, planned = 0;

    for (size_t i = 0; i < orders->invoice_count; i++)
        for (int32_t at = orders->invoices[i].first; at != ORDER_NONE;
             at = orders->orders[at].next) {
            if (++place >= due && has_successor[at]) {
                orders->orders[at].stop = true;
                planned++;
                due = place + every;
            }
        }
    free(has_successor);
    return planned;
}
