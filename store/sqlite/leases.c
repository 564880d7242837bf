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
    int64_t no_receipts; /* the token without any; 0: not known */
    uint32_t round;      /* 0: nobody's */
    bool known;          /* the lease is */
    bool anonymous;
    uint8_t owner_len;
    char owner[OWNER_MAX];
};
_Static_assert(sizeof(struct place) == 128, "1 MB");

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

    if (!is_of(leases, place, id) || !place->known)
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

/* Return the resource's place, which may have been another's. */
static struct place *take(struct leases *leases, int64_t id)
{
    struct place *place = place_of(leases, id);

    check(id > 0);
    if (!is_of(leases, place, id)) {
        place->id = id;
        place->round = leases->round;
        place->known = false;
        place->no_receipts = 0;
    }
    return place;
}

void leases_put(struct leases *leases, int64_t id, const struct lease *lease)
{
    struct place *place = take(leases, id);

    place->known = lease->owner.len <= OWNER_MAX;
    if (!place->known)
        return;
    place->holds = lease->holds;
    place->ttl_ms = lease->ttl_ms;
    place->opening = lease->opening;
    place->connection = lease->connection;
    place->changed_ms = lease->changed_ms;
    place->receipts_gone = lease->receipts_gone;
    place->anonymous = lease->anonymous;
    place->owner_len = (uint8_t)lease->owner.len;
    if (lease->owner.len > 0)
        memcpy(place->owner, lease->owner.data, lease->owner.len);
}

void leases_no_receipts_put(struct leases *leases, int64_t id, int64_t token)
{
    take(leases, id)->no_receipts = token;
}

void leases_no_receipts_forget(struct leases *leases, int64_t id)
{
    struct place *place = place_of(leases, id);

    if (is_of(leases, place, id))
        place->no_receipts = 0;
}

bool leases_has_no_receipts(const struct leases *leases, int64_t id, int64_t token)
{
    const struct place *place = place_of(leases, id);
    return is_of(leases, place, id) && token != 0 && place->no_receipts == token;
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
