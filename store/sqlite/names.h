/* SPDX-License-Identifier: Apache-2.0 */
/* How many names a file has, and which file it is: why that matters says place.h. The extension has
 * its part in it. */
#ifndef STOCKADE_STORE_SQLITE_NAMES_H
#define STOCKADE_STORE_SQLITE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Is it a file with hard links? */
bool names_are_several(const struct stat *status);
/* Say so in one line of more than 144 bytes, and what to do. */
void names_explain(const char *path, const struct stat *status, char *why, size_t why_size);

/* Which file it is. A copy is another one, also at the same name; a file that was renamed is the
 * same. Devices are left out, since their numbers change with a reboot. */
struct names_file {
    uint64_t inode;
    int64_t born_ns; /* since 1970; 0: the file system does not say */
};
/* False: there is none. */
bool names_identify(const char *path, struct names_file *file);
bool names_are_one(const struct names_file *a, const struct names_file *b);
/* Read what names_put has written at the beginning of `text`. Return how many characters that are;
 * 0: it is something else. */
int names_get(const char *text, struct names_file *file);
enum { NAMES_TEXT_SIZE = 48 };
/* What stands there in a backup: whoever serves it has another file. */
#define NAMES_COPY "copy"
void names_put(const struct names_file *file, char text[NAMES_TEXT_SIZE]);

#endif
