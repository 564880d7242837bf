/* SPDX-License-Identifier: Apache-2.0 */
/* One line of CSV (RFC 4180) to its fields: bytes in, record out. Pure: no memory of its own, no
 * input or output, any bytes are safe to give.
 *
 * Strict. A field is either bare, without any quote, or wholly quoted, a quote in it doubled. A
 * record is one line: a quoted field that goes on over the end of the line is an error here. */
#ifndef STOCKADE_TOOLS_REPLAY_CSV_H
#define STOCKADE_TOOLS_REPLAY_CSV_H

#include <stddef.h>

#include "fence/base/bytes.h"

enum { CSV_LINE_MAX = 4096, CSV_FIELDS_MAX = 16 };

struct csv_record {
    size_t count;
    struct bytes fields[CSV_FIELDS_MAX]; /* into `text`, unquoted */
    char text[CSV_LINE_MAX];
};

/* `line` without its end ("\n", "\r\n"). Returns NULL, or what is wrong with the line (static
 * storage); the record is then of no use. An empty line is one empty field. */
const char *csv_parse(struct bytes line, struct csv_record *record);

#endif
