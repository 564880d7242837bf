/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary folder, where TMPDIR says: tools/check has one in memory. */
#ifndef STOCKADE_TESTS_FOLDER_H
#define STOCKADE_TESTS_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

#include "fence/base/check.h"

/* Makes it, and writes its path; the caller removes it. */
static inline void folder_make(char *path, size_t size)
{
    const char *parent = getenv("TMPDIR");

    check(snprintf(path, size, "%s/stockade-XXXXXX", parent == NULL ? "/tmp" : parent) < (int)size);
    check(mkdtemp(path) != NULL);
}

#endif
