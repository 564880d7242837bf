/* SPDX-License-Identifier: Apache-2.0 */
/* All commands, in the only file that names all of them. Redis's commands keep Redis's arity and
 * key positions, so that clients that ask COMMAND find what they expect; those that Stockade
 * extends say so in their summary. A field that a row does not name is 0: no key, no flag, nothing
 * to be done.
 */
#include "proxy/engine/command/handlers.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/lockkeys/lock_keys.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/pubsub.h"
#include "proxy/engine/write/plan.h"

#define ROW(command, ...)                                                                          \
    {                                                                                              \
        .name = (command), __VA_ARGS__                                                             \
    }

/* Where the keys are: the first and the last word (-1: of all), and how far apart. */
#define KEYS(first, last, step) .key_first = (first), .key_last = (last), .key_step = (step)
#define ONE_KEY                 KEYS(1, 1, 1)
#define ALL_KEYS                KEYS(1, -1, 1)

/* What is done, and when: at once on the loop; */
#define AT_ONCE(function) .order = ORDER_NOW, .start = (function)
/* by the subcommand that the second word names; */
#define BY_SUBCOMMAND(table) .start = request_start_subcommand, .subcommands = (table)
/* in the store, where it only reads; */
#define READS(step)                                                                                \
    .order = ORDER_READ, .prepare = read_prepare, .start = read_start, .exec = (step)
/* by a plan with this one step, which runs in the store. */
#define WRITES(step) .order = ORDER_WRITE, .prepare = plan_make, .start = plan_start, .exec = (step)

const struct command commands[] = {
    ROW("ACQUIRE", .arity = -3, ONE_KEY, .deed = DEED_ACQUIRE, .act = acquire_act,
        .flags = COMMAND_LEASE | COMMAND_BLOCKING, .order = ORDER_ALONE, .prepare = acquire_prepare,
        .start = lease_acquire, .abandon = acquire_abandon, .group = "leases",
        .summary =
            "Take a lease: resource ttl_ms [WAIT ms | QUEUE] [OWNER owner] [ID id] [EPHEMERAL]"
            " [PERMITS n] -> [token, ttl_ms], null, with QUEUE [queued, place], with PERMITS"
            " [token, ttl_ms, permit]"),
    ROW("ACQUIREALL", .arity = -4, KEYS(3, 3, 1), .deed = DEED_ACQUIRE,
        .flags = COMMAND_LEASE | COMMAND_COUNTED, .order = ORDER_ALONE, .start = lease_acquire_all,
        .abandon = acquire_all_abandon, .group = "leases",
        .summary = "Take several, all or none: ttl_ms n resource ... [the same options] -> tokens "
                   "or null"),
    ROW("DEQUEUE", .arity = 3, ONE_KEY, .deed = DEED_DEQUEUE, .flags = COMMAND_LEASE,
        .order = ORDER_LEASE, .start = lease_dequeue, .group = "leases",
        .summary = "Leave the line where ACQUIRE ... QUEUE stands: resource id -> 1, or 0: it "
                   "stood nowhere"),
    ROW("RENEW", .arity = -4, ONE_KEY, .deed = DEED_RENEW, .flags = COMMAND_LEASE,
        .order = ORDER_LEASE, .start = lease_renew, .group = "leases",
        .summary = "Extend a lease: resource token ttl_ms [NOTIFY] -> ttl_ms"),
    ROW("RELEASE", .arity = -3, ONE_KEY, .deed = DEED_RELEASE, .flags = COMMAND_LEASE,
        .order = ORDER_WRITE, .start = lease_release, .group = "leases",
        .summary = "Give a lease back and retire its token: resource token [ID id] -> holds left"),
    ROW("REVOKE", .arity = 2, ONE_KEY, .deed = DEED_REVOKE, .flags = COMMAND_LEASE,
        .order = ORDER_WRITE, .start = lease_revoke, .group = "leases",
        .summary = "Take a lease away from its holder: resource -> the retired token"),
    ROW("LEASE", .arity = -2, ONE_KEY, .deed = DEED_LOOK, .flags = COMMAND_LEASE,
        .order = ORDER_ALONE, .start = lease_show, .group = "leases",
        .summary =
            "Who holds a resource: resource [OWNER owner [TOKEN]] -> map, or the token; null where "
            "it is another OWNER's"),
    ROW("LEASES", .arity = -1, .deed = DEED_LOOK, .flags = COMMAND_LEASE | COMMAND_LONG,
        .order = ORDER_READ, .start = lease_list, .group = "leases",
        .summary = "Names of resources with an unretired token: [MATCH glob] [COUNT n]"),
    ROW("WAITERS", .arity = -2, ONE_KEY, .deed = DEED_LOOK, .flags = COMMAND_LEASE,
        .order = ORDER_ALONE, .start = waiters_show, .group = "leases",
        .summary = "Who waits for a resource: resource [COUNT n] -> maps, the next one first"),
    ROW("HISTORY", .arity = -2, ONE_KEY, .deed = DEED_LOOK, .flags = COMMAND_LEASE,
        .order = ORDER_ALONE, .start = history_show, .group = "leases",
        .summary = "Who held a resource, and how each lease ended: resource [COUNT n] -> maps, "
                   "newest first"),
    ROW("REFUSALS", .arity = -1, .deed = DEED_LOOK, .flags = COMMAND_LEASE, .order = ORDER_ALONE,
        .start = history_refusals_show, .group = "leases",
        .summary =
            "Which commands were refused, and how late they were: [MATCH glob] [COUNT n] -> maps"),
    ROW("FENCED", .arity = -4, KEYS(3, 3, 1), .deed = DEED_NOTHING,
        .flags = COMMAND_FENCED | COMMAND_MANY, .order = ORDER_WRITE, .prepare = plan_make,
        .start = plan_start, .group = "leases",
        .summary = "Run a command only while the token is the newest: token [ID id] command key "
                   "[arg ...]"),
    ROW("FENCEDALL", .arity = -5, KEYS(2, 2, 1), .deed = DEED_NOTHING,
        .flags = COMMAND_FENCEDALL | COMMAND_MANY, .order = ORDER_WRITE, .prepare = plan_make,
        .start = plan_start, .group = "leases",
        .summary = "The same with several tokens: n resource token ... [ID id] command [arg ...]"),
    ROW("RECEIPT", .arity = 4, ONE_KEY, .deed = DEED_READ, .flags = COMMAND_LEASE,
        .order = ORDER_READ, .start = receipt_show, .group = "leases",
        .summary = "Was this request applied? resource token id -> [1, reply], [0, null] or null: "
                   "still open"),

    ROW("MULTI", .arity = 1, .deed = DEED_NOTHING,
        .flags = COMMAND_UNQUEUED | COMMAND_STATE | COMMAND_BEGINS, AT_ONCE(multi_begin),
        .group = "transactions", .summary = "Begin a transaction: data commands are queued"),
    ROW("EXEC", .arity = 1, .deed = DEED_NOTHING,
        .flags = COMMAND_UNQUEUED | COMMAND_STATE | COMMAND_ENDS, .order = ORDER_WRITE,
        .start = multi_exec, .group = "transactions",
        .summary = "Apply what is queued, whole or not at all"),
    ROW("DISCARD", .arity = 1, .deed = DEED_NOTHING, .flags = COMMAND_UNQUEUED | COMMAND_STATE,
        AT_ONCE(multi_discard), .group = "transactions", .summary = "Drop what is queued"),

    ROW("WATCH", .arity = -2, ALL_KEYS, .deed = DEED_NOTHING, .flags = COMMAND_MANY,
        AT_ONCE(multi_watch), .group = "transactions",
        .summary = "Refused: take a lease, and write under its token"),
    ROW("UNWATCH", .arity = 1, .deed = DEED_NOTHING, AT_ONCE(multi_watch), .group = "transactions",
        .summary = "Refused, as WATCH"),

    ROW("SQL", .arity = -2, .deed = DEED_SQL, .flags = COMMAND_SQL | COMMAND_LONG | COMMAND_MANY,
        .order = ORDER_READ, .prepare = sql_prepare, .start = plan_start, .exec = sql_exec,
        .group = "sql",
        .summary =
            "One statement: [TYPES itfbn...] statement [param ...] -> columns, rows, changes"),
    ROW("GUARD", .arity = -2, .deed = DEED_ADMIN, .flags = COMMAND_LONG | COMMAND_TELLS,
        .order = ORDER_WRITE, BY_SUBCOMMAND(guard_subcommands), .group = "sql",
        .summary = "Let rows change only under their token: CREATE table column prefix | DROP "
                   "table | LIST"),

    ROW("GET", .arity = 2, ONE_KEY, .deed = DEED_READ, .flags = COMMAND_VALUE, READS(string_get),
        .group = "string", .summary = "The value of a key"),
    ROW("STRLEN", .arity = 2, ONE_KEY, .deed = DEED_READ, READS(string_strlen), .group = "string",
        .summary = "The length of a value"),
    ROW("MGET", .arity = -2, ALL_KEYS, .deed = DEED_READ, .flags = COMMAND_MANY, READS(string_mget),
        .group = "string", .summary = "The values of several keys"),
    ROW("GETRANGE", .arity = 4, ONE_KEY, .deed = DEED_READ, READS(string_getrange),
        .group = "string", .summary = "A part of a value: key start end"),
    ROW("SET", .arity = -3, ONE_KEY, .deed = DEED_WRITE, .flags = COMMAND_WRITES,
        .order = ORDER_WRITE, .prepare = string_set_prepare, .start = plan_start,
        .exec = string_set, .act = string_set_act, .group = "string",
        .summary = "Set a value: key value [NX|XX] [GET] [KEEPTTL]; no expiry"),
    ROW("SETNX", .arity = 3, ONE_KEY, .deed = DEED_WRITE, .flags = COMMAND_WRITES,
        WRITES(string_setnx), .group = "string", .summary = "Set a value where there is none"),
    ROW("GETSET", .arity = 3, ONE_KEY, .deed = DEED_EXCHANGE, .flags = COMMAND_WRITES,
        WRITES(string_getset), .group = "string", .summary = "Set a value, reply with the old one"),
    ROW("GETDEL", .arity = 2, ONE_KEY, .deed = DEED_EXCHANGE, .flags = COMMAND_WRITES,
        WRITES(string_getdel), .group = "string", .summary = "Remove a value, reply with it"),
    ROW("MSET", .arity = -3, KEYS(1, -1, 2), .deed = DEED_WRITE,
        .flags = COMMAND_WRITES | COMMAND_MANY, WRITES(string_mset), .group = "string",
        .summary = "Set the values of several keys"),
    ROW("APPEND", .arity = 3, ONE_KEY, .deed = DEED_WRITE, .flags = COMMAND_WRITES,
        WRITES(string_append), .group = "string", .summary = "Append to a value"),
    ROW("SETRANGE", .arity = 4, ONE_KEY, .deed = DEED_WRITE, .flags = COMMAND_WRITES,
        WRITES(string_setrange), .group = "string",
        .summary = "Write over a part: key offset value"),
    ROW("INCR", .arity = 2, ONE_KEY, .deed = DEED_EXCHANGE, .flags = COMMAND_WRITES,
        WRITES(string_incr), .group = "string", .summary = "Add one"),
    ROW("DECR", .arity = 2, ONE_KEY, .deed = DEED_EXCHANGE, .flags = COMMAND_WRITES,
        WRITES(string_decr), .group = "string", .summary = "Take one"),
    ROW("INCRBY", .arity = -3, ONE_KEY, .deed = DEED_EXCHANGE, .flags = COMMAND_WRITES,
        WRITES(string_incrby), .group = "string",
        .summary = "Add: key n [MIN m] [MAX m]; RANGE outside"),
    ROW("DECRBY", .arity = -3, ONE_KEY, .deed = DEED_EXCHANGE, .flags = COMMAND_WRITES,
        WRITES(string_decrby), .group = "string",
        .summary = "Take: key n [MIN m] [MAX m]; RANGE outside"),
    ROW("INCRBYFLOAT", .arity = 3, ONE_KEY, .deed = DEED_EXCHANGE, .flags = COMMAND_WRITES,
        WRITES(string_incrbyfloat), .group = "string", .summary = "Add a number with a fraction"),

    ROW("DEL", .arity = -2, ALL_KEYS, .deed = DEED_WRITE, .flags = COMMAND_WRITES, WRITES(key_del),
        .group = "generic", .summary = "Remove the values of keys"),
    ROW("UNLINK", .arity = -2, ALL_KEYS, .deed = DEED_WRITE, .flags = COMMAND_WRITES,
        WRITES(key_del), .group = "generic", .summary = "The same as DEL"),
    ROW("EXISTS", .arity = -2, ALL_KEYS, .deed = DEED_READ, READS(key_exists), .group = "generic",
        .summary = "How many of the keys have a value"),
    ROW("TTL", .arity = 2, ONE_KEY, .deed = DEED_READ, READS(key_ttl), .group = "generic",
        .summary = "-1: a value has no expiry; -2: there is none"),
    ROW("PTTL", .arity = 2, ONE_KEY, .deed = DEED_READ, READS(key_ttl), .group = "generic",
        .summary = "The same as TTL"),
    ROW("TYPE", .arity = 2, ONE_KEY, .deed = DEED_READ, READS(key_type), .group = "generic",
        .summary = "string, hash or none"),
    ROW("SCAN", .arity = -2, .deed = DEED_READ, .flags = COMMAND_LONG, READS(key_scan),
        .group = "generic",
        .summary = "Go through the keys: cursor [MATCH glob] [COUNT n] [TYPE type]"),
    ROW("DBSIZE", .arity = 1, .deed = DEED_READ, .flags = COMMAND_LONG, READS(key_dbsize),
        .group = "generic", .summary = "How many keys"),

    ROW("HGET", .arity = 3, ONE_KEY, .deed = DEED_READ, .flags = COMMAND_FIELD, READS(hash_get),
        .group = "hash", .summary = "The value of a field"),
    ROW("HMGET", .arity = -3, ONE_KEY, .deed = DEED_READ, .flags = COMMAND_FIELDS | COMMAND_MANY,
        READS(hash_mget), .group = "hash", .summary = "The values of several fields"),
    ROW("HGETALL", .arity = 2, ONE_KEY, .deed = DEED_READ, .flags = COMMAND_LONG,
        READS(hash_getall), .group = "hash", .summary = "All fields and values"),
    ROW("HEXISTS", .arity = 3, ONE_KEY, .deed = DEED_READ, .flags = COMMAND_FIELD,
        READS(hash_exists), .group = "hash", .summary = "Is there this field?"),
    ROW("HLEN", .arity = 2, ONE_KEY, .deed = DEED_READ, .flags = COMMAND_LONG, READS(hash_len),
        .group = "hash", .summary = "How many fields"),
    ROW("HKEYS", .arity = 2, ONE_KEY, .deed = DEED_READ, .flags = COMMAND_LONG, READS(hash_keys),
        .group = "hash", .summary = "All fields"),
    ROW("HVALS", .arity = 2, ONE_KEY, .deed = DEED_READ, .flags = COMMAND_LONG, READS(hash_vals),
        .group = "hash", .summary = "All values"),
    ROW("HSTRLEN", .arity = 3, ONE_KEY, .deed = DEED_READ, .flags = COMMAND_FIELD,
        READS(hash_strlen), .group = "hash", .summary = "The length of a field's value"),
    ROW("HSCAN", .arity = -3, ONE_KEY, .deed = DEED_READ, .flags = COMMAND_LONG, READS(hash_scan),
        .group = "hash", .summary = "Go through the fields: key cursor [MATCH g] [COUNT n]"),
    ROW("HSET", .arity = -4, ONE_KEY, .deed = DEED_WRITE,
        .flags = COMMAND_WRITES | COMMAND_PAIRS | COMMAND_MANY, WRITES(hash_set), .group = "hash",
        .summary = "Set fields"),
    ROW("HMSET", .arity = -4, ONE_KEY, .deed = DEED_WRITE,
        .flags = COMMAND_WRITES | COMMAND_PAIRS | COMMAND_MANY, WRITES(hash_mset), .group = "hash",
        .summary = "Set fields"),
    ROW("HSETNX", .arity = 4, ONE_KEY, .deed = DEED_WRITE, .flags = COMMAND_WRITES | COMMAND_FIELD,
        WRITES(hash_setnx), .group = "hash", .summary = "Set a field where there is none"),
    ROW("HDEL", .arity = -3, ONE_KEY, .deed = DEED_WRITE,
        .flags = COMMAND_WRITES | COMMAND_FIELDS | COMMAND_MANY, WRITES(hash_del), .group = "hash",
        .summary = "Remove fields"),
    ROW("HINCRBY", .arity = -4, ONE_KEY, .deed = DEED_EXCHANGE,
        .flags = COMMAND_WRITES | COMMAND_FIELD, WRITES(hash_incrby), .group = "hash",
        .summary = "Add to a field: key field n [MIN m] [MAX m]; RANGE outside"),
    ROW("HINCRBYFLOAT", .arity = 4, ONE_KEY, .deed = DEED_EXCHANGE,
        .flags = COMMAND_WRITES | COMMAND_FIELD, WRITES(hash_incrbyfloat), .group = "hash",
        .summary = "Add a number with a fraction to a field"),

    ROW("EVAL", .arity = -3, .deed = DEED_ACQUIRE,
        .flags = COMMAND_LEASE | COMMAND_COUNTED | COMMAND_LOCK_KEYS, .order = ORDER_ALONE,
        .prepare = lock_eval_prepare, .start = lock_eval, .abandon = lock_abandon,
        .act = lock_eval_act, .group = "scripting",
        .summary = "The script of a lock library, on lock keys: text numkeys key ... arg ..."),
    ROW("EVALSHA", .arity = -3, .deed = DEED_ACQUIRE,
        .flags = COMMAND_LEASE | COMMAND_COUNTED | COMMAND_LOCK_KEYS, .order = ORDER_ALONE,
        .prepare = lock_eval_prepare, .start = lock_evalsha, .abandon = lock_abandon,
        .act = lock_eval_act, .group = "scripting", .summary = "The same by the SHA1 of its text"),
    ROW("DELIFEQ", .arity = 3, ONE_KEY, .deed = DEED_RELEASE,
        .flags = COMMAND_LEASE | COMMAND_LOCK_KEYS, .order = ORDER_ALONE, .start = lock_delifeq,
        .group = "scripting",
        .summary = "Give a lock back whose value this is: key value -> 1, or 0"),
    ROW("DELEX", .arity = -2, ONE_KEY, .deed = DEED_RELEASE,
        .flags = COMMAND_LEASE | COMMAND_LOCK_KEYS, .order = ORDER_ALONE, .start = lock_delex,
        .group = "scripting", .summary = "The same: key IFEQ value"),
    ROW("BLPOP", .arity = -3, KEYS(1, -2, 1), .deed = DEED_ACQUIRE,
        .flags = COMMAND_LEASE | COMMAND_BLOCKING | COMMAND_LOCK_KEYS, .order = ORDER_ALONE,
        .start = lock_companion_wait, .abandon = lock_signal_abandon, .group = "scripting",
        .summary = "Wait for an unlock, as python-redis-lock does: lock-signal:name seconds"),
    ROW("SCRIPT", .arity = -2, .deed = DEED_ACQUIRE, .order = ORDER_NOW,
        BY_SUBCOMMAND(lock_script_subcommands), .group = "scripting",
        .summary = "LOAD text | EXISTS sha1 ...: of lock libraries"),

    ROW("SUBSCRIBE", .arity = -2, .deed = DEED_EVENTS,
        .flags = COMMAND_PUBSUB | COMMAND_STATE | COMMAND_CHANNELS, .order = ORDER_ALONE,
        .start = pubsub_subscribe, .group = "pubsub",
        .summary = "Listen to channels: stockade:events, stockade:events:<resource>"),
    ROW("UNSUBSCRIBE", .arity = -1, .deed = DEED_EVENTS, .flags = COMMAND_PUBSUB | COMMAND_STATE,
        .order = ORDER_ALONE, .start = pubsub_unsubscribe, .group = "pubsub",
        .summary = "Listen to these channels, or any, no more"),
    ROW("PSUBSCRIBE", .arity = -2, .deed = DEED_EVENTS,
        .flags = COMMAND_PUBSUB | COMMAND_STATE | COMMAND_CHANNELS | COMMAND_PATTERNS,
        .order = ORDER_ALONE, .start = pubsub_psubscribe, .group = "pubsub",
        .summary = "Listen to all channels that match a glob"),
    ROW("PUNSUBSCRIBE", .arity = -1, .deed = DEED_EVENTS, .flags = COMMAND_PUBSUB | COMMAND_STATE,
        .order = ORDER_ALONE, .start = pubsub_punsubscribe, .group = "pubsub",
        .summary = "Listen to these patterns, or any, no more"),
    ROW("PUBLISH", .arity = 3, .deed = DEED_EVENTS, .flags = COMMAND_CHANNEL, .order = ORDER_ALONE,
        .start = pubsub_publish, .group = "pubsub",
        .summary =
            "Tell all who listen to a channel: channel message -> how many; not to stockade:*"),
    ROW("PUBSUB", .arity = -2, .deed = DEED_EVENTS, .order = ORDER_NOW,
        BY_SUBCOMMAND(pubsub_subcommands), .group = "pubsub",
        .summary = "CHANNELS [pattern] | NUMSUB channel ... | NUMPAT"),

    ROW("PING", .arity = -1, .deed = DEED_CONNECTION, .flags = COMMAND_DRAINING | COMMAND_PUBSUB,
        AT_ONCE(connection_ping), .exec = connection_ping_exec, .group = "connection",
        .summary = "PONG, or the message"),
    ROW("ECHO", .arity = 2, .deed = DEED_CONNECTION, AT_ONCE(connection_echo),
        .exec = connection_echo_exec, .group = "connection", .summary = "The message"),
    ROW("HELLO", .arity = -1, .deed = DEED_NOTHING,
        .flags = COMMAND_NO_AUTH | COMMAND_DRAINING | COMMAND_STATE, .order = ORDER_ALONE,
        .start = connection_hello, .group = "connection",
        .summary = "[2|3 [AUTH user password] [SETNAME name]]"),
    ROW("AUTH", .arity = -2, .deed = DEED_NOTHING,
        .flags = COMMAND_NO_AUTH | COMMAND_DRAINING | COMMAND_STATE, .order = ORDER_ALONE,
        .start = connection_auth, .group = "connection", .summary = "[user] password"),
    ROW("QUIT", .arity = -1, .deed = DEED_NOTHING,
        .flags =
            COMMAND_NO_AUTH | COMMAND_DRAINING | COMMAND_UNQUEUED | COMMAND_PUBSUB | COMMAND_STATE,
        AT_ONCE(connection_quit), .group = "connection", .summary = "Close the connection"),
    ROW("RESET", .arity = 1, .deed = DEED_NOTHING,
        .flags =
            COMMAND_NO_AUTH | COMMAND_DRAINING | COMMAND_STATE | COMMAND_UNQUEUED | COMMAND_PUBSUB,
        .order = ORDER_ALONE, .start = connection_reset, .group = "connection",
        .summary = "Back to a connection's first state"),
    ROW("SELECT", .arity = 2, .deed = DEED_CONNECTION, .flags = COMMAND_STATE, .order = ORDER_NOW,
        .start = connection_select, .exec = connection_select_exec, .group = "connection",
        .summary = "Only database 0"),
    ROW("CLIENT", .arity = -2, .deed = DEED_CONNECTION, .order = ORDER_NOW,
        BY_SUBCOMMAND(connection_client_subcommands), .group = "connection",
        .summary = "ID | SETNAME | GETNAME | SETINFO | INFO | LIST | KILL"),
    ROW("TIME", .arity = 1, .deed = DEED_CONNECTION, AT_ONCE(server_time), .group = "server",
        .summary = "Unix seconds and microseconds"),
    ROW("INFO", .arity = -1, .deed = DEED_CONNECTION, .flags = COMMAND_DRAINING,
        AT_ONCE(server_info), .act = server_info_act, .group = "server",
        .summary = "[section ...]"),
    ROW("COMMAND", .arity = -1, .deed = DEED_CONNECTION, .order = ORDER_NOW,
        .start = server_command, .subcommands = server_command_subcommands, .group = "server",
        .summary = "COUNT | DOCS | INFO"),
    ROW("ACL", .arity = -2, .deed = DEED_ADMIN, .order = ORDER_NOW, BY_SUBCOMMAND(acl_subcommands),
        .group = "server",
        .summary =
            "WHOAMI | LIST | USERS | GETUSER | CAT | DRYRUN | LOAD | LOG: users and their rights"),
    ROW("CONFIG", .arity = -2, .deed = DEED_ADMIN, .order = ORDER_NOW,
        BY_SUBCOMMAND(server_config_subcommands), .group = "server", .summary = "GET pattern"),
    ROW("SHUTDOWN", .arity = -1, .deed = DEED_ADMIN, AT_ONCE(server_shutdown), .group = "server",
        .summary = "Finish what has begun, then exit"),
    ROW("FLUSHALL", .arity = -1, .deed = DEED_ADMIN, .flags = COMMAND_LONG, .order = ORDER_ALONE,
        .start = server_flushall, .group = "server",
        .summary = "Remove every value and revoke every lease; with --unfenced-writes allow"),
    ROW("FLUSHDB", .arity = -1, .deed = DEED_ADMIN, .flags = COMMAND_LONG, .order = ORDER_ALONE,
        .start = server_flushall, .group = "server",
        .summary = "The same as FLUSHALL: there is one database"),
};

const size_t commands_count = sizeof commands / sizeof *commands;

/* What is known of a lock is asked of the lease service. */
#define LOCK(command, ...)                                                                         \
    ROW(command, .flags = COMMAND_LEASE | COMMAND_LOCK_KEYS, .group = "leases", .summary = "",     \
        __VA_ARGS__)

const struct command lock_commands[] = {
    LOCK("SET", .arity = -3, ONE_KEY, .deed = DEED_ACQUIRE, .order = ORDER_LEASE, .start = lock_set,
         .abandon = lock_abandon),
    LOCK("GET", .arity = 2, ONE_KEY, .deed = DEED_LOOK, .order = ORDER_ALONE, .start = lock_get),
    LOCK("PTTL", .arity = 2, ONE_KEY, .deed = DEED_LOOK, .order = ORDER_ALONE, .start = lock_pttl),
    LOCK("TTL", .arity = 2, ONE_KEY, .deed = DEED_LOOK, .order = ORDER_ALONE, .start = lock_ttl),
    LOCK("EXISTS", .arity = -2, ALL_KEYS, .deed = DEED_LOOK, .order = ORDER_ALONE,
         .start = lock_exists),
    LOCK("DEL", .arity = -2, ALL_KEYS, .deed = DEED_REVOKE, .order = ORDER_ALONE,
         .start = lock_del),
    LOCK("UNLINK", .arity = -2, ALL_KEYS, .deed = DEED_REVOKE, .order = ORDER_ALONE,
         .start = lock_del),
    LOCK("HEXISTS", .arity = 3, ONE_KEY, .deed = DEED_LOOK, .order = ORDER_ALONE,
         .start = lock_hexists),
    LOCK("HGET", .arity = 3, ONE_KEY, .deed = DEED_LOOK, .order = ORDER_ALONE, .start = lock_hget),
};

const size_t lock_commands_count = sizeof lock_commands / sizeof *lock_commands;

const struct command lock_command_refused =
    ROW("", .deed = DEED_NOTHING, AT_ONCE(lock_refuse), .group = "leases", .summary = "");

const struct command lock_command_token = LOCK("GET", .arity = 2, ONE_KEY, .deed = DEED_LOOK,
                                               .order = ORDER_READ, .start = lock_companion_token);
const struct command lock_command_forget = LOCK("DEL", .arity = -2, ONE_KEY, .deed = DEED_RELEASE,
                                                .order = ORDER_NOW, .start = lock_companion_del);
