/* SPDX-License-Identifier: Apache-2.0 */
/* Every command there is. Redis's own keep Redis's arity and key positions, so that clients which
 * ask COMMAND find what they expect; commands that Stockade extends say so in their summary. */
#include "proxy/engine/command/command.h"

#include <ctype.h>
#include <string.h>

#include "fence/base/check.h"
#include "proxy/engine/internal.h"

#define W    COMMAND_WRITES
#define A    COMMAND_ADMIN
#define L    COMMAND_LEASE
#define P    COMMAND_PUBSUB
#define LONG COMMAND_LONG
#define OPEN (COMMAND_NO_AUTH | COMMAND_DRAINING)
#define NOW(name, arity, flags, fn, group, summary)                                                \
    {                                                                                              \
        name, arity, flags, ORDER_NOW, 0, 0, 0, fn, NULL, group, summary                           \
    }
#define LEASE(name, arity, order, fn, summary)                                                     \
    {                                                                                              \
        name, arity, L, order, 1, 1, 1, fn, NULL, "leases", summary                                \
    }
#define READ(name, arity, flags, last, fn, group, summary)                                         \
    {                                                                                              \
        name, arity, flags, ORDER_READ, 1, last, 1, NULL, fn, group, summary                       \
    }
#define WRITE(name, arity, fn, group, summary)                                                     \
    {                                                                                              \
        name, arity, W, ORDER_WRITE, 1, 1, 1, NULL, fn, group, summary                             \
    }

const struct command commands[] = {
    LEASE("ACQUIRE", -3, ORDER_ALONE, lease_acquire,
          "Take a lease: resource ttl_ms [WAIT ms] [OWNER owner] [ID id] [EPHEMERAL]"
          " -> [token, ttl_ms] or null"),
    {"ACQUIREALL", -4, L, ORDER_ALONE, 3, 3, 1, lease_acquire_all, NULL, "leases",
     "Take several, all or none: ttl_ms n resource ... [the same options] -> tokens or null"},
    LEASE("RENEW", -4, ORDER_LEASE, lease_renew,
          "Extend a lease: resource token ttl_ms [NOTIFY] -> ttl_ms"),
    LEASE("RELEASE", -3, ORDER_WRITE, lease_release,
          "Give a lease back and retire its token: resource token [ID id] -> holds left"),
    LEASE("REVOKE", 2, ORDER_WRITE, lease_revoke,
          "Take a lease away from its holder: resource -> the retired token"),
    LEASE("LEASE", 2, ORDER_ALONE, lease_show, "Who holds a resource: resource -> map"),
    {"LEASES", -1, L | LONG, ORDER_READ, 0, 0, 0, lease_list, NULL, "leases",
     "Names of resources with an unretired token: [MATCH glob] [COUNT n]"},
    {"FENCED", -4, L, ORDER_WRITE, 3, 3, 1, data_fenced, NULL, "leases",
     "Run a command only while the token is the newest: token [ID id] command key [arg ...]"},
    {"FENCEDALL", -5, L, ORDER_WRITE, 2, 2, 1, data_fenced_all, NULL, "leases",
     "The same with several tokens: n resource token ... [ID id] command [arg ...]"},
    {"RECEIPT", 4, L, ORDER_READ, 1, 1, 1, receipt_show, NULL, "leases",
     "Was this request applied? resource token id -> [1, reply], [0, null] or null: still open"},

    {"MULTI", 1, COMMAND_UNQUEUED, ORDER_NOW, 0, 0, 0, multi_begin, NULL, "transactions",
     "Begin a transaction: data commands are queued"},
    {"EXEC", 1, COMMAND_UNQUEUED, ORDER_WRITE, 0, 0, 0, multi_exec, NULL, "transactions",
     "Apply what is queued, whole or not at all"},
    {"DISCARD", 1, COMMAND_UNQUEUED, ORDER_NOW, 0, 0, 0, multi_discard, NULL, "transactions",
     "Drop what is queued"},

    {"WATCH", -2, 0, ORDER_NOW, 1, -1, 1, multi_watch, NULL, "transactions",
     "Refused: take a lease, and write under its token"},
    NOW("UNWATCH", 1, 0, multi_watch, "transactions", "Refused, as WATCH"),

    {"SQL", -2, LONG, ORDER_READ, 0, 0, 0, NULL, sql_exec, "sql",
     "One statement: [TYPES itfbn...] statement [param ...] -> columns, rows, changes"},
    {"GUARD", -2, LONG, ORDER_WRITE, 0, 0, 0, guard_command, NULL, "sql",
     "Let rows change only under their token: CREATE table column prefix | DROP table | LIST"},

    READ("GET", 2, COMMAND_VALUE, 1, string_get, "string", "The value of a key"),
    READ("STRLEN", 2, 0, 1, string_strlen, "string", "The length of a value"),
    READ("MGET", -2, 0, -1, string_mget, "string", "The values of several keys"),
    READ("GETRANGE", 4, 0, 1, string_getrange, "string", "A part of a value: key start end"),
    WRITE("SET", -3, string_set, "string", "Set a value: key value [NX|XX] [GET]; no expiry"),
    WRITE("SETNX", 3, string_setnx, "string", "Set a value where there is none"),
    WRITE("GETSET", 3, string_getset, "string", "Set a value, reply with the old one"),
    WRITE("GETDEL", 2, string_getdel, "string", "Remove a value, reply with it"),
    {"MSET", -3, W, ORDER_WRITE, 1, -1, 2, NULL, string_mset, "string",
     "Set the values of several keys"},
    WRITE("APPEND", 3, string_append, "string", "Append to a value"),
    WRITE("SETRANGE", 4, string_setrange, "string", "Write over a part: key offset value"),
    WRITE("INCR", 2, string_incr, "string", "Add one"),
    WRITE("DECR", 2, string_decr, "string", "Take one"),
    WRITE("INCRBY", -3, string_incrby, "string", "Add: key n [MIN m] [MAX m]; RANGE outside"),
    WRITE("DECRBY", -3, string_decrby, "string", "Take: key n [MIN m] [MAX m]; RANGE outside"),
    WRITE("INCRBYFLOAT", 3, string_incrbyfloat, "string", "Add a number with a fraction"),

    {"DEL", -2, W, ORDER_WRITE, 1, -1, 1, NULL, key_del, "generic", "Remove the values of keys"},
    {"UNLINK", -2, W, ORDER_WRITE, 1, -1, 1, NULL, key_del, "generic", "The same as DEL"},
    READ("EXISTS", -2, 0, -1, key_exists, "generic", "How many of the keys have a value"),
    READ("TYPE", 2, 0, 1, key_type, "generic", "string, hash or none"),
    {"SCAN", -2, LONG, ORDER_READ, 0, 0, 0, NULL, key_scan, "generic",
     "Go through the keys: cursor [MATCH glob] [COUNT n] [TYPE type]"},
    {"DBSIZE", 1, LONG, ORDER_READ, 0, 0, 0, NULL, key_dbsize, "generic", "How many keys"},

    READ("HGET", 3, 0, 1, hash_get, "hash", "The value of a field"),
    READ("HMGET", -3, 0, 1, hash_mget, "hash", "The values of several fields"),
    READ("HGETALL", 2, LONG, 1, hash_getall, "hash", "All fields and values"),
    READ("HEXISTS", 3, 0, 1, hash_exists, "hash", "Is there this field?"),
    READ("HLEN", 2, LONG, 1, hash_len, "hash", "How many fields"),
    READ("HKEYS", 2, LONG, 1, hash_keys, "hash", "All fields"),
    READ("HVALS", 2, LONG, 1, hash_vals, "hash", "All values"),
    READ("HSTRLEN", 3, 0, 1, hash_strlen, "hash", "The length of a field's value"),
    READ("HSCAN", -3, LONG, 1, hash_scan, "hash",
         "Go through the fields: key cursor [MATCH g] [COUNT n]"),
    WRITE("HSET", -4, hash_set, "hash", "Set fields"),
    WRITE("HMSET", -4, hash_mset, "hash", "Set fields"),
    WRITE("HSETNX", 4, hash_setnx, "hash", "Set a field where there is none"),
    WRITE("HDEL", -3, hash_del, "hash", "Remove fields"),
    WRITE("HINCRBY", -4, hash_incrby, "hash",
          "Add to a field: key field n [MIN m] [MAX m]; RANGE outside"),
    WRITE("HINCRBYFLOAT", 4, hash_incrbyfloat, "hash", "Add a number with a fraction to a field"),

    {"SUBSCRIBE", -2, P, ORDER_ALONE, 0, 0, 0, pubsub_subscribe, NULL, "pubsub",
     "Listen to channels: stockade:events, stockade:events:<resource>"},
    {"UNSUBSCRIBE", -1, P, ORDER_ALONE, 0, 0, 0, pubsub_unsubscribe, NULL, "pubsub",
     "Listen to these channels, or any, no more"},
    {"PSUBSCRIBE", -2, P, ORDER_ALONE, 0, 0, 0, pubsub_psubscribe, NULL, "pubsub",
     "Listen to all channels that match a glob"},
    {"PUNSUBSCRIBE", -1, P, ORDER_ALONE, 0, 0, 0, pubsub_punsubscribe, NULL, "pubsub",
     "Listen to these patterns, or any, no more"},
    {"PUBLISH", 3, 0, ORDER_ALONE, 0, 0, 0, pubsub_publish, NULL, "pubsub",
     "Tell all who listen to a channel: channel message -> how many; not to stockade:*"},
    NOW("PUBSUB", -2, 0, pubsub_command, "pubsub",
        "CHANNELS [pattern] | NUMSUB channel ... | NUMPAT"),

    {"PING", -1, COMMAND_DRAINING | P, ORDER_NOW, 0, 0, 0, server_ping, server_ping_exec,
     "connection", "PONG, or the message"},
    NOW("ECHO", 2, 0, server_echo, "connection", "The message"),
    NOW("HELLO", -1, OPEN, server_hello, "connection", "[2|3 [AUTH user password] [SETNAME name]]"),
    NOW("AUTH", -2, OPEN, server_auth, "connection", "[user] password"),
    NOW("QUIT", -1, OPEN | COMMAND_UNQUEUED | P, server_quit, "connection", "Close the connection"),
    NOW("RESET", 1, OPEN | COMMAND_UNQUEUED | P, server_reset, "connection",
        "Back to a connection's first state"),
    NOW("SELECT", 2, 0, server_select, "connection", "Only database 0"),
    NOW("CLIENT", -2, 0, server_client, "connection",
        "ID | SETNAME | GETNAME | SETINFO | INFO | LIST | KILL"),
    NOW("TIME", 1, 0, server_time, "server", "Unix seconds and microseconds"),
    NOW("INFO", -1, COMMAND_DRAINING, server_info, "server", "[section ...]"),
    NOW("COMMAND", -1, 0, server_command, "server", "COUNT | DOCS | INFO"),
    NOW("CONFIG", -2, A, server_config, "server", "GET pattern"),
    NOW("SHUTDOWN", -1, A, server_shutdown, "server", "Finish what has begun, then exit"),
    {"FLUSHALL", -1, A | LONG, ORDER_WRITE, 0, 0, 0, server_flushall, NULL, "server",
     "Remove every value and revoke every lease; with --unfenced-writes allow"},
    {"FLUSHDB", -1, A | LONG, ORDER_WRITE, 0, 0, 0, server_flushall, NULL, "server",
     "The same as FLUSHALL: there is one database"},
};

const size_t commands_count = sizeof commands / sizeof *commands;

static size_t slot_of(struct bytes name)
{
    size_t hash = 5381;
    for (size_t i = 0; i < name.len; i++)
        hash = hash * 33 + (size_t)toupper((unsigned char)name.data[i]);
    return hash % COMMAND_SLOTS;
}

void command_index_fill(struct command_index *index)
{
    check(commands_count * 2 < COMMAND_SLOTS);
    memset(index, 0, sizeof *index);
    for (size_t i = 0; i < commands_count; i++) {
        size_t slot = slot_of(bytes_of(commands[i].name));
        while (index->slots[slot] != NULL)
            slot = (slot + 1) % COMMAND_SLOTS;
        index->slots[slot] = &commands[i];
    }
}

const struct command *command_find(const struct command_index *index, struct bytes name)
{
    if (name.len > 32)
        return NULL;
    for (size_t slot = slot_of(name); index->slots[slot] != NULL; slot = (slot + 1) % COMMAND_SLOTS)
        if (bytes_equal_nocase(name, index->slots[slot]->name))
            return index->slots[slot];
    return NULL;
}

bool command_arity_fits(const struct command *command, size_t argc)
{
    if (command->arity >= 0)
        return argc == (size_t)command->arity;
    return argc >= (size_t)-command->arity;
}
