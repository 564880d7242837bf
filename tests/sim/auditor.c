/* SPDX-License-Identifier: Apache-2.0 */
/* The auditor's books: calls and operations, who waits, and the balance at the end. */
#include "tests/sim/auditor.h"

#include <stdlib.h>

#include "fence/base/mem.h"
#include "tests/sim/auditor_impl.h"
#include "tests/sim/daemon.h"

struct auditor *auditor_new(struct world *world)
{
    struct auditor *auditor = mem_zalloc(sizeof *auditor);

    auditor->world = world;
    return auditor;
}

void auditor_free(struct auditor *auditor)
{
    struct call *next;

    for (struct call *call = auditor->calls; call != NULL; call = next) {
        next = call->next;
        free(call);
    }
    for (size_t i = 0; i < auditor->ops_count; i++)
        free(auditor->ops[i]);
    for (int i = 0; i < RESOURCES; i++)
        buf_free(&auditor->seen[i].text);
    free(auditor->ops);
    free(auditor->grants);
    free(auditor);
}

void audit_check(struct auditor *auditor, enum promise promise)
{
    auditor->world->tally->checks[promise]++;
}

struct call *audit_call(struct auditor *auditor, enum verb verb)
{
    struct call *call = mem_zalloc(sizeof *call);

    call->verb = verb;
    call->owner = -1;
    call->count = 1;
    call->next = auditor->calls;
    auditor->calls = call;
    return call;
}

struct op *audit_op(struct auditor *auditor, enum verb verb, int client)
{
    struct op *op = mem_zalloc(sizeof *op);

    if (auditor->ops_count == auditor->ops_room) {
        auditor->ops_room = auditor->ops_room * 2 + 64;
        auditor->ops = mem_realloc(auditor->ops, auditor->ops_room * sizeof(struct op *));
    }
    auditor->ops[auditor->ops_count++] = op;
    op->number = (int)auditor->ops_count;
    op->verb = verb;
    op->client = client;
    return op;
}

int audit_id(struct auditor *auditor)
{
    return ++auditor->ids;
}

bool audit_is_never(const struct op *op)
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

void audit_arrived(struct auditor *auditor, struct call *call)
{
    struct world *world = auditor->world;
    const struct daemon *daemon = &world->daemons[call->link->daemon];
    struct op *op = call->op;

    if (call->arrived)
        return;
    call->arrived = true;
    call->arrived_us = world->now_us;
    call->arrived_pauses_us = daemon->pauses_us;
    call->arrival = ++auditor->arrivals;
    call->entries_then = audit_entries(auditor);
    auditor->asked += is_acquire(call) ? call->count : 0;
    for (int i = 0; i < call->count; i++)
        call->tokens_then[i] = auditor->seen[call->resources[i]].token;
    call->acked_then = auditor->seen[call->resources[0]].acked[daemon->number];
    call->applied_then = op != NULL && op->applied;
    call->waiting = auditor->waiting;
    auditor->waiting = call;
    if (op == NULL || !is_write(call->verb))
        return;
    if (op->arrivals++ == 0)
        op->arrived_us = world->now_us;
    auditor->count_may += call->verb == VERB_COUNT && op->tokens_count == 0;
    if (op->tokens_count < 8) {
        for (int i = 0; i < call->count; i++)
            op->tokens[op->tokens_count][i] = call->tokens[i];
        op->tokens_count++;
    }
}

/* Nobody waits for it any more. */
static void leave(struct auditor *auditor, const struct call *call)
{
    struct call **at = &auditor->waiting;

    while (*at != NULL && *at != call)
        at = &(*at)->waiting;
    if (*at != NULL)
        *at = call->waiting;
}

void audit_gone(struct auditor *auditor, const struct link *link)
{
    if (link->call != NULL && link->call->arrived && !link->call->answered)
        leave(auditor, link->call);
}

void audit_answered(struct auditor *auditor, struct call *call, const redisReply *reply)
{
    if (call->answered)
        world_break(auditor->world, SANE, "a second reply to one call");
    call->answered = true;
    call->answered_us = auditor->world->now_us;
    auditor->answered += is_acquire(call) ? call->count : 0;
    leave(auditor, call);
    audit_reply(auditor, call, reply);
}

void audit_end(struct auditor *auditor)
{
    struct world *world = auditor->world;
    int64_t open = 0;

    for (size_t i = 0; i < auditor->ops_count; i++) {
        const struct op *op = auditor->ops[i];
        open += op->verb == VERB_COUNT && op->refusals < op->arrivals && !op->acknowledged &&
                !audit_is_never(op);
    }
    int64_t number = auditor->seen[COUNT].number;
    audit_check(auditor, P6_ONCE);
    if (number < auditor->counted || number > auditor->counted + open)
        world_break(world, P6_ONCE,
                    "count is %lld at the end, but %lld additions were acknowledged and %lld may "
                    "have happened",
                    (long long)number, (long long)auditor->counted, (long long)open);
}
