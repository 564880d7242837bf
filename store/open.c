/* SPDX-License-Identifier: Apache-2.0 */
#include "store/open.h"

#include <stdio.h>
#include <string.h>

#include "fence/base/log.h"
#include "fence/base/uri.h"

bool store_uri_is_postgresql(const char *uri)
{
    return uri_after(uri, "postgresql://") != NULL || uri_after(uri, "postgres://") != NULL;
}

bool store_uri_is_valid(const char *uri, char *why, size_t why_size)
{
    const char *path = uri_after(uri, "sqlite:");
    char meant[120], quoted[128];

    if (store_uri_is_postgresql(uri))
        return store_postgresql_uri_is_valid(uri, why, why_size);
    if (path != NULL && *path != '\0')
        return true;
    snprintf(why, why_size, "expected sqlite:PATH or postgresql://...");
    if (strchr(uri, ':') == NULL) {
        text_print(meant, sizeof meant, "sqlite:%s", uri);
        text_print(why, why_size, "expected sqlite:PATH or postgresql://...; did you mean %s?",
                   log_quoted(bytes_of(meant), quoted, sizeof quoted));
    }
    return false;
}

struct store *store_open(const char *uri, struct store_options options, char *why, size_t why_size)
{
    if (!store_uri_is_valid(uri, why, why_size))
        return NULL;
    options.path = uri;
    if (store_uri_is_postgresql(uri))
        return store_postgresql_open(&options, why, why_size);
    options.path = uri_after(uri, "sqlite:");
    return store_sqlite_open(&options, why, why_size);
}
