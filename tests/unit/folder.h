/* SPDX-License-Identifier: Apache-2.0 */
/* A temporary folder, below TMPDIR: tools/check sets that to one in memory. */
#ifndef STOCKADE_TESTS_FOLDER_H
#define STOCKADE_TESTS_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

#include "fence/base/check.h"

/* Make one and write its path. Ends with folder_remove. */
static inline void folder_make(char *path, size_t size)
{
    const char *parent = getenv("TMPDIR");

    check(snprintf(path, size, "%s/stockade-XXXXXX", parent == NULL ? "/tmp" : parent) < (int)size);
    check(mkdtemp(path) != NULL);
}

static inline int folder_remove_entry(const char *path, const struct stat *info, int type,
                                      struct FTW *place)
{
    (void)info, (void)type, (void)place;
    return remove(path);
}

/* Remove it with all that is in it. */
static inline void folder_remove(const char *path)
{
    nftw(path, folder_remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

#endif
