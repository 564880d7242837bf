/* SPDX-License-Identifier: Apache-2.0 */
/* News that arrive once from each master become news once a quorum has them: what a loser gives
 * back to a minority ends nobody's lease, and would only make losers wake each other for ever.
 *
 * A fixed table: what is pushed out or comes too late is lost, as news may be. */
#ifndef STOCKADE_FENCE_LEASE_REDLOCK_NEWS_VOTES_H
#define STOCKADE_FENCE_LEASE_REDLOCK_NEWS_VOTES_H

#include "fence/lease/provider.h"

#define NEWS_VOTES_SLOTS   1024
#define NEWS_VOTES_KEPT_MS 2000

/* All zero is empty. */
struct news_votes {
    struct {
        uint64_t key; /* of resource, token and kind */
        int64_t until_ms;
        uint32_t masters; /* those who said it, as bits */
    } slots[NEWS_VOTES_SLOTS];
};

/* `master` (0..31) says it. True: just now a quorum has. */
bool news_votes_add(struct news_votes *votes, const struct lease_news *news, int master, int quorum,
                    int64_t now_ms);

#endif
