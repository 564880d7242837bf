/* SPDX-License-Identifier: Apache-2.0 */
/* The users, and what each may do. The commands that a user may run are a set of bits: one for each
 * row of the table of commands, then one for each subcommand. */
#include "proxy/engine/acl/acl.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/glob.h"
#include "fence/base/mem.h"
#include "proxy/engine/acl/acl_impl.h"

struct acl {
    atomic_size_t keepers;
    bool has_file;
    const struct command *commands;
    size_t commands_count;
    struct acl_user **users; /* owned; sorted by name */
    size_t count;
    struct acl_user *stranger; /* without a file: the newcomer from another machine; or NULL */
};

struct acl *acl_new(const struct command *all, size_t count, bool has_file)
{
    struct acl *acl = mem_zalloc(sizeof *acl);

    acl->commands = all;
    acl->commands_count = count;
    atomic_init(&acl->keepers, 1);
    acl->has_file = has_file;
    return acl;
}

static struct acl_user *user_new(const struct acl *acl, struct bytes name)
{
    struct acl_user *user = mem_zalloc(sizeof *user);

    user->all_commands = acl->commands;
    user->all_count = acl->commands_count;
    check(name.len >= 1 && name.len <= ACL_USER_MAX);
    memcpy(user->name, name.data, name.len);
    return user;
}

static void user_free(struct acl_user *user)
{
    if (user == NULL)
        return;
    acl_clear_patterns(&user->keys, &user->keys_count);
    acl_clear_patterns(&user->channels, &user->channels_count);
    acl_clear_passwords(user);
    free(user);
}

/* Find where the user of this name is, or would be. */
static size_t place_of(const struct acl *acl, struct bytes name)
{
    size_t low = 0, high = acl->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (bytes_compare(bytes_of(acl->users[middle]->name), name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct acl_user *acl_add(struct acl *acl, struct bytes name)
{
    size_t at = place_of(acl, name);

    if (acl_find(acl, name) != NULL)
        return NULL;
    acl->users = mem_realloc(acl->users, (acl->count + 1) * sizeof(struct acl_user *));
    memmove(acl->users + at + 1, acl->users + at, (acl->count - at) * sizeof(struct acl_user *));
    acl->count++;
    return acl->users[at] = user_new(acl, name);
}

void acl_add_pattern(struct acl_pattern **all, size_t *count, unsigned needs, struct bytes text)
{
    char *copy = mem_alloc(text.len + 1);

    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    *all = mem_realloc(*all, (*count + 1) * sizeof **all);
    (*all)[(*count)++] = (struct acl_pattern){needs, copy, glob_new(text)};
}

void acl_clear_patterns(struct acl_pattern **all, size_t *count)
{
    for (size_t i = 0; i < *count; i++) {
        free((*all)[i].text);
        glob_free((*all)[i].glob);
    }
    free(*all);
    *all = NULL;
    *count = 0;
}

/* The set of rights. */

static size_t bit_of(const struct acl_user *user, const struct command *command)
{
    return (size_t)(command - user->all_commands);
}

static size_t bit_of_sub(const struct acl_user *user, const struct command *command,
                         const struct subcommand *subcommand)
{
    size_t bit = user->all_count + (size_t)(subcommand - command->subcommands);

    for (const struct command *at = user->all_commands; at != command; at++)
        for (const struct subcommand *sub = at->subcommands; sub != NULL && sub->name != NULL;
             sub++)
            bit++;
    check(bit < 64 * (size_t)ACL_WORDS);
    return bit;
}

void acl_each_right(const struct acl_user *user,
                    void (*each)(void *context, size_t bit, enum command_category category,
                                 const struct command *command,
                                 const struct subcommand *subcommand),
                    void *context)
{
    size_t next = user->all_count; /* as bit_of_sub counts */

    for (size_t i = 0; i < user->all_count; i++) {
        const struct command *command = &user->all_commands[i];
        each(context, i, command_category(command), command, NULL);
        for (const struct subcommand *sub = command->subcommands; sub != NULL && sub->name != NULL;
             sub++)
            each(context, next++, subcommand_category(sub), command, sub);
    }
}

bool acl_may_run(const struct acl_user *user, const struct command *command,
                 const struct subcommand *subcommand)
{
    if ((subcommand != NULL ? subcommand_category(subcommand) : command_category(command)) ==
        CATEGORY_NONE)
        return true;
    return acl_has(user, subcommand != NULL ? bit_of_sub(user, command, subcommand)
                                            : bit_of(user, command));
}

bool acl_may_run_name(const struct acl_user *user, const char *name)
{
    for (size_t i = 0; i < user->all_count; i++)
        if (strcmp(user->all_commands[i].name, name) == 0)
            return acl_may_run(user, &user->all_commands[i], NULL);
    return false;
}

/* May it run any command at all? */
static bool may_run_any(const struct acl_user *user)
{
    for (size_t i = 0; i < ACL_WORDS; i++)
        if (user->commands[i] != 0)
            return true;
    return false;
}

bool acl_may_touch_all(const struct acl_user *user, unsigned needs)
{
    for (size_t i = 0; i < user->keys_count; i++)
        if (strcmp(user->keys[i].text, "*") == 0)
            needs &= ~user->keys[i].needs;
    return needs == 0 || user->all_keys;
}

/* One pattern may allow the reading and another one the writing. */
bool acl_may_touch(const struct acl_user *user, struct bytes name, unsigned needs)
{
    if (user->all_keys)
        return true;
    for (size_t i = 0; i < user->keys_count && needs != 0; i++)
        if ((user->keys[i].needs & needs) != 0 && glob_matches(user->keys[i].glob, name))
            needs &= ~user->keys[i].needs;
    return needs == 0;
}

/* Which channels a pattern will match cannot be known, so only the very patterns that were allowed
 * are. */
bool acl_may_hear(const struct acl_user *user, struct bytes channel, bool is_pattern)
{
    if (user->all_channels)
        return true;
    for (size_t i = 0; i < user->channels_count; i++) {
        const struct acl_pattern *allowed = &user->channels[i];
        if (is_pattern ? bytes_equal(bytes_of(allowed->text), channel)
                       : glob_matches(allowed->glob, channel))
            return true;
    }
    return false;
}

struct seal {
    struct acl_user *user;
    bool all, admin;
};

/* Note where the user lacks a right. */
static void seal_right(void *context, size_t bit, enum command_category category,
                       const struct command *command, const struct subcommand *subcommand)
{
    struct seal *seal = context;

    (void)command, (void)subcommand;
    seal->all &= category == CATEGORY_NONE || acl_has(seal->user, bit);
    seal->admin &= category != CATEGORY_ADMIN || acl_has(seal->user, bit);
}

void acl_seal(struct acl *acl)
{
    for (size_t i = 0; i < acl->count; i++) {
        struct acl_user *user = acl->users[i];
        struct seal seal = {user, true, true};
        acl_each_right(user, seal_right, &seal);
        user->all_keys = acl_may_touch_all(user, ACL_READS | ACL_WRITES);
        user->all_channels = false;
        for (size_t j = 0; j < user->channels_count; j++)
            user->all_channels |= strcmp(user->channels[j].text, "*") == 0;
        user->admin = seal.admin;
        user->all = seal.all && user->all_keys && user->all_channels;
    }
}

static void allow(void *context, size_t bit, enum command_category category,
                  const struct command *command, const struct subcommand *subcommand)
{
    struct acl_user *user = context;

    (void)command, (void)subcommand;
    if (category != CATEGORY_NONE)
        user->commands[bit / 64] |= UINT64_C(1) << bit % 64;
}

/* They only show something, which without a file of users everybody may see. */
static bool is_harmless(const char *name)
{
    return strcmp(name, "guard|list") == 0 || strcmp(name, "client|list") == 0;
}

static void deny_admin(void *context, size_t bit, enum command_category category,
                       const struct command *command, const struct subcommand *subcommand)
{
    struct acl_user *user = context;

    (void)command;
    if (category == CATEGORY_ADMIN && !(subcommand != NULL && is_harmless(subcommand->name)))
        user->commands[bit / 64] &= ~(UINT64_C(1) << bit % 64);
}

static void allow_everything(struct acl_user *user)
{
    user->on = true;
    acl_each_right(user, allow, user);
    acl_add_pattern(&user->keys, &user->keys_count, ACL_READS | ACL_WRITES, BYTES_LITERAL("*"));
    acl_add_pattern(&user->channels, &user->channels_count, 0, BYTES_LITERAL("*"));
}

struct acl *acl_without_file(const char *password, const struct command *all, size_t count)
{
    struct acl *acl = acl_new(all, count, false);
    struct acl_user *user = acl_add(acl, BYTES_LITERAL(ACL_DEFAULT_USER));
    unsigned char hash[ACL_HASH_LEN];

    allow_everything(user);
    acl_seal(acl);
    if (password != NULL) {
        acl_hash(bytes_of(password), hash);
        acl_add_password(user, hash);
        return acl;
    }
    user->nopass = true;
    acl->stranger = user_new(acl, BYTES_LITERAL(ACL_DEFAULT_USER));
    allow_everything(acl->stranger);
    acl->stranger->nopass = acl->stranger->all_keys = acl->stranger->all_channels = true;
    acl_each_right(acl->stranger, deny_admin, acl->stranger);
    return acl;
}

struct acl *acl_keep(struct acl *acl)
{
    atomic_fetch_add(&acl->keepers, 1);
    return acl;
}

void acl_drop(struct acl *acl)
{
    if (acl == NULL || atomic_fetch_sub(&acl->keepers, 1) != 1)
        return;
    for (size_t i = 0; i < acl->count; i++)
        user_free(acl->users[i]);
    free(acl->users);
    user_free(acl->stranger);
    free(acl);
}

bool acl_has_file(const struct acl *acl)
{
    return acl->has_file;
}

const struct acl_user *acl_at(const struct acl *acl, size_t i)
{
    return i < acl->count ? acl->users[i] : NULL;
}

const struct acl_user *acl_find(const struct acl *acl, struct bytes name)
{
    size_t at = place_of(acl, name);

    return at < acl->count && bytes_equal(bytes_of(acl->users[at]->name), name) ? acl->users[at]
                                                                                : NULL;
}

const struct acl_user *acl_newcomer(const struct acl *acl, bool trusted)
{
    const struct acl_user *user = acl_find(acl, BYTES_LITERAL(ACL_DEFAULT_USER));

    if (user == NULL || !user->on || !user->nopass)
        return NULL;
    return trusted || acl->stranger == NULL ? user : acl->stranger;
}

const struct acl_user *acl_open_user(const struct acl *acl)
{
    for (size_t i = 0; i < acl->count; i++)
        if (acl->users[i]->on && acl->users[i]->nopass && may_run_any(acl->users[i]))
            return acl->users[i];
    return NULL;
}
