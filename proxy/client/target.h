/* SPDX-License-Identifier: Apache-2.0 */
/* Where a client connects to, as one line of text:
 *
 *   stockade://[user:password@]host[:port]
 *   stockades://[user:password@]host[:port][?tls_ca=FILE&tls_cert=FILE&tls_key=FILE&tls_name=NAME]
 *   stockade+unix:PATH[?user=USER&password=PASSWORD]
 *   sqlite:PATH[?lease=URI]
 *   postgresql://...[?lease=URI], libpq's, with lease= last, behind ? or &
 *
 * How a host or a login is written: fence/base/uri.h. No complaint repeats a part of the URI that
 * could be a password. */
#ifndef STOCKADE_CLIENT_TARGET_H
#define STOCKADE_CLIENT_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/uri.h"

enum target_kind { TARGET_TCP, TARGET_UNIX, TARGET_EMBEDDED };

struct target {
    enum target_kind kind;
    struct uri_host host;                          /* TCP */
    bool tls;                                      /* TCP: by TLS, and then: */
    char tls_ca[256], tls_cert[256], tls_key[256]; /* PEM files; empty: the system's CAs; none */
    char tls_name[256];     /* that the daemon's certificate has to have; empty: the host's */
    struct uri_login login; /* TCP and unix */
    char path[4096];        /* unix: fits a sun_path; embedded: the store's URI */
    char lease[1024];       /* embedded: the lease URI */
};

/* False: `why` says what is wrong; `target` is then of no use. */
bool target_parse(const char *uri, struct target *target, char *why, size_t why_size);
/* "127.0.0.1:7379", "[::1]:7379", a path. Returns `out`. */
const char *target_text(const struct target *target, char *out, size_t size);

#endif
