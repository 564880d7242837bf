/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that ask one thing or write one thing: `stockade get`, `set`, `take`, `lease`, `revoke`
 * and `leases`, for people and, with --json and exit codes, for scripts. They go through the
 * library, so what was lost on its way is asked again where that is harmless. */
#ifndef STOCKADE_TOOLS_QUERY_QUERY_H
#define STOCKADE_TOOLS_QUERY_QUERY_H

#include <stddef.h>

#include "fence/base/bytes.h"
#include "proxy/client/stockade.h"
#include "tools/cli.h"
#include "tools/options.h"

enum {
    QUERY_NO = 3,           /* nothing there, or not enough left */
    QUERY_UNREACHABLE = 69, /* EX_UNAVAILABLE of sysexits.h: also a server that is not able now */
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
    const char *uri;
    stk_client *client; /* NULL: not connected */
    struct buf out;     /* what goes to stdout next */
};

#define QUERY_JSON_ROW                                                                             \
    {                                                                                              \
        "json", OPTION_FLAG, offsetof(struct query_settings, json), 0, 0, NULL,                    \
            "one JSON value instead of text", NULL                                                 \
    }

/* Read the options, run `function`, and print what it has left in `out`. Returns the exit code. */
int query_run(int (*function)(struct query *), const struct option_table *table,
              const struct cli *cli, int argc, char **argv);

/* Connect, where that was not done yet. False: after a message, with `*code`. */
bool query_connect(struct query *query, int *code);
/* The reply to a command of `count` words, or NULL after a message, with `*code`. */
stk_reply *query_ask(struct query *query, const char *const *words, size_t count, int *code);

/* Print `out`, and empty it. */
void query_print(struct query *query);
/* Say why a call of the library failed. Returns the exit code. */
int query_fail(struct query *query, enum stk_error error);
/* Say why not, as text on stderr, or on stdout as {"key": ..., "error": ..., "message": ...}.
 * Returns `code`. */
int query_refuse(struct query *query, int code, const char *error, const char *message);

struct bytes query_bytes(const stk_reply *string);
/* `, "name": ` or, at the start of an object, `{"name": `. */
void query_json_name(struct buf *out, bool first, const char *name);

#endif
