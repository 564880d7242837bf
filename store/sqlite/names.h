/* SPDX-License-Identifier: Apache-2.0 */
/* How many names a file has: why that matters says place.h. The extension has its part in it. */
#ifndef STOCKADE_STORE_SQLITE_NAMES_H
#define STOCKADE_STORE_SQLITE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* Is it a file with hard links? */
bool names_are_several(const struct stat *status);
/* Say so in one line, and what to do. */
void names_explain(const char *path, const struct stat *status, char *why, size_t why_size);

#endif
