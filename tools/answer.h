/* SPDX-License-Identifier: Apache-2.0 */
/* What commands share that ask the daemon by the library and print its answer, for people or, with
 * --json, for scripts: the connection, made when it is first needed; refusals with their exit
 * codes; members of JSON objects. */
#ifndef STOCKADE_TOOLS_ANSWER_H
#define STOCKADE_TOOLS_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "proxy/client/stockade.h"
#include "tools/cli.h"

enum {
    ANSWER_LIMIT_MS = 5000, /* for each call */
};

/* For the help. */
#define ANSWER_EXITS                                                                               \
    "exit codes: 0 done, 1 refused, 2 wrong usage, 3 nothing there, 69 the server cannot be\n"     \
    "reached"
/* Of those that write under a token or a lease. */
#define ANSWER_WRITE_EXITS                                                                         \
    "exit codes: 0 done, 1 refused, 2 wrong usage, 3 fewer left than asked for, 69 the server\n"   \
    "cannot be reached, 75 another holds the lease, 76 the token is stale"

struct answer {
    const char *command; /* "stockade get": in front of messages */
    const char *key;     /* that messages name; NULL: none */
    bool json;
    struct cli *cli;
    stk_client *client; /* NULL: not connected */
    struct buf out;     /* what goes to stdout next */
};

/* Connect, where that was not done yet. False: after a message, with `*code`. */
bool answer_connect(struct answer *answer, int *code);
/* Return the reply to a command of `count` words, or NULL after a message, with `*code`. */
stk_reply *answer_ask(struct answer *answer, const char *const *words, size_t count, int *code);
/* Print `out`, and empty it. */
void answer_print(struct answer *answer);
void answer_close(struct answer *answer);

/* Say why not, as text on stderr, or in `out` as {"error": ..., "message": ..., "key": ...}.
 * Return `code`. */
int answer_refuse(struct answer *answer, int code, const char *error, const char *message);
/* Say why a call of the library failed. Return the exit code. */
int answer_fail(struct answer *answer, enum stk_error error);

/* Append a member of a JSON object behind `before`, which is "{" or ", ". */
void answer_text(struct buf *out, const char *before, const char *name, struct bytes text);
/* The same behind ", ". */
void answer_number(struct buf *out, const char *name, int64_t number);

/* A view of a string; of anything else, of nothing. */
struct bytes answer_string(const stk_reply *string);
/* Return an entry of a map; NULL, which reads as nothing or zero, where there is none. */
const stk_reply *answer_entry(const stk_reply *map, const char *name);
int64_t answer_entry_number(const stk_reply *map, const char *name);
struct bytes answer_entry_text(const stk_reply *map, const char *name);

#endif
