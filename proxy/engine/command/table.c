/* SPDX-License-Identifier: Apache-2.0 */
/* All commands, in the only file that names all of them. Redis's commands keep Redis's arity and
 * key positions, so that clients that ask COMMAND find what they expect; those that Stockade
 * extends say so in their summary. */
#include "proxy/engine/command/handlers.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/lockkeys/lock_keys.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/pubsub.h"
#include "proxy/engine/write/plan.h"

#define W      COMMAND_WRITES
#define L      COMMAND_LEASE
#define P      COMMAND_PUBSUB
#define LONG   COMMAND_LONG
#define FIELD  COMMAND_FIELD
#define FIELDS COMMAND_FIELDS
#define PAIRS  COMMAND_PAIRS
#define MANY   COMMAND_MANY
#define OPEN   (COMMAND_NO_AUTH | COMMAND_DRAINING)
#define STATE  COMMAND_STATE

/* Where the keys are. */
#define NO_KEY 0, 0, 0
#define KEY    1, 1, 1
#define KEYS   1, -1, 1

/* Done at once on the loop. */
#define NOW(name, arity, deed, flags, start, group, summary)                                       \
    {                                                                                              \
        name, arity, DEED_##deed, flags, ORDER_NOW, NO_KEY, NULL, start, NULL, NULL, group,        \
            summary, NULL, NULL                                                                    \
    }
/* The same, once the connection has nothing else under way: what was sent before is its user's. */
#define LOGIN(name, arity, flags, start, summary)                                                  \
    {                                                                                              \
        name, arity, DEED_NOTHING, OPEN | STATE | (flags), ORDER_ALONE, NO_KEY, NULL, start, NULL, \
            NULL, "connection", summary, NULL, NULL                                                \
    }
/* Done at once by its subcommands, which have the categories; that of the command is for its first
 * word alone. */
#define GROUP(name, arity, deed, flags, order, group, summary, subcommands)                        \
    {                                                                                              \
        name, arity, DEED_##deed, flags, order, NO_KEY, NULL, request_start_subcommand, NULL,      \
            NULL, group, summary, subcommands, NULL                                                \
    }
#define LEASE(name, arity, deed, order, start, summary)                                            \
    {                                                                                              \
        name, arity, DEED_##deed, L, order, KEY, NULL, start, NULL, NULL, "leases", summary, NULL, \
            NULL                                                                                   \
    }
/* A plan with one step, which runs in the store. */
#define READ(name, arity, flags, keys, exec, group, summary)                                       \
    {                                                                                              \
        name, arity, DEED_READ, flags, ORDER_READ, keys, plan_make, plan_start, NULL, exec, group, \
            summary, NULL, NULL                                                                    \
    }
#define WRITE(name, arity, deed, flags, keys, exec, group, summary)                                \
    {                                                                                              \
        name, arity, DEED_##deed, W | (flags), ORDER_WRITE, keys, plan_make, plan_start, NULL,     \
            exec, group, summary, NULL, NULL                                                       \
    }
#define LISTEN(name, arity, flags, start, summary)                                                 \
    {                                                                                              \
        name, arity, DEED_EVENTS, P | STATE | (flags), ORDER_ALONE, NO_KEY, NULL, start, NULL,     \
            NULL, "pubsub", summary, NULL, NULL                                                    \
    }

const struct command commands[] = {
    {"ACQUIRE", -3, DEED_ACQUIRE, L | COMMAND_BLOCKING, ORDER_ALONE, KEY, acquire_prepare,
     lease_acquire, acquire_abandon, NULL, "leases",
     "Take a lease: resource ttl_ms [WAIT ms | QUEUE] [OWNER owner] [ID id] [EPHEMERAL]"
     " -> [token, ttl_ms], null, or with QUEUE [queued, place]",
     NULL, NULL},
    {"ACQUIREALL", -4, DEED_ACQUIRE, L | COMMAND_COUNTED, ORDER_ALONE, 3, 3, 1, NULL,
     lease_acquire_all, acquire_all_abandon, NULL, "leases",
     "Take several, all or none: ttl_ms n resource ... [the same options] -> tokens or null", NULL,
     NULL},
    LEASE(
        "DEQUEUE", 3, DEQUEUE, ORDER_LEASE, lease_dequeue,
        "Leave the line where ACQUIRE ... QUEUE stands: resource id -> 1, or 0: it stood nowhere"),
    LEASE("RENEW", -4, RENEW, ORDER_LEASE, lease_renew,
          "Extend a lease: resource token ttl_ms [NOTIFY] -> ttl_ms"),
    LEASE("RELEASE", -3, RELEASE, ORDER_WRITE, lease_release,
          "Give a lease back and retire its token: resource token [ID id] -> holds left"),
    LEASE("REVOKE", 2, REVOKE, ORDER_WRITE, lease_revoke,
          "Take a lease away from its holder: resource -> the retired token"),
    LEASE("LEASE", -2, LOOK, ORDER_ALONE, lease_show,
          "Who holds a resource: resource [OWNER owner [TOKEN]] -> map, or the token; null where "
          "it is another OWNER's"),
    {"LEASES", -1, DEED_LOOK, L | LONG, ORDER_READ, NO_KEY, NULL, lease_list, NULL, NULL, "leases",
     "Names of resources with an unretired token: [MATCH glob] [COUNT n]", NULL, NULL},
    LEASE("WAITERS", -2, LOOK, ORDER_ALONE, waiters_show,
          "Who waits for a resource: resource [COUNT n] -> maps, the next one first"),
    LEASE(
        "HISTORY", -2, LOOK, ORDER_ALONE, history_show,
        "Who held a resource, and how each lease ended: resource [COUNT n] -> maps, newest first"),
    {"REFUSALS", -1, DEED_LOOK, L, ORDER_ALONE, NO_KEY, NULL, history_refusals_show, NULL, NULL,
     "leases",
     "Which commands were refused, and how late they were: [MATCH glob] [COUNT n] -> maps", NULL,
     NULL},
    {"FENCED", -4, DEED_NOTHING, COMMAND_FENCED | MANY, ORDER_WRITE, 3, 3, 1, plan_make, plan_start,
     NULL, NULL, "leases",
     "Run a command only while the token is the newest: token [ID id] command key [arg ...]", NULL,
     NULL},
    {"FENCEDALL", -5, DEED_NOTHING, COMMAND_FENCEDALL | MANY, ORDER_WRITE, 2, 2, 1, plan_make,
     plan_start, NULL, NULL, "leases",
     "The same with several tokens: n resource token ... [ID id] command [arg ...]", NULL, NULL},
    LEASE(
        "RECEIPT", 4, READ, ORDER_READ, receipt_show,
        "Was this request applied? resource token id -> [1, reply], [0, null] or null: still open"),

    {"MULTI", 1, DEED_NOTHING, COMMAND_UNQUEUED | STATE | COMMAND_BEGINS, ORDER_NOW, NO_KEY, NULL,
     multi_begin, NULL, NULL, "transactions", "Begin a transaction: data commands are queued", NULL,
     NULL},
    {"EXEC", 1, DEED_NOTHING, COMMAND_UNQUEUED | STATE | COMMAND_ENDS, ORDER_WRITE, NO_KEY, NULL,
     multi_exec, NULL, NULL, "transactions", "Apply what is queued, whole or not at all", NULL,
     NULL},
    {"DISCARD", 1, DEED_NOTHING, COMMAND_UNQUEUED | STATE, ORDER_NOW, NO_KEY, NULL, multi_discard,
     NULL, NULL, "transactions", "Drop what is queued", NULL, NULL},

    {"WATCH", -2, DEED_NOTHING, MANY, ORDER_NOW, KEYS, NULL, multi_watch, NULL, NULL,
     "transactions", "Refused: take a lease, and write under its token", NULL, NULL},
    NOW("UNWATCH", 1, NOTHING, 0, multi_watch, "transactions", "Refused, as WATCH"),

    {"SQL", -2, DEED_SQL, COMMAND_SQL | LONG | MANY, ORDER_READ, NO_KEY, sql_prepare, plan_start,
     NULL, sql_exec, "sql",
     "One statement: [TYPES itfbn...] statement [param ...] -> columns, rows, changes", NULL, NULL},
    GROUP("GUARD", -2, ADMIN, LONG | COMMAND_TELLS, ORDER_WRITE, "sql",
          "Let rows change only under their token: CREATE table column prefix | DROP table | LIST",
          guard_subcommands),

    READ("GET", 2, COMMAND_VALUE, KEY, string_get, "string", "The value of a key"),
    READ("STRLEN", 2, 0, KEY, string_strlen, "string", "The length of a value"),
    READ("MGET", -2, MANY, KEYS, string_mget, "string", "The values of several keys"),
    READ("GETRANGE", 4, 0, KEY, string_getrange, "string", "A part of a value: key start end"),
    {"SET", -3, DEED_WRITE, W, ORDER_WRITE, KEY, string_set_prepare, plan_start, NULL, string_set,
     "string", "Set a value: key value [NX|XX] [GET] [KEEPTTL]; no expiry", NULL, string_set_act},
    WRITE("SETNX", 3, WRITE, 0, KEY, string_setnx, "string", "Set a value where there is none"),
    WRITE("GETSET", 3, EXCHANGE, 0, KEY, string_getset, "string",
          "Set a value, reply with the old one"),
    WRITE("GETDEL", 2, EXCHANGE, 0, KEY, string_getdel, "string", "Remove a value, reply with it"),
    {"MSET", -3, DEED_WRITE, W | MANY, ORDER_WRITE, 1, -1, 2, plan_make, plan_start, NULL,
     string_mset, "string", "Set the values of several keys", NULL, NULL},
    WRITE("APPEND", 3, WRITE, 0, KEY, string_append, "string", "Append to a value"),
    WRITE("SETRANGE", 4, WRITE, 0, KEY, string_setrange, "string",
          "Write over a part: key offset value"),
    WRITE("INCR", 2, EXCHANGE, 0, KEY, string_incr, "string", "Add one"),
    WRITE("DECR", 2, EXCHANGE, 0, KEY, string_decr, "string", "Take one"),
    WRITE("INCRBY", -3, EXCHANGE, 0, KEY, string_incrby, "string",
          "Add: key n [MIN m] [MAX m]; RANGE outside"),
    WRITE("DECRBY", -3, EXCHANGE, 0, KEY, string_decrby, "string",
          "Take: key n [MIN m] [MAX m]; RANGE outside"),
    WRITE("INCRBYFLOAT", 3, EXCHANGE, 0, KEY, string_incrbyfloat, "string",
          "Add a number with a fraction"),

    WRITE("DEL", -2, WRITE, 0, KEYS, key_del, "generic", "Remove the values of keys"),
    WRITE("UNLINK", -2, WRITE, 0, KEYS, key_del, "generic", "The same as DEL"),
    READ("EXISTS", -2, 0, KEYS, key_exists, "generic", "How many of the keys have a value"),
    READ("TTL", 2, 0, KEY, key_ttl, "generic", "-1: a value has no expiry; -2: there is none"),
    READ("PTTL", 2, 0, KEY, key_ttl, "generic", "The same as TTL"),
    READ("TYPE", 2, 0, KEY, key_type, "generic", "string, hash or none"),
    READ("SCAN", -2, LONG, NO_KEY, key_scan, "generic",
         "Go through the keys: cursor [MATCH glob] [COUNT n] [TYPE type]"),
    READ("DBSIZE", 1, LONG, NO_KEY, key_dbsize, "generic", "How many keys"),

    READ("HGET", 3, FIELD, KEY, hash_get, "hash", "The value of a field"),
    READ("HMGET", -3, FIELDS | MANY, KEY, hash_mget, "hash", "The values of several fields"),
    READ("HGETALL", 2, LONG, KEY, hash_getall, "hash", "All fields and values"),
    READ("HEXISTS", 3, FIELD, KEY, hash_exists, "hash", "Is there this field?"),
    READ("HLEN", 2, LONG, KEY, hash_len, "hash", "How many fields"),
    READ("HKEYS", 2, LONG, KEY, hash_keys, "hash", "All fields"),
    READ("HVALS", 2, LONG, KEY, hash_vals, "hash", "All values"),
    READ("HSTRLEN", 3, FIELD, KEY, hash_strlen, "hash", "The length of a field's value"),
    READ("HSCAN", -3, LONG, KEY, hash_scan, "hash",
         "Go through the fields: key cursor [MATCH g] [COUNT n]"),
    WRITE("HSET", -4, WRITE, PAIRS | MANY, KEY, hash_set, "hash", "Set fields"),
    WRITE("HMSET", -4, WRITE, PAIRS | MANY, KEY, hash_mset, "hash", "Set fields"),
    WRITE("HSETNX", 4, WRITE, FIELD, KEY, hash_setnx, "hash", "Set a field where there is none"),
    WRITE("HDEL", -3, WRITE, FIELDS | MANY, KEY, hash_del, "hash", "Remove fields"),
    WRITE("HINCRBY", -4, EXCHANGE, FIELD, KEY, hash_incrby, "hash",
          "Add to a field: key field n [MIN m] [MAX m]; RANGE outside"),
    WRITE("HINCRBYFLOAT", 4, EXCHANGE, FIELD, KEY, hash_incrbyfloat, "hash",
          "Add a number with a fraction to a field"),

    {"EVAL", -3, DEED_ACQUIRE, L | COMMAND_COUNTED | COMMAND_LOCK_KEYS, ORDER_ALONE, NO_KEY,
     lock_eval_prepare, lock_eval, lock_abandon, NULL, "scripting",
     "The script of a lock library, on lock keys: text numkeys key ... arg ...", NULL,
     lock_eval_act},
    {"EVALSHA", -3, DEED_ACQUIRE, L | COMMAND_COUNTED | COMMAND_LOCK_KEYS, ORDER_ALONE, NO_KEY,
     lock_eval_prepare, lock_evalsha, lock_abandon, NULL, "scripting",
     "The same by the SHA1 of its text", NULL, lock_eval_act},
    {"DELIFEQ", 3, DEED_RELEASE, L | COMMAND_LOCK_KEYS, ORDER_ALONE, KEY, NULL, lock_delifeq, NULL,
     NULL, "scripting", "Give a lock back whose value this is: key value -> 1, or 0", NULL, NULL},
    {"DELEX", -2, DEED_RELEASE, L | COMMAND_LOCK_KEYS, ORDER_ALONE, KEY, NULL, lock_delex, NULL,
     NULL, "scripting", "The same: key IFEQ value", NULL, NULL},
    {"BLPOP", -3, DEED_ACQUIRE, L | COMMAND_BLOCKING | COMMAND_LOCK_KEYS, ORDER_ALONE, 1, -2, 1,
     NULL, lock_companion_wait, lock_signal_abandon, NULL, "scripting",
     "Wait for an unlock, as python-redis-lock does: lock-signal:name seconds", NULL, NULL},
    GROUP("SCRIPT", -2, ACQUIRE, 0, ORDER_NOW, "scripting",
          "LOAD text | EXISTS sha1 ...: of lock libraries", lock_script_subcommands),

    LISTEN("SUBSCRIBE", -2, COMMAND_CHANNELS, pubsub_subscribe,
           "Listen to channels: stockade:events, stockade:events:<resource>"),
    LISTEN("UNSUBSCRIBE", -1, 0, pubsub_unsubscribe, "Listen to these channels, or any, no more"),
    LISTEN("PSUBSCRIBE", -2, COMMAND_CHANNELS | COMMAND_PATTERNS, pubsub_psubscribe,
           "Listen to all channels that match a glob"),
    LISTEN("PUNSUBSCRIBE", -1, 0, pubsub_punsubscribe, "Listen to these patterns, or any, no more"),
    {"PUBLISH", 3, DEED_EVENTS, COMMAND_CHANNEL, ORDER_ALONE, NO_KEY, NULL, pubsub_publish, NULL,
     NULL, "pubsub",
     "Tell all who listen to a channel: channel message -> how many; not to stockade:*", NULL,
     NULL},
    GROUP("PUBSUB", -2, EVENTS, 0, ORDER_NOW, "pubsub",
          "CHANNELS [pattern] | NUMSUB channel ... | NUMPAT", pubsub_subcommands),

    {"PING", -1, DEED_CONNECTION, COMMAND_DRAINING | P, ORDER_NOW, NO_KEY, NULL, connection_ping,
     NULL, connection_ping_exec, "connection", "PONG, or the message", NULL, NULL},
    {"ECHO", 2, DEED_CONNECTION, 0, ORDER_NOW, NO_KEY, NULL, connection_echo, NULL,
     connection_echo_exec, "connection", "The message", NULL, NULL},
    LOGIN("HELLO", -1, 0, connection_hello, "[2|3 [AUTH user password] [SETNAME name]]"),
    LOGIN("AUTH", -2, 0, connection_auth, "[user] password"),
    NOW("QUIT", -1, NOTHING, OPEN | COMMAND_UNQUEUED | P | STATE, connection_quit, "connection",
        "Close the connection"),
    LOGIN("RESET", 1, COMMAND_UNQUEUED | P, connection_reset, "Back to a connection's first state"),
    {"SELECT", 2, DEED_CONNECTION, STATE, ORDER_NOW, NO_KEY, NULL, connection_select, NULL,
     connection_select_exec, "connection", "Only database 0", NULL, NULL},
    GROUP("CLIENT", -2, CONNECTION, 0, ORDER_NOW, "connection",
          "ID | SETNAME | GETNAME | SETINFO | INFO | LIST | KILL", connection_client_subcommands),
    NOW("TIME", 1, CONNECTION, 0, server_time, "server", "Unix seconds and microseconds"),
    {"INFO", -1, DEED_CONNECTION, COMMAND_DRAINING, ORDER_NOW, NO_KEY, NULL, server_info, NULL,
     NULL, "server", "[section ...]", NULL, server_info_act},
    {"COMMAND", -1, DEED_CONNECTION, 0, ORDER_NOW, NO_KEY, NULL, server_command, NULL, NULL,
     "server", "COUNT | DOCS | INFO", server_command_subcommands, NULL},
    GROUP("ACL", -2, ADMIN, 0, ORDER_NOW, "server",
          "WHOAMI | LIST | USERS | GETUSER | CAT | DRYRUN | LOAD | LOG: users and their rights",
          acl_subcommands),
    GROUP("CONFIG", -2, ADMIN, 0, ORDER_NOW, "server", "GET pattern", server_config_subcommands),
    NOW("SHUTDOWN", -1, ADMIN, 0, server_shutdown, "server", "Finish what has begun, then exit"),
    {"FLUSHALL", -1, DEED_ADMIN, LONG, ORDER_ALONE, NO_KEY, NULL, server_flushall, NULL, NULL,
     "server", "Remove every value and revoke every lease; with --unfenced-writes allow", NULL,
     NULL},
    {"FLUSHDB", -1, DEED_ADMIN, LONG, ORDER_ALONE, NO_KEY, NULL, server_flushall, NULL, NULL,
     "server", "The same as FLUSHALL: there is one database", NULL, NULL},
};

const size_t commands_count = sizeof commands / sizeof *commands;

/* What is known of a lock is asked of the lease service. */
#define LOCK(name, arity, deed, order, keys, start, abandon)                                       \
    {                                                                                              \
        name, arity, DEED_##deed, L | COMMAND_LOCK_KEYS, order, keys, NULL, start, abandon, NULL,  \
            "leases", "", NULL, NULL                                                               \
    }

const struct command lock_commands[] = {
    LOCK("SET", -3, ACQUIRE, ORDER_LEASE, KEY, lock_set, lock_abandon),
    LOCK("GET", 2, LOOK, ORDER_ALONE, KEY, lock_get, NULL),
    LOCK("PTTL", 2, LOOK, ORDER_ALONE, KEY, lock_pttl, NULL),
    LOCK("TTL", 2, LOOK, ORDER_ALONE, KEY, lock_ttl, NULL),
    LOCK("EXISTS", -2, LOOK, ORDER_ALONE, KEYS, lock_exists, NULL),
    LOCK("DEL", -2, REVOKE, ORDER_ALONE, KEYS, lock_del, NULL),
    LOCK("UNLINK", -2, REVOKE, ORDER_ALONE, KEYS, lock_del, NULL),
    LOCK("HEXISTS", 3, LOOK, ORDER_ALONE, KEY, lock_hexists, NULL),
    LOCK("HGET", 3, LOOK, ORDER_ALONE, KEY, lock_hget, NULL),
};

const size_t lock_commands_count = sizeof lock_commands / sizeof *lock_commands;

const struct command lock_command_refused = {.name = "",
                                             .deed = DEED_NOTHING,
                                             .order = ORDER_NOW,
                                             .start = lock_refuse,
                                             .group = "leases",
                                             .summary = ""};

const struct command lock_command_token =
    LOCK("GET", 2, LOOK, ORDER_READ, KEY, lock_companion_token, NULL);
const struct command lock_command_forget =
    LOCK("DEL", -2, RELEASE, ORDER_NOW, KEY, lock_companion_del, NULL);
