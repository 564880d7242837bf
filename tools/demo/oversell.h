/* SPDX-License-Identifier: Apache-2.0 */
/* The flash sale's contenders, and what they share. All buy piece by piece: read the stock, work,
 * write it back. */
#ifndef STOCKADE_TOOLS_DEMO_OVERSELL_H
#define STOCKADE_TOOLS_DEMO_OVERSELL_H

#include "tools/demo/demo.h"

extern const struct contender contender_no_lock;
extern const struct contender contender_redis_lock;
extern const struct contender contender_watchdog;
extern const struct contender contender_decrement;
extern const struct contender contender_version;
extern const struct contender contender_stockade;
extern const struct contender contender_library;
extern const struct contender contender_redis_py;
extern const struct contender contender_redis_py_stockade;
/* In PostgreSQL: */
extern const struct contender contender_plain_lock;
extern const struct contender contender_row_lock;
extern const struct contender contender_version_column;
extern const struct contender contender_guard;

/* Work between read and write. Where a stop is due the process stops here. */
void oversell_work(struct buyer *buyer);
/* Note a sale that was confirmed, with the stock written as `left`. Return PURCHASE_MADE. */
enum purchase oversell_sold(struct buyer *buyer, int64_t left);
/* Where the stock is. */
struct oversell_stock {
    enum purchase (*read)(struct buyer *buyer, int64_t *stock); /* PURCHASE_MADE: there is some */
    bool (*write)(struct buyer *buyer, int64_t stock);
};
/* Read, work and write under a lock that was granted at `granted_us`. Nobody asks whether it is
 * still held: so do programs that trust in their lock. */
enum purchase oversell_under_lock(struct buyer *buyer, const struct oversell_stock *stock,
                                  int64_t granted_us);
/* Compare the sales with what is left. Return true. */
bool oversell_audit(const struct buyer *referee, int64_t left, struct sale_result *result);

/* The stock as a plain key of Redis: written, counted and removed (with the lock beside it). */
bool oversell_stock_open(struct buyer *referee);
bool oversell_stock_audit(struct buyer *referee, struct sale_result *result);
bool oversell_stock_clear(struct buyer *referee);

/* The stock as a row in PostgreSQL, inventory(sku, stock, version). */
#define OVERSELL_SKU "1042"
bool oversell_table_open(struct buyer *referee);
bool oversell_table_audit(struct buyer *referee, struct sale_result *result);
bool oversell_table_clear(struct buyer *referee);
enum purchase oversell_table_read(struct buyer *buyer, int64_t *stock);
bool oversell_table_write(struct buyer *buyer, int64_t stock);

#endif
