/* SPDX-License-Identifier: Apache-2.0 */
/* Two pieces of news with one key would be taken for one: a wake-up for nothing. */
#include "fence/lease/redlock/news_votes.h"

#include <xxhash.h>

bool news_votes_add(struct news_votes *votes, const struct lease_news *news, int master, int quorum,
                    int64_t now_ms)
{
    uint64_t seed = (uint64_t)news->token * 2 + news->revoked;
    uint64_t key = XXH3_64bits_withSeed(news->resource.data, news->resource.len, seed);
    size_t slot = key % NEWS_VOTES_SLOTS;
    uint32_t bit = UINT32_C(1) << master;

    if (votes->slots[slot].key != key || votes->slots[slot].until_ms <= now_ms) {
        votes->slots[slot].key = key;
        votes->slots[slot].until_ms = now_ms + NEWS_VOTES_KEPT_MS;
        votes->slots[slot].masters = 0;
    }
    if ((votes->slots[slot].masters & bit) != 0)
        return false;
    votes->slots[slot].masters |= bit;
    return __builtin_popcount(votes->slots[slot].masters) == quorum;
}
