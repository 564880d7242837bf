/* SPDX-License-Identifier: Apache-2.0 */
/* See uri.h. */
#include "fence/base/uri.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/nearest.h"
#include "fence/base/plain.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

const char *uri_after(const char *text, const char *scheme)
{
    size_t len = strlen(scheme);
    return strncmp(text, scheme, len) == 0 ? text + len : NULL;
}

bool uri_host_equal(const struct uri_host *a, const struct uri_host *b)
{
    return a->port == b->port && strcmp(a->name, b->name) == 0;
}

const char *uri_host_text(const struct uri_host *host, char out[URI_HOST_TEXT_MAX])
{
    const char *format = strchr(host->name, ':') != NULL ? "[%s]:%d" : "%s:%d";

    snprintf(out, URI_HOST_TEXT_MAX, format, host->name, host->port);
    return out;
}

/* Find "password=", whatever the rest looks like, but not within a login: that ends with an '@',
 * and options begin with a '?'. NULL: there is none. */
static const char *find_password(const char *uri, const char *rest)
{
    const char *password = strstr(uri, "password=");

    while (password != NULL && rest > uri && password >= rest && strchr(password, '@') != NULL &&
           memchr(rest, '?', (size_t)(password - rest)) == NULL)
        password = strstr(password + 1, "password=");
    return password;
}

void uri_append_masked(struct buf *out, const char *uri)
{
    const char *slashes = strstr(uri, "://"), *rest = slashes == NULL ? uri : slashes + 3;
    const char *password = find_password(uri, rest);
    const char *end = password == NULL ? uri + strlen(uri) : password;
    const char *at = end > rest ? memrchr(rest, '@', (size_t)(end - rest)) : NULL;

    if (at == NULL && end > rest && *rest == ':')
        at = end - 1; /* :password, and the host forgotten */
    if (at != NULL) {
        buf_append(out, uri, (size_t)(rest - uri));
        buf_append_text(out, "***");
        uri = *at == '@' ? at : at + 1;
    }
    if (password == NULL) {
        buf_append_text(out, uri);
    } else {
        buf_append(out, uri, (size_t)(password - uri) + strlen("password="));
        buf_append_text(out, "***");
    }
}

/* The reader. */

bool uri_refuse(struct uri_reader *reader, const char *at, const char *format, ...)
{
    va_list args;

    reader->at = at;
    va_start(args, format);
    vsnprintf(reader->why, sizeof reader->why, format, args);
    va_end(args);
    return false;
}

bool uri_skip(struct uri_reader *reader, const char *text)
{
    const char *rest = uri_after(reader->at, text);

    if (rest != NULL)
        reader->at = rest;
    return rest != NULL;
}

bool uri_take_text(struct uri_reader *reader, size_t len, char *out, size_t size, const char *what)
{
    const char *start = reader->at, *end = start + len;
    size_t used = 0;

    for (const char *at = start; at < end; at++) {
        char c = *at;
        if (c == '%') {
            int high = end - at > 2 ? bytes_hex_digit(at[1]) : -1;
            int low = high >= 0 ? bytes_hex_digit(at[2]) : -1;
            if (low < 0 || high + low == 0)
                return uri_refuse(reader, at, "'%%' begins a byte in two hex digits, not 00");
            c = (char)(high * 16 + low);
            at += 2;
        }
        if (used + 1 == size)
            return uri_refuse(reader, start, "the %s is longer than %zu bytes", what, size - 1);
        out[used++] = c;
    }
    out[used] = '\0';
    reader->at = end;
    return true;
}

bool uri_take_number(struct uri_reader *reader, size_t len, int min, int max, int *number,
                     const char *what)
{
    int64_t value;

    if (!bytes_to_int64((struct bytes){reader->at, len}, &value) || value < min || value > max)
        return uri_refuse(reader, reader->at, "the %s is a number from %d to %d", what, min, max);
    *number = (int)value;
    reader->at += len;
    return true;
}

bool uri_take_login(struct uri_reader *reader, const char *end, struct uri_login *login)
{
    size_t len = (size_t)(end - reader->at);
    const char *colon = memchr(reader->at, ':', len);

    if (colon == NULL)
        return uri_refuse(reader, reader->at, "a user without a password; write user:password@");
    if (!uri_take_text(reader, (size_t)(colon - reader->at), login->user, sizeof login->user,
                       "user"))
        return false;
    reader->at++;
    if (reader->at == end)
        return uri_refuse(reader, end, "the password is missing");
    return uri_take_text(reader, (size_t)(end - reader->at), login->password,
                         sizeof login->password, "password") &&
           uri_skip(reader, "@");
}

/* 2001:db8::1 or, with the interface that it is reached by, fe80::1%eth0 */
static bool is_ipv6(const char *text)
{
    unsigned char address[sizeof(struct in6_addr)];
    char digits[INET6_ADDRSTRLEN];
    size_t len = strcspn(text, "%");
    const char *interface = text[len] == '%' ? text + len + 1 : "-";

    if (len >= sizeof digits || *interface == '\0' || interface[strspn(interface, LETTERS)] != '\0')
        return false;
    memcpy(digits, text, len);
    digits[len] = '\0';
    return inet_pton(AF_INET6, digits, address) == 1;
}

/* [address] */
static bool take_ipv6(struct uri_reader *reader, struct uri_host *host)
{
    const char *start = reader->at + 1, *end = strchr(start, ']');

    if (end == NULL)
        return uri_refuse(reader, reader->at, "'[' without ']'");
    if ((size_t)(end - start) < sizeof host->name) {
        memcpy(host->name, start, (size_t)(end - start));
        host->name[end - start] = '\0';
        if (is_ipv6(host->name)) {
            reader->at = end + 1;
            return true;
        }
    }
    return uri_refuse(reader, start, "not an IPv6 address");
}

bool uri_take_host_name(struct uri_reader *reader, struct uri_host *host)
{
    size_t len = strspn(reader->at, LETTERS);

    if (*reader->at == '[')
        return take_ipv6(reader, host);
    if (len == 0)
        return uri_refuse(reader, reader->at,
                          "a host is missing (an IPv6 address goes in brackets)");
    return uri_take_text(reader, len, host->name, sizeof host->name, "host");
}

bool uri_take_host(struct uri_reader *reader, int default_port, struct uri_host *host)
{
    host->port = default_port;
    if (!uri_take_host_name(reader, host))
        return false;
    if (uri_skip(reader, ":"))
        return uri_take_number(reader, strcspn(reader->at, ",/?"), 1, 65535, &host->port, "port");
    return default_port != 0 || uri_refuse(reader, reader->at, "the port is missing");
}

/* Options. */

/* May it be repeated in an error? It stands where a name does, and looks like one; anything else
 * could be a password. */
static bool is_name(struct bytes name)
{
    size_t i = 0;

    while (i < name.len && (plain_is_lower(name.data[i]) || name.data[i] == '_'))
        i++;
    return i > 0 && i == name.len && name.data[i] == '=';
}

static bool refuse_option(struct uri_reader *reader, const struct uri_option *options, int count,
                          unsigned allowed)
{
    char names[128] = "";
    struct bytes name = {reader->at, strcspn(reader->at, "=&")};
    struct nearest nearest = nearest_to(name);

    for (int i = 0; i < count; i++)
        if ((allowed & 1U << i) != 0)
            nearest_offer(&nearest, options[i].name);
    if (nearest.word != NULL && nearest.slips > 0)
        return uri_refuse(reader, reader->at, "\"%.*s\" is unknown; did you mean %s?",
                          BYTES_CUT(name, 40), nearest.word);
    if (nearest.word != NULL)
        return uri_refuse(reader, reader->at, "expected %s=VALUE", nearest.word);
    for (int i = 0; i < count; i++) {
        size_t used = strlen(names);
        if ((allowed & 1U << i) == 0)
            continue;
        allowed &= ~(1U << i);
        text_print(names + used, sizeof names - used, "%s%s",
                   used == 0      ? ""
                   : allowed != 0 ? ", "
                                  : " and ",
                   options[i].name);
    }
    if (!is_name(name))
        return uri_refuse(reader, reader->at, "the options are %s", names);
    return uri_refuse(reader, reader->at, "\"%.*s\" is unknown; the options are %s",
                      BYTES_CUT(name, 40), names);
}

int uri_take_option(struct uri_reader *reader, const struct uri_option *options, int count,
                    unsigned allowed, unsigned *seen)
{
    for (int i = 0; i < count; i++) {
        const char *rest = uri_after(reader->at, options[i].name);
        if ((allowed & 1U << i) == 0 || rest == NULL || *rest != '=')
            continue;
        if ((*seen & 1U << i) != 0) {
            uri_refuse(reader, reader->at, "this option is there twice");
            return -1;
        }
        *seen |= 1U << i;
        reader->at = rest + 1;
        return i;
    }
    refuse_option(reader, options, count, allowed);
    return -1;
}

bool uri_take_value(struct uri_reader *reader, const struct uri_option *option, void *into)
{
    char *field = (char *)into + option->offset;
    size_t len = strcspn(reader->at, "&");

    if (option->size > 0)
        return uri_take_text(reader, len, field, option->size, option->what);
    return uri_take_number(reader, len, option->min, option->max, (int *)(void *)field,
                           option->what);
}
