/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a password against a user's crypt(3) hashes. That takes long, so it runs on a thread
 * beside the loop's. */
#include <crypt.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/engine/acl/acl_impl.h"

struct acl_trial {
    struct acl *acl;
    const struct acl_user *user;
    char *given;       /* owned */
    struct bytes fits; /* the hash that the password has, owned by the acl; empty: none */
};

struct acl_trial *acl_trial_new(struct acl *acl, const struct acl_user *user, struct bytes password)
{
    struct acl_trial *trial = mem_zalloc(sizeof *trial);

    trial->acl = acl_keep(acl);
    trial->user = user;
    trial->given = mem_alloc(password.len + 1);
    memcpy(trial->given, password.data, password.len);
    trial->given[password.len] = '\0';
    /* crypt(3) stops at a zero byte, and would take any password that goes on behind it. */
    if (strlen(trial->given) != password.len)
        trial->given[0] = '\0';
    return trial;
}

const char *acl_trial_user(const struct acl_trial *trial)
{
    return trial->user->name;
}

void acl_trial_run(struct acl_trial *trial)
{
    const struct acl_user *user = trial->user;
    struct crypt_data *data = mem_zalloc(sizeof *data);

    for (size_t i = 0; i < user->passwords_count && trial->given[0] != '\0'; i++) {
        const char *wanted = user->passwords[i].crypt;
        const char *found = wanted == NULL ? NULL : crypt_r(trial->given, wanted, data);
        if (found != NULL && strlen(found) == strlen(wanted) &&
            CRYPTO_memcmp(found, wanted, strlen(wanted)) == 0)
            trial->fits = bytes_of(wanted);
    }
    explicit_bzero(data, sizeof *data);
    free(data);
}

bool acl_trial_end(struct acl_trial *trial, const struct acl *acl)
{
    const struct acl_user *user = acl_find(acl, bytes_of(trial->user->name));
    bool right = false;

    for (size_t i = 0; user != NULL && user->on && i < user->passwords_count; i++) {
        struct acl_password *password = &user->passwords[i];
        if (trial->fits.len == 0 || password->crypt == NULL ||
            strcmp(password->crypt, trial->fits.data) != 0)
            continue;
        acl_know_password(password, bytes_of(trial->given));
        right = true;
    }
    mem_free_secret(trial->given);
    acl_drop(trial->acl);
    free(trial);
    return right;
}

bool acl_same_default(const struct acl *a, const struct acl *b)
{
    const struct acl_user *left = acl_find(a, BYTES_LITERAL(ACL_DEFAULT_USER));
    const struct acl_user *right = acl_find(b, BYTES_LITERAL(ACL_DEFAULT_USER));

    if (left == NULL || right == NULL || left->nopass != right->nopass ||
        left->passwords_count != right->passwords_count)
        return false;
    for (size_t i = 0; i < left->passwords_count; i++)
        if (CRYPTO_memcmp(left->passwords[i].sha256, right->passwords[i].sha256, ACL_HASH_LEN) != 0)
            return false;
    return true;
}
