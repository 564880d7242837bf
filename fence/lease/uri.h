/* SPDX-License-Identifier: Apache-2.0 */
/* Which lease service to use, as one line of text:
 *
 *   local:
 *   redis://[user:password@]host[:6379][/db][?prefix=stockade&timeout_ms=1000]
 *   redis+unix:PATH[?db=0&user=...&password=...&prefix=stockade&timeout_ms=1000]
 *   redis+sentinel://[user:password@]host[:26379],.../NAME[?db=0&prefix=stockade&timeout_ms=1000
 *                    &replicas=0&sentinel_user=...&sentinel_password=...]
 *   redis+cluster://[user:password@]host[:6379],...[?prefix=stockade&timeout_ms=1000&replicas=0]
 *   redlock://[user:password@]host[:6379],host,host,...[/db][?prefix=stockade&timeout_ms=100]
 *   zookeeper://[user:password@]host[:2181],...[/chroot][?prefix=stockade&timeout_ms=1000
 *               &session_ms=6000]
 *
 * rediss://, rediss+sentinel://, rediss+cluster:// and redlock+tls:// are the same by TLS, and take
 * tls_ca=, tls_cert=, tls_key= (PEM files) and tls_name= (that certificates have to have).
 *
 * What is not understood is refused, and the column named. Neither the complaints nor
 * lease_uri_text repeat a part of the URI that could be a password. How a host, a login or a value
 * is written: fence/base/uri.h. */
#ifndef STOCKADE_FENCE_LEASE_URI_H
#define STOCKADE_FENCE_LEASE_URI_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/tls.h"
#include "fence/base/uri.h"

#define LEASE_URI_HOSTS_MAX 15

enum lease_uri_kind {
    LEASE_URI_LOCAL,
    LEASE_URI_REDIS,
    LEASE_URI_REDIS_UNIX,
    LEASE_URI_SENTINEL,
    LEASE_URI_CLUSTER,
    LEASE_URI_REDLOCK,
    LEASE_URI_ZOOKEEPER,
};

struct lease_uri {
    enum lease_uri_kind kind;
    struct uri_host hosts[LEASE_URI_HOSTS_MAX]; /* none twice; LEASE_URI_REDIS: one */
    int hosts_count;
    char path[107]; /* LEASE_URI_REDIS_UNIX: a sun_path with its zero, and one to spare */
    char name[129]; /* LEASE_URI_SENTINEL: the master's; LEASE_URI_ZOOKEEPER: "/chroot" or "" */
    struct uri_login login; /* of Redis, or of ZooKeeper */
    struct uri_login sentinel_login;
    int db;
    char prefix[65]; /* the first word of every key */
    int timeout_ms;  /* for connecting, and for each answer */
    int replicas;    /* LEASE_URI_SENTINEL, _CLUSTER: how many must have a grant before it counts */
    int session_ms;  /* LEASE_URI_ZOOKEEPER */
    bool tls;
    char tls_ca[256], tls_cert[256], tls_key[256]; /* empty: the system's CAs; none */
    char tls_name[256];                            /* empty: the host's */
};

/* False: `why` says what is wrong and where ("lease URI, column 9: ..."), and `uri` is of no use.
 */
bool lease_uri_parse(const char *text, struct lease_uri *uri, char *why, size_t why_size);
/* The Redis at the i-th host: all else as in `uri`, but for a sentinel the sentinels' login. */
struct lease_uri lease_uri_member(const struct lease_uri *uri, int i);
/* Read its files, for connections by TLS. NULL: `why` is one line. */
struct tls_context *lease_uri_tls(const struct lease_uri *uri, char why[TLS_WHY_MAX]);
/* "redis 127.0.0.1:6379", "redis [::1]:6379", "redis /run/redis.sock", "local",
 * "redlock of a:6379,b:6379,c:6379"; cut where it does not fit. Returns `out`. */
const char *lease_uri_text(const struct lease_uri *uri, char *out, size_t size);

#endif
