/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of lease URIs: a cursor that moves to the right and stops at what it does not like. */
#include "fence/uri.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/bytes.h"

#define PORT_DEFAULT       6379
#define DB_MAX             65535
#define TIMEOUT_MS_DEFAULT 1000
#define TIMEOUT_MS_MIN     10
#define TIMEOUT_MS_MAX     60000

struct parse {
    const char *text;
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

static bool take_ipv6(struct parse *parse)
{
    unsigned char address[sizeof(struct in6_addr)];
    const char *start = parse->text + parse->at + 1, *end = strchr(start, ']');
    size_t len = end == NULL ? 0 : (size_t)(end - start);

    if (end == NULL)
        return refuse(parse, parse->at, "'[' without ']'");
    if (len < sizeof parse->uri->host) {
        memcpy(parse->uri->host, start, len);
        parse->uri->host[len] = '\0';
        if (inet_pton(AF_INET6, parse->uri->host, address) == 1) {
            parse->at += len + 2;
            return true;
        }
    }
    return refuse(parse, parse->at + 1, "not an IPv6 address");
}

static bool take_host(struct parse *parse)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

    if (parse->text[parse->at] == '[')
        return take_ipv6(parse);
    size_t len = strspn(parse->text + parse->at, letters);
    if (len == 0)
        return refuse(parse, parse->at, "a host is missing (an IPv6 address goes in brackets)");
    return take_decoded(parse, len, parse->uri->host, sizeof parse->uri->host, "host");
}

/* //[user:password@]host[:port][/db] */
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
    if (parse->text[parse->at] == ':') {
        parse->at++;
        if (!take_number(parse, strcspn(parse->text + parse->at, "/?"), 1, 65535, &parse->uri->port,
                         "port"))
            return false;
    }
    if (parse->text[parse->at] == '/') {
        parse->at++;
        len = strcspn(parse->text + parse->at, "?");
        if (len > 0 && !take_number(parse, len, 0, DB_MAX, &parse->uri->db, "database"))
            return false;
    }
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

enum option { PREFIX, TIMEOUT, DB, USER, PASSWORD, OPTIONS };

static const struct {
    const char *name;
    bool only_unix; /* a redis:// URI has another place for it */
} options[OPTIONS] = {
    [PREFIX] = {"prefix=", false}, [TIMEOUT] = {"timeout_ms=", false}, [DB] = {"db=", true},
    [USER] = {"user=", true},      [PASSWORD] = {"password=", true},
};

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
    case OPTIONS: break;
    }
    return false;
}

/* option=value[&option=value...] to the end */
static bool take_options(struct parse *parse)
{
    bool is_unix = parse->uri->kind == LEASE_URI_REDIS_UNIX, seen[OPTIONS] = {false};

    for (;;) {
        int i = 0;
        const char *text = parse->text + parse->at;
        while (i < OPTIONS && (strncmp(text, options[i].name, strlen(options[i].name)) != 0 ||
                               (options[i].only_unix && !is_unix)))
            i++;
        if (i == OPTIONS)
            return refuse(parse, parse->at,
                          is_unix ? "the options are prefix, timeout_ms, db, user and password"
                                  : "the options are prefix and timeout_ms");
        if (seen[i])
            return refuse(parse, parse->at, "this option is there twice");
        seen[i] = true;
        parse->at += strlen(options[i].name);
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

static bool take_redis(struct parse *parse)
{
    if (parse->uri->kind == LEASE_URI_REDIS ? !take_authority(parse) : !take_path(parse))
        return false;
    if (parse->text[parse->at] == '?') {
        parse->at++;
        if (!take_options(parse))
            return false;
    }
    if (parse->text[parse->at] != '\0')
        return refuse(parse, parse->at, "this is not expected here");
    if (parse->uri->user[0] != '\0' && parse->uri->password[0] == '\0')
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
    {"redis+sentinel:", "redis+sentinel: is not supported yet"},
    {"redlock:", "redlock: is not supported yet"},
    {"zookeeper:", "zookeeper: is not supported yet"},
    {"rediss:", "rediss: (Redis with TLS) is not supported"},
    {"redis+cluster:", "Redis Cluster is not supported"},
    {"redis-cluster:", "Redis Cluster is not supported"},
};

bool lease_uri_parse(const char *text, struct lease_uri *uri, char *why, size_t why_size)
{
    struct parse parse = {.text = text, .uri = uri, .why = why, .why_size = why_size};

    *uri = (struct lease_uri){
        .port = PORT_DEFAULT, .prefix = "stockade", .timeout_ms = TIMEOUT_MS_DEFAULT};
    for (size_t i = 0; text[i] != '\0'; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return refuse(&parse, i, "a blank, or no printable ASCII; write it as %XX");
    for (size_t i = 0; i < sizeof not_supported / sizeof *not_supported; i++)
        if (take_scheme(&parse, not_supported[i].scheme))
            return refuse(&parse, 0, not_supported[i].why);
    if (take_scheme(&parse, "local:")) {
        uri->kind = LEASE_URI_LOCAL;
        return text[parse.at] == '\0' || refuse(&parse, parse.at, "nothing follows local:");
    }
    if (take_scheme(&parse, "redis://")) {
        uri->kind = LEASE_URI_REDIS;
        return take_redis(&parse);
    }
    if (take_scheme(&parse, "redis+unix:")) {
        uri->kind = LEASE_URI_REDIS_UNIX;
        return take_redis(&parse);
    }
    return refuse(&parse, 0, "it begins with local:, redis:// or redis+unix:");
}

const char *lease_uri_text(const struct lease_uri *uri, char *out, size_t size)
{
    bool ipv6 = strchr(uri->host, ':') != NULL;

    switch (uri->kind) {
    case LEASE_URI_LOCAL: snprintf(out, size, "local"); break;
    case LEASE_URI_REDIS:
        snprintf(out, size, "redis %s%s%s:%d", ipv6 ? "[" : "", uri->host, ipv6 ? "]" : "",
                 uri->port);
        break;
    case LEASE_URI_REDIS_UNIX: snprintf(out, size, "redis %s", uri->path); break;
    }
    return out;
}
