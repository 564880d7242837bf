/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of lease URIs: a cursor that moves to the right and stops at what it does not like. */
#include "fence/lease/uri.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/bytes.h"

#define DB_MAX             65535
#define TIMEOUT_MS_MIN     10
#define TIMEOUT_MS_MAX     60000
#define SESSION_MS_DEFAULT 6000
#define SESSION_MS_MIN     1000
#define SESSION_MS_MAX     3600000

enum option {
    PREFIX,
    TIMEOUT,
    DB,
    USER,
    PASSWORD,
    REPLICAS,
    SENTINEL_USER,
    SENTINEL_PASSWORD,
    SESSION,
    OPTIONS
};

static const char *const option_names[OPTIONS] = {
    [PREFIX] = "prefix",
    [TIMEOUT] = "timeout_ms",
    [DB] = "db",
    [USER] = "user",
    [PASSWORD] = "password",
    [REPLICAS] = "replicas",
    [SENTINEL_USER] = "sentinel_user",
    [SENTINEL_PASSWORD] = "sentinel_password",
    [SESSION] = "session_ms",
};

#define OF(option) (1U << (option))
#define COMMON     (OF(PREFIX) | OF(TIMEOUT))

enum behind_hosts { NOTHING, A_DB, A_NAME, A_CHROOT };

static const struct scheme {
    const char *text;
    enum lease_uri_kind kind;
    int port; /* 0: it has no hosts */
    int hosts_min, hosts_max;
    enum behind_hosts behind; /* what may follow the hosts and a slash */
    int timeout_ms;
    unsigned options;
} schemes[] = {
    {"local:", LEASE_URI_LOCAL, 0, 0, 0, NOTHING, 0, 0},
    {"redis://", LEASE_URI_REDIS, 6379, 1, 1, A_DB, 1000, COMMON},
    {"redis+unix:", LEASE_URI_REDIS_UNIX, 0, 0, 0, NOTHING, 1000,
     COMMON | OF(DB) | OF(USER) | OF(PASSWORD)},
    {"redis+sentinel://", LEASE_URI_SENTINEL, 26379, 1, LEASE_URI_HOSTS_MAX, A_NAME, 1000,
     COMMON | OF(DB) | OF(REPLICAS) | OF(SENTINEL_USER) | OF(SENTINEL_PASSWORD)},
    {"redlock://", LEASE_URI_REDLOCK, 6379, 3, LEASE_URI_HOSTS_MAX, A_DB, 100, COMMON},
    {"zookeeper://", LEASE_URI_ZOOKEEPER, 2181, 1, LEASE_URI_HOSTS_MAX, A_CHROOT, 1000,
     COMMON | OF(SESSION)},
};

struct parse {
    const char *text;
    const struct scheme *scheme;
    size_t at;
    struct lease_uri *uri;
    char *why;
    size_t why_size;
};

static bool refuse(const struct parse *parse, size_t at, const char *what)
{
    snprintf(parse->why, parse->why_size, "lease URI, column %zu: %s", at + 1, what);
    return false;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* The next `len` bytes, decoded, into `out`. */
static bool take_decoded(struct parse *parse, size_t len, char *out, size_t size, const char *what)
{
    size_t end = parse->at + len, start = parse->at, used = 0;
    char why[64];

    while (parse->at < end) {
        char c = parse->text[parse->at];
        if (c == '%') {
            int high = end - parse->at > 2 ? hex_digit(parse->text[parse->at + 1]) : -1;
            int low = high >= 0 ? hex_digit(parse->text[parse->at + 2]) : -1;
            if (low < 0 || high + low == 0)
                return refuse(parse, parse->at, "'%' begins a byte in two hex digits, not 00");
            c = (char)(high * 16 + low);
            parse->at += 2;
        }
        if (used + 1 == size) {
            snprintf(why, sizeof why, "the %s is longer than %zu bytes", what, size - 1);
            return refuse(parse, start, why);
        }
        out[used++] = c;
        parse->at++;
    }
    out[used] = '\0';
    return true;
}

static bool take_number(struct parse *parse, size_t len, int min, int max, int *number,
                        const char *what)
{
    int64_t value;
    char why[64];

    if (!bytes_to_int64((struct bytes){parse->text + parse->at, len}, &value) || value < min ||
        value > max) {
        snprintf(why, sizeof why, "the %s is a number from %d to %d", what, min, max);
        return refuse(parse, parse->at, why);
    }
    *number = (int)value;
    parse->at += len;
    return true;
}

/* user:password@ */
static bool take_credentials(struct parse *parse, size_t len)
{
    const char *colon = memchr(parse->text + parse->at, ':', len);

    if (colon == NULL)
        return refuse(parse, parse->at, "a user without a password; write user:password@");
    size_t user = (size_t)(colon - (parse->text + parse->at));
    if (!take_decoded(parse, user, parse->uri->user, sizeof parse->uri->user, "user"))
        return false;
    parse->at++;
    if (user + 1 == len)
        return refuse(parse, parse->at, "the password is missing");
    return take_decoded(parse, len - user - 1, parse->uri->password, sizeof parse->uri->password,
                        "password");
}

static bool take_ipv6(struct parse *parse, struct lease_host *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    const char *start = parse->text + parse->at + 1, *end = strchr(start, ']');
    size_t len = end == NULL ? 0 : (size_t)(end - start);

    if (end == NULL)
        return refuse(parse, parse->at, "'[' without ']'");
    if (len < sizeof host->name) {
        memcpy(host->name, start, len);
        host->name[len] = '\0';
        if (inet_pton(AF_INET6, host->name, address) == 1) {
            parse->at += len + 2;
            return true;
        }
    }
    return refuse(parse, parse->at + 1, "not an IPv6 address");
}

static bool take_host_name(struct parse *parse, struct lease_host *host)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

    if (parse->text[parse->at] == '[')
        return take_ipv6(parse, host);
    size_t len = strspn(parse->text + parse->at, letters);
    if (len == 0)
        return refuse(parse, parse->at, "a host is missing (an IPv6 address goes in brackets)");
    return take_decoded(parse, len, host->name, sizeof host->name, "host");
}

bool lease_host_equal(const struct lease_host *a, const struct lease_host *b)
{
    return a->port == b->port && strcmp(a->name, b->name) == 0;
}

/* host[:port] */
static bool take_host(struct parse *parse)
{
    struct lease_uri *uri = parse->uri;
    struct lease_host *host = &uri->hosts[uri->hosts_count];
    size_t start = parse->at;

    if (uri->hosts_count == parse->scheme->hosts_max)
        return refuse(parse, start, "more hosts than it can have");
    host->port = parse->scheme->port;
    if (!take_host_name(parse, host))
        return false;
    if (parse->text[parse->at] == ':') {
        parse->at++;
        if (!take_number(parse, strcspn(parse->text + parse->at, ",/?"), 1, 65535, &host->port,
                         "port"))
            return false;
    }
    for (int i = 0; i < uri->hosts_count; i++)
        if (lease_host_equal(&uri->hosts[i], host))
            return refuse(parse, start, "this host is there twice");
    uri->hosts_count++;
    return true;
}

/* What follows the hosts and a slash. */
static bool take_behind_hosts(struct parse *parse)
{
    size_t start = parse->at, len = strcspn(parse->text + start, "?");
    struct lease_uri *uri = parse->uri;

    switch (parse->scheme->behind) {
    case NOTHING: break;
    case A_DB: return len == 0 || take_number(parse, len, 0, DB_MAX, &uri->db, "database");
    case A_NAME: return take_decoded(parse, len, uri->name, sizeof uri->name, "master's name");
    case A_CHROOT:
        if (len == 0)
            return true;
        parse->at--; /* with its slash */
        if (!take_decoded(parse, len + 1, uri->name, sizeof uri->name, "chroot"))
            return false;
        if (strstr(uri->name, "//") != NULL || uri->name[strlen(uri->name) - 1] == '/')
            return refuse(parse, start, "a chroot has no empty part");
        return true;
    }
    return true;
}

/* [user:password@]host[:port][,host[:port]...][/what] */
static bool take_authority(struct parse *parse)
{
    size_t len = strcspn(parse->text + parse->at, "/?");
    const char *at_sign = memchr(parse->text + parse->at, '@', len);

    if (at_sign != NULL) {
        if (!take_credentials(parse, (size_t)(at_sign - (parse->text + parse->at))))
            return false;
        parse->at++;
    }
    if (!take_host(parse))
        return false;
    while (parse->text[parse->at] == ',' && parse->scheme->hosts_max > 1) {
        parse->at++;
        if (!take_host(parse))
            return false;
    }
    if (parse->uri->hosts_count < parse->scheme->hosts_min)
        return refuse(parse, parse->at, "a quorum takes three masters or more: host,host,host");
    if (parse->text[parse->at] == '/') {
        parse->at++;
        if (!take_behind_hosts(parse))
            return false;
    }
    if (parse->scheme->behind == A_NAME && parse->uri->name[0] == '\0')
        return refuse(parse, parse->at, "the master's name is missing: /NAME");
    return true;
}

/* A word that goes into every key: braces would move its cluster slot. */
static bool take_prefix(struct parse *parse, size_t len)
{
    size_t start = parse->at;

    if (len == 0)
        return refuse(parse, start, "the prefix is missing");
    if (!take_decoded(parse, len, parse->uri->prefix, sizeof parse->uri->prefix, "prefix"))
        return false;
    if (strpbrk(parse->uri->prefix, "{}") != NULL)
        return refuse(parse, start, "the prefix has no braces");
    return true;
}

static bool take_value(struct parse *parse, enum option option, size_t len)
{
    struct lease_uri *uri = parse->uri;

    switch (option) {
    case PREFIX: return take_prefix(parse, len);
    case TIMEOUT:
        return take_number(parse, len, TIMEOUT_MS_MIN, TIMEOUT_MS_MAX, &uri->timeout_ms,
                           "timeout_ms");
    case DB: return take_number(parse, len, 0, DB_MAX, &uri->db, "database");
    case USER: return take_decoded(parse, len, uri->user, sizeof uri->user, "user");
    case PASSWORD: return take_decoded(parse, len, uri->password, sizeof uri->password, "password");
    case REPLICAS: return take_number(parse, len, 0, 100, &uri->replicas, "number of replicas");
    case SENTINEL_USER:
        return take_decoded(parse, len, uri->sentinel_user, sizeof uri->sentinel_user, "user");
    case SENTINEL_PASSWORD:
        return take_decoded(parse, len, uri->sentinel_password, sizeof uri->sentinel_password,
                            "password");
    case SESSION:
        return take_number(parse, len, SESSION_MS_MIN, SESSION_MS_MAX, &uri->session_ms,
                           "session_ms");
    case OPTIONS: break;
    }
    return false;
}

/* Names the options that there are. */
static bool refuse_option(const struct parse *parse)
{
    char why[128] = "the options are";
    unsigned left = parse->scheme->options;

    for (int i = 0; i < OPTIONS; i++) {
        size_t used = strlen(why);
        if ((left & OF(i)) == 0)
            continue;
        left &= ~OF(i);
        snprintf(why + used, sizeof why - used, "%s%s",
                 used == strlen("the options are") ? " "
                 : left != 0                       ? ", "
                                                   : " and ",
                 option_names[i]);
    }
    return refuse(parse, parse->at, why);
}

/* option=value[&option=value...] to the end */
static bool take_options(struct parse *parse)
{
    unsigned seen = 0;

    for (;;) {
        const char *text = parse->text + parse->at;
        size_t len = strcspn(text, "=&");
        int i = 0;
        while (i < OPTIONS &&
               ((parse->scheme->options & OF(i)) == 0 || text[len] != '=' ||
                strlen(option_names[i]) != len || strncmp(text, option_names[i], len) != 0))
            i++;
        if (i == OPTIONS)
            return refuse_option(parse);
        if ((seen & OF(i)) != 0)
            return refuse(parse, parse->at, "this option is there twice");
        seen |= OF(i);
        parse->at += len + 1;
        if (!take_value(parse, (enum option)i, strcspn(parse->text + parse->at, "&")))
            return false;
        if (parse->text[parse->at] == '\0')
            return true;
        parse->at++;
    }
}

static bool take_path(struct parse *parse)
{
    size_t len = strcspn(parse->text + parse->at, "?");

    if (len == 0)
        return refuse(parse, parse->at, "the path of a unix socket is missing");
    return take_decoded(parse, len, parse->uri->path, sizeof parse->uri->path, "path");
}

static bool take_rest(struct parse *parse)
{
    const struct lease_uri *uri = parse->uri;

    if (uri->kind == LEASE_URI_LOCAL)
        return parse->text[parse->at] == '\0' || refuse(parse, parse->at, "nothing follows local:");
    if (uri->kind == LEASE_URI_REDIS_UNIX ? !take_path(parse) : !take_authority(parse))
        return false;
    if (parse->text[parse->at] == '?') {
        parse->at++;
        if (!take_options(parse))
            return false;
    }
    if (parse->text[parse->at] != '\0')
        return refuse(parse, parse->at, "this is not expected here");
    if ((uri->user[0] != '\0' && uri->password[0] == '\0') ||
        (uri->sentinel_user[0] != '\0' && uri->sentinel_password[0] == '\0'))
        return refuse(parse, parse->at, "a user without a password");
    return true;
}

/* The URI begins with `scheme`? Then the cursor is behind it. */
static bool take_scheme(struct parse *parse, const char *scheme)
{
    size_t len = strlen(scheme);
    if (strncmp(parse->text, scheme, len) != 0)
        return false;
    parse->at = len;
    return true;
}

static const struct {
    const char *scheme, *why;
} not_supported[] = {
    {"rediss:", "rediss: (Redis with TLS) is not supported"},
    {"redis+cluster:", "Redis Cluster is not supported"},
    {"redis-cluster:", "Redis Cluster is not supported"},
};

bool lease_uri_parse(const char *text, struct lease_uri *uri, char *why, size_t why_size)
{
    struct parse parse = {.text = text, .uri = uri, .why = why, .why_size = why_size};

    *uri = (struct lease_uri){.prefix = "stockade", .session_ms = SESSION_MS_DEFAULT};
    for (size_t i = 0; text[i] != '\0'; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return refuse(&parse, i, "a blank, or no printable ASCII; write it as %XX");
    for (size_t i = 0; i < sizeof not_supported / sizeof *not_supported; i++)
        if (take_scheme(&parse, not_supported[i].scheme))
            return refuse(&parse, 0, not_supported[i].why);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        if (take_scheme(&parse, schemes[i].text)) {
            parse.scheme = &schemes[i];
            uri->kind = schemes[i].kind;
            uri->timeout_ms = schemes[i].timeout_ms;
            return take_rest(&parse);
        }
    }
    return refuse(&parse, 0,
                  "it begins with local:, redis://, redis+unix:, redis+sentinel://, redlock:// or "
                  "zookeeper://");
}

struct lease_uri lease_uri_member(const struct lease_uri *uri, int i)
{
    struct lease_uri member = *uri;

    member.kind = LEASE_URI_REDIS;
    member.hosts[0] = uri->hosts[i];
    member.hosts_count = 1;
    if (uri->kind == LEASE_URI_SENTINEL) {
        memcpy(member.user, uri->sentinel_user, sizeof member.user);
        memcpy(member.password, uri->sentinel_password, sizeof member.password);
        member.db = 0;
    }
    return member;
}

static void write_hosts(const struct lease_uri *uri, char *out, size_t size)
{
    for (int i = 0; i < uri->hosts_count; i++) {
        const struct lease_host *host = &uri->hosts[i];
        bool ipv6 = strchr(host->name, ':') != NULL;
        size_t used = strlen(out);
        snprintf(out + used, size - used, "%s%s%s%s:%d", i == 0 ? " " : ",", ipv6 ? "[" : "",
                 host->name, ipv6 ? "]" : "", host->port);
    }
}

const char *lease_uri_text(const struct lease_uri *uri, char *out, size_t size)
{
    switch (uri->kind) {
    case LEASE_URI_LOCAL: snprintf(out, size, "local"); break;
    case LEASE_URI_REDIS: snprintf(out, size, "redis"); break;
    case LEASE_URI_REDIS_UNIX: snprintf(out, size, "redis %s", uri->path); break;
    case LEASE_URI_SENTINEL: snprintf(out, size, "sentinel %s of", uri->name); break;
    case LEASE_URI_REDLOCK: snprintf(out, size, "redlock of"); break;
    case LEASE_URI_ZOOKEEPER: snprintf(out, size, "zookeeper%s of", uri->name); break;
    }
    write_hosts(uri, out, size);
    return out;
}
