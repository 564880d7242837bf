/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a process whose invariant broke. */
#include "fence/base/check.h"

#include <stdio.h>
#include <stdlib.h>

/* LCOV_EXCL_START: a broken invariant ends the process */
void check_failed(const char *file, int line, const char *func, const char *what)
{
    fprintf(stderr, "stockade: broken invariant at %s:%d in %s: %s (this is a bug)\n", file, line,
            func, what);
    abort();
}

void check_left(const char *file, int line, const char *func, const char *name, long long count)
{
    char what[160];

    snprintf(what, sizeof what, "%s is %lld, and should be 0 by now", name, count);
    check_failed(file, line, func, what);
}
/* LCOV_EXCL_STOP */
