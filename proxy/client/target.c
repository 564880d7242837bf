/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of client URIs, from left to right. */
#include "proxy/client/target.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "fence/base/bytes.h"
#include "fence/lease/uri.h"

#define PORT_DEFAULT "7379"
#define LEASE_PREFIX "?lease="

/* `len` bytes into a field; false where they do not fit or there are none. */
static bool take(char *field, size_t size, const char *text, size_t len)
{
    if (len == 0 || len >= size)
        return false;
    memcpy(field, text, len);
    field[len] = '\0';
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The same, with %XX decoded, but for %00. */
static bool take_decoded(char *field, size_t size, const char *text, size_t len)
{
    size_t used = 0;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (c == '%') {
            int high = len - i > 2 ? hex_digit(text[i + 1]) : -1;
            int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
            if (low < 0 || high + low == 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (used + 1 >= size)
            return false;
        field[used++] = c;
    }
    field[used] = '\0';
    return used > 0;
}

static bool refuse(char *why, size_t why_size, const char *what)
{
    snprintf(why, why_size, "%s", what);
    return false;
}

/* [user]:password@ */
static bool parse_credentials(struct target *target, const char *text, size_t len)
{
    const char *colon = memchr(text, ':', len);

    if (colon == NULL)
        return false;
    size_t user = (size_t)(colon - text);
    return (user == 0 || take_decoded(target->user, sizeof target->user, text, user)) &&
           take_decoded(target->password, sizeof target->password, colon + 1, len - user - 1);
}

/* host[:port], where the host may stand in brackets */
static bool parse_address(struct target *target, const char *text)
{
    const char *end = text[0] == '[' ? strchr(text, ']') : strchr(text, ':');
    const char *host = text, *port = end;
    int64_t number;

    if (text[0] == '[') {
        if (end == NULL || (end[1] != '\0' && end[1] != ':'))
            return false;
        host = text + 1;
        port = end[1] == ':' ? end + 1 : NULL;
    } else if (end == NULL) {
        end = text + strlen(text);
    }
    if (!take(target->host, sizeof target->host, host, (size_t)(end - host)) ||
        strpbrk(target->host, "/?#%@[] ") != NULL)
        return false;
    if (port == NULL)
        return take(target->port, sizeof target->port, PORT_DEFAULT, strlen(PORT_DEFAULT));
    port += 1;
    return bytes_to_int64(bytes_of(port), &number) && number >= 1 && number <= 65535 &&
           take(target->port, sizeof target->port, port, strlen(port));
}

static bool parse_tcp(struct target *target, const char *text, char *why, size_t why_size)
{
    const char *at = strrchr(text, '@');

    target->kind = TARGET_TCP;
    if (at != NULL && !parse_credentials(target, text, (size_t)(at - text)))
        return refuse(why, why_size, "before the @ stands user:password, %XX for special bytes");
    if (!parse_address(target, at != NULL ? at + 1 : text))
        return refuse(why, why_size, "takes stockade://[user:password@]host[:port]");
    return true;
}

static bool parse_embedded(struct target *target, const char *text, char *why, size_t why_size)
{
    const char *lease = strstr(text, LEASE_PREFIX);
    size_t path = lease != NULL ? (size_t)(lease - text) : strlen(text);
    struct lease_uri uri;

    target->kind = TARGET_EMBEDDED;
    lease = lease != NULL ? lease + strlen(LEASE_PREFIX) : "local:";
    if (!take(target->path, sizeof target->path, text, path) ||
        !take(target->lease, sizeof target->lease, lease, strlen(lease)))
        return refuse(why, why_size, "takes sqlite:PATH[?lease=URI]");
    return lease_uri_parse(lease, &uri, why, why_size);
}

/* What follows `scheme` in the URI, or NULL. */
static const char *after(const char *uri, const char *scheme)
{
    size_t len = strlen(scheme);
    return strncmp(uri, scheme, len) == 0 ? uri + len : NULL;
}

bool target_parse(const char *uri, struct target *target, char *why, size_t why_size)
{
    const char *rest;

    *target = (struct target){.kind = TARGET_TCP};
    if ((rest = after(uri, "stockade://")) != NULL)
        return parse_tcp(target, rest, why, why_size);
    if ((rest = after(uri, "sqlite:")) != NULL)
        return parse_embedded(target, rest, why, why_size);
    if ((rest = after(uri, "stockade+unix:")) == NULL)
        return refuse(why, why_size, "begins with stockade://, stockade+unix: or sqlite:");
    target->kind = TARGET_UNIX;
    struct sockaddr_un address;
    if (strlen(rest) >= sizeof address.sun_path ||
        !take(target->path, sizeof target->path, rest, strlen(rest)))
        return refuse(why, why_size, "takes stockade+unix:PATH, of at most 107 bytes");
    return true;
}

const char *target_text(const struct target *target, char *out, size_t size)
{
    bool ipv6 = strchr(target->host, ':') != NULL;

    if (target->kind == TARGET_TCP)
        snprintf(out, size, "%s%s%s:%s", ipv6 ? "[" : "", target->host, ipv6 ? "]" : "",
                 target->port);
    else
        snprintf(out, size, "%s", target->path);
    return out;
}
