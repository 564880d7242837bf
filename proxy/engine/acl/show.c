/* SPDX-License-Identifier: Apache-2.0 */
/* Writes users as the words of a file: read again, they make the same users. */
#include <string.h>

#include "proxy/engine/acl/acl_impl.h"

static void add_word(struct buf *out, const char *before, const char *word)
{
    if (out->len > 0)
        buf_append_text(out, " ");
    buf_append_text(out, before);
    buf_append_text(out, word);
}

struct naming {
    void (*each)(void *context, const char *name, enum command_category category);
    void *context;
};

static void name_right(void *context, size_t bit, enum command_category category,
                       const struct command *command, const struct subcommand *subcommand)
{
    const struct naming *naming = context;

    (void)bit;
    naming->each(naming->context, subcommand != NULL ? subcommand->name : command->name, category);
}

void acl_each_name(const struct acl_user *user,
                   void (*each)(void *context, const char *name, enum command_category category),
                   void *context)
{
    acl_each_right(user, name_right, &(struct naming){each, context});
}

/* How much of each category a user has. */
struct shown {
    const struct acl_user *user;
    struct buf *out;
    size_t there[CATEGORIES], had[CATEGORIES];
    const struct command *with_all; /* the word for it was written, and gives all subcommands */
};

static void count(void *context, size_t bit, enum command_category category,
                  const struct command *command, const struct subcommand *subcommand)
{
    struct shown *shown = context;

    (void)command, (void)subcommand;
    shown->there[category]++;
    shown->had[category] += acl_has(shown->user, bit);
}

/* Write the words for what no category gave. +command gives its subcommands, too: those that the
 * user lacks are taken away again. */
static void show_single(void *context, size_t bit, enum command_category category,
                        const struct command *command, const struct subcommand *subcommand)
{
    struct shown *shown = context;
    char lower[COMMAND_LOWER_SIZE];
    bool has = acl_has(shown->user, bit);

    if (subcommand == NULL)
        shown->with_all = NULL;
    if (category == CATEGORY_NONE)
        return;
    if (subcommand != NULL && shown->with_all == command) {
        if (!has)
            add_word(shown->out, "-", subcommand->name);
        return;
    }
    if (shown->had[category] == shown->there[category] || !has)
        return;
    if (subcommand == NULL)
        shown->with_all = command;
    add_word(shown->out, "+",
             subcommand != NULL ? subcommand->name : command_lower(command->name, lower));
}

void acl_show_commands(const struct acl_user *user, struct buf *out)
{
    struct buf words = {0};
    struct shown shown = {.user = user, .out = &words};
    bool all = true;

    acl_each_right(user, count, &shown);
    for (int i = CATEGORY_NONE + 1; i < CATEGORIES; i++)
        all &= shown.had[i] == shown.there[i];
    add_word(&words, "", all ? "+@all" : "-@all");
    for (int i = CATEGORY_NONE + 1; i < CATEGORIES && !all; i++)
        if (shown.had[i] == shown.there[i])
            add_word(&words, "+@", acl_category_name((enum command_category)i));
    acl_each_right(user, show_single, &shown);
    buf_append_bytes(out, buf_bytes(&words));
    buf_free(&words);
}

void acl_show_keys(const struct acl_user *user, struct buf *out)
{
    static const char *const before[] = {"", "%R~", "%W~", "~"};
    struct buf words = {0};

    for (size_t i = 0; i < user->keys_count; i++)
        add_word(&words, before[user->keys[i].needs], user->keys[i].text);
    buf_append_bytes(out, buf_bytes(&words));
    buf_free(&words);
}

void acl_show_channels(const struct acl_user *user, struct buf *out)
{
    struct buf words = {0};

    for (size_t i = 0; i < user->channels_count; i++)
        add_word(&words, "&", user->channels[i].text);
    buf_append_bytes(out, buf_bytes(&words));
    buf_free(&words);
}

void acl_show_passwords(const struct acl_user *user, void (*each)(void *context, struct bytes),
                        void *context)
{
    char hex[2 * ACL_HASH_LEN];

    for (size_t i = 0; i < user->passwords_count; i++) {
        const struct acl_password *password = &user->passwords[i];
        bytes_to_hex((struct bytes){(const char *)password->sha256, ACL_HASH_LEN}, hex);
        each(context,
             password->crypt != NULL ? bytes_of(password->crypt) : (struct bytes){hex, sizeof hex});
    }
}

static void add_password(void *context, struct bytes hash)
{
    struct buf *out = context;

    buf_append_text(out, hash.data[0] == '$' ? " crypt:" : " #");
    buf_append_bytes(out, hash);
}

void acl_show_user(const struct acl_user *user, struct buf *out)
{
    buf_append_text(out, "user ");
    buf_append_text(out, user->name);
    buf_append_text(out, user->on ? " on" : " off");
    if (user->nopass)
        buf_append_text(out, " nopass");
    acl_show_passwords(user, add_password, out);
    buf_append_text(out, user->keys_count > 0 ? " " : "");
    acl_show_keys(user, out);
    buf_append_text(out, " ");
    if (user->channels_count == 0)
        buf_append_text(out, "resetchannels");
    acl_show_channels(user, out);
    buf_append_text(out, " ");
    acl_show_commands(user, out);
}
