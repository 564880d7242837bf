/* SPDX-License-Identifier: Apache-2.0 */
/* A place says in which round it was taken. Of a round that is over nothing is found, so a clear
 * touches no place. */
#include "store/sqlite/leases.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

enum { PLACES = 1 << 13, OWNER_MAX = 57 };

struct place {
    int64_t id, holds, ttl_ms, opening, connection, changed_ms, receipts_gone;
    uint32_t round; /* 0: nobody's */
    bool anonymous;
    uint8_t owner_len;
    char owner[OWNER_MAX];
};
_Static_assert(sizeof(struct place) == 120, "1 MB");

struct leases {
    struct place *places;
    uint32_t round;
};

struct leases *leases_new(void)
{
    struct leases *leases = mem_zalloc(sizeof *leases);

    leases->places = mem_zalloc(PLACES * sizeof *leases->places);
    leases->round = 1;
    return leases;
}

void leases_free(struct leases *leases)
{
    if (leases == NULL)
        return;
    free(leases->places);
    free(leases);
}

static struct place *place_of(const struct leases *leases, int64_t id)
{
    return &leases->places[id & (PLACES - 1)];
}

static bool is_of(const struct leases *leases, const struct place *place, int64_t id)
{
    return place->round == leases->round && place->id == id;
}

bool leases_find(const struct leases *leases, int64_t id, struct lease *lease)
{
    const struct place *place = place_of(leases, id);

    if (!is_of(leases, place, id))
        return false;
    *lease = (struct lease){.owner = {place->owner, place->owner_len},
                            .anonymous = place->anonymous,
                            .holds = place->holds,
                            .ttl_ms = place->ttl_ms,
                            .opening = place->opening,
                            .connection = place->connection,
                            .changed_ms = place->changed_ms,
                            .change = place->changed_ms,
                            .age_ms = -1,
                            .receipts_gone = place->receipts_gone};
    return true;
}

void leases_put(struct leases *leases, int64_t id, const struct lease *lease)
{
    struct place *place = place_of(leases, id);

    check(id > 0);
    if (lease->owner.len > OWNER_MAX) {
        leases_forget(leases, id);
        return;
    }
    *place = (struct place){.id = id,
                            .holds = lease->holds,
                            .ttl_ms = lease->ttl_ms,
                            .opening = lease->opening,
                            .connection = lease->connection,
                            .changed_ms = lease->changed_ms,
                            .receipts_gone = lease->receipts_gone,
                            .round = leases->round,
                            .anonymous = lease->anonymous,
                            .owner_len = (uint8_t)lease->owner.len};
    if (lease->owner.len > 0)
        memcpy(place->owner, lease->owner.data, lease->owner.len);
}

void leases_forget(struct leases *leases, int64_t id)
{
    struct place *place = place_of(leases, id);

    if (is_of(leases, place, id))
        place->round = 0;
}

void leases_clear(struct leases *leases)
{
    if (++leases->round == 0) { /* the places may be from the first one */
        memset(leases->places, 0, PLACES * sizeof *leases->places);
        leases->round = 1;
    }
}
