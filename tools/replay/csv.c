/* SPDX-License-Identifier: Apache-2.0 */
/* The fields' text goes behind one another into the record; it never takes more room than the line
 * itself, so that the length of the line is the only limit to test. */
#include "tools/replay/csv.h"

struct cursor {
    const char *at, *end; /* what is left of the line */
    char *out;            /* the next free place in the record's text */
};

/* From the opening quote up to behind the closing one. */
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
