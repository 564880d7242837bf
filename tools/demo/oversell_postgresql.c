/* SPDX-License-Identifier: Apache-2.0 */
/* The contenders in PostgreSQL that have nothing of Stockade: a lock with a time limit, kept in a
 * table; a row lock; a version column. Each buyer writes its own SQL, on a connection of its own.
 * The two latter are right here, and the text under the table says what they cost. */
#include <inttypes.h>
#include <stdio.h>

#include "fence/base/clock.h"
#include "tools/demo/oversell.h"

/* The parameters of a statement. */
#define PARAMS(...)                                                                                \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

enum { NUMBER_MAX = 24 };

static const char *number(int64_t value, char out[NUMBER_MAX])
{
    (void)snprintf(out, NUMBER_MAX, "%" PRId64, value);
    return out;
}

/* The table. */

bool oversell_table_open(struct buyer *referee)
{
    static const char doing[] = "opening the sale";
    char stock[NUMBER_MAX];

    return buyer_sql(referee, doing, NULL,
                     "CREATE TABLE inventory(sku text PRIMARY KEY, stock int8 NOT NULL,"
                     " version int8 NOT NULL DEFAULT 1)",
                     NULL) &&
           buyer_sql(referee, doing, NULL, "INSERT INTO inventory(sku, stock) VALUES($1, $2)",
                     PARAMS(OVERSELL_SKU, number(referee->sale->stock, stock)));
}

/* `version` may be NULL. */
static enum purchase row_read(struct buyer *buyer, const char *sql, int64_t *stock,
                              int64_t *version)
{
    struct database_answer answer;

    if (!buyer_sql(buyer, "reading the stock", &answer, sql, PARAMS(OVERSELL_SKU)))
        return PURCHASE_FAILED;
    *stock = answer.numbers[0];
    if (version != NULL)
        *version = answer.numbers[1];
    buyer_note(buyer, TRACE_READ, 0, *stock);
    return *stock > 0 ? PURCHASE_MADE : PURCHASE_SOLD_OUT;
}

enum purchase oversell_table_read(struct buyer *buyer, int64_t *stock)
{
    return row_read(buyer, "SELECT stock FROM inventory WHERE sku = $1", stock, NULL);
}

bool oversell_table_write(struct buyer *buyer, int64_t stock)
{
    char text[NUMBER_MAX];

    return buyer_sql(buyer, "writing the stock", NULL,
                     "UPDATE inventory SET stock = $2 WHERE sku = $1",
                     PARAMS(OVERSELL_SKU, number(stock, text)));
}

bool oversell_table_audit(struct buyer *referee, struct sale_result *result)
{
    int64_t left;

    return oversell_table_read(referee, &left) != PURCHASE_FAILED &&
           oversell_audit(referee, left, result);
}

bool oversell_table_clear(struct buyer *referee)
{
    return buyer_sql(referee, "clearing up", NULL, "DROP TABLE inventory", NULL);
}

/* The plain lock: a row that says until when it is taken, as lock libraries for schedulers keep it.
 * A holder does not notice that it has run out. */

static bool plain_lock_open(struct buyer *referee)
{
    static const char doing[] = "opening the sale";

    return buyer_sql(referee, doing, NULL,
                     "CREATE TABLE lock(sku text PRIMARY KEY, owner int8, until timestamptz)",
                     NULL) &&
           buyer_sql(referee, doing, NULL, "INSERT INTO lock VALUES($1, NULL, '-infinity')",
                     PARAMS(OVERSELL_SKU)) &&
           oversell_table_open(referee);
}

static bool plain_lock_clear(struct buyer *referee)
{
    return buyer_sql(referee, "clearing up", NULL, "DROP TABLE lock", NULL) &&
           oversell_table_clear(referee);
}

/* PURCHASE_AGAIN: it was not to be had. */
static enum purchase plain_lock_take(struct buyer *buyer, const char *owner, int64_t *granted_us)
{
    char ttl[NUMBER_MAX];

    while (!buyer_is_late(buyer)) {
        int64_t asked_us = clock_now_us(&clock_monotonic);
        struct database_answer answer;
        if (!buyer_sql(buyer, "taking the lock", &answer,
                       "UPDATE lock"
                       " SET owner = $2, until = clock_timestamp() + $3 * interval '1 ms'"
                       " WHERE sku = $1 AND until < clock_timestamp()",
                       PARAMS(OVERSELL_SKU, owner, number(buyer->sale->ttl_ms, ttl))))
            return PURCHASE_FAILED;
        if (answer.rows == 1) {
            *granted_us = clock_now_us(&clock_monotonic);
            buyer_passes(buyer, 0, asked_us);
            buyer_note(buyer, TRACE_LOCKED, 0, 0);
            return PURCHASE_MADE;
        }
        buyer_pause();
    }
    return PURCHASE_AGAIN;
}

static const struct oversell_stock stock_in_row = {oversell_table_read, oversell_table_write};

static enum purchase plain_lock_buy(struct buyer *buyer)
{
    char owner[NUMBER_MAX];
    int64_t granted_us = 0;
    enum purchase purchase = plain_lock_take(buyer, number(buyer->index, owner), &granted_us);

    if (purchase != PURCHASE_MADE)
        return purchase;
    purchase = oversell_under_lock(buyer, &stock_in_row, granted_us);
    if (purchase != PURCHASE_FAILED &&
        !buyer_sql(buyer, "giving the lock back", NULL,
                   "UPDATE lock SET until = '-infinity' WHERE sku = $1 AND owner = $2",
                   PARAMS(OVERSELL_SKU, owner)))
        purchase = PURCHASE_FAILED;
    buyer_note(buyer, TRACE_UNLOCKED, 0, 0);
    return purchase;
}

/* The row lock: a transaction around read, work and write. All others wait until the holder
 * commits, however long that takes, so nobody is ever late. Each of them needs a connection to wait
 * on. */

static enum purchase row_lock_buy(struct buyer *buyer)
{
    int64_t stock;

    if (!buyer_sql(buyer, "beginning", NULL, "BEGIN", NULL))
        return PURCHASE_FAILED;
    enum purchase purchase =
        row_read(buyer, "SELECT stock FROM inventory WHERE sku = $1 FOR UPDATE", &stock, NULL);
    if (purchase == PURCHASE_MADE) {
        buyer_note(buyer, TRACE_LOCKED, 0, 0);
        oversell_work(buyer);
    }
    if ((purchase == PURCHASE_MADE && !oversell_table_write(buyer, stock - 1)) ||
        purchase == PURCHASE_FAILED || !buyer_sql(buyer, "committing", NULL, "COMMIT", NULL))
        return PURCHASE_FAILED;
    if (purchase == PURCHASE_MADE)
        (void)oversell_sold(buyer, stock - 1);
    buyer_note(buyer, TRACE_UNLOCKED, 0, 0);
    return purchase;
}

/* The version column: a write names the version that it rests on. */

static enum purchase version_buy(struct buyer *buyer)
{
    char left[NUMBER_MAX], known[NUMBER_MAX];
    struct database_answer answer;
    int64_t stock, version;
    enum purchase purchase =
        row_read(buyer, "SELECT stock, version FROM inventory WHERE sku = $1", &stock, &version);

    if (purchase != PURCHASE_MADE)
        return purchase;
    oversell_work(buyer);
    if (!buyer_sql(buyer, "writing the stock", &answer,
                   "UPDATE inventory SET stock = $2, version = version + 1"
                   " WHERE sku = $1 AND version = $3",
                   PARAMS(OVERSELL_SKU, number(stock - 1, left), number(version, known))))
        return PURCHASE_FAILED;
    if (answer.rows == 0) {
        buyer_note_stale(buyer, true, true);
        return PURCHASE_AGAIN;
    }
    return oversell_sold(buyer, stock - 1);
}

const struct contender contender_plain_lock = {
    .name = "plain-lock",
    .title = "plain lock",
    .by_sql = true,
    .open = plain_lock_open,
    .audit = oversell_table_audit,
    .clear = plain_lock_clear,
    .buy = plain_lock_buy,
};

const struct contender contender_row_lock = {
    .name = "row-lock",
    .title = "row lock",
    .by_sql = true,
    .open = oversell_table_open,
    .audit = oversell_table_audit,
    .clear = oversell_table_clear,
    .buy = row_lock_buy,
};

const struct contender contender_version_column = {
    .name = "version",
    .title = "version column",
    .by_sql = true,
    .open = oversell_table_open,
    .audit = oversell_table_audit,
    .clear = oversell_table_clear,
    .buy = version_buy,
};
