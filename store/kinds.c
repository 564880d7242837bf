/* SPDX-License-Identifier: Apache-2.0 */
#include "store/kinds.h"

#include <stdio.h>
#include <string.h>

#include "fence/base/log.h"
#include "fence/base/uri.h"

#define EXPECTED "expected sqlite:PATH or postgresql://..."

static bool path_is_valid(const char *path, char *why, size_t why_size)
{
    if (*path == '\0')
        snprintf(why, why_size, "%s", EXPECTED);
    return *path != '\0';
}

static const struct store_kind kinds[] = {
    {
        .name = "sqlite",
        .schemes = {"sqlite:"},
        .is_valid = path_is_valid,
        .open = store_sqlite_open,
        .backup = store_sqlite_backup,
        .restore = store_sqlite_restore,
        .check = store_sqlite_check,
        .heads = store_sqlite_heads,
        .transfer = transfer_sqlite,
    },
    {
        .name = "postgresql",
        .schemes = {"postgresql://", "postgres://"},
        .in_network = true,
        .is_valid = store_postgresql_uri_is_valid,
        .open = store_postgresql_open,
        .backup = store_postgresql_backup,
        .restore = store_postgresql_restore,
        .check = store_postgresql_check,
        .heads = store_postgresql_heads,
        .transfer = transfer_postgresql,
    },
};

/* Return the kind, and what stands behind its scheme in `*rest`. */
static const struct store_kind *recognise(const char *uri, const char **rest)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (const char *const *scheme = kinds[i].schemes; *scheme != NULL; scheme++)
            if ((*rest = uri_after(uri, *scheme)) != NULL)
                return &kinds[i];
    return NULL;
}

const struct store_kind *store_kind_of(const char *uri)
{
    const char *rest;

    return recognise(uri, &rest);
}

bool store_is_in_network(const char *uri)
{
    const struct store_kind *kind = store_kind_of(uri);

    return kind != NULL && kind->in_network;
}

bool store_uri_is_memory(const char *uri)
{
    return strcmp(uri, ":memory:") == 0 || strcmp(uri, "sqlite::memory:") == 0;
}

const struct store_kind *store_kind_find(const char *uri, const char **name, char *why,
                                         size_t why_size)
{
    const struct store_kind *kind = recognise(uri, name);
    char meant[120], quoted[128];

    if (store_uri_is_memory(uri)) {
        text_print(why, why_size,
                   "a store in memory is a daemon's own (stockaded --store :memory:): name that "
                   "daemon, stockade://HOST:PORT, or a file, sqlite:PATH");
        return NULL;
    }
    if (kind != NULL) {
        if (kind->in_network)
            *name = uri;
        return kind->is_valid(*name, why, why_size) ? kind : NULL;
    }
    snprintf(why, why_size, "%s", EXPECTED);
    if (strchr(uri, ':') == NULL) {
        text_print(meant, sizeof meant, "sqlite:%s", uri);
        text_print(why, why_size, EXPECTED "; did you mean %s?",
                   log_quoted(bytes_of(meant), quoted, sizeof quoted));
    }
    return NULL;
}

bool store_uri_is_valid(const char *uri, char *why, size_t why_size)
{
    const char *name;

    return store_kind_find(uri, &name, why, why_size) != NULL;
}

struct store *store_open(const char *uri, struct store_options options, char *why, size_t why_size)
{
    const struct store_kind *kind = store_kind_find(uri, &options.path, why, why_size);

    return kind != NULL ? kind->open(&options, why, why_size) : NULL;
}
