/* SPDX-License-Identifier: Apache-2.0 */
/* A memory of fields of hashes and their values, for the cache of resources. It is a table of fixed
 * size in which each field has one place: who comes to a place that is taken has it. Short ones
 * only: field and value together up to 54 bytes.
 *
 * A hash is named by a mark. Who gives it another one has forgotten all of its fields at once. */
#ifndef STOCKADE_STORE_SQLITE_FIELDS_H
#define STOCKADE_STORE_SQLITE_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"

enum { FIELDS_MARKS_MAX = 1 << 22 };

struct fields;

/* It takes up to 8 MB, as it fills. */
struct fields *fields_new(void);
void fields_free(struct fields *fields);
/* Return a mark that no hash has had since the last clear; 0: there is none left. */
uint32_t fields_mark(struct fields *fields);
/* Find a field's value, borrowed until the next put. */
bool fields_find(const struct fields *fields, uint32_t mark, struct bytes field,
                 struct bytes *value);
/* Remember it. What is too long is forgotten. */
void fields_put(struct fields *fields, uint32_t mark, struct bytes field, struct bytes value);
void fields_forget(struct fields *fields, uint32_t mark, struct bytes field);
/* Forget all of them, in no time to speak of; marks begin anew. */
void fields_clear(struct fields *fields);

#endif
