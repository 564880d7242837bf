/* SPDX-License-Identifier: Apache-2.0 */
/* What the demos have in common. A demo holds the same sale once for each contender, which is one
 * way to sell, written as people write it, and prints what came of it. demo.c leads from the
 * command line to the exit code and starts private servers where none were named; sale.c holds one
 * sale: the buyers, each a process, and the referee, which counts.
 *
 * What counts as a stale write. A buyer reads the stock, works, and writes. Its write is stale when
 * what it rests on has passed to another meanwhile. The ledger keeps the newest such passing, and a
 * buyer checks it just before it sends its write:
 *   - no lock: another's write that was sent after our read was answered, and was acknowledged;
 *   - Redis lock: another's grant that was asked for after ours was answered (both are times of
 *     the machine's one monotonic clock);
 *   - redis-py's Lock: another's grant that was answered after ours;
 *   - PostgreSQL's plain lock: as the Redis lock; a row lock: never, for nothing passes meanwhile;
 *   - Stockade: a token larger than ours. A write that the server refused as STALE counts as tried
 *     in any case: the server has seen the newer grant before the ledger;
 *   - compare and set: it failed. Nothing is known better than that answer;
 *   - conditional decrement: never; it rests on nothing that was read before.
 * So no write is counted as stale that was not; one that crosses its successor's in flight may be
 * missed. The ledger is how the referee counts: no contender's sale depends on it. */
#ifndef STOCKADE_TOOLS_DEMO_DEMO_H
#define STOCKADE_TOOLS_DEMO_DEMO_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "tools/cli.h"
#include "tools/crew.h"
#include "tools/database.h"
#include "tools/options.h"
#include "tools/report/trace.h"
#include "tools/servers.h"
#include "tools/signals.h"
#include "tools/term.h"

enum { CONTENDERS_MAX = 10, COLUMNS_MAX = 9, SKUS_MAX = 32 };

/* What is on sale, and how the sale goes. The demo's options fill it. */
struct sale {
    const struct demo *demo;
    const char *named[CONTENDERS_MAX]; /* by --contender; none: all that can be held are */
    size_t named_count;
    bool chosen[CONTENDERS_MAX];
    const char *database; /* --store: the stock is in PostgreSQL, a private one or by its URI */
    bool redis_given;
    struct client_uri redis; /* --redis */

    int64_t skus, stock; /* articles, and the pieces of each */
    int64_t lines;       /* articles in a basket */
    int64_t buyers, stops, losses;
    int64_t ttl_ms, pause_ms, work_ms;
    int64_t limit_ms;    /* a sale that takes longer has failed */
    const char *report;  /* the file for it; NULL: none */
    struct trace *trace; /* for the report; NULL: none */
    /* For this run alone, so that a running server's other data is out of reach. */
    char key[48];           /* what all keys begin with */
    char table[48];         /* of the orders, in Stockade's store */
    char store[300];        /* a path for the contender that needs no server */
    const char *postgresql; /* the URI of a database of this run alone */
    const char *python;     /* the interpreter that has redis-py; NULL: not looked for yet */
};

/* In shared memory. All atomic: a process that is stopped or killed leaves nothing locked. */
struct ledger {
    _Atomic int64_t baskets, pieces; /* confirmed to buyers */
    _Atomic int64_t sold[SKUS_MAX];  /* the pieces by article */
    _Atomic int64_t left, lowest;    /* pieces; of a single article, as they were written */
    _Atomic int64_t stops, losses;   /* buyers stopped between read and write; replies lost */
    _Atomic int64_t stale_tried, stale_refused;
    _Atomic int64_t newest[SKUS_MAX];  /* see above: microseconds or a token */
    _Atomic int64_t last_sale_ms;      /* on the monotonic clock; 0: there was none */
    _Atomic int64_t used_us;           /* how long buyers needed their connections, in sum */
    _Atomic int64_t stood_ms;          /* the longest time from one sale to the next */
    struct failure failures[CREW_MAX]; /* each buyer's, written before its process ends */
};

/* A buyer, or the referee when it opens the sale and counts. */
struct buyer {
    const struct contender *contender;
    const struct sale *sale;
    const struct client_uri *server;
    struct ledger *ledger;
    struct client client;
    struct database database; /* where the contender is by_sql */
    unsigned index;
    struct trace *trace; /* the sale's; NULL for the referee */
    int64_t deadline_ms;
    void *own;       /* the contender's, from join to leave; NULL: nothing */
    pid_t companion; /* is stopped and continued with the buyer; 0: there is none */
};

enum purchase {
    PURCHASE_MADE,
    PURCHASE_SOLD_OUT,
    PURCHASE_AGAIN,  /* nothing was bought: another came first */
    PURCHASE_FAILED, /* the server failed us: client.failure says how */
};

struct sale_result {
    const struct contender *contender;
    int64_t baskets, pieces; /* as confirmed to buyers */
    int64_t stops, losses, stale_tried, stale_refused;
    int64_t took_ms; /* from the opening to the last sale; at least 1 */
    int64_t used_ms, stood_ms;
    /* The audit's: */
    int64_t left;         /* pieces in the stocks; below zero, where they are */
    int64_t oversold;     /* pieces that were sold and were not there; 0 is right */
    int64_t twice;        /* pieces that left a stock and were confirmed to nobody */
    int64_t orders_wrong; /* orders whose rows are not one whole basket */
    bool is_right;        /* the books balance, and nothing was ever negative */
};

/* All functions that return false, or PURCHASE_FAILED, set client.failure. */
struct contender {
    const char *name;   /* on the command line */
    const char *title;  /* in the table */
    bool uses_stockade; /* its server is Stockade, not Redis or PostgreSQL alone */
    bool embedded;      /* it has no server: it opens sale->store by itself */
    bool by_library;    /* it needs no client but its own */
    bool by_sql;        /* it writes SQL of its own, on a connection to PostgreSQL */

    /* Does it lack something here? Then it is left out, and `failure` says what. May be NULL. */
    bool (*missing)(struct sale *sale, const struct client_uri *server, struct failure *failure);
    bool (*join)(struct buyer *buyer); /* before anything else; may be NULL */
    void (*leave)(struct buyer *buyer);
    /* The referee's: open the sale, count what came of it, clear away. */
    bool (*open)(struct buyer *referee);
    bool (*audit)(struct buyer *referee, struct sale_result *result);
    bool (*clear)(struct buyer *referee);
    /* Buy once. PURCHASE_SOLD_OUT ends a buyer's day. */
    enum purchase (*buy)(struct buyer *buyer);
};

/* For buyers. */

/* Spend the delay between read and write: a price rule, a call to a payment service. */
void buyer_work(const struct buyer *buyer);
/* Stop the process here (SIGSTOP), until the referee continues it, unless as many have stopped by
 * now. */
void buyer_stop(struct buyer *buyer, int64_t stops_max);
/* Note pieces that were confirmed. */
void buyer_sold(struct buyer *buyer, int sku, int64_t pieces);
/* Note for the report what the buyer did. */
void buyer_note(const struct buyer *buyer, enum trace_kind kind, int sku, int64_t value);
/* Count a stale write, tried or refused. */
void buyer_note_stale(struct buyer *buyer, bool tried, bool refused);
/* Return whether the sale takes too long. */
bool buyer_is_late(const struct buyer *buyer);
/* Fail the purchase: set what the server said where a reply (or NULL) was not expected, and free
 * it. */
enum purchase buyer_failed(struct buyer *buyer, const char *doing, redisReply *reply);
/* Run a statement as database_do does. */
bool buyer_sql(struct buyer *buyer, const char *doing, struct database_answer *answer,
               const char *sql, const char *const *params);
/* Sleep until the next try for a lock, some 20 ms. */
void buyer_pause(void);
/* Note that another may act on the article from `mark` on: a token, or the time at which a grant or
 * write was sent, in microseconds of clock_monotonic, which all processes share. */
void buyer_passes(struct buyer *buyer, int sku, int64_t mark);
/* Return whether it has passed to another since `mark`: our token, or the time of our answer. */
bool buyer_has_passed(const struct buyer *buyer, int sku, int64_t mark);
/* Count one more of at most `max`, which all buyers share. False: there are as many. */
bool ledger_count(_Atomic int64_t *counter, int64_t max);

/* A demo, from its options to its table. */
struct demo {
    const struct option_table *options; /* of a struct sale */
    const struct contender *const *contenders;
    size_t count;
    const char *name;         /* in the report */
    const char *const *heads; /* of the table's columns behind the title; NULL ends them */
    void (*say_opening)(struct term *term, const struct sale *sale);
    void (*say_result)(struct term *term, const struct sale_result *result);
    void (*numbers)(const struct sale_result *result, int64_t numbers[COLUMNS_MAX]);
    const char *meaning;              /* under the table */
    const char *disclaimer;           /* the same, where the Redis is a private one */
    int64_t pause_ttls;               /* how many TTLs a stopped buyer stays stopped, by default */
    const struct demo *in_postgresql; /* the same with --store; NULL: it has none */
};

/* --contender NAME, --redis URI, --limit MS and --report FILE, for the option tables. */
#define DEMO_OPTION_ROWS                                                                           \
    {"contender",       OPTION_CALL, 0, 0, 0, "NAME", "only this one; may be repeated",            \
     demo_set_contender},                                                                          \
        {"redis",                                                                                  \
         OPTION_CALL,                                                                              \
         0,                                                                                        \
         0,                                                                                        \
         0,                                                                                        \
         "URI",                                                                                    \
         "a running Redis, redis://host:port[/db], instead of a private one",                      \
         demo_set_redis},                                                                          \
        {"limit",                                                                                  \
         OPTION_MS,                                                                                \
         offsetof(struct sale, limit_ms),                                                          \
         1000,                                                                                     \
         86400000,                                                                                 \
         "MS",                                                                                     \
         "a sale that takes longer has failed (10m)",                                              \
         NULL},                                                                                    \
    {                                                                                              \
        "report", OPTION_TEXT, offsetof(struct sale, report), 0, 0, "FILE",                        \
            "write a page that shows each sale (.html)", NULL                                      \
    }
bool demo_set_contender(void *settings, const char *text, struct failure *failure);
bool demo_set_redis(void *settings, const char *text, struct failure *failure);

/* Run the command with a sale that holds the defaults; return the exit code. It says whether
 * Stockade kept its promise or, where it was not among the contenders, whether the sales could be
 * held. */
int demo_run(const struct demo *demo, struct sale *sale, struct cli *cli, int argc, char **argv);

/* Hold one sale, and block until the last buyer has left. False: no result, and the reason; also
 * where a signal asks for the end. */
bool sale_run(const struct sale *sale, const struct contender *contender,
              const struct client_uri *server, struct signals *signals, struct term *term,
              struct sale_result *result, struct failure *failure);

#endif
