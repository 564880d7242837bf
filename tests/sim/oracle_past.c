/* SPDX-License-Identifier: Apache-2.0 */
/* What HISTORY and REFUSALS tell, against what their daemon has told its clients in this life of
 * its: each grant, until newer ones have taken its room, and each refused write, with its token and
 * code, and how late it was. */
#include <stdio.h>
#include <string.h>

#include "tests/sim/daemon.h"
#include "tests/sim/oracle_impl.h"

#define CLOCK_ERROR(ms) ((ms) / 100 + 5) /* a daemon's clock runs up to 0.2 % too slow or fast */

/* An entry of a history is of a token that is new in the store, or of an ACQUIRE that enters again.
 * So the entries that came between two moments are at most entries_may() at the second one less
 * oracle_entries() at the first. */

static int64_t tokens_sum(const struct oracle *oracle)
{
    int64_t sum = 0;

    for (int i = 0; i < RESOURCES; i++)
        sum += oracle->seen[i].token;
    return sum;
}

int64_t oracle_entries(const struct oracle *oracle)
{
    return tokens_sum(oracle) + oracle->answered;
}

/* The same, with those of calls under way. */
static int64_t entries_may(const struct oracle *oracle)
{
    return tokens_sum(oracle) + oracle->asked;
}

/* Had the call's daemon told this at that time when the call came, in the same life? */
static bool was_told(const struct oracle *oracle, const struct call *call, int daemon,
                     int64_t told_us)
{
    return daemon == call->link->daemon && told_us < call->arrived_us &&
           told_us > oracle->world->daemons[daemon].started_us;
}

/* Has the grant's entry been made after it was asked for, and not made room yet? */
static bool is_kept(const struct oracle *oracle, const struct grant *grant)
{
    return grant->entries_then >= 0 &&
           entries_may(oracle) - grant->entries_then < DAEMON_HISTORY_MAX;
}

static int64_t number_of(const redisReply *map, const char *name)
{
    const redisReply *value = reply_value(map, name);
    return value != NULL ? value->integer : 0;
}

static bool is_text(const redisReply *map, const char *name, const char *text)
{
    const redisReply *value = reply_value(map, name);
    return value != NULL && value->type == REDIS_REPLY_STRING && strcmp(value->str, text) == 0;
}

static bool is_null(const redisReply *map, const char *name)
{
    const redisReply *value = reply_value(map, name);
    return value == NULL || value->type == REDIS_REPLY_NIL;
}

/* HISTORY. */

/* The newest entry of the token; NULL: none. */
static const redisReply *entry_of(const redisReply *reply, int64_t token)
{
    for (size_t i = 0; i < reply->elements; i++)
        if (number_of(reply->element[i], "token") == token)
            return reply->element[i];
    return NULL;
}

/* Others can end a lease where there are several daemons, and this one may not know it yet. */
static bool ended_here(const struct oracle *oracle, const struct grant *grant, int64_t before_us)
{
    return oracle->world->plan->daemons == 1 && grant->released_us != 0 &&
           grant->released_us < before_us;
}

static void judge_entry(struct oracle *oracle, const struct call *call, const struct grant *grant,
                        const redisReply *entry)
{
    struct world *world = oracle->world;
    const char *name = resource_names[grant->resource];
    long long token = (long long)grant->token;
    char owner[16];

    snprintf(owner, sizeof owner, "o%d", grant->owner);
    if (entry == NULL)
        world_break(world, TOLD, "daemon %d told client %d token %lld of %s, HISTORY does not",
                    grant->daemon, grant->client, token, name);
    else if (grant->owner >= 0 && !is_text(entry, "owner", owner))
        world_break(world, TOLD, "HISTORY names another owner of token %lld of %s", token, name);
    else if (grant->owner < 0 && is_text(entry, "end", "given back"))
        world_break(world, TOLD, "token %lld of %s was told, and HISTORY says given back", token,
                    name);
    else if (ended_here(oracle, grant, call->arrived_us) && is_null(entry, "end"))
        world_break(world, TOLD, "token %lld of %s was released, HISTORY knows no end", token,
                    name);
}

void oracle_history(struct oracle *oracle, const struct call *call, const redisReply *reply)
{
    struct world *world = oracle->world;
    int64_t newest = oracle->seen[call->resources[0]].token;

    for (size_t i = 0; i < reply->elements; i++)
        if (number_of(reply->element[i], "token") > newest)
            world_break(world, TOLD, "HISTORY tells a token of %s that is not in the store",
                        resource_names[call->resources[0]]);
    for (size_t i = 0; i < oracle->grants_count; i++) {
        const struct grant *grant = &oracle->grants[i];
        if (grant->resource != call->resources[0] || !is_kept(oracle, grant) ||
            !was_told(oracle, call, grant->daemon, grant->told_us))
            continue;
        oracle_check(oracle, TOLD);
        judge_entry(oracle, call, grant, entry_of(reply, grant->token));
    }
}

/* REFUSALS. */

/* Is the entry of this call, for claim number i of its? */
static bool is_of(const redisReply *entry, const struct call *refused, int i)
{
    return is_text(entry, "resource", resource_names[refused->resources[i]]) &&
           number_of(entry, "token") == refused->tokens[i] &&
           is_text(entry, "code", refused->refused);
}

/* How late it was is known where the daemon has granted and released the token itself, and it was
 * no later than the grant is old. */
static void judge_late(struct oracle *oracle, const struct call *call, const struct call *refused,
                       const redisReply *entry)
{
    struct world *world = oracle->world;
    int64_t token = number_of(entry, "token");

    for (size_t i = 0; i < oracle->grants_count; i++) {
        const struct grant *grant = &oracle->grants[i];
        int64_t age_ms = (world->now_us - grant->asked_us) / 1000;
        if (grant->token != token || !is_text(entry, "resource", resource_names[grant->resource]) ||
            !is_kept(oracle, grant) || !was_told(oracle, call, grant->daemon, grant->told_us))
            continue;
        oracle_check(oracle, TOLD);
        if (ended_here(oracle, grant, refused->arrived_us) && is_null(entry, "late_ms"))
            world_break(world, TOLD, "token %lld of %s was released; how late it came is not known",
                        (long long)token, resource_names[grant->resource]);
        if (number_of(entry, "late_ms") > age_ms + CLOCK_ERROR(age_ms))
            world_break(world, TOLD, "token %lld of %s came %lld ms late, it is %lld ms old",
                        (long long)token, resource_names[grant->resource],
                        (long long)number_of(entry, "late_ms"), (long long)age_ms);
    }
}

static bool judge_refused(struct oracle *oracle, const struct call *call,
                          const struct call *refused, const redisReply *reply)
{
    for (size_t i = 0; i < reply->elements; i++)
        for (int j = 0; j < refused->count; j++)
            if (is_of(reply->element[i], refused, j)) {
                judge_late(oracle, call, refused, reply->element[i]);
                return true;
            }
    return false;
}

void oracle_refusals(struct oracle *oracle, const struct call *call, const redisReply *reply)
{
    struct world *world = oracle->world;
    size_t count = 0;

    if (reply->elements >= DAEMON_HISTORY_MAX)
        return; /* some may have made room */
    for (const struct call *refused = oracle->calls; refused != NULL; refused = refused->next) {
        if (refused->refused == NULL ||
            !was_told(oracle, call, refused->link->daemon, refused->answered_us))
            continue;
        count++;
        oracle_check(oracle, TOLD);
        if (!judge_refused(oracle, call, refused, reply))
            world_break(world, TOLD, "client %d was told %s of token %lld of %s, REFUSALS do not",
                        refused->client, refused->refused, (long long)refused->tokens[0],
                        resource_names[refused->resources[0]]);
    }
    if (count > reply->elements)
        world_break(world, TOLD, "%zu writes were refused, REFUSALS tell %zu", count,
                    reply->elements);
}
