/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/names.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#include "fence/base/bytes.h"

enum { EXPLAIN_ROOM = 144 }; /* of names_explain, for all but the path */

bool names_are_several(const struct stat *status)
{
    return S_ISREG(status->st_mode) && status->st_nlink > 1;
}

void names_explain(const char *path, const struct stat *status, char *why, size_t why_size)
{
    snprintf(why, why_size,
             "%s has %llu names (hard links), and would have a log for each; remove all but one: "
             "find / -xdev -inum %llu",
             text_end(path, why_size - EXPLAIN_ROOM), (unsigned long long)status->st_nlink,
             (unsigned long long)status->st_ino);
}

bool names_identify(const char *path, struct names_file *file)
{
    struct statx status;

    if (statx(AT_FDCWD, path, 0, STATX_INO | STATX_BTIME, &status) != 0)
        return false;
    *file = (struct names_file){.inode = status.stx_ino};
    if ((status.stx_mask & STATX_BTIME) != 0)
        file->born_ns = status.stx_btime.tv_sec * INT64_C(1000000000) + status.stx_btime.tv_nsec;
    return true;
}

/* A number is given again as soon as its file is removed, often to the copy that takes its place.
 */
bool names_are_one(const struct names_file *a, const struct names_file *b)
{
    return a->inode == b->inode && (a->born_ns == b->born_ns || a->born_ns == 0 || b->born_ns == 0);
}

int names_get(const char *text, struct names_file *file)
{
    int len = 0;

    return sscanf(text, "%" SCNu64 "@%" SCNd64 "%n", &file->inode, &file->born_ns, &len) == 2 ? len
                                                                                              : 0;
}

void names_put(const struct names_file *file, char text[NAMES_TEXT_SIZE])
{
    snprintf(text, NAMES_TEXT_SIZE, "%" PRIu64 "@%" PRId64, file->inode, file->born_ns);
}
