/* SPDX-License-Identifier: Apache-2.0 */
/* See access.h. Whatever reads a secret hides the process's memory first. */
#include "proxy/server/access.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "proxy/server/process.h"

struct acl *access_users(const struct options *options, const struct log *log,
                         char why[ACCESS_WHY_SIZE])
{
    const char *file = options_text(options, OPTION_ACL_FILE);
    const char *path = options_text(options, OPTION_PASSWORD_FILE);
    char reason[ACL_WHY_SIZE], *password = NULL;
    struct acl *users;

    if (*path == '\0' && *file == '\0')
        return acl_without_file(NULL, commands, commands_count);
    process_hide_memory();
    if (*path != '\0' && *file != '\0') {
        snprintf(why, ACCESS_WHY_SIZE,
                 "%s and %s: give one of the two; the file of users can have a "
                 "user named default with that password",
                 options_origin(options, OPTION_PASSWORD_FILE), options_name(OPTION_ACL_FILE));
        return NULL;
    }
    if (*file != '\0') {
        users = process_read_users(file, log, reason, sizeof reason);
        if (users == NULL)
            snprintf(why, ACCESS_WHY_SIZE, "%s %s: %s", options_origin(options, OPTION_ACL_FILE),
                     file, reason);
        return users;
    }
    password = process_read_password(path, log, reason, sizeof reason);
    if (password == NULL) {
        snprintf(why, ACCESS_WHY_SIZE, "%s %s: %s", options_origin(options, OPTION_PASSWORD_FILE),
                 path, reason);
        return NULL;
    }
    users = acl_without_file(password, commands, commands_count);
    mem_free_secret(password);
    return users;
}

struct tls_context *access_tls(const struct options *options, char why[ACCESS_WHY_SIZE])
{
    const char *asked = options_text(options, OPTION_TLS_CLIENTS);
    const struct tls_files files = {.cert = options_text(options, OPTION_TLS_CERT),
                                    .key = options_text(options, OPTION_TLS_KEY),
                                    .ca = options_text(options, OPTION_TLS_CA)};

    if (*files.cert == '\0') {
        snprintf(why, ACCESS_WHY_SIZE,
                 "a tls: address needs --tls-cert FILE, and --tls-key FILE where "
                 "the key is not in that file");
        return NULL;
    }
    if (strcmp(asked, "no") == 0 && !options_is(options, OPTION_TLS_USER, "no")) {
        snprintf(why, ACCESS_WHY_SIZE, "--tls-user needs --tls-clients optional or required");
        return NULL;
    }
    process_hide_memory(); /* there is a private key */
    return tls_server(&files,
                      strcmp(asked, "required") == 0   ? TLS_CLIENTS_REQUIRED
                      : strcmp(asked, "optional") == 0 ? TLS_CLIENTS_OPTIONAL
                                                       : TLS_CLIENTS_NO,
                      why);
}

void access_warn_of_end(const struct options *options, const struct tls_context *tls,
                        const struct log *log)
{
    int64_t now_s = clock_wall_us(&clock_monotonic) / 1000000;
    int64_t ends_s = tls != NULL ? tls_context_ends_s(tls) : INT64_MAX;
    struct tm utc;

    if (ends_s > now_s + TLS_ENDS_SOON_S)
        return;
    gmtime_r(&(time_t){ends_s}, &utc);
    log_warn(log, "the certificate %s, or one behind it in that file, %s on %04d-%02d-%02d: %s",
             options_text(options, OPTION_TLS_CERT), ends_s <= now_s ? "expired" : "expires",
             utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
             ends_s <= now_s ? "clients refuse it" : "put a new one there, and send SIGHUP");
}

enum tls_user access_tls_user(const struct options *options)
{
    const char *asked = options_text(options, OPTION_TLS_USER);

    return strcmp(asked, "cn") == 0    ? TLS_USER_CN
           : strcmp(asked, "uri") == 0 ? TLS_USER_URI
                                       : TLS_USER_NO;
}

bool access_check(const struct acl *users, const char *address, bool allowed, const struct log *log,
                  char why[ACCESS_WHY_SIZE])
{
    const struct acl_user *open = acl_open_user(users);

    if (address == NULL || open == NULL)
        return true;
    if (allowed) {
        log_warn(log, "other machines can connect to %s, and need no password", address);
        return true;
    }
    if (acl_has_file(users))
        snprintf(why, ACCESS_WHY_SIZE,
                 "other machines could connect to %s, and user %s needs no password: take nopass "
                 "away from it in the file of users, ask for certificates (a tls: address and "
                 "tls-clients = required), listen on 127.0.0.1 or a unix socket only, or say "
                 "insecure-listen = allow",
                 address, open->name);
    else
        snprintf(why, ACCESS_WHY_SIZE,
                 "other machines could connect to %s, and would need no password: set "
                 "password-file or acl-file, ask for certificates (a tls: address and tls-clients "
                 "= required), listen on 127.0.0.1 or a unix socket only, or say insecure-listen = "
                 "allow",
                 address);
    return false;
}
