/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle's books: calls and operations, who waits, and the balance at the end. */
#include "tests/sim/oracle.h"

#include <stdlib.h>

#include "fence/base/mem.h"
#include "tests/sim/daemon.h"
#include "tests/sim/oracle_impl.h"

struct oracle *oracle_new(struct world *world)
{
    struct oracle *oracle = mem_zalloc(sizeof *oracle);

    oracle->world = world;
    return oracle;
}

void oracle_free(struct oracle *oracle)
{
    struct call *next;

    for (struct call *call = oracle->calls; call != NULL; call = next) {
        next = call->next;
        free(call);
    }
    for (size_t i = 0; i < oracle->ops_count; i++)
        free(oracle->ops[i]);
    for (int i = 0; i < RESOURCES; i++)
        buf_free(&oracle->seen[i].text);
    free(oracle->ops);
    free(oracle->grants);
    free(oracle);
}

void oracle_check(struct oracle *oracle, enum promise promise)
{
    oracle->world->tally->checks[promise]++;
}

struct call *oracle_call(struct oracle *oracle, enum verb verb)
{
    struct call *call = mem_zalloc(sizeof *call);

    call->verb = verb;
    call->owner = -1;
    call->count = 1;
    call->next = oracle->calls;
    oracle->calls = call;
    return call;
}

struct op *oracle_op(struct oracle *oracle, enum verb verb, int client)
{
    struct op *op = mem_zalloc(sizeof *op);

    if (oracle->ops_count == oracle->ops_room) {
        oracle->ops_room = oracle->ops_room * 2 + 64;
        oracle->ops = mem_realloc(oracle->ops, oracle->ops_room * sizeof(struct op *));
    }
    oracle->ops[oracle->ops_count++] = op;
    op->number = (int)oracle->ops_count;
    op->verb = verb;
    op->client = client;
    return op;
}

int oracle_id(struct oracle *oracle)
{
    return ++oracle->ids;
}

bool oracle_is_never(const struct op *op)
{
    for (int i = 0; i < op->tokens_count; i++)
        if (op->tokens[i][0] != op->never_token)
            return false;
    return op->never_token != 0;
}

static bool is_write(enum verb verb)
{
    return verb == VERB_APPEND || verb == VERB_COUNT || verb == VERB_SELL || verb == VERB_PAIR;
}

static bool is_acquire(const struct call *call)
{
    return call->verb == VERB_ACQUIRE || call->verb == VERB_ACQUIRE_ALL;
}

void oracle_arrived(struct oracle *oracle, struct call *call)
{
    struct world *world = oracle->world;
    const struct daemon *daemon = &world->daemons[call->link->daemon];
    struct op *op = call->op;

    if (call->arrived)
        return;
    call->arrived = true;
    call->arrived_us = world->now_us;
    call->arrived_pauses_us = daemon->pauses_us;
    call->arrival = ++oracle->arrivals;
    call->entries_then = oracle_entries(oracle);
    oracle->asked += is_acquire(call) ? call->count : 0;
    for (int i = 0; i < call->count; i++)
        call->tokens_then[i] = oracle->seen[call->resources[i]].token;
    call->acked_then = oracle->seen[call->resources[0]].acked[daemon->number];
    call->applied_then = op != NULL && op->applied;
    call->waiting = oracle->waiting;
    oracle->waiting = call;
    if (op == NULL || !is_write(call->verb))
        return;
    if (op->arrivals++ == 0)
        op->arrived_us = world->now_us;
    oracle->count_may += call->verb == VERB_COUNT && op->tokens_count == 0;
    if (op->tokens_count < 8) {
        for (int i = 0; i < call->count; i++)
            op->tokens[op->tokens_count][i] = call->tokens[i];
        op->tokens_count++;
    }
}

/* Nobody waits for it any more. */
static void leave(struct oracle *oracle, const struct call *call)
{
    struct call **at = &oracle->waiting;

    while (*at != NULL && *at != call)
        at = &(*at)->waiting;
    if (*at != NULL)
        *at = call->waiting;
}

void oracle_gone(struct oracle *oracle, const struct link *link)
{
    if (link->call != NULL && link->call->arrived && !link->call->answered)
        leave(oracle, link->call);
}

void oracle_answered(struct oracle *oracle, struct call *call, const redisReply *reply)
{
    if (call->answered)
        world_break(oracle->world, SANE, "a second reply to one call");
    call->answered = true;
    call->answered_us = oracle->world->now_us;
    oracle->answered += is_acquire(call) ? call->count : 0;
    leave(oracle, call);
    oracle_reply(oracle, call, reply);
}

void oracle_end(struct oracle *oracle)
{
    struct world *world = oracle->world;
    int64_t open = 0;

    for (size_t i = 0; i < oracle->ops_count; i++) {
        const struct op *op = oracle->ops[i];
        open += op->verb == VERB_COUNT && op->refusals < op->arrivals && !op->acknowledged &&
                !oracle_is_never(op);
    }
    int64_t number = oracle->seen[COUNT].number;
    oracle_check(oracle, P6_ONCE);
    if (number < oracle->counted || number > oracle->counted + open)
        world_break(world, P6_ONCE,
                    "count is %lld at the end, but %lld additions were acknowledged and %lld may "
                    "have happened",
                    (long long)number, (long long)oracle->counted, (long long)open);
}
