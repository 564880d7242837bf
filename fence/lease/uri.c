/* SPDX-License-Identifier: Apache-2.0 */
/* Lease URIs: which schemes there are, and which parts each of them has. */
#include "fence/lease/uri.h"

#include <stdio.h>
#include <string.h>

#define DB_MAX             65535
#define SESSION_MS_DEFAULT 6000

enum {
    PREFIX,
    TIMEOUT,
    DB,
    USER,
    PASSWORD,
    REPLICAS,
    SENTINEL_USER,
    SENTINEL_PASSWORD,
    SESSION,
    TLS_CA,
    TLS_CERT,
    TLS_KEY,
    TLS_NAME,
    OPTIONS
};

#define TEXT(field)             URI_TEXT(struct lease_uri, field)
#define NUMBER(field, min, max) URI_NUMBER(struct lease_uri, field, min, max)

static const struct uri_option options[OPTIONS] = {
    [PREFIX] = {"prefix", "prefix", TEXT(prefix)},
    [TIMEOUT] = {"timeout_ms", "timeout_ms", NUMBER(timeout_ms, 10, 60000)},
    [DB] = {"db", "database", NUMBER(db, 0, DB_MAX)},
    [USER] = {"user", "user", TEXT(login.user)},
    [PASSWORD] = {"password", "password", TEXT(login.password)},
    [REPLICAS] = {"replicas", "number of replicas", NUMBER(replicas, 0, 100)},
    [SENTINEL_USER] = {"sentinel_user", "user", TEXT(sentinel_login.user)},
    [SENTINEL_PASSWORD] = {"sentinel_password", "password", TEXT(sentinel_login.password)},
    [SESSION] = {"session_ms", "session_ms", NUMBER(session_ms, 1000, 3600000)},
    [TLS_CA] = {"tls_ca", "path", TEXT(tls_ca)},
    [TLS_CERT] = {"tls_cert", "path", TEXT(tls_cert)},
    [TLS_KEY] = {"tls_key", "path", TEXT(tls_key)},
    [TLS_NAME] = {"tls_name", "name", TEXT(tls_name)},
};

#define OF(option) (1U << (option))
#define COMMON     (OF(PREFIX) | OF(TIMEOUT))
#define TLS        (OF(TLS_CA) | OF(TLS_CERT) | OF(TLS_KEY) | OF(TLS_NAME))
#define CLUSTER    (COMMON | OF(REPLICAS))
#define SENTINEL   (COMMON | OF(DB) | OF(REPLICAS) | OF(SENTINEL_USER) | OF(SENTINEL_PASSWORD))

enum after_hosts { NOTHING, A_DB, A_NAME, A_CHROOT };

static const struct scheme {
    const char *text;
    enum lease_uri_kind kind;
    int port; /* 0: it has no hosts */
    int hosts_min, hosts_max;
    enum after_hosts after; /* what may follow the hosts and a slash */
    int timeout_ms;
    unsigned options;
} schemes[] = {
    {"local:", LEASE_URI_LOCAL, 0, 0, 0, NOTHING, 0, 0},
    {"redis://", LEASE_URI_REDIS, 6379, 1, 1, A_DB, 1000, COMMON},
    {"redis+unix:", LEASE_URI_REDIS_UNIX, 0, 0, 0, NOTHING, 1000,
     COMMON | OF(DB) | OF(USER) | OF(PASSWORD)},
    {"redis+sentinel://", LEASE_URI_SENTINEL, 26379, 1, LEASE_URI_HOSTS_MAX, A_NAME, 1000,
     SENTINEL},
    {"redlock://", LEASE_URI_REDLOCK, 6379, 3, LEASE_URI_HOSTS_MAX, A_DB, 100, COMMON},
    {"redis+cluster://", LEASE_URI_CLUSTER, 6379, 1, LEASE_URI_HOSTS_MAX, NOTHING, 1000, CLUSTER},
    {"rediss+cluster://", LEASE_URI_CLUSTER, 6379, 1, LEASE_URI_HOSTS_MAX, NOTHING, 1000,
     CLUSTER | TLS},
    {"rediss://", LEASE_URI_REDIS, 6379, 1, 1, A_DB, 1000, COMMON | TLS},
    {"rediss+sentinel://", LEASE_URI_SENTINEL, 26379, 1, LEASE_URI_HOSTS_MAX, A_NAME, 1000,
     SENTINEL | TLS},
    {"redlock+tls://", LEASE_URI_REDLOCK, 6379, 3, LEASE_URI_HOSTS_MAX, A_DB, 100, COMMON | TLS},
    {"zookeeper://", LEASE_URI_ZOOKEEPER, 2181, 1, LEASE_URI_HOSTS_MAX, A_CHROOT, 1000,
     COMMON | OF(SESSION)},
};

static const struct {
    const char *scheme, *why;
} not_supported[] = {
    {"zookeepers:", "ZooKeeper's client in Debian has no TLS: let stunnel speak it (see "
                    "fence/lease/SERVICES.md)"},
    {"redis-cluster:", "a cluster is named so: redis+cluster://host,host,host"},
};

/* One URI being read. */
struct parse {
    struct uri_reader in;
    const struct scheme *scheme;
    struct lease_uri *uri;
};

static bool take_host(struct parse *parse)
{
    struct lease_uri *uri = parse->uri;
    struct uri_host *host = &uri->hosts[uri->hosts_count];
    const char *start = parse->in.at;

    if (uri->hosts_count == parse->scheme->hosts_max)
        return uri_refuse(&parse->in, start, "more hosts than it can have");
    if (!uri_take_host(&parse->in, parse->scheme->port, host))
        return false;
    for (int i = 0; i < uri->hosts_count; i++)
        if (uri_host_equal(&uri->hosts[i], host))
            return uri_refuse(&parse->in, start, "this host is there twice");
    uri->hosts_count++;
    return true;
}

/* "/a/b", where the slash has been read. */
static bool take_chroot(struct parse *parse, size_t len)
{
    const char *start = parse->in.at;
    char *chroot = parse->uri->name;

    if (len == 0)
        return true;
    parse->in.at--;
    if (!uri_take_text(&parse->in, len + 1, chroot, sizeof parse->uri->name, "chroot"))
        return false;
    if (strstr(chroot, "//") != NULL || chroot[strlen(chroot) - 1] == '/')
        return uri_refuse(&parse->in, start, "a chroot has no empty part");
    return true;
}

/* What follows the hosts and a slash. */
static bool take_after_hosts(struct parse *parse)
{
    size_t len = strcspn(parse->in.at, "?");
    struct lease_uri *uri = parse->uri;

    switch (parse->scheme->after) {
    case NOTHING: break;
    case A_DB: return len == 0 || uri_take_number(&parse->in, len, 0, DB_MAX, &uri->db, "database");
    case A_NAME:
        return uri_take_text(&parse->in, len, uri->name, sizeof uri->name, "master's name");
    case A_CHROOT: return take_chroot(parse, len);
    }
    return true;
}

/* [user:password@]host[:port][,host[:port]...][/what] */
static bool take_authority(struct parse *parse)
{
    const char *at_sign = memchr(parse->in.at, '@', strcspn(parse->in.at, "/?"));

    if (at_sign != NULL && !uri_take_login(&parse->in, at_sign, &parse->uri->login))
        return false;
    do {
        if (!take_host(parse))
            return false;
    } while (parse->scheme->hosts_max > 1 && uri_skip(&parse->in, ","));
    if (parse->uri->hosts_count < parse->scheme->hosts_min)
        return uri_refuse(&parse->in, parse->in.at,
                          "a quorum takes three masters or more: host,host,host");
    if (uri_skip(&parse->in, "/") && !take_after_hosts(parse))
        return false;
    if (parse->scheme->after == A_NAME && parse->uri->name[0] == '\0')
        return uri_refuse(&parse->in, parse->in.at, "the master's name is missing: /NAME");
    return true;
}

static bool take_path(struct parse *parse)
{
    size_t len = strcspn(parse->in.at, "?");

    if (len == 0)
        return uri_refuse(&parse->in, parse->in.at, "the path of a unix socket is missing");
    return uri_take_text(&parse->in, len, parse->uri->path, sizeof parse->uri->path, "path");
}

/* The prefix is a word of every key: braces would move the key's cluster slot. */
static bool check_prefix(struct parse *parse, const char *start)
{
    const char *prefix = parse->uri->prefix;

    if (prefix[0] == '\0')
        return uri_refuse(&parse->in, start, "the prefix is missing");
    return strpbrk(prefix, "{}") == NULL ||
           uri_refuse(&parse->in, start, "the prefix has no braces");
}

/* option=value[&option=value...] */
static bool take_options(struct parse *parse)
{
    unsigned seen = 0;

    do {
        int i = uri_take_option(&parse->in, options, OPTIONS, parse->scheme->options, &seen);
        const char *start = parse->in.at;
        if (i < 0 || !uri_take_value(&parse->in, &options[i], parse->uri) ||
            (i == PREFIX && !check_prefix(parse, start)))
            return false;
    } while (uri_skip(&parse->in, "&"));
    return true;
}

/* What follows the scheme. */
static bool take_rest(struct parse *parse)
{
    const struct lease_uri *uri = parse->uri;

    if (uri->kind == LEASE_URI_LOCAL)
        return *parse->in.at == '\0' ||
               uri_refuse(&parse->in, parse->in.at, "nothing follows local:");
    if (uri->kind == LEASE_URI_REDIS_UNIX ? !take_path(parse) : !take_authority(parse))
        return false;
    if (uri_skip(&parse->in, "?") && !take_options(parse))
        return false;
    if (*parse->in.at != '\0')
        return uri_refuse(&parse->in, parse->in.at, "this is not expected here");
    if ((uri->login.user[0] != '\0' && uri->login.password[0] == '\0') ||
        (uri->sentinel_login.user[0] != '\0' && uri->sentinel_login.password[0] == '\0'))
        return uri_refuse(&parse->in, parse->in.at, "a user without a password");
    return true;
}

static bool take_all(struct parse *parse)
{
    const char *text = parse->in.at;

    for (const char *at = text; *at != '\0'; at++)
        if (*at <= ' ' || *at > '~')
            return uri_refuse(&parse->in, at, "a blank, or no printable ASCII; write it as %%XX");
    for (size_t i = 0; i < sizeof not_supported / sizeof *not_supported; i++)
        if (uri_after(text, not_supported[i].scheme) != NULL)
            return uri_refuse(&parse->in, text, "%s", not_supported[i].why);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (uri_skip(&parse->in, schemes[i].text)) {
            parse->scheme = &schemes[i];
            parse->uri->kind = schemes[i].kind;
            parse->uri->timeout_ms = schemes[i].timeout_ms;
            parse->uri->tls = (schemes[i].options & TLS) != 0;
            return take_rest(parse);
        }
    return uri_refuse(&parse->in, text,
                      "it begins with local:, redis://, redis+unix:, redis+sentinel://, "
                      "redis+cluster://, redlock://, zookeeper://; or by TLS with rediss://, "
                      "rediss+sentinel://, rediss+cluster://, redlock+tls://");
}

bool lease_uri_parse(const char *text, struct lease_uri *uri, char *why, size_t why_size)
{
    struct parse parse = {.in = {.at = text}, .uri = uri};

    *uri = (struct lease_uri){.prefix = "stockade", .session_ms = SESSION_MS_DEFAULT};
    if (take_all(&parse))
        return true;
    text_print(why, why_size, "lease URI, column %td: %s", parse.in.at - text + 1, parse.in.why);
    return false;
}

struct tls_context *lease_uri_tls(const struct lease_uri *uri, char why[TLS_WHY_MAX])
{
    return tls_client(
        &(struct tls_files){.cert = uri->tls_cert, .key = uri->tls_key, .ca = uri->tls_ca}, why);
}

struct lease_uri lease_uri_member(const struct lease_uri *uri, int i)
{
    struct lease_uri member = *uri;

    member.kind = LEASE_URI_REDIS;
    member.hosts[0] = uri->hosts[i];
    member.hosts_count = 1;
    if (uri->kind == LEASE_URI_SENTINEL) {
        member.login = uri->sentinel_login;
        member.db = 0;
    }
    return member;
}

const char *lease_uri_text(const struct lease_uri *uri, char *out, size_t size)
{
    char host[URI_HOST_TEXT_MAX];
    const char *tls = uri->tls ? " (TLS)" : "";

    switch (uri->kind) {
    case LEASE_URI_LOCAL: text_print(out, size, "local"); break;
    case LEASE_URI_REDIS: text_print(out, size, "redis%s", tls); break;
    case LEASE_URI_REDIS_UNIX: text_print(out, size, "redis %s", uri->path); break;
    case LEASE_URI_SENTINEL: text_print(out, size, "sentinel%s %s of", tls, uri->name); break;
    case LEASE_URI_CLUSTER: text_print(out, size, "cluster%s of", tls); break;
    case LEASE_URI_REDLOCK: text_print(out, size, "redlock%s of", tls); break;
    case LEASE_URI_ZOOKEEPER: text_print(out, size, "zookeeper%s of", uri->name); break;
    }
    for (int i = 0; i < uri->hosts_count; i++) {
        size_t used = strlen(out);
        text_print(out + used, size - used, "%s%s", i == 0 ? " " : ",",
                   uri_host_text(&uri->hosts[i], host));
    }
    return out;
}
