/* SPDX-License-Identifier: Apache-2.0 */
/* Lines by zlib, which reads plain files, too; CSV and order lines by hand. */
#include "tools/replay/orders_file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum { COLUMNS = 5 };

/* Lines. */

bool line_reader_open(struct line_reader *reader, const char *path, struct failure *failure)
{
    *reader = (struct line_reader){.path = path};
    errno = 0;
    reader->file = gzopen(path, "rbe");
    return reader->file != NULL || failure_set(failure, "cannot open %s: %s", path,
                                               errno != 0 ? strerror(errno) : "out of memory");
}

void line_reader_close(struct line_reader *reader)
{
    if (reader->file != NULL) {
        (void)gzclose_r(reader->file);
        reader->file = NULL;
    }
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

enum line_result line_reader_next(struct line_reader *reader, struct bytes *line,
                                  struct failure *failure)
{
    size_t len = 0;
    int byte, code = Z_OK;

    *line = (struct bytes){NULL, 0};
    errno = 0;
    while ((byte = gzgetc(reader->file)) >= 0 && byte != '\n') {
        if (len < sizeof reader->text)
            reader->text[len] = (char)byte;
        len++;
    }
    if (byte < 0) {
        (void)gzerror(reader->file, &code);
        if (code != Z_OK && code != Z_STREAM_END) {
            (void)failure_set(failure, "cannot read %s beyond line %" PRIu32 ": %s", reader->path,
                              reader->number, read_error(code));
            return LINE_FAILED;
        }
        if (len == 0)
            return LINE_END;
    }
    reader->number++;
    if (len > 0 && len <= sizeof reader->text && reader->text[len - 1] == '\r')
        len--;
    if (len > CSV_LINE_MAX)
        return LINE_TOO_LONG;
    *line = (struct bytes){reader->text, len};
    return LINE_READ;
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
        if (byte != '"')
            *cursor->out++ = byte;
        else if (cursor->at < cursor->end && *cursor->at == '"')
            *cursor->out++ = *cursor->at++;
        else if (cursor->at == cursor->end || *cursor->at == ',')
            return NULL;
        else
            return "text behind a closing quote";
    }
    return "a quote is not closed";
}

static const char *bare_field(struct cursor *cursor)
{
    while (cursor->at < cursor->end && *cursor->at != ',') {
        if (*cursor->at == '"')
            return "a quote inside a field that is not quoted";
        *cursor->out++ = *cursor->at++;
    }
    return NULL;
}

const char *csv_parse(struct bytes line, struct csv_record *record)
{
    struct cursor cursor = {line.data, line.data + line.len, record->text};

    record->count = 0;
    if (line.len > CSV_LINE_MAX)
        return "the line is too long";
    for (;;) {
        const char *begin = cursor.out;
        const char *wrong = cursor.at < cursor.end && *cursor.at == '"' ? quoted_field(&cursor)
                                                                        : bare_field(&cursor);
        if (wrong != NULL)
            return wrong;
        if (record->count == CSV_FIELDS_MAX)
            return "too many fields";
        record->fields[record->count++] = (struct bytes){begin, (size_t)(cursor.out - begin)};
        if (cursor.at == cursor.end)
            return NULL;
        cursor.at++; /* the comma; a field follows, if an empty one */
    }
}

/* Order lines. */

bool order_line_is_header(const struct csv_record *record)
{
    static const char *const names[COLUMNS] = {"invoice", "invoiced_at", "sku", "quantity",
                                               "customer"};

    if (record->count != COLUMNS)
        return false;
    for (size_t i = 0; i < COLUMNS; i++)
        if (!bytes_equal(record->fields[i], bytes_of(names[i])))
            return false;
    return true;
}

/* A name becomes part of a key and of messages: it is printable, and of bounded length. */
static bool is_name(struct bytes text, size_t len_max)
{
    if (text.len == 0 || text.len > len_max)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        if (byte < ' ' || byte == 127)
            return false;
    }
    return true;
}

const char *order_line_parse(const struct csv_record *record, struct order_line *line)
{
    if (record->count != COLUMNS)
        return "it has not five columns";
    line->invoice = record->fields[0];
    line->sku = record->fields[2];
    if (!is_name(line->invoice, ORDER_INVOICE_MAX))
        return "the invoice is empty, too long or not printable";
    if (!bytes_to_int64(record->fields[1], &line->invoiced_at) || line->invoiced_at < 0)
        return "the time is not in Unix seconds";
    if (!is_name(line->sku, ORDER_SKU_MAX))
        return "the SKU is empty, too long or not printable";
    if (!bytes_to_int64(record->fields[3], &line->quantity) ||
        line->quantity > ORDER_QUANTITY_MAX || line->quantity < -ORDER_QUANTITY_MAX)
        return "the quantity is not a number, or too large";
    if (line->quantity == 0)
        return "the quantity is 0";
    return NULL;
}
