/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/libpq.h"

#include "fence/base/library.h"

static const struct library_symbol symbols[] = {
#define X(name) {#name, offsetof(struct libpq, name)},
    LIBPQ_MAP(X)
#undef X
};

bool libpq_load(struct libpq *pq, char *why, size_t why_size)
{
    static const struct library library = {
        .file = "libpq.so.5",
        .package = "libpq5",
        .what = "PostgreSQL's C client",
        .scheme = "postgresql://",
        .symbols = symbols,
        .count = sizeof symbols / sizeof *symbols,
    };
    return library_load(&library, pq, why, why_size);
}
