/* SPDX-License-Identifier: Apache-2.0 */
/* A place says in which round it was taken. Of a round that is over nothing is found, so a clear
 * touches no place. */
#include "store/sqlite/absent.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fence/base/mem.h"

enum { PLACES = 1 << 12, BYTES_MAX = 58 };

struct place {
    uint32_t round; /* 0: it was never taken */
    uint8_t taken, len;
    char bytes[BYTES_MAX];
};
_Static_assert(sizeof(struct place) == 64, "256 KB");

struct absent {
    struct place *places;
    uint64_t seed; /* so that nobody can choose names that share a place */
    uint32_t round;
};

struct absent *absent_new(void)
{
    struct absent *absent = mem_zalloc(sizeof *absent);

    absent->places = mem_zalloc(PLACES * sizeof *absent->places);
    absent->seed = (uint64_t)(uintptr_t)absent;
    absent->round = 1;
    return absent;
}

void absent_free(struct absent *absent)
{
    if (absent == NULL)
        return;
    free(absent->places);
    free(absent);
}

static struct place *place_of(const struct absent *absent, struct bytes name)
{
    return &absent->places[XXH3_64bits_withSeed(name.data, name.len, absent->seed) % PLACES];
}

static bool is_of(const struct absent *absent, const struct place *place, struct bytes name)
{
    return place->round == absent->round && place->taken &&
           bytes_equal((struct bytes){place->bytes, place->len}, name);
}

bool absent_has(const struct absent *absent, struct bytes name)
{
    return is_of(absent, place_of(absent, name), name);
}

void absent_put(struct absent *absent, struct bytes name)
{
    struct place *place = place_of(absent, name);

    if (name.len > BYTES_MAX)
        return;
    place->round = absent->round;
    place->taken = true;
    place->len = (uint8_t)name.len;
    if (name.len > 0)
        memcpy(place->bytes, name.data, name.len);
}

void absent_forget(struct absent *absent, struct bytes name)
{
    struct place *place = place_of(absent, name);

    if (is_of(absent, place, name))
        place->taken = false;
}

void absent_clear(struct absent *absent)
{
    if (++absent->round == 0) { /* the places may be from the first one */
        memset(absent->places, 0, PLACES * sizeof *absent->places);
        absent->round = 1;
    }
}
