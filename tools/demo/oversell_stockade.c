/* SPDX-License-Identifier: Apache-2.0 */
/* The contenders on Stockade, by its library: acquire, read, work, write with the token, release.
 * One has a daemon; without one, each buyer opens the store's file itself, with an engine in its
 * own process. In PostgreSQL the stock is in a table of the shop's own, which is guarded, and the
 * buyer writes SQL of its own, which presents the token. A buyer whose lease has passed to another
 * learns it from the write itself (STALE), has sold nothing, and starts over. A stopped buyer is
 * stopped together with its keep-alive. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/bytes.h"
#include "proxy/client/stockade.h"
#include "tools/demo/oversell.h"

#define SQLSTATE_STALE "ST001"
#define ROW_PREFIX     "sku:"
#define ROW_RESOURCE   ROW_PREFIX OVERSELL_SKU

enum { CALL_LIMIT_MS = 10000, WAIT_MS = 2000 };

static bool failed(struct buyer *buyer, const char *doing, enum stk_error error)
{
    return failure_set(&buyer->client.failure, "%s: %s %s", doing, stk_error_code(error),
                       stk_message());
}

static bool join(struct buyer *buyer)
{
    char embedded[sizeof buyer->sale->store + 8];
    stk_client *store;

    (void)snprintf(embedded, sizeof embedded, "sqlite:%s", buyer->sale->store);
    const char *uri = buyer->contender->embedded ? embedded : buyer->server->text;
    enum stk_error error = stk_client_open(uri, CALL_LIMIT_MS, &store);
    buyer->own = store;
    return error == STK_OK || failed(buyer, "connecting", error);
}

static void leave(struct buyer *buyer)
{
    stk_client_close(buyer->own);
}

static enum stk_error acquire(struct buyer *buyer, stk_lease **lease)
{
    const stk_lease_options options = {.ttl_ms = buyer->sale->ttl_ms, .wait_ms = WAIT_MS};
    const char *resource = buyer->contender->by_sql ? ROW_RESOURCE : buyer->sale->key;

    return stk_acquire(buyer->own, resource, &options, lease);
}

static enum stk_error write_stock(stk_lease *lease, const struct sale *sale, int64_t stock)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%" PRId64, stock);

    return stk_set(lease, sale->key, text, (size_t)length);
}

static enum stk_error read_stock(struct buyer *buyer, int64_t *stock)
{
    char *value;
    size_t length;
    enum stk_error error = stk_get(buyer->own, buyer->sale->key, &value, &length);

    if (error == STK_OK && (value == NULL || !bytes_to_int64((struct bytes){value, length}, stock)))
        error = STK_WRONGTYPE;
    free(value);
    return error;
}

static bool open_sale(struct buyer *referee)
{
    stk_lease *lease;
    enum stk_error error = acquire(referee, &lease);

    if (error == STK_OK)
        error = write_stock(lease, referee->sale, referee->sale->stock);
    if (error == STK_OK)
        error = stk_release(lease);
    stk_lease_free(lease);
    return error == STK_OK || failed(referee, "opening the sale", error);
}

static bool audit(struct buyer *referee, struct sale_result *result)
{
    int64_t left;
    enum stk_error error = read_stock(referee, &left);

    return error == STK_OK ? oversell_audit(referee, left, result)
                           : failed(referee, "counting what is left", error);
}

static bool clear(struct buyer *referee)
{
    const char *const words[] = {"DEL", referee->sale->key};
    stk_lease *lease;
    enum stk_error error = acquire(referee, &lease);

    if (error == STK_OK) {
        error = stk_fenced(lease, 2, words, NULL, NULL);
        (void)stk_release(lease);
    }
    stk_lease_free(lease);
    return error == STK_OK;
}

/* The stock is in the store, or in a guarded row. */

static enum purchase read_any(struct buyer *buyer, int64_t *stock)
{
    if (buyer->contender->by_sql)
        return oversell_table_read(buyer, stock);
    enum stk_error error = read_stock(buyer, stock);
    if (error != STK_OK) {
        (void)failed(buyer, "reading the stock", error);
        return PURCHASE_FAILED;
    }
    buyer_note(buyer, TRACE_READ, 0, *stock);
    return *stock > 0 ? PURCHASE_MADE : PURCHASE_SOLD_OUT;
}

/* Present the token, and write, in one transaction. */
static enum purchase write_row(struct buyer *buyer, const stk_lease *lease, int64_t left)
{
    char token[32];
    const char *const params[] = {ROW_RESOURCE, token, NULL};

    (void)snprintf(token, sizeof token, "%" PRId64, stk_lease_token(lease, NULL));
    if (buyer_sql(buyer, "beginning", NULL, "BEGIN", NULL) &&
        buyer_sql(buyer, "presenting the token", NULL, "SELECT stockade.present($1::text, $2)",
                  params) &&
        oversell_table_write(buyer, left) && buyer_sql(buyer, "committing", NULL, "COMMIT", NULL))
        return PURCHASE_MADE;
    bool stale = strcmp(buyer->database.state, SQLSTATE_STALE) == 0;
    return stale && buyer_sql(buyer, "rolling back", NULL, "ROLLBACK", NULL) ? PURCHASE_AGAIN
                                                                             : PURCHASE_FAILED;
}

/* PURCHASE_AGAIN: the token was stale, or a queue full: nothing changed. */
static enum purchase write_fenced(struct buyer *buyer, stk_lease *lease, int64_t left)
{
    bool tried = buyer_has_passed(buyer, 0, stk_lease_token(lease, NULL)), stale;
    enum purchase purchase;

    if (buyer->contender->by_sql) {
        purchase = write_row(buyer, lease, left);
        stale = purchase == PURCHASE_AGAIN;
    } else {
        enum stk_error error = write_stock(lease, buyer->sale, left);
        stale = error == STK_STALE;
        purchase = error == STK_OK              ? PURCHASE_MADE
                   : stale || error == STK_BUSY ? PURCHASE_AGAIN
                                                : PURCHASE_FAILED;
        if (purchase == PURCHASE_FAILED)
            (void)failed(buyer, "the fenced write", error);
    }
    if (purchase == PURCHASE_MADE) {
        buyer_note_stale(buyer, tried, false); /* tried and not refused: a promise broken */
        return oversell_sold(buyer, left);
    }
    buyer_note_stale(buyer, stale, stale);
    return purchase;
}

static enum purchase buy(struct buyer *buyer)
{
    stk_lease *lease;
    int64_t stock;
    enum stk_error error = acquire(buyer, &lease);

    if (error == STK_HELD || error == STK_BUSY || error == STK_STALE)
        return PURCHASE_AGAIN;
    if (error != STK_OK) {
        (void)failed(buyer, "acquiring", error);
        return PURCHASE_FAILED;
    }
    buyer_passes(buyer, 0, stk_lease_token(lease, NULL));
    buyer_note(buyer, TRACE_LOCKED, 0, stk_lease_token(lease, NULL));
    enum purchase purchase = read_any(buyer, &stock);
    if (purchase == PURCHASE_MADE) {
        oversell_work(buyer);
        purchase = write_fenced(buyer, lease, stock - 1);
    }
    (void)stk_release(lease); /* it may have run out meanwhile, or run out later: no harm done */
    stk_lease_free(lease);
    buyer_note(buyer, TRACE_UNLOCKED, 0, 0);
    return purchase;
}

static bool open_guarded(struct buyer *referee)
{
    const char *const words[] = {"GUARD", "CREATE", "inventory", "sku", ROW_PREFIX};

    if (!oversell_table_open(referee))
        return false;
    enum stk_error error = stk_command(referee->own, 5, words, NULL, NULL);
    return error == STK_OK || failed(referee, "guarding the table", error);
}

#define BY_LIBRARY                                                                                 \
    .uses_stockade = true, .by_library = true, .join = join, .leave = leave, .open = open_sale,    \
    .audit = audit, .clear = clear, .buy = buy

const struct contender contender_stockade = {
    .name = "stockade",
    .title = "Stockade",
    BY_LIBRARY,
};

const struct contender contender_guard = {
    .name = "guard",
    .title = "Stockade's guard",
    .uses_stockade = true,
    .by_sql = true,
    .join = join,
    .leave = leave,
    .open = open_guarded,
    .audit = oversell_table_audit,
    .clear = oversell_table_clear,
    .buy = buy,
};

const struct contender contender_library = {
    .name = "library",
    .title = "Stockade, no daemon",
    .embedded = true,
    BY_LIBRARY,
};
