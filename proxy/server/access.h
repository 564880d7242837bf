/* SPDX-License-Identifier: Apache-2.0 */
/* Who may come in, as the options say: users and passwords, certificates, and that nothing is open
 * to everybody by mistake. Asked at the start, on SIGHUP and, for users, by ACL LOAD. */
#ifndef STOCKADE_SERVER_ACCESS_H
#define STOCKADE_SERVER_ACCESS_H

#include <stdbool.h>

#include "fence/base/log.h"
#include "fence/base/tls.h"
#include "proxy/engine/engine.h"
#include "proxy/server/options.h"

enum { ACCESS_WHY_SIZE = STORE_OPEN_WHY_MAX };

/* Return who may do what: as the file of users says, with the one password, or everybody. The
 * caller drops it. NULL: `why` is one line. */
struct acl *access_users(const struct options *options, const struct log *log,
                         char why[ACCESS_WHY_SIZE]);
/* Read the certificates for tls: addresses. The caller frees the context. NULL: `why` is one line.
 */
struct tls_context *access_tls(const struct options *options, char why[ACCESS_WHY_SIZE]);
/* Warn where the certificate is good no longer, or not for long. NULL is ignored. */
void access_warn_of_end(const struct options *options, const struct tls_context *tls,
                        const struct log *log);
/* Return how certificates name users. */
enum tls_user access_tls_user(const struct options *options);
/* Return whether these users may be served at an address that other machines reach without a
 * certificate (NULL: there is none). False: it would be open to everybody, and `why` says what to
 * do. Where that is allowed (--insecure-listen), the log has a warning instead. */
bool access_check(const struct acl *users, const char *address, bool allowed, const struct log *log,
                  char why[ACCESS_WHY_SIZE]);

#endif
