/* SPDX-License-Identifier: Apache-2.0 */
/* Client URIs: one function for each kind of target. */
#include "proxy/client/target.h"

#include <string.h>
#include <sys/un.h>

#include "fence/lease/uri.h"
#include "store/kinds.h"

#define PORT_DEFAULT 7379
#define LEASE_OPTION "lease="

static bool refuse(char *why, size_t why_size, const char *what)
{
    text_print(why, why_size, "%s", what);
    return false;
}

/* `len` bytes as they are; false where they do not fit or there are none. */
static bool take(char *field, size_t size, const char *text, size_t len)
{
    if (len == 0 || len >= size)
        return false;
    memcpy(field, text, len);
    field[len] = '\0';
    return true;
}

/* [?option=value[&option=value...]] up to the end, into `into`. */
static bool take_options(struct uri_reader *reader, const struct uri_option *options, int count,
                         void *into)
{
    unsigned seen = 0;

    if (*reader->at == '\0')
        return true;
    if (*reader->at != '?')
        return uri_refuse(reader, reader->at, "this is not expected here");
    while (*reader->at != '\0') {
        reader->at++; /* '?' or '&' */
        int i = uri_take_option(reader, options, count, ~0U, &seen);
        if (i < 0 || !uri_take_value(reader, &options[i], into))
            return false;
    }
    return true;
}

static const struct uri_option tls_options[] = {
    {"tls_ca", "path", URI_TEXT(struct target, tls_ca)},
    {"tls_cert", "path", URI_TEXT(struct target, tls_cert)},
    {"tls_key", "path", URI_TEXT(struct target, tls_key)},
    {"tls_name", "name", URI_TEXT(struct target, tls_name)},
};

/* A password may have any character: the last @ is the one before the host. */
static bool parse_tcp(struct target *target, const char *rest, char *why, size_t why_size)
{
    struct uri_reader reader = {.at = rest};
    const char *at_sign = strrchr(rest, '@');

    target->kind = TARGET_TCP;
    if (at_sign != NULL && !uri_take_login(&reader, at_sign, &target->login))
        return refuse(why, why_size, "before the @ stands user:password, %XX for special bytes");
    if (!uri_take_host(&reader, PORT_DEFAULT, &target->host) ||
        (*reader.at != '\0' && !(target->tls && *reader.at == '?')))
        return refuse(why, why_size,
                      "a daemon's URI is stockade://[user:password@]host[:port], "
                      "or stockades:// by TLS");
    return take_options(&reader, tls_options, 4, target) || refuse(why, why_size, reader.why);
}

static const struct uri_option login_options[] = {
    {"user", "user", URI_TEXT(struct uri_login, user)},
    {"password", "password", URI_TEXT(struct uri_login, password)},
};

/* PATH[?user=USER&password=PASSWORD], as redis+unix: has it. */
static bool parse_unix(struct target *target, const char *path, char *why, size_t why_size)
{
    size_t len = strcspn(path, "?");
    struct uri_reader reader = {.at = path + len};

    target->kind = TARGET_UNIX;
    if (!take(target->path, sizeof((struct sockaddr_un *)NULL)->sun_path, path, len))
        return refuse(why, why_size, "a socket's URI is stockade+unix:PATH, of at most 107 bytes");
    if (!take_options(&reader, login_options, 2, &target->login))
        return refuse(why, why_size, reader.why);
    return target->login.user[0] == '\0' || target->login.password[0] != '\0' ||
           refuse(why, why_size, "a user without a password");
}

/* The lease URI goes to the end, whatever it has in it. */
static bool parse_embedded(struct target *target, const char *text, char *why, size_t why_size)
{
    const char *option = strstr(text, "?" LEASE_OPTION), *lease = "local:";
    size_t len = strlen(text);
    struct lease_uri uri;

    if (option == NULL && store_is_in_network(text))
        option = strstr(text, "&" LEASE_OPTION);
    if (option != NULL) {
        len = (size_t)(option - text);
        lease = option + 1 + strlen(LEASE_OPTION);
    }
    target->kind = TARGET_EMBEDDED;
    if (!take(target->path, sizeof target->path, text, len) ||
        !take(target->lease, sizeof target->lease, lease, strlen(lease)))
        return refuse(why, why_size, "a store's URI is sqlite:PATH[?lease=URI]");
    return store_uri_is_valid(target->path, why, why_size) &&
           lease_uri_parse(lease, &uri, why, why_size);
}

bool target_parse(const char *uri, struct target *target, char *why, size_t why_size)
{
    const char *rest;

    *target = (struct target){.kind = TARGET_TCP};
    if ((rest = uri_after(uri, "stockade://")) != NULL)
        return parse_tcp(target, rest, why, why_size);
    if ((rest = uri_after(uri, "stockades://")) != NULL) {
        target->tls = true;
        return parse_tcp(target, rest, why, why_size);
    }
    if ((rest = uri_after(uri, "stockade+unix:")) != NULL)
        return parse_unix(target, rest, why, why_size);
    if (store_kind_of(uri) != NULL || store_uri_is_memory(uri))
        return parse_embedded(target, uri, why, why_size);
    return refuse(why, why_size,
                  "a URI begins with stockade://, stockades://, stockade+unix:, sqlite: or "
                  "postgresql://");
}

const char *target_text(const struct target *target, char *out, size_t size)
{
    char host[URI_HOST_TEXT_MAX];

    text_print(out, size, "%s",
               target->kind == TARGET_TCP ? uri_host_text(&target->host, host) : target->path);
    return out;
}
