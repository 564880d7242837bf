/* SPDX-License-Identifier: Apache-2.0 */
/* Where a client goes, said in one line:
 *
 *   stockade://[user:password@]host[:port]
 *   stockade+unix:PATH
 *   sqlite:PATH[?lease=URI]
 *
 * A pure parser. User and password may be percent-encoded; an IPv6 address goes in brackets. No
 * complaint repeats a part of the URI that could be a password. */
#ifndef STOCKADE_CLIENT_TARGET_H
#define STOCKADE_CLIENT_TARGET_H

#include <stdbool.h>
#include <stddef.h>

enum target_kind { TARGET_TCP, TARGET_UNIX, TARGET_EMBEDDED };

struct target {
    enum target_kind kind;
    char host[256], port[6];       /* TCP */
    char path[4096];               /* unix: fits a sun_path; embedded: of the store */
    char lease[1024];              /* embedded: the lease URI */
    char user[128], password[256]; /* empty: none */
};

/* False: `why` says what is wrong; `target` is then of no use. */
bool target_parse(const char *uri, struct target *target, char *why, size_t why_size);
/* "127.0.0.1:7379", "[::1]:7379", a path. Returns `out`. */
const char *target_text(const struct target *target, char *out, size_t size);

#endif
