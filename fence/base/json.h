/* SPDX-License-Identifier: Apache-2.0 */
/* Strings as JSON writes them. */
#ifndef STOCKADE_BASE_JSON_H
#define STOCKADE_BASE_JSON_H

#include "fence/base/bytes.h"

/* Appends the text in quotes. Bytes that are not UTF-8 as a whole are shown one by one: each from
 * 0x80 on as the character of that number. */
void json_string(struct buf *json, struct bytes text);

#endif
