/* SPDX-License-Identifier: Apache-2.0 */
/* Two pieces of news with one key would be taken for one: a wake-up for nothing. */
#include "fence/redlock/hearsay.h"

#include <xxhash.h>

bool hearsay_heard(struct hearsay *hearsay, const struct lease_news *news, int master, int quorum,
                   int64_t now_ms)
{
    uint64_t seed = (uint64_t)news->token * 2 + news->revoked;
    uint64_t key = XXH3_64bits_withSeed(news->resource.data, news->resource.len, seed);
    size_t slot = key % HEARSAY_SLOTS;
    uint32_t bit = UINT32_C(1) << master;

    if (hearsay->slots[slot].key != key || hearsay->slots[slot].until_ms <= now_ms) {
        hearsay->slots[slot].key = key;
        hearsay->slots[slot].until_ms = now_ms + HEARSAY_KEPT_MS;
        hearsay->slots[slot].masters = 0;
    }
    if ((hearsay->slots[slot].masters & bit) != 0)
        return false;
    hearsay->slots[slot].masters |= bit;
    return __builtin_popcount(hearsay->slots[slot].masters) == quorum;
}
