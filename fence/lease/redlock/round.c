/* SPDX-License-Identifier: Apache-2.0 */
/* One call to N masters.
 *
 *             ┌──── split: all given back, a pause with jitter ────┐
 *             ▼                                                    │
 *   VOTING: ask all ──▶ count after each answer ──▶ decided ──▶ PAUSING
 *             ▲                  │                     └─▶ OVER: the call is answered
 *             └─ raise the token ┘
 *
 * - The caller is answered at the decision; the round lives on until every master has answered, and
 *   gives back what a late one grants under another token than the decided one.
 * - A master has at most one question of a round under way. Where it is still busy with an earlier
 *   one when the round tries again, its answer counts for the new try: it is the same question.
 * - A lease counts from the moment the first of those that agree was asked: where TTL, less that
 *   time, less the drift of the clocks, leaves nothing, it is tried again. Where that is always so
 *   it is granted, and the caller, who is told when it ends, finds that nothing is left.
 * - What goes back is this attempt's part in the lease. What a later round of the same owner's was
 *   told OWN there stays with that round, and what he had before stays his.
 * - What a master does with a grant that was never answered is that master's provider's business:
 *   it remembers to let go. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/redlock/redlock_impl.h"

#define RETRIES_MAX   3
#define RAISES_MAX    4
#define PAUSE_MIN_MS  4 /* before the first retry; twice as long each time, and as much jitter */
#define SPLIT_LOOK_MS 100
#define DRIFT_MS      2 /* and 1 % of the TTL */

enum phase { VOTING, PAUSING, OVER };

/* A master's part in the round. */
struct part {
    struct lease_call call;
    struct round *round;
    bool busy, releasing;
    bool asking; /* an answer now comes before lease_ask returns */
};

struct round {
    struct list link;
    struct heap_node pause;
    struct redlock *redlock;
    struct lease_call question; /* a copy, with a resource of its own */
    struct lease_call *call;    /* the caller's; NULL once it is answered */
    enum phase phase;
    unsigned retries, raises;
    int64_t kept_token; /* what was decided; a grant under another one goes back */
    struct ballot ballot;
    struct part parts[];
};

static int64_t now_ms(const struct round *round)
{
    return clock_now_ms(round->redlock->env.clock);
}

/* Asking. */

static void take_answer(struct part *part)
{
    struct vote *vote = &part->round->ballot.votes[part - part->round->parts];

    part->busy = false;
    *vote = part->releasing ? (struct vote){LEASE_UNANSWERED, 0, 0}
                            : (struct vote){part->call.answer, part->call.answer_token,
                                            part->call.answer_ttl_ms};
    part->releasing = false;
}

static void go_on(struct round *round);

static void on_answer(struct lease_call *call)
{
    struct part *part = list_entry(call, struct part, call);

    take_answer(part);
    if (!part->asking)
        go_on(part->round);
}

static void ask(struct part *part)
{
    struct round *round = part->round;
    struct redlock *redlock = round->redlock;
    int64_t i = part - round->parts;

    check(!part->busy);
    round->ballot.votes[i].answer = LEASE_UNANSWERED;
    part->call.done = on_answer;
    part->busy = true;
    if (redlock->closing) {
        lease_answer_down(&part->call, "the connection is being closed");
        take_answer(part);
    } else {
        part->asking = true;
        lease_ask(redlock->masters[i].provider, &part->call);
        part->asking = false;
    }
}

static void ask_all(struct round *round)
{
    for (int i = 0; i < round->ballot.masters; i++) {
        struct part *part = &round->parts[i];
        if (part->busy || round->ballot.votes[i].answer != LEASE_UNANSWERED)
            continue;
        part->call = round->question;
        part->call.asked_ms = now_ms(round);
        ask(part);
    }
}

/* Whoever has it under another token mints again, up to this one. */
static void raise_all(struct round *round, int64_t token)
{
    for (int i = 0; i < round->ballot.masters; i++) {
        const struct vote *vote = &round->ballot.votes[i];
        struct part *part = &round->parts[i];
        if (!vote_has(vote) || vote->token == token)
            continue;
        part->call = round->question;
        part->call.floor = token - 1;
        part->call.void_token = vote->token;
        part->call.asked_ms = now_ms(round);
        ask(part);
    }
}

/* What was granted and is not wanted. */
static void give_back(struct round *round)
{
    for (int i = 0; i < round->ballot.masters; i++) {
        const struct vote *vote = &round->ballot.votes[i];
        struct part *part = &round->parts[i];
        uint64_t attempt = part->call.attempt;
        if (part->busy || !vote_has(vote) || vote->token == round->kept_token)
            continue;
        part->call = round->question;
        part->call.verb = LEASE_RELEASE;
        part->call.token = vote->token;
        part->call.attempt = attempt;
        part->releasing = true;
        ask(part);
    }
}

/* Deciding. */

static void end(struct round *round, enum lease_answer answer, int64_t token, int64_t ttl_ms)
{
    round->phase = OVER;
    lease_answer(round->call, answer, token, ttl_ms);
}

static void end_down(struct round *round)
{
    const struct ballot *ballot = &round->ballot;
    const char *why = "";
    int down = 0;

    for (int i = ballot->masters - 1; i >= 0; i--)
        if (ballot->votes[i].answer == LEASE_DOWN) {
            why = round->parts[i].call.reason;
            down++;
        }
    round->phase = OVER;
    round->redlock->failures++;
    if (round->redlock->closing)
        lease_answer_down(round->call, "the connection is being closed");
    else
        lease_answer_down(round->call, "no quorum: %d of %d masters are down: %s", down,
                          ballot->masters, why);
}

/* When the lease that those have granted who agree may end at the first of them. */
static int64_t until_ms(const struct round *round, const struct verdict *verdict)
{
    int64_t ttl_ms = round->question.ttl_ms, until_ms = INT64_MAX;

    for (int i = 0; i < round->ballot.masters; i++)
        if (vote_has(&round->ballot.votes[i]) && round->ballot.votes[i].token == verdict->token &&
            round->parts[i].call.answer_until_ms < until_ms)
            until_ms = round->parts[i].call.answer_until_ms;
    return until_ms - ttl_ms / 100 - DRIFT_MS;
}

static int64_t jitter_ms(const struct round *round, int64_t most_ms)
{
    const struct chance *chance = round->redlock->env.chance;
    uint32_t dice;

    chance->fill(chance, &dice, sizeof dice);
    return (int64_t)(dice % (uint32_t)(most_ms + 1));
}

/* False: it has been tried often enough. */
static bool try_later(struct round *round)
{
    int64_t pause_ms = PAUSE_MIN_MS << round->retries;

    if (round->redlock->closing || round->retries == RETRIES_MAX)
        return false;
    round->phase = PAUSING;
    round->retries++;
    round->raises = 0;
    heap_set(&round->redlock->pauses, &round->pause,
             now_ms(round) + pause_ms + jitter_ms(round, 2 * pause_ms));
    return true;
}

static void end_split(struct round *round, const struct verdict *verdict)
{
    int64_t ttl_ms = SPLIT_LOOK_MS + jitter_ms(round, SPLIT_LOOK_MS);

    if (verdict->outcome == BALLOT_SPLIT && verdict->ttl_ms < ttl_ms)
        ttl_ms = verdict->ttl_ms;
    if (round->redlock->closing)
        end_down(round);
    else
        end(round, LEASE_HELD, verdict->token, ttl_ms);
}

static void decide(struct round *round, const struct verdict *verdict)
{
    bool taken = verdict->outcome == BALLOT_GRANTED || verdict->outcome == BALLOT_OWN;
    int64_t end_ms = taken ? until_ms(round, verdict) : 0;

    if (taken && (end_ms > now_ms(round) || !try_later(round))) {
        round->kept_token = verdict->token;
        end(round, verdict->outcome == BALLOT_OWN ? LEASE_OWN : LEASE_GRANTED, verdict->token,
            round->question.ttl_ms);
        round->call->answer_until_ms = end_ms;
    } else if (verdict->outcome == BALLOT_HELD) {
        round->kept_token = 0; /* of a renewal, too */
        end(round, LEASE_HELD, verdict->token, verdict->ttl_ms);
    } else if (verdict->outcome == BALLOT_FREE) {
        end(round, LEASE_FREE, 0, 0);
    } else if (verdict->outcome == BALLOT_DOWN) {
        end_down(round);
    } else if (!taken && !try_later(round)) {
        end_split(round, verdict);
    }
}

static void vote(struct round *round)
{
    while (round->phase == VOTING) {
        ask_all(round);
        struct verdict verdict = ballot_count(&round->ballot, &round->question);
        if (verdict.outcome == BALLOT_OPEN)
            return;
        if (verdict.outcome == BALLOT_RAISE && round->raises++ < RAISES_MAX)
            raise_all(round, verdict.token);
        else
            decide(round, &verdict);
    }
}

/* The round's own life. */

static bool is_busy(const struct round *round)
{
    for (int i = 0; i < round->ballot.masters; i++)
        if (round->parts[i].busy)
            return true;
    return false;
}

static void set_alarm(struct redlock *redlock)
{
    const struct heap_node *node = heap_first(&redlock->pauses);

    if (node != NULL) {
        int64_t left_ms = node->at_ms - clock_now_ms(redlock->env.clock);
        redlock->env.alarm->set(redlock->env.alarm, left_ms < 0 ? 0 : left_ms);
    }
}

/* Goes on as far as it can without another answer, which may be to its end: the call that is to be
 * told so, or NULL. The round may be gone then. */
static struct lease_call *advance(struct round *round)
{
    struct lease_call *answered = NULL;

    vote(round);
    if (round->phase != VOTING)
        give_back(round);
    if (round->phase == PAUSING)
        set_alarm(round->redlock);
    if (round->phase == OVER) {
        answered = round->call;
        round->call = NULL;
        if (!is_busy(round)) {
            list_remove(&round->link);
            free(round);
        }
    }
    return answered;
}

static void go_on(struct round *round)
{
    struct lease_call *answered = advance(round);

    if (answered != NULL)
        answered->done(answered);
}

bool round_begin(struct redlock *redlock, struct lease_call *call)
{
    size_t count = (size_t)redlock->count;
    struct round *round =
        mem_zalloc(sizeof *round + count * sizeof *round->parts + call->resource.len);
    char *resource = (char *)(round->parts + count);

    memcpy(resource, call->resource.data, call->resource.len);
    round->redlock = redlock;
    round->call = call;
    round->question = *call;
    round->question.resource.data = resource;
    list_init(&round->question.link);
    round->kept_token = call->verb == LEASE_RENEW ? call->token : 0;
    round->ballot.masters = redlock->count;
    for (size_t i = 0; i < count; i++)
        round->parts[i].round = round;
    list_append(&redlock->rounds, &round->link);
    return advance(round) != NULL;
}

static void try_again(struct round *round)
{
    round->phase = VOTING;
    for (int i = 0; i < round->ballot.masters; i++)
        round->ballot.votes[i].answer = LEASE_UNANSWERED;
    go_on(round);
}

void rounds_go_on(struct redlock *redlock)
{
    struct heap_node *node;

    while ((node = heap_first(&redlock->pauses)) != NULL &&
           node->at_ms <= clock_now_ms(redlock->env.clock)) {
        heap_remove(&redlock->pauses, node);
        try_again(list_entry(node, struct round, pause));
    }
    set_alarm(redlock);
}

void rounds_close(struct redlock *redlock)
{
    struct heap_node *node;

    while ((node = heap_first(&redlock->pauses)) != NULL) {
        heap_remove(&redlock->pauses, node);
        try_again(list_entry(node, struct round, pause));
    }
}
