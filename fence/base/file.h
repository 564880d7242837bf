/* SPDX-License-Identifier: Apache-2.0 */
/* Files that an operator has named: passwords, users, certificates, settings. Whatever stands at
 * the path, a pipe that nobody writes or a device without an end, nothing waits for it and no more
 * is read than fits. */
#ifndef STOCKADE_BASE_FILE_H
#define STOCKADE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "fence/base/bytes.h"

enum { FILE_WHY_SIZE = 128 };

/* Open an ordinary file for reading. -1: `why` says why not, without the path. `mode` (may be
 * NULL): its permissions. */
int file_open(const char *path, mode_t *mode, char why[FILE_WHY_SIZE]);
/* Read an ordinary file of at most `max` bytes into an empty buffer, in one piece, with a zero byte
 * behind it that does not count. False: the same, and the buffer is empty. The caller wipes
 * secrets. */
bool file_read(const char *path, size_t max, struct buf *text, mode_t *mode,
               char why[FILE_WHY_SIZE]);

#endif
