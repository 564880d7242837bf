/* SPDX-License-Identifier: Apache-2.0 */
/* What the small commands share (get, set, take, lease, revoke, leases): they ask the server one
 * thing, print the answer for people or as JSON, and exit with a code that a script can tell apart.
 *
 * JSON strings carry bytes as they are where they are UTF-8; in a text that is not, each byte from
 * 0x80 on is \u00XX. */
#ifndef STOCKADE_TOOLS_QUERY_QUERY_H
#define STOCKADE_TOOLS_QUERY_QUERY_H

#include <stdarg.h>

#include "tools/cli.h"
#include "tools/options.h"

enum query_exit {
    QUERY_NO = 3,           /* nothing there, never leased, fewer left than asked for */
    QUERY_UNREACHABLE = 69, /* EX_UNAVAILABLE of sysexits.h */
    QUERY_HELD = 75,        /* EX_TEMPFAIL */
    QUERY_STALE = 76,
};
#define QUERY_EXITS                                                                                \
    "exit codes: 0 done, 1 refused, 2 wrong usage, 3 nothing there (or fewer left than asked\n"    \
    "for), 69 the server cannot be reached, 75 another holds the lease, 76 the token is stale"

struct query_settings {
    const char *key, *value; /* the operands */
    const char *field;       /* of a hash; NULL: the key holds a string */
    int64_t token;           /* 0: take a lease for the moment */
    int64_t wait_ms, min, count;
    bool json;
};

struct query {
    const char *name; /* "stockade get": in front of messages */
    struct query_settings settings;
    struct client_uri uri;
    struct client client;
    int64_t wait_ms; /* how long the server may hold an answer back */
    char id[40];     /* of this run: owner and IDs */
};

#define QUERY_JSON_ROW                                                                             \
    {                                                                                              \
        "json", OPTION_FLAG, offsetof(struct query_settings, json), 0, 0, NULL,                    \
            "one JSON value instead of text", NULL                                                 \
    }

/* Reads the options. False: `*code` is what is left to return. */
bool query_open(struct query *query, const struct option_table *table, const struct cli *cli,
                int argc, char **argv, int *code);
void query_close(struct query *query);

/* The reply (the caller's) to a command of `count` words; NULL after a message, with `*code`. Where
 * the connection breaks, it is asked up to `times` times: more than once only where a repeat is
 * harmless. An error reply is handled here too. */
redisReply *query_ask(struct query *query, const char *const *words, size_t count, int times,
                      int *code);

/* Says why not, as text on stderr, or on stdout as {"key": ..., "error": ..., "message": ...}. */
int query_refuse(struct query *query, int code, const char *error, const char *message);

void query_json_text(const char *text, size_t length);
/* `, "name": ` or, at the start of an object, `{"name": `. */
void query_json_name(bool first, const char *name);

#endif
