/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to keys, to leases, to the daemon, and which rights each deed needs. This is the one
 * table that is asked: before a command starts, at EXEC, by ACL DRYRUN, for what COMMAND says of
 * keys. Each command, subcommand and script names its deed; where one comes by another way (a lease
 * is ended by a script, a value is read by GETSET), it needs the same rights. */
#ifndef STOCKADE_ENGINE_DEED_H
#define STOCKADE_ENGINE_DEED_H

#include "fence/base/check.h"

/* What a user may do with a key; a set of bits. */
enum acl_need { ACL_READS = 1, ACL_WRITES = 2 };

/* `+@lease` in a file of users gives the commands of one category. */
enum command_category {
    CATEGORY_NONE, /* no right is needed: FENCED, MULTI, and what comes before the login */
    CATEGORY_READ,
    CATEGORY_WRITE,
    CATEGORY_LEASE,
    CATEGORY_REVOKE,
    CATEGORY_SQL,
    CATEGORY_EVENTS,
    CATEGORY_ADMIN,
    CATEGORY_CONNECTION,
    CATEGORIES
};

/* Deed; its category; what it needs of each key; the command whose right it needs where a command
 * of another category does it; what COMMAND says of its keys, in Redis's words. */
#define DEEDS(X)                                                                                   \
    X(NOTHING, NONE, 0, NULL, "")                                                                  \
    X(READ, READ, ACL_READS, "GET", "RO access")                                                   \
    X(WRITE, WRITE, ACL_WRITES, "SET", "OW update")                                                \
    X(EXCHANGE, WRITE, ACL_READS | ACL_WRITES, "GETSET", "RW access update") /* tells what was */  \
    X(LOOK, READ, ACL_READS, "LEASE", "RO access")                                                 \
    X(ACQUIRE, LEASE, ACL_WRITES, "ACQUIRE", "OW update")                                          \
    X(PERMIT, LEASE, 0, "ACQUIRE", "") /* permits.c asks for the right to each */                  \
    X(RENEW, LEASE, ACL_WRITES, "RENEW", "OW update")                                              \
    X(RELEASE, LEASE, ACL_WRITES, "RELEASE", "OW update")                                          \
    X(DEQUEUE, LEASE, ACL_WRITES, "DEQUEUE", "OW update")                                          \
    X(REVOKE, REVOKE, ACL_WRITES, "REVOKE", "OW update") /* ends anybody's lease */                \
    X(SQL, SQL, ACL_WRITES, "SQL", "")                                                             \
    X(EVENTS, EVENTS, 0, "SUBSCRIBE", "")                                                          \
    X(ADMIN, ADMIN, 0, NULL, "") /* by another command's way: all rights of an administrator */    \
    X(CONNECTION, CONNECTION, 0, "PING", "")

enum deed {
    DEED_NOT_SAID, /* a row that was forgotten: command_index_fill() stops the daemon */
#define X(deed, category, keys, command, spec) DEED_##deed,
    DEEDS(X)
#undef X
        DEEDS_END
};

struct deed_needs {
    enum command_category category;
    unsigned keys;       /* of each key: a set of enum acl_need */
    const char *command; /* stands for it; NULL: none does */
    const char *spec;    /* words with spaces between them */
};

extern const struct deed_needs deeds_table[DEEDS_END];

/* Inline: each command asks. */
static inline const struct deed_needs *deed_needs(enum deed deed)
{
    check(deed > DEED_NOT_SAID && deed < DEEDS_END);
    return &deeds_table[deed];
}

#endif
