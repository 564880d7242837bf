/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle judges each reply at the moment it leaves its daemon. */
#include <string.h>

#include "fence/base/mem.h"
#include "tests/sim/daemon.h"
#include "tests/sim/oracle_impl.h"

#define LOOKED_US 50000   /* from a read of the store to the reply */
#define CALM_US   2000000 /* after it nothing of what was wrong goes on */
#define ENDED_US  6000000 /* a command that nobody can be told of, besides its WAIT */

static const char *name_of(const struct call *call, int i)
{
    return resource_names[call->resources[i]];
}

static struct seen *seen_of(struct oracle *oracle, const struct call *call, int i)
{
    return &oracle->seen[call->resources[i]];
}

/* Grants. */

/* A repeat after a lost reply gets the same token, as long as that lease lasts. */
static void judge_repeat(struct oracle *oracle, const struct grant *known,
                         const struct grant *grant)
{
    struct world *world = oracle->world;
    const struct seen *seen = &oracle->seen[grant->resource];
    bool over = world->now_us > known->until_us || seen->token_us < known->told_us ||
                seen->retired >= known->token;

    oracle_check(oracle, P6_ONCE);
    if (known->token > grant->token || (known->token < grant->token && !over))
        world_break(world, P6_ONCE, "ACQUIRE with ID a%d got token %lld, and then %lld", grant->id,
                    (long long)known->token, (long long)grant->token);
}

static void note_grant(struct oracle *oracle, const struct grant *grant)
{
    struct world *world = oracle->world;

    for (size_t i = oracle->grants_count; i-- > 0;) {
        const struct grant *known = &oracle->grants[i];
        if (known->resource != grant->resource)
            continue;
        oracle_alone(oracle, known, grant);
        if (grant->id != 0 && known->id == grant->id)
            judge_repeat(oracle, known, grant);
        if (known->token != grant->token)
            continue;
        bool same = (known->owner >= 0 && known->owner == grant->owner) ||
                    (known->id != 0 && known->id == grant->id);
        if (!same)
            world_break(world, P2_RISING, "token %lld of %s was given to clients %d and %d",
                        (long long)grant->token, resource_names[grant->resource], known->client,
                        grant->client);
    }
    if (oracle->grants_count == oracle->grants_room) {
        oracle->grants_room = oracle->grants_room * 2 + 64;
        oracle->grants = mem_realloc(oracle->grants, oracle->grants_room * sizeof *oracle->grants);
    }
    oracle->grants[oracle->grants_count++] = *grant;
}

static void judge_grant(struct oracle *oracle, const struct call *call, int i, int64_t token,
                        int64_t ttl_ms)
{
    int64_t now_us = oracle->world->now_us;

    oracle_check(oracle, P1_FENCED);
    oracle_check(oracle, P2_RISING);
    if (token > seen_of(oracle, call, i)->token)
        world_break(oracle->world, P1_FENCED,
                    "client %d is told token %lld of %s, but the store's newest is %lld",
                    call->client, (long long)token, name_of(call, i),
                    (long long)seen_of(oracle, call, i)->token);
    note_grant(oracle, &(struct grant){.resource = call->resources[i],
                                       .token = token,
                                       .client = call->client,
                                       .owner = call->owner,
                                       .id = call->id,
                                       .asked_us = call->arrived_us,
                                       .told_us = now_us,
                                       /* One that goes with its connection may go any time. */
                                       .until_us = call->ephemeral ? 0 : now_us + ttl_ms * 990,
                                       .daemon = call->link->daemon,
                                       .entries_then =
                                           token > call->tokens_then[i] ? call->entries_then : -1});
}

/* All or none: when the reply to an ACQUIREALL leaves, each of its tokens is good, but for what has
 * happened since the daemon looked. */
static void judge_basket(struct oracle *oracle, const struct call *call, const redisReply *reply)
{
    struct world *world = oracle->world;

    for (int i = 0; i < call->count; i++) {
        const struct seen *seen = seen_of(oracle, call, i);
        bool good = seen->live && seen->token == reply_item(reply, i);
        oracle_check(oracle, P1_FENCED);
        if (!good && seen->changed_us + LOOKED_US < world->now_us &&
            world->daemons[call->link->daemon].pauses_us == call->arrived_pauses_us)
            world_break(world, P1_FENCED,
                        "client %d is told token %lld of %s, which was over before", call->client,
                        (long long)reply_item(reply, i), name_of(call, i));
    }
}

/* Did the other one ask for one of the call's leases while that was under way? Where nobody was
 * left to answer, it has ended by itself. */
static bool crosses(const struct call *other, const struct call *call)
{
    bool acquires = other->verb == VERB_ACQUIRE || other->verb == VERB_ACQUIRE_ALL;
    int64_t ended_us =
        other->answered ? other->answered_us : other->arrived_us + other->wait_ms * 1000 + ENDED_US;
    bool over = ended_us < call->arrived_us;

    if (other == call || !acquires || !other->arrived || over)
        return false;
    for (int i = 0; i < call->count; i++)
        for (int j = 0; j < other->count; j++)
            if (call->resources[i] == other->resources[j])
                return true;
    return false;
}

/* An ACQUIREALL that gets null fences nobody, but where another took one in between, or where the
 * taking lasted for longer than the leases were to. */
static void judge_basket_denied(struct oracle *oracle, const struct call *call)
{
    struct world *world = oracle->world;

    if (world->trouble_us + CALM_US > call->arrived_us ||
        call->arrived_us + call->ttl_ms * 1000 <= world->now_us)
        return;
    for (const struct call *other = oracle->calls; other != NULL; other = other->next)
        if (crosses(other, call))
            return;
    oracle_check(oracle, P1_FENCED);
    for (int i = 0; i < call->count; i++)
        if (seen_of(oracle, call, i)->token > call->tokens_then[i])
            world_break(world, P1_FENCED,
                        "client %d got no basket, and token %lld of %s is the newest since",
                        call->client, (long long)seen_of(oracle, call, i)->token, name_of(call, i));
}

static void judge_acquire(struct oracle *oracle, const struct call *call, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_NIL) {
        if (call->verb == VERB_ACQUIRE_ALL)
            judge_basket_denied(oracle, call);
        return;
    }
    if (call->queue && reply_is_queued(reply)) {
        if (reply_item(reply, 1) < 1)
            world_break(oracle->world, SANE, "no place in the line");
        return;
    }
    if (call->verb == VERB_ACQUIRE_ALL) {
        judge_basket(oracle, call, reply);
        for (int i = 0; i < call->count; i++)
            judge_grant(oracle, call, i, reply_item(reply, i), 0);
        return;
    }
    int64_t token = reply_item(reply, 0), ttl_ms = reply_item(reply, 1);
    if (reply->type != REDIS_REPLY_ARRAY || ttl_ms < 1 || ttl_ms > call->ttl_ms)
        world_break(oracle->world, SANE, "a grant for %lld of %lld ms", (long long)ttl_ms,
                    (long long)call->ttl_ms);
    judge_grant(oracle, call, 0, token, ttl_ms);
    if (!call->queue) /* its place may be older than this ask */
        oracle_line(oracle, call, token);
}

/* Tokens that were judged. */

/* A token that was refused: it must not have been good all the time since the call arrived. */
static void judge_refusal(struct oracle *oracle, const struct call *call, bool unknown)
{
    bool good = true, issued = true;

    oracle_check(oracle, P8_LIVE);
    for (int i = 0; i < call->count; i++) {
        const struct seen *seen = seen_of(oracle, call, i);
        good &= seen->live && seen->token == call->tokens[i] && seen->changed_us < call->arrived_us;
        issued &= call->tokens[i] <= call->tokens_then[i] && seen->exists;
    }
    if (good)
        world_break(oracle->world, P8_LIVE, "the current holder of %s, token %lld, is refused",
                    name_of(call, 0), (long long)call->tokens[0]);
    if (unknown && issued)
        world_break(oracle->world, P3_ISSUED, "token %lld of %s was granted, and is not known",
                    (long long)call->tokens[0], name_of(call, 0));
}

/* A token that was accepted, by a command that leaves no trace: it must have been good at some time
 * since the call arrived. */
static void judge_acceptance(struct oracle *oracle, const struct call *call)
{
    const struct seen *seen = seen_of(oracle, call, 0);
    bool superseded = call->tokens[0] < seen->token && seen->token_us < call->arrived_us;
    bool retired =
        call->tokens[0] == seen->token && !seen->live && seen->changed_us < call->arrived_us;

    oracle_check(oracle, P1_FENCED);
    if (call->tokens[0] > seen->token)
        world_break(oracle->world, P3_ISSUED, "token %lld of %s was never granted, and accepted",
                    (long long)call->tokens[0], name_of(call, 0));
    if (superseded || retired)
        world_break(oracle->world, P1_FENCED,
                    "token %lld of %s was over before the command came, and accepted",
                    (long long)call->tokens[0], name_of(call, 0));
}

static void judge_ended(struct oracle *oracle, const struct call *call, int64_t token)
{
    const struct seen *seen = seen_of(oracle, call, 0);

    oracle_check(oracle, P4_DURABLE);
    if (seen->token < token || (seen->token == token && seen->live))
        world_break(oracle->world, P4_DURABLE, "the end of token %lld of %s is not recorded",
                    (long long)token, name_of(call, 0));
}

static void note_released(struct oracle *oracle, const struct call *call)
{
    for (size_t i = 0; i < oracle->grants_count; i++) {
        struct grant *grant = &oracle->grants[i];
        if (grant->resource == call->resources[0] && grant->token == call->tokens[0] &&
            grant->released_us == 0)
            grant->released_us = oracle->world->now_us;
    }
}

/* Writes. */

static void judge_refused_write(struct oracle *oracle, struct call *call, const redisReply *reply)
{
    struct op *op = call->op;

    oracle_check(oracle, P6_ONCE);
    if (op->has_id && call->applied_then && !reply_is_error(reply, "BUSY") &&
        !reply_is_error(reply, "STORE"))
        world_break(oracle->world, P6_ONCE,
                    "operation %d was applied, and its repeat is refused: %.*s", op->number,
                    (int)reply->len, reply->str);
    if (op->applied && op->tokens_count == 1)
        world_break(oracle->world, P6_ONCE, "operation %d was refused, and applied", op->number);
    if (reply_is_error(reply, "STALE") || reply_is_error(reply, "UNKNOWN")) {
        judge_refusal(oracle, call, reply_is_error(reply, "UNKNOWN"));
        call->refused = reply_is_error(reply, "UNKNOWN") ? "UNKNOWN" : "STALE";
    }
    op->refusals++;
}

static void judge_written(struct oracle *oracle, const struct call *call, const redisReply *reply)
{
    struct world *world = oracle->world;
    struct op *op = call->op;
    int64_t replies[2] = {reply->integer, 0};

    if (call->verb == VERB_SELL) {
        replies[0] = reply_item(reply, 0);
        replies[1] = reply_item(reply, 1);
    }
    oracle_check(oracle, P4_DURABLE);
    oracle_check(oracle, P6_ONCE);
    if (oracle_is_never(op))
        world_break(world, P6_ONCE, "operation %d was applied, though its receipt said never",
                    op->number);
    /* A later pair in the same commit hides an earlier one, also from its repeats. */
    bool hidden = call->verb == VERB_PAIR && oracle->pair_us >= op->arrived_us;
    if (call->verb != VERB_COUNT && !op->applied && !hidden)
        world_break(world, P4_DURABLE, "operation %d is acknowledged, and is not in the store",
                    op->number);
    if (op->acknowledged && memcmp(op->replies, replies, sizeof replies) != 0)
        world_break(world, P6_ONCE, "operation %d got %lld at first, and %lld now", op->number,
                    (long long)op->replies[0], (long long)replies[0]);
    for (size_t i = 0; call->verb == VERB_COUNT && !op->acknowledged && i < oracle->ops_count; i++)
        if (oracle->ops[i]->verb == VERB_COUNT && oracle->ops[i]->acknowledged &&
            oracle->ops[i]->replies[0] == replies[0])
            world_break(world, P6_ONCE, "operations %d and %d both made it %lld", op->number,
                        oracle->ops[i]->number, (long long)replies[0]);
    if ((call->verb == VERB_APPEND && replies[0] != op->end) ||
        (call->verb == VERB_SELL && replies[1] != op->end))
        world_break(world, P6_ONCE, "operation %d ends at %lld of its log; its reply says %lld",
                    op->number, (long long)op->end, (long long)reply->integer);
    oracle->counted += call->verb == VERB_COUNT && !op->acknowledged;
    op->acknowledged = op->applied = true;
    memcpy(op->replies, replies, sizeof replies);
    if (call->verb == VERB_APPEND) {
        int64_t *acked = &seen_of(oracle, call, 0)->acked[call->link->daemon];
        *acked = op->end > *acked ? op->end : *acked;
    }
}

static void judge_read(struct oracle *oracle, const struct call *call, const redisReply *reply)
{
    const struct buf *text = &seen_of(oracle, call, 0)->text;

    oracle_check(oracle, P4_DURABLE);
    if (reply->len > text->len || (int64_t)reply->len < call->acked_then ||
        (reply->len > 0 && memcmp(reply->str, text->data, reply->len) != 0))
        world_break(oracle->world, P4_DURABLE,
                    "a read of %s gives %zu bytes; %lld were acknowledged, %zu are stored",
                    name_of(call, 0), reply->len, (long long)call->acked_then, text->len);
    if (call->verb == VERB_FENCED_GET)
        judge_acceptance(oracle, call);
}

static void judge_receipt(struct oracle *oracle, const struct call *call, const redisReply *reply)
{
    struct op *op = call->op;
    bool applied = reply->type == REDIS_REPLY_ARRAY && reply_item(reply, 0) == 1;
    bool never = reply->type == REDIS_REPLY_ARRAY && reply_item(reply, 0) == 0;

    oracle_check(oracle, P6_ONCE);
    if (applied && op->verb != VERB_COUNT && !op->applied)
        world_break(oracle->world, P6_ONCE, "operation %d has a receipt, and was not applied",
                    op->number);
    if (never && op->applied)
        world_break(oracle->world, P6_ONCE, "operation %d was applied, its receipt denies it",
                    op->number);
    if (reply->type == REDIS_REPLY_NIL && call->applied_then)
        world_break(oracle->world, P6_ONCE, "operation %d was applied, and has no receipt",
                    op->number);
    if (applied && op->verb == VERB_COUNT && !op->acknowledged) {
        op->acknowledged = op->applied = true;
        op->replies[0] = reply_item(reply, 1);
        oracle->counted++;
    }
    if (never) /* under another token it may be tried again */
        op->never_token = call->tokens[0];
}

/* Nothing has been wrong with the lease service, the daemon or the way between them for a while. */
static bool has_no_reason_for_down(const struct world *world, const struct call *call)
{
    const struct daemon *daemon = &world->daemons[call->link->daemon];
    int64_t since_us =
        world->trouble_us > daemon->started_us ? world->trouble_us : daemon->started_us;

    if (daemon->party.paused_until_us > since_us) /* when it woke */
        since_us = daemon->party.paused_until_us;
    return call->arrived_us > since_us + 500000 && daemon->pauses_us == call->arrived_pauses_us;
}

/* Is it an error that the client may get here? */
static void judge_error(struct oracle *oracle, const struct call *call, const redisReply *reply)
{
    static const char *const codes[] = {"STALE", "UNKNOWN",  "RANGE",  "BUSY",
                                        "STORE", "DEADLOCK", "EXPIRED"};
    bool fits = reply_is_error(reply, "LEASEDOWN") && call->verb < VERB_DEQUEUE &&
                !has_no_reason_for_down(oracle->world, call);

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        fits |= reply_is_error(reply, codes[i]);
    if (fits)
        return;
    world_break(oracle->world, P8_LIVE, "client %d got %.*s", call->client, (int)reply->len,
                reply->str);
}

void oracle_reply(struct oracle *oracle, struct call *call, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR)
        judge_error(oracle, call, reply);
    switch (call->verb) {
    case VERB_ACQUIRE:
    case VERB_ACQUIRE_ALL:
        if (reply->type != REDIS_REPLY_ERROR)
            judge_acquire(oracle, call, reply);
        break;
    case VERB_RENEW:
        if (reply->type == REDIS_REPLY_INTEGER)
            judge_acceptance(oracle, call);
        break;
    case VERB_RELEASE:
        if (reply->type == REDIS_REPLY_INTEGER && reply->integer > 0 && call->owner < 0)
            world_break(oracle->world, P6_ONCE, "%s was entered more than once", name_of(call, 0));
        if (reply->type == REDIS_REPLY_INTEGER && reply->integer == 0) {
            judge_ended(oracle, call, call->tokens[0]);
            note_released(oracle, call);
        } else if (reply_is_error(reply, "UNKNOWN") || reply_is_error(reply, "STALE")) {
            judge_refusal(oracle, call, reply_is_error(reply, "UNKNOWN"));
        }
        break;
    case VERB_REVOKE:
        if (reply->type == REDIS_REPLY_INTEGER)
            judge_ended(oracle, call, reply->integer);
        break;
    case VERB_DEQUEUE:
        if (reply->type != REDIS_REPLY_INTEGER && !reply_is_error(reply, "BUSY"))
            world_break(oracle->world, SANE, "DEQUEUE is no number");
        break;
    case VERB_APPEND:
    case VERB_COUNT:
    case VERB_SELL:
    case VERB_PAIR:
        if (reply->type == REDIS_REPLY_ERROR)
            judge_refused_write(oracle, call, reply);
        else
            judge_written(oracle, call, reply);
        break;
    case VERB_GET:
    case VERB_FENCED_GET:
        if (reply->type != REDIS_REPLY_ERROR)
            judge_read(oracle, call, reply);
        break;
    case VERB_RECEIPT:
        if (reply->type != REDIS_REPLY_ERROR)
            judge_receipt(oracle, call, reply);
        break;
    case VERB_HISTORY:
        if (reply->type != REDIS_REPLY_ERROR)
            oracle_history(oracle, call, reply);
        break;
    case VERB_REFUSALS:
        if (reply->type != REDIS_REPLY_ERROR)
            oracle_refusals(oracle, call, reply);
        break;
    case VERBS: break;
    }
}
