/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/server/doors.h"

#include <arpa/inet.h>
#include <string.h>

#include "fence/base/bytes.h"
#include "fence/base/plain.h"

enum { NAME_MAX_LEN = 253 };

bool doors_name_is_valid(const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < len; i++)
        if (!plain_is_alnum(name[i]) && name[i] != '-' && name[i] != '.' && name[i] != '_')
            return false;
    return len > 0 && len <= NAME_MAX_LEN;
}

/* "", or ":7380". */
static bool is_port(const char *text)
{
    size_t digits = 0;

    if (*text == '\0')
        return true;
    if (*text++ != ':')
        return false;
    while (plain_is_digit(text[digits]))
        digits++;
    return digits >= 1 && digits <= 5 && text[digits] == '\0';
}

bool doors_host_is_known(const struct doors *doors, const char *host)
{
    bool bracketed = host[0] == '[';
    size_t len = bracketed ? strcspn(host + 1, "]") : strcspn(host, ":");
    const char *begin = host + bracketed;
    char name[NAME_MAX_LEN + 1];
    struct in6_addr address;

    if (len == 0 || len > NAME_MAX_LEN || (bracketed && begin[len] != ']') ||
        !is_port(begin + len + bracketed))
        return false;
    memcpy(name, begin, len);
    name[len] = '\0';
    if (bracketed)
        return inet_pton(AF_INET6, name, &address) == 1;
    if (inet_pton(AF_INET, name, &address) == 1 || plain_equal(name, "localhost"))
        return true;
    for (size_t i = 0; i < doors->names_count; i++)
        if (plain_equal(name, doors->names[i]))
            return true;
    return false;
}

/* Does the page that sends the request come from this very server, as the request names it? */
static bool is_own_origin(const struct visitor *visitor)
{
    const char *scheme = visitor->tls ? "https://" : "http://";
    size_t len = strlen(scheme);

    return plain_begins(visitor->origin, scheme) &&
           plain_equal(visitor->origin + len, visitor->host);
}

/* Browsers say in Sec-Fetch-Site who asks: "none" is the user, who typed the address. */
static bool is_own_site(const struct visitor *visitor, bool changes)
{
    if (visitor->origin != NULL && !is_own_origin(visitor))
        return false;
    if (visitor->fetch_site == NULL || strcmp(visitor->fetch_site, "same-origin") == 0)
        return true;
    return !changes && strcmp(visitor->fetch_site, "none") == 0;
}

/* Through a proxy nobody knows how it came to that. */
static bool may_give_password(const struct visitor *visitor)
{
    return (visitor->loopback || visitor->tls) && !visitor->forwarded;
}

enum door doors_page(const struct doors *doors, const struct visitor *visitor)
{
    if (visitor->host == NULL || !doors_host_is_known(doors, visitor->host))
        return DOOR_HOST;
    if (!visitor->needs_login || visitor->by_certificate)
        return DOOR_OPEN;
    if (!may_give_password(visitor))
        return DOOR_FAR;
    return visitor->by_password ? DOOR_OPEN : DOOR_PASSWORD;
}

static enum door rights(const struct visitor *visitor)
{
    return visitor->may ? DOOR_OPEN : visitor->has_rights ? DOOR_USER : DOOR_RIGHTS;
}

enum door doors_read(const struct doors *doors, const struct visitor *visitor)
{
    enum door door = doors_page(doors, visitor);

    if (door != DOOR_HOST && !is_own_site(visitor, false))
        return DOOR_SITE;
    return door == DOOR_OPEN ? rights(visitor) : door;
}

/* application/json, maybe with a charset behind it. */
static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    size_t len = sizeof json - 1;

    return type != NULL && plain_begins(type, json) &&
           (type[len] == '\0' || type[len] == ';' || type[len] == ' ');
}

enum door doors_change(const struct doors *doors, const struct visitor *visitor)
{
    enum door door = doors_page(doors, visitor);

    if (door != DOOR_HOST && !is_own_site(visitor, true))
        return DOOR_SITE;
    if (door != DOOR_OPEN)
        return door;
    if (!visitor->may)
        return rights(visitor);
    return is_json(visitor->content_type) ? DOOR_OPEN : DOOR_TYPE;
}

const char *doors_reason(enum door door)
{
    switch (door) {
    case DOOR_OPEN: return "";
    case DOOR_HOST:
        return "this server is not called by that name: use its address or localhost, or start it "
               "with --admin-name NAME";
    case DOOR_SITE: return "this request comes from another site's page";
    case DOOR_FAR:
        return "the password is only taken over loopback or TLS: log in on the server itself, over "
               "ssh -L, or have the daemon started with --admin tls:HOST:PORT";
    case DOOR_PASSWORD:
        return "a user's name and password are needed; without a file of users, the daemon's "
               "password under any name";
    case DOOR_USER: return "this user has not the right to do this";
    case DOOR_RIGHTS:
        return "only an administrator may do this: from the server itself, or over ssh -L";
    case DOOR_TYPE:
        return "the body has to be JSON, and Content-Type has to say so: application/json";
    }
    return "";
}
