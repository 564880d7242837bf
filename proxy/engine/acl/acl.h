/* SPDX-License-Identifier: Apache-2.0 */
/* Users and their rights, in Redis's ACL syntax: one line for each user, each word a rule.
 *
 *   user till on #<sha256 of its password> ~sku:* &stockade:events:sku:* +@read +@write +@lease
 *
 *   parse.c   words ─▶ users      password.c, trial.c   is this the password?
 *   show.c    users ─▶ words      acl.c                 may this user run, touch or hear that?
 *
 * An acl is made once and does not change, so the store's threads may ask it, too, as long as they
 * keep it (acl_keep). Only passwords change, on the loop's thread: one that was right is
 * remembered. Nothing here does I/O. */
#ifndef STOCKADE_ENGINE_ACL_H
#define STOCKADE_ENGINE_ACL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "proxy/engine/command/command.h"

#define ACL_USER_MAX     64        /* bytes of a name */
#define ACL_FILE_MAX     (1 << 20) /* bytes of a file */
#define ACL_USERS_MAX    10000
#define ACL_PASSWORD_MAX 512        /* bytes of a password that is checked */
#define ACL_WHY_SIZE     320        /* room for what is wrong with a file */
#define ACL_DEFAULT_USER "default"  /* who is on a connection before anybody has logged in */
#define ACL_WORDS        (256 / 64) /* of the set of commands and subcommands */

struct glob;

struct acl_pattern {
    unsigned needs; /* of keys: what it is for */
    char *text;     /* owned, as is the next */
    struct glob *glob;
};

struct acl_password;

struct acl_user {
    char name[ACL_USER_MAX + 1];
    bool on;
    bool admin;                         /* may do all that @admin is about */
    bool nopass;                        /* any password will do */
    bool all;                           /* may do everything: no right has to be checked */
    const struct command *all_commands; /* the table of commands */
    size_t all_count;
    uint64_t commands[ACL_WORDS]; /* which of them it may run: a set of bits, see acl.c */
    bool all_keys, all_channels;
    struct acl_pattern *keys, *channels; /* owned */
    size_t keys_count, channels_count;
    struct acl_password *passwords; /* owned */
    size_t passwords_count;
};

struct acl;

/* Read a file of users; `all` is the table of commands, which outlives the acl. NULL: `why` says
 * what is wrong, and in which line. There is no user `default` unless the file names one. The
 * caller owns the acl (acl_drop). */
struct acl *acl_parse(struct bytes text, const struct command *all, size_t count,
                      char why[ACL_WHY_SIZE]);
/* Make the acl for a daemon without a file: one user, `default`, who may do everything. `password`
 * NULL: it needs none, and is no administrator where it comes from another machine. */
struct acl *acl_without_file(const char *password, const struct command *all, size_t count);
/* Add a keeper, or drop one; the last one to drop it frees it. On any thread. */
struct acl *acl_keep(struct acl *acl);
void acl_drop(struct acl *acl);

/* Is there a file behind it? */
bool acl_has_file(const struct acl *acl);
/* NULL: there is nobody of that name. Borrowed from the acl, as all users. */
const struct acl_user *acl_find(const struct acl *acl, struct bytes name);
/* In order of their names; NULL: that was the last one. */
const struct acl_user *acl_at(const struct acl *acl, size_t i);
/* Return the user on a connection that has not logged in; NULL: it has to. `trusted`: it came from
 * this machine. */
const struct acl_user *acl_newcomer(const struct acl *acl, bool trusted);
/* Has `default` the same SHA-256 passwords in both, or needs none in both? */
bool acl_same_default(const struct acl *a, const struct acl *b);
/* Return a user who needs no password and may run something; NULL: there is none. */
const struct acl_user *acl_open_user(const struct acl *acl);

/* Rights. `subcommand` is NULL where the command has none. */
bool acl_may_run(const struct acl_user *user, const struct command *command,
                 const struct subcommand *subcommand);
bool acl_may_run_name(const struct acl_user *user, const char *command);
bool acl_may_touch(const struct acl_user *user, struct bytes name, unsigned needs);
/* May it listen to this channel, or to this pattern of channels? */
bool acl_may_hear(const struct acl_user *user, struct bytes channel, bool is_pattern);
/* May it do so with every name? */
bool acl_may_touch_all(const struct acl_user *user, unsigned needs);

/* Categories by name; CATEGORY_NONE: there is none of that name. */
enum command_category acl_category(struct bytes name);
const char *acl_category_name(enum command_category category);
/* Call `each` for all that any user can be allowed: "GET", "client|list". */
void acl_each_name(const struct acl_user *user,
                   void (*each)(void *context, const char *name, enum command_category category),
                   void *context);

/* Append the user's rules as ACL LIST shows them: "user till on #... ~sku:* ...". */
void acl_show_user(const struct acl_user *user, struct buf *out);
/* The same in parts, for ACL GETUSER. */
void acl_show_passwords(const struct acl_user *user, void (*each)(void *context, struct bytes),
                        void *context);
void acl_show_commands(const struct acl_user *user, struct buf *out);
void acl_show_keys(const struct acl_user *user, struct buf *out);
void acl_show_channels(const struct acl_user *user, struct buf *out);

/* Passwords. */

enum acl_login {
    ACL_RIGHT,
    ACL_WRONG,
    ACL_SLOW, /* only crypt(3) can tell, which takes long: acl_trial_new */
};

/* Is this the user's password? Hashes are compared in constant time. */
enum acl_login acl_check_password(const struct acl_user *user, struct bytes password);

/* Check a password against a user's crypt(3) hashes: acl_trial_new and acl_trial_end on the loop's
 * thread, between them acl_trial_run on any. The user is the acl's, which the trial keeps. */
struct acl_trial *acl_trial_new(struct acl *acl, const struct acl_user *user,
                                struct bytes password);
void acl_trial_run(struct acl_trial *trial);
/* The name of the user. */
const char *acl_trial_user(const struct acl_trial *trial);
/* Was it right, and is it still a password of that user in `acl`, which is the one in force now?
 * Then the next check is quick. Free the trial. */
bool acl_trial_end(struct acl_trial *trial, const struct acl *acl);

#endif
