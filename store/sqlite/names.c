/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/names.h"

#include <stdio.h>

bool names_are_several(const struct stat *status)
{
    return S_ISREG(status->st_mode) && status->st_nlink > 1;
}

void names_explain(const char *path, const struct stat *status, char *why, size_t why_size)
{
    snprintf(why, why_size,
             "%.300s has %llu names (hard links), and would have a log for each; remove all but "
             "one: find / -xdev -inum %llu",
             path, (unsigned long long)status->st_nlink, (unsigned long long)status->st_ino);
}
