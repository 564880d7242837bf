/* SPDX-License-Identifier: Apache-2.0 */
/* A place says whose it is: the mark, and the round of marks in which that was given. Of a round
 * that is over nothing is found, so a clear touches no place. */
#include "store/sqlite/fields.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

enum { PLACES = 1 << 17, BYTES_MAX = 54 };

struct place {
    uint32_t mark; /* 0: nobody's */
    uint32_t round;
    uint8_t field_len, value_len;
    char bytes[BYTES_MAX]; /* the field, then its value */
};
_Static_assert(sizeof(struct place) == 64, "8 MB");

struct fields {
    struct place *places;
    uint64_t seed; /* so that nobody can choose fields that share a place */
    uint32_t marks, round;
};

struct fields *fields_new(void)
{
    struct fields *fields = mem_zalloc(sizeof *fields);

    fields->places = mem_zalloc(PLACES * sizeof *fields->places);
    fields->seed = (uint64_t)(uintptr_t)fields;
    return fields;
}

void fields_free(struct fields *fields)
{
    if (fields == NULL)
        return;
    free(fields->places);
    free(fields);
}

uint32_t fields_mark(struct fields *fields)
{
    return fields->marks < FIELDS_MARKS_MAX ? ++fields->marks : 0;
}

static struct place *place_of(const struct fields *fields, uint32_t mark, struct bytes field)
{
    uint64_t hash = XXH3_64bits_withSeed(field.data, field.len, fields->seed + mark);
    return &fields->places[hash % PLACES];
}

static bool is_of(const struct fields *fields, const struct place *place, uint32_t mark,
                  struct bytes field)
{
    return place->mark == mark && place->round == fields->round &&
           bytes_equal((struct bytes){place->bytes, place->field_len}, field);
}

bool fields_find(const struct fields *fields, uint32_t mark, struct bytes field,
                 struct bytes *value)
{
    const struct place *place = place_of(fields, mark, field);

    check(mark != 0);
    if (!is_of(fields, place, mark, field))
        return false;
    *value = (struct bytes){place->bytes + place->field_len, place->value_len};
    return true;
}

void fields_put(struct fields *fields, uint32_t mark, struct bytes field, struct bytes value)
{
    struct place *place = place_of(fields, mark, field);

    check(mark != 0 && field.len > 0);
    if (field.len > BYTES_MAX || value.len > BYTES_MAX - field.len) {
        fields_forget(fields, mark, field);
        return;
    }
    place->mark = mark;
    place->round = fields->round;
    place->field_len = (uint8_t)field.len;
    place->value_len = (uint8_t)value.len;
    memcpy(place->bytes, field.data, field.len);
    if (value.len > 0)
        memcpy(place->bytes + field.len, value.data, value.len);
}

void fields_forget(struct fields *fields, uint32_t mark, struct bytes field)
{
    struct place *place = place_of(fields, mark, field);

    if (is_of(fields, place, mark, field))
        place->mark = 0;
}

void fields_clear(struct fields *fields)
{
    fields->marks = 0;
    if (++fields->round == 0) /* the places may be from the first one */
        memset(fields->places, 0, PLACES * sizeof *fields->places);
}
