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
#include "fence/base/plain.h"
#include "proxy/engine/acl/acl_impl.h"

void acl_hash(struct bytes text, unsigned char hash[ACL_HASH_LEN])
{
    check(EVP_Digest(text.data, text.len, hash, NULL, EVP_sha256(), NULL) == 1);
}

/* As in Redis, where they are a set, the same one twice is one. */
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

/* crypt_checksalt() looks at the first letters only, and who could not log in would not know why.
 * All these forms end in a hash of a fixed length, behind as many $ as the method has. */
static bool has_form(const char *text)
{
    static const struct {
        const char *begin;
        size_t hash_len, least, most; /* of $ */
    } forms[] = {
        {"$y$", 43, 4, 4},  {"$gy$", 43, 4, 4},   {"$7$", 43, 3, 3},   {"$6$", 86, 3, 4},
        {"$5$", 43, 3, 4},  {"$2a$", 53, 3, 3},   {"$2b$", 53, 3, 3},  {"$2x$", 53, 3, 3},
        {"$2y$", 53, 3, 3}, {"$sha1$", 28, 4, 4}, {"$md5$", 22, 3, 4}, {"$md5,", 22, 3, 4},
        {"$1$", 22, 3, 3},  {"$3$$", 32, 3, 3},
    };
    size_t form = 0, dollars = 0;

    for (const char *c = text; *c != '\0'; c++) {
        if (!plain_is_alnum(*c) && strchr("./$=,", *c) == NULL)
            return false;
        dollars += *c == '$';
    }
    while (form < sizeof forms / sizeof *forms &&
           strncmp(text, forms[form].begin, strlen(forms[form].begin)) != 0)
        form++;
    return form < sizeof forms / sizeof *forms && dollars >= forms[form].least &&
           dollars <= forms[form].most && strlen(strrchr(text, '$') + 1) == forms[form].hash_len;
}

bool acl_add_crypt(struct acl_user *user, struct bytes text)
{
    char *copy = mem_alloc(text.len + 1);

    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    int known = has_form(copy) ? crypt_checksalt(copy) : CRYPT_SALT_INVALID;
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

void acl_know_password(struct acl_password *password, struct bytes given)
{
    check(RAND_bytes(password->key, sizeof password->key) == 1);
    take_mac(password, given, password->mac);
    password->known = true;
}

/* Compare with all of them, whichever fits: the time must not tell which one did. */
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
