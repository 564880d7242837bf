/* SPDX-License-Identifier: Apache-2.0 */
/* Which lease service, said in one line:
 *
 *   local:
 *   redis://[user:password@]host[:port][/db][?prefix=stockade&timeout_ms=1000]
 *   redis+unix:PATH[?db=0&user=...&password=...&prefix=stockade&timeout_ms=1000]
 *
 * A pure parser. User, password, path and prefix may be percent-encoded; an IPv6 address goes in
 * brackets. What it does not understand it refuses, by column. Neither its complaints nor
 * lease_uri_text ever repeat a part of the URI that could be a password. */
#ifndef STOCKADE_FENCE_URI_H
#define STOCKADE_FENCE_URI_H

#include <stdbool.h>
#include <stddef.h>

enum lease_uri_kind { LEASE_URI_LOCAL, LEASE_URI_REDIS, LEASE_URI_REDIS_UNIX };

struct lease_uri {
    enum lease_uri_kind kind;
    char host[256]; /* LEASE_URI_REDIS: a name or an address, without brackets */
    int port;
    char path[107]; /* LEASE_URI_REDIS_UNIX: a sun_path with its zero, and one to spare */
    char user[128], password[256]; /* empty: none */
    int db;
    char prefix[65]; /* the first word of every key */
    int timeout_ms;  /* for connecting, and for each answer */
};

/* False: `why` says what is wrong and where ("column 9: ..."); `uri` is then of no use. */
bool lease_uri_parse(const char *text, struct lease_uri *uri, char *why, size_t why_size);
/* "redis 127.0.0.1:6379", "redis [::1]:6379", "redis /run/redis.sock", "local". Returns `out`. */
const char *lease_uri_text(const struct lease_uri *uri, char *out, size_t size);

#endif
