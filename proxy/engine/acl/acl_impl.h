/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share, and nobody else sees. */
#ifndef STOCKADE_ENGINE_ACL_IMPL_H
#define STOCKADE_ENGINE_ACL_IMPL_H

#include "proxy/engine/acl/acl.h"

#define ACL_HASH_LEN 32 /* bytes of a SHA-256 */

struct acl_password {
    unsigned char sha256[ACL_HASH_LEN]; /* of the password, where there is no crypt hash */
    char *crypt;                        /* owned: crypt(3)'s text; NULL: none */
    bool known; /* it was right once, and `mac` is its HMAC under the random `key` */
    unsigned char key[ACL_HASH_LEN], mac[ACL_HASH_LEN];
};

struct acl *acl_new(const struct command *all, size_t count, bool has_file);
/* Add a user without any rights. NULL: there is one of that name. */
struct acl_user *acl_add(struct acl *acl, struct bytes name);
/* Sum up what each user may do, once all their rules are there. */
void acl_seal(struct acl *acl);

/* Call `each` for all that any user can be allowed: commands, and subcommands. */
void acl_each_right(const struct acl_user *user,
                    void (*each)(void *context, size_t bit, enum command_category category,
                                 const struct command *command,
                                 const struct subcommand *subcommand),
                    void *context);
static inline bool acl_has(const struct acl_user *user, size_t bit)
{
    return (user->commands[bit / 64] >> bit % 64 & 1) != 0;
}

void acl_add_pattern(struct acl_pattern **all, size_t *count, unsigned needs, struct bytes text);
void acl_clear_patterns(struct acl_pattern **all, size_t *count);

void acl_hash(struct bytes text, unsigned char hash[ACL_HASH_LEN]);
void acl_add_password(struct acl_user *user, const unsigned char hash[ACL_HASH_LEN]);
/* False: the text is no hash of crypt(3)'s. */
bool acl_add_crypt(struct acl_user *user, struct bytes text);
void acl_remove_password(struct acl_user *user, const unsigned char hash[ACL_HASH_LEN]);
void acl_clear_passwords(struct acl_user *user);
/* It was right: remember its HMAC, so that the next check is quick. */
void acl_know_password(struct acl_password *password, struct bytes given);

#endif
