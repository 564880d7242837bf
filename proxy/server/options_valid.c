/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of option values, before anything is opened. */
#include "proxy/server/options_valid.h"

#include <stdio.h>
#include <string.h>

#include "fence/lease/uri.h"
#include "proxy/server/address.h"

bool valid_listen(const char *text, char *why, size_t why_size)
{
    struct address address;
    return address_parse(text, &address, why, why_size);
}

bool valid_admin(const char *text, char *why, size_t why_size)
{
    struct address address;

    if (strcmp(text, "off") == 0)
        return true;
    if (address_parse(text, &address, why, why_size) && !address.is_unix)
        return true;
    snprintf(why, why_size, "expected HOST:PORT, [IPV6]:PORT or off");
    return false;
}

bool valid_store(const char *text, char *why, size_t why_size)
{
    const char *path = uri_after(text, "sqlite:");

    if (path != NULL && *path != '\0')
        return true;
    snprintf(why, why_size, "expected sqlite:PATH");
    return false;
}

bool valid_lease(const char *text, char *why, size_t why_size)
{
    struct lease_uri uri;
    return lease_uri_parse(text, &uri, why, why_size);
}

/* `choices` as "deny|allow". */
bool valid_choice(const char *choices, const char *text, char *why, size_t why_size)
{
    size_t len = strlen(text);

    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (len > 0 && strncmp(at, text, len) == 0 && (at[len] == '|' || at[len] == '\0'))
            return true;
    }
    snprintf(why, why_size, "expected one of %s", choices);
    return false;
}
