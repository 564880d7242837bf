/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers that the data commands share while they run in the store: arguments, errors, sums with
 * bounds, and replies whose length is not known in advance. */
#ifndef STOCKADE_ENGINE_EXEC_H
#define STOCKADE_ENGINE_EXEC_H

#include "proxy/engine/command/command.h"
#include "proxy/engine/command/cursors.h"
#include "proxy/resp/resp.h"
#include "store/sql.h"
#include "store/txn.h"

struct acl_user;
struct glob;
struct replies;

#define VALUE_BYTES_MAX (16 << 20) /* of one value: as many as one argument may have */
#define REPLY_BYTES_MAX                                                                            \
    (64 << 20) /* of one reply: whoever needs more iterates by SCAN or HSCAN                       \
                */
/* SCAN and HSCAN return at most so much at once, whatever COUNT says, but always one element. */
#define SCAN_PAGE_BYTES_MAX (1 << 20)

/* A data command while it runs on the store's thread. */
struct exec {
    struct store_txn *txn;
    size_t argc;
    const struct bytes *argv; /* argv[0] is the command, argv[1] the key where it has one */
    struct resource resource; /* of argv[1], for commands with a key */
    struct buf *out;          /* the reply; complete, or empty where the store failed */
    size_t at; /* where the reply begins in `out`: a transaction's replies are there */
    struct replies *replies; /* the room for replies */
    size_t *share;           /* this reply's part of that room */
    struct cursors *cursors; /* HSCAN's */
    bool resp3;
    const struct acl_user *rights; /* which names may be shown; NULL: all */
    enum sql_right sql_right;      /* what SQL may do */
    int64_t sql_limit_ms;
};

static inline bool exec_is_word(const struct exec *exec, size_t i, const char *word)
{
    return i < exec->argc && bytes_equal_nocase(exec->argv[i], word);
}

/* Does the key hold something else than `type`? Then the reply is WRONGTYPE. */
bool exec_wrong_type(struct exec *exec, enum value_type type);
/* Reply with an ERR. Return STK_OK, for `return exec_error(...)`. */
enum stk_error exec_error(struct exec *exec, const char *text);
/* Reply with ERR "syntax error". Return STK_OK. */
enum stk_error exec_syntax(struct exec *exec);
/* Drop what has been written of the reply, and reply with an ERR. Return STK_OK. */
enum stk_error exec_error_instead(struct exec *exec, const char *text);

/* Take room for `more` bytes of the reply. STK_BUSY: there is none; the command returns that. */
enum stk_error exec_room(struct exec *exec, size_t more);
/* Reply with a bulk string that may be large. STK_BUSY: there is no room for it. */
enum stk_error exec_bulk(struct exec *exec, struct bytes value);

/* The addition of INCRBY, DECRBY and HINCRBY: the sum, its bounds, Redis's overflow rule. */
struct exec_add {
    int64_t delta, min, max;
};
/* Read the delta at argv[at], then [MIN m] [MAX m]. False: an error was replied. */
bool exec_add_parse(struct exec *exec, size_t at, struct exec_add *add);
/* Add the delta to `old` (an integer as text; 0 where it was not found). False: an error was
 * replied. */
bool exec_add_apply(struct exec *exec, const struct exec_add *add, bool found, struct bytes old,
                    const char *not_integer, int64_t *sum);

/* The addition of INCRBYFLOAT and HINCRBYFLOAT, with the precision and the form of Redis: long
 * doubles, 17 digits behind the point, no zeros at the end. */
#define EXEC_FLOAT_SIZE 5120 /* the largest number with its digits */
#define EXEC_NOT_FLOAT  "value is not a valid float"
bool exec_is_float(struct bytes text, bool *finite);
/* Add `delta` to `old` (0 where it was not found); the sum is written into `text`. False: an error
 * was replied. */
bool exec_add_float(struct exec *exec, struct bytes delta, bool found, struct bytes old,
                    const char *not_float, char text[EXEC_FLOAT_SIZE], struct bytes *sum);

/* Collects elements of a reply whose header, with their number, is written last. */
struct exec_collect {
    struct exec *exec; /* set by the caller */
    struct buf body;
    size_t count;
    bool too_large, no_room;
};
/* Append an element. False: stop, the reply has become too large, or there is no room for it. */
bool exec_collect(struct exec_collect *collect, struct bytes element);
/* Write the header and the body, or the error, and free the body. `pairs`: a map of count/2. */
enum stk_error exec_collect_end(struct exec_collect *collect, bool pairs);

/* The options of SCAN and HSCAN: [MATCH glob] [COUNT n] [TYPE type]. */
struct exec_scan {
    struct glob *match; /* NULL: everything */
    int64_t count;
    bool typed;
    enum value_type type;
};
/* Read the options from argv[at] on; glob_free scan->match when done. False: an error was replied,
 * and there is nothing to free. */
bool exec_scan_parse(struct exec *exec, size_t at, bool takes_type, struct exec_scan *scan);

#endif
