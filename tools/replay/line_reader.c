/* SPDX-License-Identifier: Apache-2.0 */
/* gzread into a buffer that never grows beyond a line and a block. A file cut short or damaged is a
 * failure, not an early end. */
#include "tools/replay/line_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "tools/replay/csv.h"

enum { BLOCK_BYTES = 65536 };

bool line_reader_open(struct line_reader *reader, const char *path, struct failure *failure)
{
    *reader = (struct line_reader){.path = path};
    errno = 0;
    reader->file = gzopen(path, "rbe");
    if (reader->file == NULL) {
        return failure_set(failure, "cannot open %s: %s", path,
                           errno != 0 ? strerror(errno) : "out of memory");
    }
    (void)buf_reserve(&reader->read, BLOCK_BYTES); /* so that there is always a place to point to */
    return true;
}

void line_reader_close(struct line_reader *reader)
{
    if (reader->file != NULL) {
        (void)gzclose_r(reader->file);
        reader->file = NULL;
    }
    buf_free(&reader->read);
}

/* What zlib's code means for a file that is read. */
static const char *read_error(int code)
{
    switch (code) {
    case Z_ERRNO: return strerror(errno);
    case Z_BUF_ERROR: return "it is cut short";
    default: return "it is damaged";
    }
}

static bool line_reader_fill(struct line_reader *reader, struct failure *failure)
{
    int code = Z_OK;

    buf_consume(&reader->read, reader->given);
    reader->given = 0;
    errno = 0;
    int got = gzread(reader->file, buf_reserve(&reader->read, BLOCK_BYTES), BLOCK_BYTES);
    (void)gzerror(reader->file, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
        return failure_set(failure, "cannot read %s beyond line %" PRIu32 ": %s", reader->path,
                           reader->number, read_error(code));
    }
    reader->read.len += (size_t)got;
    reader->at_end = got == 0;
    return true;
}

enum line_result line_reader_next(struct line_reader *reader, struct bytes *line,
                                  struct failure *failure)
{
    bool too_long = false;

    *line = (struct bytes){NULL, 0};
    for (;;) {
        const char *data = reader->read.data + reader->given;
        size_t len = reader->read.len - reader->given;
        const char *end = len > 0 ? memchr(data, '\n', len) : NULL;

        if (end != NULL || (reader->at_end && (len > 0 || too_long))) {
            size_t line_len = end != NULL ? (size_t)(end - data) : len;
            reader->given += line_len + (end != NULL ? 1 : 0);
            reader->number++;
            if (line_len > 0 && data[line_len - 1] == '\r') {
                line_len--;
            }
            if (too_long || line_len > CSV_LINE_MAX) {
                return LINE_TOO_LONG;
            }
            *line = (struct bytes){data, line_len};
            return LINE_READ;
        }
        if (reader->at_end) {
            return LINE_END;
        }
        if (len > CSV_LINE_MAX + 1) { /* drop what has come of it, so that nothing grows */
            reader->given = reader->read.len;
            too_long = true;
        }
        if (!line_reader_fill(reader, failure)) {
            return LINE_FAILED;
        }
    }
}
