/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzzers share. */
#include "tests/fuzz/fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fence/base/check.h"

struct bytes fuzz_cut(struct bytes *rest, char separator)
{
    const char *end = rest->len == 0 ? NULL : memchr(rest->data, separator, rest->len);
    struct bytes part = {rest->data, end == NULL ? rest->len : (size_t)(end - rest->data)};
    size_t used = part.len + (end != NULL);

    if (used > 0)
        *rest = (struct bytes){rest->data + used, rest->len - used};
    return part;
}

unsigned fuzz_byte(struct bytes *rest)
{
    if (rest->len == 0)
        return 0;
    rest->len--;
    return (unsigned char)*rest->data++;
}

void fuzz_file_write(struct fuzz_file *file, struct bytes content)
{
    if (file->fd == 0)
        file->fd = memfd_create("fuzz", MFD_CLOEXEC);
    check(file->fd > 0);
    snprintf(file->path, sizeof file->path, "/proc/self/fd/%d", file->fd);
    check(ftruncate(file->fd, 0) == 0);
    check(pwrite(file->fd, content.data, content.len, 0) == (ssize_t)content.len);
}

void fuzz_wrong(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}
