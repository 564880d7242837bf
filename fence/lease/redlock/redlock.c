/* SPDX-License-Identifier: Apache-2.0 */
/* A lease call is a round with the masters.
 *
 *             ┌──── split: all given back, a pause with jitter ────┐
 *             ▼                                                    │
 *   VOTING: ask all ──▶ count after each answer ──▶ decided ──▶ PAUSING
 *             ▲                  │                     └─▶ OVER: the call is answered
 *             └─ raise the token ┘
 *
 * - The caller is answered at the decision. The round lives on until every master has answered, and
 *   gives back what a late one grants under another token than the decided one.
 * - A master has at most one question of a round under way. Where it is still busy with an earlier
 *   one when the round tries again, its answer counts for the new try: it is the same question.
 * - A lease counts from when the first of the agreeing masters was asked. Where nothing of the TTL
 *   is left after that and the drift of the clocks, the round tries again. Where that is always so
 *   it is granted all the same, and the caller sees by its end that nothing is left.
 * - Only this attempt's part in the lease is given back. A later round of the same owner that was
 *   told OWN keeps the lease, and so does the owner what he had before.
 * - Where a master did not answer a grant, that master's provider remembers to release it.
 *
 * Health and news of the masters are put together in the same way: a quorum decides. */
#include "fence/lease/redlock/redlock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "fence/base/check.h"
#include "fence/base/heap.h"
#include "fence/base/mem.h"
#include "fence/lease/provider_impl.h"
#include "fence/lease/redlock/ballot.h"

#define RETRIES_MAX    3
#define RAISES_MAX     4
#define PAUSE_MIN_MS   4 /* before the first retry; twice as long each time, and as much jitter */
#define SPLIT_RETRY_MS 100
#define DRIFT_MS       2 /* and 1 % of the TTL */

_Static_assert(LEASE_URI_HOSTS_MAX <= BALLOT_MASTERS_MAX, "every URI has room");

/* One of the masters, and what its callbacks need to find the way back. */
struct master {
    struct redlock *redlock;
    struct lease_provider *provider;
    int number;
};

struct redlock {
    struct lease_provider base;
    struct redlock_surroundings env;
    struct master masters[BALLOT_MASTERS_MAX];
    int count;
    struct list rounds; /* under way, answered or not */
    struct heap pauses; /* rounds that try again later */
    bool closing;
    struct news_votes news_votes;
    int first_attempts; /* of masters, that have not ended */
    void (*on_first_attempt)(void *context);
    void *first_context;
    int handles; /* masters, timer and the one who closes */
};

enum phase { VOTING, PAUSING, OVER };

/* A master's part in a round. */
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
    int64_t kept_token; /* what was decided; a grant under another one is given back */
    struct ballot ballot;
    struct part parts[];
};

static int64_t now_ms(const struct redlock *redlock)
{
    return clock_now_ms(redlock->env.clock);
}

/* Asking the masters. */

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
        part->call.asked_ms = now_ms(round->redlock);
        ask(part);
    }
}

/* The masters that granted it under another token mint again, up to this one. */
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
        part->call.asked_ms = now_ms(round->redlock);
        ask(part);
    }
}

/* Release what was granted and is not wanted. */
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
    if (round->redlock->closing)
        lease_answer_down(round->call, "the connection is being closed");
    else
        lease_answer_down(round->call, "no quorum: %d of %d masters are down: %s", down,
                          ballot->masters, why);
}

/* When the first of the agreeing masters may end the lease. */
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
             now_ms(round->redlock) + pause_ms + jitter_ms(round, 2 * pause_ms));
    return true;
}

static void end_split(struct round *round, const struct verdict *verdict)
{
    int64_t ttl_ms = SPLIT_RETRY_MS + jitter_ms(round, SPLIT_RETRY_MS);

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

    if (taken && (end_ms > now_ms(round->redlock) || !try_later(round))) {
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

/* A round's life. */

static bool is_busy(const struct round *round)
{
    for (int i = 0; i < round->ballot.masters; i++)
        if (round->parts[i].busy)
            return true;
    return false;
}

static void set_timer(struct redlock *redlock)
{
    const struct heap_node *node = heap_first(&redlock->pauses);

    if (node != NULL) {
        int64_t left_ms = node->at_ms - now_ms(redlock);
        redlock->env.timer->set(redlock->env.timer, left_ms < 0 ? 0 : left_ms);
    }
}

/* Go as far as possible without another answer, which may be to the round's end. Return the call if
 * it has been answered now, else NULL. The round may be gone then. */
static struct lease_call *advance(struct round *round)
{
    struct lease_call *answered = NULL;

    vote(round);
    if (round->phase != VOTING)
        give_back(round);
    if (round->phase == PAUSING)
        set_timer(round->redlock);
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
    struct redlock *redlock = round->redlock;
    struct lease_call *answered = advance(round);

    if (answered != NULL)
        lease_answered(&redlock->base, answered);
}

static bool redlock_ask(struct lease_provider *base, struct lease_call *call)
{
    struct redlock *redlock = (struct redlock *)(void *)base;
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

/* The rounds whose pause ends by then try again. */
static void end_pauses(struct redlock *redlock, int64_t until_ms)
{
    struct heap_node *node;

    while ((node = heap_first(&redlock->pauses)) != NULL && node->at_ms <= until_ms) {
        struct round *round = list_entry(node, struct round, pause);
        heap_remove(&redlock->pauses, node);
        round->phase = VOTING;
        for (int i = 0; i < round->ballot.masters; i++)
            round->ballot.votes[i].answer = LEASE_UNANSWERED;
        go_on(round);
    }
}

void redlock_on_timer(struct lease_provider *base)
{
    struct redlock *redlock = (struct redlock *)(void *)base;

    if (redlock->closing)
        return;
    end_pauses(redlock, now_ms(redlock));
    set_timer(redlock);
}

/* The rest of the provider: what the masters say, put together. */

static void redlock_health(const struct lease_provider *base, struct lease_health *health)
{
    const struct redlock *redlock = (const struct redlock *)(const void *)base;
    struct lease_health bad = {.up = true};
    int ready = 0, watching = 0;

    for (int i = 0; i < redlock->count; i++) {
        struct lease_health master = lease_provider_health(redlock->masters[i].provider);
        ready += master.up;
        watching += master.watching;
        health->reconnects += master.reconnects;
        if (!master.up && bad.up)
            bad = master;
    }
    health->up = ready >= quorum_of(redlock->count);
    health->watching = watching >= quorum_of(redlock->count);
    snprintf(health->detail, sizeof health->detail, "redlock: %d masters, %d ready%s%.110s",
             redlock->count, ready, bad.up ? "" : "; ", bad.detail);
}

static void on_master_news(void *context, const struct lease_news *news)
{
    struct master *master = context;
    struct redlock *redlock = master->redlock;

    if (news_votes_add(&redlock->news_votes, news, master->number, quorum_of(redlock->count),
                       now_ms(redlock)))
        lease_tell(&redlock->base, news);
}

static void redlock_watch(struct lease_provider *base)
{
    struct redlock *redlock = (struct redlock *)(void *)base;

    for (int i = 0; i < redlock->count; i++)
        lease_provider_watch(redlock->masters[i].provider, on_master_news, &redlock->masters[i]);
}

static void on_first_attempt_ended(void *context)
{
    struct redlock *redlock = context;

    if (--redlock->first_attempts == 0)
        redlock->on_first_attempt(redlock->first_context);
}

static void redlock_on_first_attempt(struct lease_provider *base, void (*ended)(void *context),
                                     void *context)
{
    struct redlock *redlock = (struct redlock *)(void *)base;

    redlock->on_first_attempt = ended;
    redlock->first_context = context;
    redlock->first_attempts = redlock->count;
    for (int i = 0; i < redlock->count; i++)
        lease_on_first_attempt(redlock->masters[i].provider, on_first_attempt_ended, redlock);
}

static void on_closed(void *context)
{
    struct redlock *redlock = context;

    if (--redlock->handles > 0)
        return;
    check(list_empty(&redlock->rounds));
    heap_free(&redlock->pauses);
    lease_provider_closed(&redlock->base);
}

static void redlock_close(struct lease_provider *base)
{
    struct redlock *redlock = (struct redlock *)(void *)base;

    redlock->closing = true;
    redlock->handles = redlock->count + 2;
    /* Those that pause are answered now, the others by what their masters say while they close. */
    end_pauses(redlock, INT64_MAX);
    for (int i = 0; i < redlock->count; i++)
        lease_provider_close(redlock->masters[i].provider, on_closed, redlock);
    redlock->env.timer->close(redlock->env.timer, on_closed, redlock);
    on_closed(redlock);
}

static const struct lease_provider_impl redlock_impl = {
    .name = "redlock",
    .ask = redlock_ask,
    .watch = redlock_watch,
    .health = redlock_health,
    .close = redlock_close,
    .on_first_attempt = redlock_on_first_attempt,
};

struct lease_provider *redlock_new(struct lease_provider *const *masters, int count,
                                   const struct redlock_surroundings *surroundings)
{
    struct redlock *redlock = mem_zalloc(sizeof *redlock);

    check(count >= 1 && count <= BALLOT_MASTERS_MAX);
    redlock->base.impl = &redlock_impl;
    redlock->env = *surroundings;
    redlock->env.timer->redlock = &redlock->base;
    redlock->count = count;
    list_init(&redlock->rounds);
    for (int i = 0; i < count; i++)
        redlock->masters[i] = (struct master){redlock, masters[i], i};
    return &redlock->base;
}

/* On real Redises, with a timer of the loop. */

struct loop_timer {
    struct redlock_timer base;
    uv_timer_t handle;
    void (*closed)(void *context);
    void *context;
};

static void on_timer(uv_timer_t *handle)
{
    redlock_on_timer(((struct loop_timer *)handle->data)->base.redlock);
}

static void set(struct redlock_timer *base, int64_t delay_ms)
{
    struct loop_timer *timer = (struct loop_timer *)(void *)base;

    uv_update_time(timer->handle.loop); /* counts from now, not from when this turn began */
    uv_timer_start(&timer->handle, on_timer, (uint64_t)delay_ms, 0);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct loop_timer *timer = handle->data;
    void (*closed)(void *context) = timer->closed;
    void *context = timer->context;

    free(timer);
    closed(context);
}

static void close_timer(struct redlock_timer *base, void (*closed)(void *context), void *context)
{
    struct loop_timer *timer = (struct loop_timer *)(void *)base;

    timer->closed = closed;
    timer->context = context;
    uv_close((uv_handle_t *)&timer->handle, on_timer_closed);
}

struct lease_provider *lease_redlock_new(const struct lease_uri *uri,
                                         const struct lease_surroundings *surroundings)
{
    struct lease_provider *masters[LEASE_URI_HOSTS_MAX];
    struct loop_timer *timer = mem_zalloc(sizeof *timer);

    timer->base = (struct redlock_timer){set, close_timer, NULL};
    check(uv_timer_init(surroundings->loop, &timer->handle) == 0);
    timer->handle.data = timer;
    for (int i = 0; i < uri->hosts_count; i++) {
        struct lease_uri member = lease_uri_member(uri, i);
        masters[i] = lease_redis_new(&member, surroundings);
    }
    return redlock_new(
        masters, uri->hosts_count,
        &(struct redlock_surroundings){surroundings->clock, surroundings->chance, &timer->base});
}
