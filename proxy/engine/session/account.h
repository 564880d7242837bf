/* SPDX-License-Identifier: Apache-2.0 */
/* What a user has at this daemon now, over all its connections, and whether its limits allow more.
 * An account lives as long as somebody keeps it: a connection, a lease, an ACQUIRE. What all users
 * have together is counted, too. */
#ifndef STOCKADE_ENGINE_ACCOUNT_H
#define STOCKADE_ENGINE_ACCOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct account;
struct engine;

/* What is counted. */
enum account_thing {
    ACCOUNT_CONNECTIONS,
    ACCOUNT_LEASES,  /* held, or about to be granted */
    ACCOUNT_WAITERS, /* ACQUIREs under way or waiting, and BLPOPs on lock keys */
    ACCOUNT_THINGS
};

/* 0: no limit. */
struct account_limits {
    size_t things[ACCOUNT_THINGS];
    size_t rate;  /* commands in a second */
    size_t bytes; /* of requests under way or queued by MULTI, and of replies that are not read yet;
                     of a user only */
};

struct account_use {
    size_t things[ACCOUNT_THINGS];
    int64_t due_us; /* of commands: when the next one may come */
    size_t bytes;
};

/* Return the account of a user, made if need be, and kept for the caller (account_drop). */
struct account *account_of(struct engine *engine, const char *name);
struct account *account_keep(struct account *account);
/* May be NULL. */
void account_drop(struct account *account);
/* Return the bytes of all users together. */
size_t accounts_bytes(const struct engine *engine);
const char *account_name(const struct account *account);
struct engine *account_engine(const struct account *account);

#define ACCOUNT_WHY_SIZE 160

/* May there be so many more? False: `why` says of what there are too many, how many, and whose. */
bool account_has_room(const struct account *account, enum account_thing thing, size_t more,
                      char why[ACCOUNT_WHY_SIZE]);
/* Count one more, where there may be. */
bool account_take(struct account *account, enum account_thing thing, char why[ACCOUNT_WHY_SIZE]);
/* Count one more, even if that is too many. */
void account_add(struct account *account, enum account_thing thing);
/* Count one less. */
void account_give(struct account *account, enum account_thing thing);
/* One of its connections holds so many bytes now; `*counted` is what was counted for it before. */
void account_count_bytes(struct account *account, size_t *counted, size_t bytes);
/* Does it hold no more than it may? False: `why`. */
bool account_bytes_fit(const struct account *account, char why[ACCOUNT_WHY_SIZE]);
/* Count a command. False: it is one too many within a second. */
bool account_take_command(struct account *account, char why[ACCOUNT_WHY_SIZE]);

#endif
