/* SPDX-License-Identifier: Apache-2.0 */
#include "fence/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fence/base/plain.h"

int file_open(const char *path, mode_t *mode, char why[FILE_WHY_SIZE])
{
    struct stat status;
    /* To open a pipe that nobody writes must not wait, nor a terminal become ours. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 || fstat(fd, &status) != 0) {
        text_print(why, FILE_WHY_SIZE, "%s", plain_errno(errno));
    } else if (S_ISDIR(status.st_mode)) {
        text_print(why, FILE_WHY_SIZE, "it is a folder");
    } else if (!S_ISREG(status.st_mode)) {
        text_print(why, FILE_WHY_SIZE, "it is not an ordinary file");
    } else {
        if (mode != NULL)
            *mode = status.st_mode;
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Read to the end, or to one byte more than the buffer may have. False: errno says why. */
static bool read_all(int fd, struct buf *text, size_t max)
{
    ssize_t len = 1;

    while (len > 0 && text->len <= max) {
        len = read(fd, text->data + text->len, max + 1 - text->len);
        if (len > 0)
            text->len += (size_t)len;
        else if (len < 0 && errno == EINTR)
            len = 1;
    }
    return len >= 0;
}

bool file_read(const char *path, size_t max, struct buf *text, mode_t *mode,
               char why[FILE_WHY_SIZE])
{
    int fd = file_open(path, mode, why);

    if (fd < 0)
        return false;
    buf_reserve(text, max + 2); /* once: to grow would leave copies of secrets behind */
    bool whole = read_all(fd, text, max);
    if (!whole)
        text_print(why, FILE_WHY_SIZE, "it cannot be read: %s", plain_errno(errno));
    else if (text->len > max)
        text_print(why, FILE_WHY_SIZE, "it has more than %zu bytes", max);
    close(fd);
    text->data[text->len] = '\0';
    if (whole && text->len <= max)
        return true;
    explicit_bzero(text->data, text->len);
    buf_free(text);
    return false;
}
