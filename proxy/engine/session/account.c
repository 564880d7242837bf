/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/session/account.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/internal.h"

struct account {
    UT_hash_handle hh; /* engine->accounts, by name */
    struct engine *engine;
    size_t keepers;
    struct account_use use;
    char name[];
};

static const struct {
    const char *what, *option;
} things[ACCOUNT_THINGS] = {
    [ACCOUNT_CONNECTIONS] = {"connections", "max-connections"},
    [ACCOUNT_LEASES] = {"leases", "max-leases"},
    [ACCOUNT_WAITERS] = {"ACQUIREs under way or waiting", "max-waiters"},
};

struct account *account_of(struct engine *engine, const char *name)
{
    size_t len = strlen(name);
    struct account *account;

    HASH_FIND(hh, engine->accounts, name, len, account);
    if (account == NULL) {
        account = mem_zalloc(sizeof *account + len + 1);
        account->engine = engine;
        memcpy(account->name, name, len);
        HASH_ADD_KEYPTR(hh, engine->accounts, account->name, len, account);
    }
    return account_keep(account);
}

struct account *account_keep(struct account *account)
{
    account->keepers++;
    return account;
}

void account_drop(struct account *account)
{
    if (account == NULL || --account->keepers > 0)
        return;
    for (int thing = 0; thing < ACCOUNT_THINGS; thing++)
        check_nought(things[thing].what, account->use.things[thing]);
    check_nought("bytes of requests and replies", account->use.bytes);
    HASH_DEL(account->engine->accounts, account);
    free(account);
}

size_t accounts_bytes(const struct engine *engine)
{
    size_t bytes = 0;

    for (const struct account *account = engine->accounts; account != NULL;
         account = account->hh.next)
        bytes += account->use.bytes;
    return bytes;
}

const char *account_name(const struct account *account)
{
    return account->name;
}

struct engine *account_engine(const struct account *account)
{
    return account->engine;
}

static bool is_full(const struct account_use *use, const struct account_limits *limits,
                    enum account_thing thing, size_t more)
{
    return limits->things[thing] > 0 && use->things[thing] + more > limits->things[thing];
}

bool account_has_room(const struct account *account, enum account_thing thing, size_t more,
                      char why[ACCOUNT_WHY_SIZE])
{
    const struct engine *engine = account->engine;
    const struct engine_options *options = &engine->options;

    if (is_full(&account->use, &options->user_limits, thing, more)) {
        snprintf(why, ACCOUNT_WHY_SIZE,
                 "too many %s: user '%s' has %zu, and may have no more (%s-per-user)",
                 things[thing].what, account->name, account->use.things[thing],
                 things[thing].option);
        return false;
    }
    if (is_full(&engine->use, &options->limits, thing, more)) {
        snprintf(why, ACCOUNT_WHY_SIZE, "too many %s: there are %zu, and may be no more (%s)",
                 things[thing].what, engine->use.things[thing], things[thing].option);
        return false;
    }
    return true;
}

bool account_take(struct account *account, enum account_thing thing, char why[ACCOUNT_WHY_SIZE])
{
    if (!account_has_room(account, thing, 1, why))
        return false;
    account_add(account, thing);
    return true;
}

void account_add(struct account *account, enum account_thing thing)
{
    account->use.things[thing]++;
    account->engine->use.things[thing]++;
}

void account_give(struct account *account, enum account_thing thing)
{
    check(account->use.things[thing] > 0);
    account->use.things[thing]--;
    account->engine->use.things[thing]--;
}

/* Take one command off the rate. After a pause a second's worth may come at once. */
static bool take_turn(struct account_use *use, size_t rate, int64_t now_us)
{
    int64_t each_us = 1000000 / (int64_t)rate, earliest_us = now_us - 1000000;

    if (use->due_us < earliest_us)
        use->due_us = earliest_us;
    if (use->due_us + each_us > now_us)
        return false;
    use->due_us += each_us;
    return true;
}

bool account_take_command(struct account *account, char why[ACCOUNT_WHY_SIZE])
{
    struct engine *engine = account->engine;
    size_t each = engine->options.user_limits.rate, all = engine->options.limits.rate;

    if (each > 0 && !take_turn(&account->use, each, engine->now_us)) {
        snprintf(why, ACCOUNT_WHY_SIZE,
                 "too many commands: user '%s' may send %zu in a second (max-rate-per-user)",
                 account->name, each);
        return false;
    }
    if (all > 0 && !take_turn(&engine->use, all, engine->now_us)) {
        snprintf(why, ACCOUNT_WHY_SIZE,
                 "too many commands: all together may send %zu in a second (max-rate)", all);
        return false;
    }
    return true;
}

void account_count_bytes(struct account *account, size_t *counted, size_t bytes)
{
    account->use.bytes += bytes - *counted;
    *counted = bytes;
}

bool account_bytes_fit(const struct account *account, char why[ACCOUNT_WHY_SIZE])
{
    size_t max = account->engine->options.user_limits.bytes;

    if (max == 0 || account->use.bytes <= max)
        return true;
    snprintf(why, ACCOUNT_WHY_SIZE,
             "too many bytes: user '%s' has %zu KB of requests under way and replies that it has "
             "not read (max-memory-per-user)",
             account->name, account->use.bytes >> 10);
    return false;
}
