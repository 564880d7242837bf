/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/libpq.h"

#include <pthread.h>

#include "fence/base/bytes.h"
#include "fence/base/library.h"

struct libpq pq;

static const struct library_symbol symbols[] = {
#define X(name) {#name, offsetof(struct libpq, name)},
    LIBPQ_MAP(X)
#undef X
};

static char problem[256]; /* empty: it is loaded */

static void load(void)
{
    static const struct library library = {
        .file = "libpq.so.5",
        .package = "libpq5",
        .what = "PostgreSQL's C client",
        .scheme = "postgresql://",
        .symbols = symbols,
        .count = sizeof symbols / sizeof *symbols,
    };
    (void)library_load(&library, &pq, problem, sizeof problem);
}

bool libpq_load(char *why, size_t why_size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    text_print(why, why_size, "%s", problem);
    return problem[0] == '\0';
}
