/* SPDX-License-Identifier: Apache-2.0 */
/* Text that anybody may have chosen, as a JSON string. Everything else about JSON is punctuation
 * that a caller writes itself. */
#ifndef STOCKADE_BASE_JSON_H
#define STOCKADE_BASE_JSON_H

#include "fence/base/bytes.h"

/* Append `text` with its quotation marks. UTF-8 stays as it is, but what
 * people may not be shown is escaped (utf8.h). In a text that is not UTF-8, each
 * byte from 0x80 on becomes the character of that number: 0xff is \u00ff. */
void json_string(struct buf *json, struct bytes text);

#endif
