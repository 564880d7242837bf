/* SPDX-License-Identifier: Apache-2.0 */
/* See orders_file.h. */
#include "tools/replay/orders_file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { BLOCK_BYTES = 65536, COLUMNS = 5 };

/* Lines: gzread into a buffer that never grows beyond a line and a block. */

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

/* Fields: their text goes into the record, one behind the other, and never takes more room than the
 * line, so that the length of the line is the only limit to check. */

struct cursor {
    const char *at, *end; /* what is left of the line */
    char *out;            /* the next free place in the record's text */
};

/* Read from the opening quote to behind the closing one. */
static const char *quoted_field(struct cursor *cursor)
{
    cursor->at++;
    while (cursor->at < cursor->end) {
        char byte = *cursor->at++;
        if (byte != '"') {
            *cursor->out++ = byte;
        } else if (cursor->at < cursor->end && *cursor->at == '"') {
            *cursor->out++ = *cursor->at++;
        } else if (cursor->at == cursor->end || *cursor->at == ',') {
            return NULL;
        } else {
            return "text behind a closing quote";
        }
    }
    return "a quote is not closed";
}

static const char *bare_field(struct cursor *cursor)
{
    while (cursor->at < cursor->end && *cursor->at != ',') {
        if (*cursor->at == '"') {
            return "a quote inside a field that is not quoted";
        }
        *cursor->out++ = *cursor->at++;
    }
    return NULL;
}

const char *csv_parse(struct bytes line, struct csv_record *record)
{
    struct cursor cursor = {line.data, line.data + line.len, record->text};

    record->count = 0;
    if (line.len > CSV_LINE_MAX) {
        return "the line is too long";
    }
    for (;;) {
        const char *begin = cursor.out;
        const char *wrong = cursor.at < cursor.end && *cursor.at == '"' ? quoted_field(&cursor)
                                                                        : bare_field(&cursor);
        if (wrong != NULL) {
            return wrong;
        }
        if (record->count == CSV_FIELDS_MAX) {
            return "too many fields";
        }
        record->fields[record->count++] = (struct bytes){begin, (size_t)(cursor.out - begin)};
        if (cursor.at == cursor.end) {
            return NULL;
        }
        cursor.at++; /* the comma; a field follows, if an empty one */
    }
}

/* Order lines. */

bool order_line_is_header(const struct csv_record *record)
{
    static const char *const names[COLUMNS] = {"invoice", "invoiced_at", "sku", "quantity",
                                               "customer"};

    if (record->count != COLUMNS) {
        return false;
    }
    for (size_t i = 0; i < COLUMNS; i++) {
        if (!bytes_equal(record->fields[i], bytes_of(names[i]))) {
            return false;
        }
    }
    return true;
}

/* A name becomes part of a key and of messages: it is printable, and of bounded length. */
static bool is_name(struct bytes text, size_t len_max)
{
    if (text.len == 0 || text.len > len_max) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        if (byte < ' ' || byte == 127) {
            return false;
        }
    }
    return true;
}

const char *order_line_parse(const struct csv_record *record, struct order_line *line)
{
    if (record->count != COLUMNS) {
        return "it has not five columns";
    }
    line->invoice = record->fields[0];
    line->sku = record->fields[2];
    if (!is_name(line->invoice, ORDER_INVOICE_MAX)) {
        return "the invoice is empty, too long or not printable";
    }
    if (!bytes_to_int64(record->fields[1], &line->invoiced_at) || line->invoiced_at < 0) {
        return "the time is not in Unix seconds";
    }
    if (!is_name(line->sku, ORDER_SKU_MAX)) {
        return "the SKU is empty, too long or not printable";
    }
    if (!bytes_to_int64(record->fields[3], &line->quantity) ||
        line->quantity > ORDER_QUANTITY_MAX || line->quantity < -ORDER_QUANTITY_MAX) {
        return "the quantity is not a number, or too large";
    }
    if (line->quantity == 0) {
        return "the quantity is 0";
    }
    return NULL;
}
