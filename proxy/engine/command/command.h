/* SPDX-License-Identifier: Apache-2.0 */
/* The table of commands: one row gives a command its name, its arity, where its keys are, who may
 * use it, its place in a connection's order, what it does, and its line in COMMAND DOCS. */
#ifndef STOCKADE_ENGINE_COMMAND_H
#define STOCKADE_ENGINE_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/bytes.h"
#include "store/sql.h"
#include "store/txn.h"

struct replies;
struct request;

/* Commands of one connection take effect in the order sent. Those of one order class may be under
 * way together, since the store keeps their order; a change of class waits for what is under way.
 */
enum command_order {
    ORDER_NOW,  /* done at once on the loop, touches no data: may overtake, replies stay in order */
    ORDER_READ, /* the store's reader */
    ORDER_WRITE, /* the store's writer */
    ORDER_LEASE, /* asks the lease service; a resource's line keeps the order */
    ORDER_ALONE, /* may wait for others, or shows what others do */
};

enum command_flag {
    COMMAND_WRITES = 1,    /* changes a value: needs a token */
    COMMAND_ADMIN = 2,     /* administrators only */
    COMMAND_NO_AUTH = 4,   /* also before AUTH */
    COMMAND_LEASE = 8,     /* about leases */
    COMMAND_DRAINING = 16, /* also while the daemon stops */
    COMMAND_UNQUEUED = 32, /* between MULTI and EXEC too it is done at once */
    COMMAND_PUBSUB = 64,   /* also where a RESP2 connection has subscribed */
    COMMAND_LONG = 128,    /* goes through any number of rows */
    COMMAND_VALUE = 256,   /* replies with the string of its key, and wants nothing else of it */
};

/* A data command while it runs on the store's thread. */
struct exec {
    struct store_txn *txn;
    size_t argc;
    const struct bytes *argv; /* argv[0] is the command, argv[1] the key where it has one */
    struct resource resource; /* of argv[1], for commands with a key */
    struct buf *out;          /* the reply; complete, or empty where the store failed */
    size_t at;                /* where it begins there: behind those of a transaction's steps */
    struct replies *replies;  /* the room for it, and */
    size_t *share;            /* what it has of that */
    bool resp3;
    enum sql_right sql_right; /* what SQL may do */
    int64_t sql_limit_ms;
};

typedef void command_start(struct request *request);
typedef enum stk_error command_exec(struct exec *exec);

struct command {
    const char *name; /* upper case */
    int arity;        /* with the name; negative: at least that many, as in Redis */
    unsigned flags;
    enum command_order order;
    int key_first, key_last, key_step; /* as COMMAND reports them; 0: no keys */
    /* One of the two. `start` runs on the loop and finishes the request, now or later. `exec` runs
     * inside the store's transaction: STK_OK with a reply, the store's error, or STK_BUSY: there is
     * no room for the reply, and what it did is undone. PING has both: it
     * starts on the loop, and runs in the store as a part of a transaction. */
    command_start *start;
    command_exec *exec;
    const char *group, *summary;
};

extern const struct command commands[];
extern const size_t commands_count;

#define COMMAND_SLOTS 256 /* more than twice the commands there are; a power of two */

/* Finds commands by name. Filled in once; then read-only. */
struct command_index {
    const struct command *slots[COMMAND_SLOTS];
};

void command_index_fill(struct command_index *index);
const struct command *command_find(const struct command_index *index, struct bytes name);
bool command_arity_fits(const struct command *command, size_t argc);

#endif
