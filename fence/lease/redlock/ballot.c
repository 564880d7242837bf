/* SPDX-License-Identifier: Apache-2.0 */
/* Counting. Invariant: once every master has answered, the outcome is not BALLOT_OPEN. */
#include "fence/lease/redlock/ballot.h"

#include <xxhash.h>

#include "fence/base/check.h"
#include "fence/token.h"

struct tally {
    int quorum, spare; /* so many may fail */
    int count[LEASE_DOWN + 1];
};

int quorum_of(int masters)
{
    return masters / 2 + 1;
}

bool vote_has(const struct vote *vote)
{
    return vote->answer == LEASE_GRANTED || vote->answer == LEASE_OWN;
}

static bool counts_as(const struct vote *vote, enum lease_answer answer, int64_t token)
{
    if (vote->token != token)
        return false;
    return vote->answer == answer || (answer == LEASE_GRANTED && vote->answer == LEASE_OWN);
}

static int agreeing(const struct ballot *ballot, enum lease_answer answer, int64_t token)
{
    int count = 0;

    for (int i = 0; i < ballot->masters; i++)
        count += counts_as(&ballot->votes[i], answer, token);
    return count;
}

/* How many agree at most, and on which token; of two, the larger one. GRANTED counts OWN as well.
 */
static int most(const struct ballot *ballot, enum lease_answer answer, int64_t *token)
{
    int best = 0;

    *token = 0;
    for (int i = 0; i < ballot->masters; i++) {
        int64_t candidate = ballot->votes[i].token;
        if (!counts_as(&ballot->votes[i], answer, candidate))
            continue;
        int count = agreeing(ballot, answer, candidate);
        if (count > best || (count == best && candidate > *token)) {
            best = count;
            *token = candidate;
        }
    }
    return best;
}

/* Return in how many ms so many of the others' locks have ended that a quorum is free. */
static int64_t free_in_ms(const struct ballot *ballot, const struct tally *tally)
{
    int64_t ttls_ms[BALLOT_MASTERS_MAX];
    int count = 0;
    int needed = tally->quorum - tally->count[LEASE_GRANTED] - tally->count[LEASE_OWN] -
                 tally->count[LEASE_FREE];

    for (int i = 0; i < ballot->masters; i++) {
        if (ballot->votes[i].answer != LEASE_HELD)
            continue;
        int at = count++;
        for (; at > 0 && ttls_ms[at - 1] > ballot->votes[i].ttl_ms; at--)
            ttls_ms[at] = ttls_ms[at - 1];
        ttls_ms[at] = ballot->votes[i].ttl_ms;
    }
    if (count == 0)
        return 1;
    return ttls_ms[needed < 1 ? 0 : needed > count ? count - 1 : needed - 1];
}

static struct verdict open_verdict(void)
{
    return (struct verdict){.outcome = BALLOT_OPEN};
}

static struct verdict held_verdict(const struct ballot *ballot, const struct tally *tally,
                                   enum ballot_outcome outcome)
{
    struct verdict verdict = {.outcome = outcome, .ttl_ms = free_in_ms(ballot, tally)};

    (void)most(ballot, LEASE_HELD, &verdict.token);
    return verdict;
}

/* Say why a quorum is out of reach. A token that a quorum holds counts as another's lease if the
 * asker was granted nothing (`alone`), or if the store has recorded the token. */
static struct verdict denied(const struct ballot *ballot, const struct tally *tally, bool alone,
                             int64_t recorded)
{
    int pending = tally->count[LEASE_UNANSWERED], down = tally->count[LEASE_DOWN];
    int64_t token;
    int same = most(ballot, LEASE_HELD, &token);

    if (down > tally->spare)
        return (struct verdict){.outcome = BALLOT_DOWN};
    if (same >= tally->quorum)
        return held_verdict(ballot, tally, alone || token <= recorded ? BALLOT_HELD : BALLOT_SPLIT);
    if (same + pending >= tally->quorum || (pending > 0 && down + pending > tally->spare))
        return open_verdict();
    return held_verdict(ballot, tally, BALLOT_SPLIT);
}

static bool follows(int64_t token, const struct lease_call *question)
{
    return token_follows(token, question->floor, question->believed_max);
}

static int64_t largest(const struct ballot *ballot, const struct lease_call *question)
{
    int64_t token = question->floor + 1;

    for (int i = 0; i < ballot->masters; i++)
        if (vote_has(&ballot->votes[i]) && follows(ballot->votes[i].token, question) &&
            ballot->votes[i].token > token)
            token = ballot->votes[i].token;
    return token;
}

/* If a quorum holds a token that the store has not recorded, the locks need not be one owner's: all
 * who ask at the same time mint the same token. So if some masters granted, it is tried again. */
static struct verdict count_grant(const struct ballot *ballot, const struct tally *tally,
                                  const struct lease_call *question)
{
    int64_t token;
    int has = tally->count[LEASE_GRANTED] + tally->count[LEASE_OWN];
    int own = most(ballot, LEASE_OWN, &token);

    if (own >= tally->quorum)
        return (struct verdict){.outcome = BALLOT_OWN, .token = token};
    /* If one of them says OWN, an earlier attempt of the owner took the lease, perhaps at another
     * daemon. Then this attempt must not give back the whole lease: it is OWN, not GRANTED. */
    if (most(ballot, LEASE_GRANTED, &token) >= tally->quorum && follows(token, question))
        return (struct verdict){.outcome = agreeing(ballot, LEASE_OWN, token) > 0 ? BALLOT_OWN
                                                                                  : BALLOT_GRANTED,
                                .token = token};
    /* The owner may have been told of this lease already; a new token would make that one stale. */
    if (own > 0 && own + tally->count[LEASE_UNANSWERED] >= tally->quorum)
        return open_verdict();
    if (has >= tally->quorum)
        return (struct verdict){.outcome = BALLOT_RAISE, .token = largest(ballot, question)};
    if (has + tally->count[LEASE_UNANSWERED] >= tally->quorum)
        return open_verdict();
    return denied(ballot, tally, has == 0, question->floor);
}

/* An owner enters again only if it holds a quorum already. */
static struct verdict count_reentry(const struct ballot *ballot, const struct tally *tally)
{
    int64_t token;

    if (most(ballot, LEASE_OWN, &token) >= tally->quorum)
        return (struct verdict){.outcome = BALLOT_OWN, .token = token};
    if (tally->count[LEASE_FREE] >= tally->quorum)
        return (struct verdict){.outcome = BALLOT_FREE};
    if (tally->count[LEASE_DOWN] > tally->spare)
        return (struct verdict){.outcome = BALLOT_DOWN};
    if (most(ballot, LEASE_HELD, &token) >= tally->quorum)
        return held_verdict(ballot, tally, BALLOT_HELD);
    if (tally->count[LEASE_UNANSWERED] > 0)
        return open_verdict();
    if (tally->count[LEASE_HELD] == 0)
        return (struct verdict){.outcome = BALLOT_FREE};
    return held_verdict(ballot, tally, BALLOT_HELD);
}

static struct verdict count_renewal(const struct ballot *ballot, const struct tally *tally,
                                    const struct lease_call *question)
{
    int granted = tally->count[LEASE_GRANTED], pending = tally->count[LEASE_UNANSWERED];

    if (granted >= tally->quorum)
        return (struct verdict){.outcome = BALLOT_GRANTED, .token = question->token};
    if (granted + pending >= tally->quorum)
        return open_verdict();
    if (tally->count[LEASE_HELD] > tally->spare)
        return denied(ballot, tally, true, 0);
    return pending > 0 && tally->count[LEASE_DOWN] <= tally->spare
               ? open_verdict()
               : (struct verdict){.outcome = BALLOT_DOWN};
}

/* RELEASE and QUERY: free, or whose? */
static struct verdict count_state(const struct ballot *ballot, const struct tally *tally)
{
    int64_t token;

    if (tally->count[LEASE_FREE] >= tally->quorum)
        return (struct verdict){.outcome = BALLOT_FREE};
    if (most(ballot, LEASE_HELD, &token) >= tally->quorum)
        return held_verdict(ballot, tally, BALLOT_HELD);
    if (tally->count[LEASE_DOWN] > tally->spare)
        return (struct verdict){.outcome = BALLOT_DOWN};
    if (tally->count[LEASE_UNANSWERED] > 0)
        return open_verdict();
    return held_verdict(ballot, tally, BALLOT_HELD);
}

struct verdict ballot_count(const struct ballot *ballot, const struct lease_call *question)
{
    struct tally tally = {.quorum = quorum_of(ballot->masters)};

    check(ballot->masters >= 1 && ballot->masters <= BALLOT_MASTERS_MAX);
    tally.spare = ballot->masters - tally.quorum;
    for (int i = 0; i < ballot->masters; i++)
        tally.count[ballot->votes[i].answer]++;
    switch (question->verb) {
    case LEASE_GRANT:
        return question->reentry_only ? count_reentry(ballot, &tally)
                                      : count_grant(ballot, &tally, question);
    case LEASE_RENEW: return count_renewal(ballot, &tally, question);
    case LEASE_RELEASE:
    case LEASE_QUERY:
    case LEASE_INHERIT: break; /* never asked of masters */
    }
    return count_state(ballot, &tally);
}

/* Two pieces of news with the same key would be taken for one: a wake-up for nothing. */
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
