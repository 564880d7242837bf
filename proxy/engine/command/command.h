/* SPDX-License-Identifier: Apache-2.0 */
/* What a command is: a row that gives it its name, its arity, what it does (deed.h says who may),
 * where its keys are, its place in a connection's order, what is done for it and when, and its line
 * in COMMAND DOCS. The rows are in table.c; everybody else finds a command through an index. */
#ifndef STOCKADE_ENGINE_COMMAND_H
#define STOCKADE_ENGINE_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/bytes.h"
#include "fence/base/err.h"
#include "fence/base/nearest.h"
#include "proxy/engine/command/deed.h"

struct acl_user;
struct exec;
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
    COMMAND_WRITES = 1 << 0,     /* changes a value: needs a token */
    COMMAND_COUNTED = 1 << 1,    /* argv[2] says how many keys follow it */
    COMMAND_NO_AUTH = 1 << 2,    /* also before AUTH */
    COMMAND_DRAINING = 1 << 3,   /* also while the daemon stops */
    COMMAND_UNQUEUED = 1 << 4,   /* done at once between MULTI and EXEC, too */
    COMMAND_PUBSUB = 1 << 5,     /* also where a RESP2 connection has subscribed */
    COMMAND_LONG = 1 << 6,       /* goes through any number of rows */
    COMMAND_VALUE = 1 << 7,      /* replies with the string of its key, and wants nothing else */
    COMMAND_SQL = 1 << 8,        /* runs a statement: may take long, may act under any token */
    COMMAND_FENCED = 1 << 9,     /* a token, then the command that it is for */
    COMMAND_FENCEDALL = 1 << 10, /* several resources with tokens, then the command */
    COMMAND_BLOCKING = 1 << 11,  /* COMMAND tells clients that it may wait */
    COMMAND_LEASE = 1 << 12,     /* about leases, counted as such in the metrics */
    COMMAND_CHANNEL = 1 << 13,   /* its first argument is a channel */
    COMMAND_CHANNELS = 1 << 14,  /* all of them are */
    COMMAND_PATTERNS = 1 << 15,  /* they are patterns of channels */
    COMMAND_LOCK_KEYS = 1 << 16, /* its keys may be lock keys: then their resource counts */
    COMMAND_TELLS = 1 << 17,     /* tells the audit itself what an administrator has done */
    COMMAND_FIELD = 1 << 18,     /* its key is followed by a hash's field, */
    COMMAND_FIELDS = 1 << 19,    /* by fields, */
    COMMAND_PAIRS = 1 << 20,     /* or by fields with values */
    /* Changes what the connection's next commands mean: it counts, and no limit of its user's
     * refuses it. */
    COMMAND_STATE = 1 << 21,
    COMMAND_BEGINS = 1 << 22, /* what follows it belongs to it: where it is refused, so is that */
    COMMAND_MANY = 1 << 23,   /* may have as many words as a request can: see words_fit */
    COMMAND_ENDS = 1 << 24,   /* ends what was begun also with too many words: it looks itself */
};
/* Two with the same bit would be taken for each other. */
_Static_assert(COMMAND_WRITES + COMMAND_COUNTED + COMMAND_NO_AUTH + COMMAND_DRAINING +
                       COMMAND_UNQUEUED + COMMAND_PUBSUB + COMMAND_LONG + COMMAND_VALUE +
                       COMMAND_SQL + COMMAND_FENCED + COMMAND_FENCEDALL + COMMAND_BLOCKING +
                       COMMAND_LEASE + COMMAND_CHANNEL + COMMAND_CHANNELS + COMMAND_PATTERNS +
                       COMMAND_LOCK_KEYS + COMMAND_TELLS + COMMAND_FIELD + COMMAND_FIELDS +
                       COMMAND_PAIRS + COMMAND_STATE + COMMAND_BEGINS + COMMAND_MANY +
                       COMMAND_ENDS ==
                   (1 << 25) - 1,
               "each flag has a bit of its own");

typedef void command_start(struct request *request);
typedef enum stk_error command_exec(struct exec *exec);

/* What is done by one command with these words. */
struct act {
    enum deed deed;
    struct bytes channel; /* something is published there, too; empty: nothing is */
};
/* Tell it, of a command that is judged for this user: alone, or as a step of the request. */
typedef struct act command_act(const struct acl_user *user, struct request *request,
                               const struct bytes *argv, size_t argc);

/* A command's second word: "client|id". */
struct subcommand {
    const char *name; /* in lower case, with the command's */
    int arity;        /* as in struct command */
    command_start *start;
    enum deed deed;
};

struct command {
    const char *name; /* upper case */
    int arity;        /* with the name; negative: at least that many, as in Redis */
    enum deed deed;   /* the usual one, which has its category */
    unsigned flags;
    enum command_order order;
    int key_first, key_last, key_step; /* as COMMAND reports them; 0: no keys */

    /* On the loop's thread, in this order; NULL: nothing is to be done. */
    command_start *prepare; /* it was parsed: plan it, set its order */
    command_start *start;   /* its turn has come. Finishes the request, now or later */
    command_start *abandon; /* its client is gone while it is under way: nothing more shall be
                               taken for it. Finishes the request all the same */

    /* On the store's thread, within a transaction, as a step of a plan. STK_OK with a reply, the
     * store's error, or STK_BUSY: there is no room for the reply, and what it did is undone. */
    command_exec *exec;

    const char *group, *summary;
    const struct subcommand *subcommands; /* up to one without a name; NULL: it has none */
    command_act *act; /* where the deed depends on the words; NULL: it does not */
};

/* All of them: table.c. */
extern const struct command commands[];
extern const size_t commands_count;

/* Those on lock keys, in place of the ones of the same name; and what refuses all others there. */
extern const struct command lock_commands[];
extern const size_t lock_commands_count;
extern const struct command lock_command_refused;
/* The same on keys that lock libraries have beside a lock key: GET and DEL. */
extern const struct command lock_command_token, lock_command_forget;

#define COMMAND_SLOTS 256 /* more than twice the commands there are; a power of two */

/* Finds commands by name. Filled in once; then read-only. */
struct command_index {
    const struct command *all;
    size_t count;
    const struct command *slots[COMMAND_SLOTS];
};

void command_index_fill(struct command_index *index, const struct command *all, size_t count);
/* NULL: there is none of that name. */
const struct command *command_find(const struct command_index *index, struct bytes name);
/* The one that the second word names. NULL: none. */
const struct subcommand *subcommand_find(const struct command *command, struct bytes word);
/* Where there is none of that name: " (did you mean NAME?)" behind the error, or "". Returns `out`.
 */
const char *command_hint(const struct command_index *index, struct bytes name,
                         char out[NEAREST_HINT_MAX]);
const char *subcommand_hint(const struct command *command, struct bytes word,
                            char out[NEAREST_HINT_MAX]);

static inline enum command_category command_category(const struct command *command)
{
    return deed_needs(command->deed)->category;
}

/* Does it change nothing, whatever its words are? Then it may be sent again without an ID.
 * (What SQL does is in its statement.) The packages' lists are held to this by test_reads.py. */
static inline bool command_only_reads(const struct command *command)
{
    enum command_category category = command_category(command);

    return category == CATEGORY_READ ||
           (category == CATEGORY_CONNECTION && command->subcommands == NULL &&
            !(command->flags & COMMAND_STATE));
}

static inline enum command_category subcommand_category(const struct subcommand *subcommand)
{
    return deed_needs(subcommand->deed)->category;
}

/* Where the keys of a command are: from `at` up to `end`, by `step`. */
struct key_places {
    size_t at, end, step;
};
/* Find them, also where argv[2] says how many there are. The arity fits. */
struct key_places command_keys(const struct command *command, const struct bytes *argv,
                               size_t argc);

/* Is it a number of arguments, with the name, that the arity allows? */
static inline bool arity_fits(int arity, size_t argc)
{
    return arity >= 0 ? argc == (size_t)arity : argc >= (size_t)-arity;
}

/* With its name. What the loop goes through word by word, or the store key by key, has a bound.
 * Data that is written or read in one go has not: there what is done for a word on the loop is
 * little.
 */
#define COMMAND_WORDS_MAX 4096

/* May the command have so many words? Ask it wherever words become a command. */
static inline bool words_fit(const struct command *command, size_t argc)
{
    return (arity_fits(command->arity, argc) || (command->flags & COMMAND_ENDS)) &&
           (argc <= COMMAND_WORDS_MAX || (command->flags & COMMAND_MANY));
}

/* A command's name in lower case, as Redis's errors have it. Returns `out`. */
#define COMMAND_LOWER_SIZE 40
const char *command_lower(const char *name, char out[COMMAND_LOWER_SIZE]);
/* "client|list" as people write it: "CLIENT LIST". Returns `out`. */
const char *command_title(const char *name, char out[COMMAND_LOWER_SIZE]);

#endif
