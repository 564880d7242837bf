/* SPDX-License-Identifier: Apache-2.0 */
/* Is this the password? A SHA-256 tells at once, and is for long random passwords; for those that
 * people choose there is crypt(3), which takes long on purpose. What crypt has found right is known
 * again by a keyed hash, under a random key of its own, which never leaves this process. */
#include <crypt.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/acl/acl_impl.h"

void acl_hash(struct bytes text, unsigned char hash[ACL_HASH_LEN])
{
    check(EVP_Digest(text.data, text.len, hash, NULL, EVP_sha256(), NULL) == 1);
}

/* Adding the same one twice is no harm: Redis has a set of them. */
void acl_add_password(struct acl_user *user, const unsigned char hash[ACL_HASH_LEN])
{
    acl_remove_password(user, hash);
    user->passwords =
        mem_realloc(user->passwords, (user->passwords_count + 1) * sizeof *user->passwords);
    struct acl_password *password = &user->passwords[user->passwords_count++];
    *password = (struct acl_password){.crypt = NULL};
    memcpy(password->sha256, hash, ACL_HASH_LEN);
}

void acl_remove_password(struct acl_user *user, const unsigned char hash[ACL_HASH_LEN])
{
    for (size_t i = 0; i < user->passwords_count; i++) {
        struct acl_password *password = &user->passwords[i];
        if (password->crypt != NULL || memcmp(password->sha256, hash, ACL_HASH_LEN) != 0)
            continue;
        *password = user->passwords[--user->passwords_count];
        return;
    }
}

bool acl_add_crypt(struct acl_user *user, struct bytes text)
{
    char *copy = mem_alloc(text.len + 1);

    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    int known = text.len > 1 && copy[0] == '$' ? crypt_checksalt(copy) : CRYPT_SALT_INVALID;
    if (known == CRYPT_SALT_INVALID || known == CRYPT_SALT_METHOD_DISABLED) {
        free(copy);
        return false;
    }
    user->passwords =
        mem_realloc(user->passwords, (user->passwords_count + 1) * sizeof *user->passwords);
    user->passwords[user->passwords_count++] = (struct acl_password){.crypt = copy};
    return true;
}

void acl_clear_passwords(struct acl_user *user)
{
    for (size_t i = 0; i < user->passwords_count; i++)
        free(user->passwords[i].crypt);
    free(user->passwords);
    user->passwords = NULL;
    user->passwords_count = 0;
}

static void take_mac(const struct acl_password *password, struct bytes given,
                     unsigned char mac[ACL_HASH_LEN])
{
    check(HMAC(EVP_sha256(), password->key, sizeof password->key, (const unsigned char *)given.data,
               given.len, mac, NULL) != NULL);
}

/* All of them are looked at, whichever fits. */
enum acl_login acl_check_password(const struct acl_user *user, struct bytes given)
{
    unsigned char hash[ACL_HASH_LEN], mac[ACL_HASH_LEN];
    bool right = user->nopass, slow = false;

    if (given.len > ACL_PASSWORD_MAX)
        return ACL_WRONG;
    acl_hash(given, hash);
    for (size_t i = 0; i < user->passwords_count; i++) {
        const struct acl_password *password = &user->passwords[i];
        if (password->crypt == NULL) {
            right |= CRYPTO_memcmp(password->sha256, hash, sizeof hash) == 0;
            continue;
        }
        slow = true;
        if (!password->known)
            continue;
        take_mac(password, given, mac);
        right |= CRYPTO_memcmp(password->mac, mac, sizeof mac) == 0;
    }
    return right ? ACL_RIGHT : slow ? ACL_SLOW : ACL_WRONG;
}

struct acl_trial {
    struct acl *acl;
    const struct acl_user *user;
    char *given;       /* owned */
    struct bytes fits; /* the hash that it fits, of the acl's; empty: none */
};

struct acl_trial *acl_trial_new(struct acl *acl, const struct acl_user *user, struct bytes password)
{
    struct acl_trial *trial = mem_zalloc(sizeof *trial);

    trial->acl = acl_keep(acl);
    trial->user = user;
    trial->given = mem_alloc(password.len + 1);
    memcpy(trial->given, password.data, password.len);
    trial->given[password.len] = '\0';
    /* crypt(3) ends at a zero byte, and would take what begins as the password does. */
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
        check(RAND_bytes(password->key, sizeof password->key) == 1);
        take_mac(password, bytes_of(trial->given), password->mac);
        password->known = right = true;
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
