/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a plain or gzipped file (zlib tells them apart), however long and whatever bytes. */
#ifndef STOCKADE_TOOLS_REPLAY_LINE_READER_H
#define STOCKADE_TOOLS_REPLAY_LINE_READER_H

#include <stdbool.h>
#include <stdint.h>
#include <zlib.h>

#include "fence/base/bytes.h"
#include "tools/failure.h"

struct line_reader {
    const char *path; /* borrowed */
    gzFile file;
    struct buf read; /* bytes read and not yet given out, from `given` on */
    size_t given;
    uint32_t number; /* of the line given last, from 1 */
    bool at_end;
};

bool line_reader_open(struct line_reader *reader, const char *path, struct failure *failure);
void line_reader_close(struct line_reader *reader);

enum line_result {
    LINE_READ,
    LINE_TOO_LONG, /* skipped up to its end; `line` is empty */
    LINE_END,      /* of the file */
    LINE_FAILED,   /* the file cannot be read further */
};

/* The next line without its end; valid until the next call. */
enum line_result line_reader_next(struct line_reader *reader, struct bytes *line,
                                  struct failure *failure);

#endif
