/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle compares what is durable with what it saw last, and with what was sent. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/oracle_impl.h"

/* Was this token the current one at any moment between the two readings? Between them lies one
 * commit, of several operations perhaps: a token that was retired before it was not. */
static bool was_current(const struct seen *before, const struct stored *now, int64_t token)
{
    return (before->live && token == before->token) ||
           (token > before->token && token <= now->token);
}

/* An operation that was found in resource number `which` of its own. */
static void judge_token(struct oracle *oracle, const struct op *op, int which,
                        const struct seen *before, const struct stored *now)
{
    int64_t newest = 0;

    oracle_check(oracle, P1_FENCED);
    oracle_check(oracle, P3_ISSUED);
    for (int i = 0; i < op->tokens_count; i++) {
        if (was_current(before, now, op->tokens[i][which]))
            return;
        if (op->tokens[i][which] > newest)
            newest = op->tokens[i][which];
    }
    world_break(oracle->world, newest > now->token ? P3_ISSUED : P1_FENCED,
                "operation %d was applied to %s under token %lld; the newest is %lld (%s)",
                op->number, resource_names[op->resources[which]], (long long)newest,
                (long long)now->token, before->live ? "live" : "retired before");
}

/* An operation that was not there when the oracle read it last. */
static void take_new(struct oracle *oracle, enum resource_number resource, int number,
                     const struct seen *before, const struct stored *now, size_t end)
{
    struct world *world = oracle->world;

    if (number < 1 || (size_t)number > oracle->ops_count) {
        world_break(world, SANE, "%s holds what nobody wrote", resource_names[resource]);
        return;
    }
    struct op *op = oracle->ops[number - 1];
    int which = op->verb == VERB_SELL || resource == PAIR_B ? 1 : 0;
    oracle_check(oracle, P6_ONCE);
    if (op->applied && resource != PAIR_B)
        world_break(world, P6_ONCE, "operation %d is in %s a second time", number,
                    resource_names[resource]);
    if (op->refusals == op->arrivals)
        world_break(world, P6_ONCE, "operation %d was refused each time, and is in %s", number,
                    resource_names[resource]);
    if (oracle_is_never(op))
        world_break(world, P6_ONCE,
                    "operation %d is in %s, though its receipt said that it never will be", number,
                    resource_names[resource]);
    if (op->resources[which] != resource)
        world_break(world, SANE, "operation %d went to %s", number, resource_names[resource]);
    else
        judge_token(oracle, op, which, before, now);
    op->applied = true;
    op->applied_us = world->now_us;
    op->end = (int64_t)end;
    if (op->verb == VERB_SELL) {
        oracle->sold++;
        judge_token(oracle, op, 0, &oracle->seen[SOLD], &oracle->sold_now);
    }
}

static void judge_log(struct oracle *oracle, enum resource_number resource,
                      const struct seen *before, const struct stored *now)
{
    size_t old = before->text.len;

    oracle_check(oracle, P4_DURABLE);
    if (now->len < old || (old > 0 && memcmp(now->text, before->text.data, old) != 0)) {
        world_break(oracle->world, P4_DURABLE,
                    "%s was %zu bytes long and is %zu now: what was there is gone or changed",
                    resource_names[resource], old, now->len);
        return;
    }
    for (size_t at = old; at < now->len && oracle->world->broken == PROMISE_NONE;) {
        char *end;
        long number = strtol(now->text + at, &end, 10);
        at = (size_t)(end - now->text) + 1;
        take_new(oracle, resource, (int)number, before, now, at);
    }
}

static void judge_pair(struct oracle *oracle, enum resource_number resource,
                       const struct seen *before, const struct stored *now)
{
    bool same = now->len == before->text.len &&
                (now->len == 0 || memcmp(now->text, before->text.data, now->len) == 0);

    oracle_check(oracle, P4_DURABLE);
    if (!same && now->len == 0)
        world_break(oracle->world, P4_DURABLE, "%s is gone", resource_names[resource]);
    if (same || now->len == 0)
        return;
    oracle->pair_us = oracle->world->now_us;
    take_new(oracle, resource, (int)strtol(now->text, NULL, 10), before, now, now->len);
}

static void judge_fence(struct oracle *oracle, enum resource_number resource,
                        const struct seen *before, const struct stored *now)
{
    struct world *world = oracle->world;

    oracle_check(oracle, P2_RISING);
    if (!now->exists) {
        bool may_go = !before->live && before->text.len == 0 && before->number == 0;
        if (before->exists && !(may_go && world->plan->forget_ms > 0))
            world_break(world, P4_DURABLE, "%s is gone", resource_names[resource]);
        return;
    }
    if (now->token < before->token && now->token != 0)
        world_break(world, P2_RISING, "the newest token of %s was %lld and is %lld now",
                    resource_names[resource], (long long)before->token, (long long)now->token);
    if (now->token == before->token && now->live && !before->live && now->token != 0)
        world_break(world, P1_FENCED, "token %lld of %s was retired and lives again",
                    (long long)now->token, resource_names[resource]);
}

static void judge_resource(struct oracle *oracle, enum resource_number resource)
{
    struct world *world = oracle->world;
    struct seen *seen = &oracle->seen[resource];
    struct stored now;

    if (!disk_read(world->disk, resource_names[resource], &now))
        return;
    judge_fence(oracle, resource, seen, &now);
    if (resource <= LOG2)
        judge_log(oracle, resource, seen, &now);
    else if (resource == PAIR_A || resource == PAIR_B)
        judge_pair(oracle, resource, seen, &now);
    if (now.token > seen->token || now.live != seen->live) {
        seen->changed_us = world->now_us;
        world_tell(world, "store: the newest token of %s is %lld, %s", resource_names[resource],
                   (long long)now.token, now.live ? "live" : "retired");
    }
    if (now.token > seen->token) {
        seen->token = now.token;
        seen->token_us = world->now_us;
    }
    if (now.len > seen->text.len || now.number != seen->number)
        world_tell(world, "store: %s is %.*s%lld", resource_names[resource],
                   (int)(now.len < 60 ? now.len : 60), now.text != NULL ? now.text : "",
                   (long long)now.number);
    if (!now.live && now.token > seen->retired)
        seen->retired = now.token;
    seen->exists = now.exists;
    seen->live = now.live;
    seen->number = now.number;
    buf_clear(&seen->text);
    if (now.len > 0)
        buf_append(&seen->text, now.text, now.len);
}

void oracle_committed(struct oracle *oracle)
{
    struct world *world = oracle->world;
    struct seen *seen = oracle->seen;
    int64_t counted = seen[COUNT].number;

    /* First, because the sales that are found in logs carry a token of it, too. */
    if (!disk_read(world->disk, resource_names[SOLD], &oracle->sold_now))
        return;
    for (int i = 0; i < RESOURCES && world->broken == PROMISE_NONE; i++)
        judge_resource(oracle, (enum resource_number)i);
    oracle_check(oracle, P5_ATOMIC);
    if (seen[SOLD].number != oracle->sold)
        world_break(world, P5_ATOMIC, "sold is %lld, but the logs hold %lld sales",
                    (long long)seen[SOLD].number, (long long)oracle->sold);
    if (seen[SOLD].number > SOLD_MAX)
        world_break(world, P5_ATOMIC, "oversold: %lld", (long long)seen[SOLD].number);
    if (seen[PAIR_A].text.len != seen[PAIR_B].text.len ||
        (seen[PAIR_A].text.len > 0 &&
         memcmp(seen[PAIR_A].text.data, seen[PAIR_B].text.data, seen[PAIR_A].text.len) != 0))
        world_break(world, P5_ATOMIC, "pairA and pairB differ");
    oracle_check(oracle, P6_ONCE);
    if (seen[COUNT].number < counted || seen[COUNT].number < oracle->counted)
        world_break(world, P4_DURABLE, "count was %lld and is %lld now", (long long)counted,
                    (long long)seen[COUNT].number);
    if (seen[COUNT].number > oracle->count_may)
        world_break(world, P6_ONCE, "count is %lld, but only %lld additions were ever asked for",
                    (long long)seen[COUNT].number, (long long)oracle->count_may);
}
