/* SPDX-License-Identifier: Apache-2.0 */
/* A contender: one way to sell a piece of stock. Each is written as people write it, against plain
 * Redis (or Stockade), and all share the same sale, the same work delay and the same pauses. */
#ifndef STOCKADE_TOOLS_DEMO_CONTENDER_H
#define STOCKADE_TOOLS_DEMO_CONTENDER_H

#include "tools/demo/buyer.h"

struct contender {
    const char *name;   /* on the command line */
    const char *title;  /* in the table */
    bool uses_stockade; /* its server is Stockade, not Redis */
    bool embedded;      /* it has no server: it opens sale->store by itself */

    /* The referee's: open the sale, count what is left (a missing stock is an error), clear away.
     */
    bool (*stock)(struct client *client, const struct sale *sale);
    bool (*left)(struct client *client, const struct sale *sale, int64_t *left);
    bool (*clear)(struct client *client, const struct sale *sale);

    /* The buyer's: `open` and `close` may be NULL. */
    bool (*open)(struct buyer *buyer);
    enum purchase (*buy)(struct buyer *buyer);
    void (*close)(struct buyer *buyer);
};

extern const struct contender contender_no_lock;
extern const struct contender contender_redis_lock;
extern const struct contender contender_watchdog;
extern const struct contender contender_decrement;
extern const struct contender contender_version;
extern const struct contender contender_stockade;
extern const struct contender contender_library;

/* The stock as a plain string key, shared by those that keep it so. */
bool stock_set(struct client *client, const struct sale *sale);
bool stock_left(struct client *client, const struct sale *sale, int64_t *left);
bool stock_clear(struct client *client, const struct sale *sale);
/* GET; false: the server failed us, and client.failure says how. */
bool stock_read(struct client *client, const char *key, int64_t *stock);
/* Reads a stock reply and frees it; false as above. */
bool stock_of(struct client *client, redisReply *reply, int64_t *stock);

#endif
