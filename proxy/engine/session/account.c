/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/session/account.h"

#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "fence/base/mem.h"
#include "proxy/engine/internal.h"

struct account {
    UT_hash_handle hh; /* engine->accounts, by name */
    struct engine *engine;
    size_t keepers;
    char name[];
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
    HASH_DEL(account->engine->accounts, account);
    free(account);
}

const char *account_name(const struct account *account)
{
    return account->name;
}
