/* SPDX-License-Identifier: Apache-2.0 */
/* What clients do: rounds of leases and writes, each with a stream of chance of its own. They
 * behave as the README tells them to, and some misbehave: they write with old tokens after a pause
 * or with tokens that nobody granted, or leave without a word. */
#include "tests/sim/client.h"
#include "tests/sim/oracle.h"

#define TRIES_MAX 4
#define ASKS_MAX  200 /* from a place in the line */

static int64_t chance(struct client *client, int64_t low, int64_t high)
{
    return rng_between(&client->rng, low, high);
}

static bool sometimes(struct client *client, int64_t per_mille)
{
    return rng_per_mille(&client->rng, per_mille);
}

static struct call *new_call(struct client *client, enum verb verb, enum resource_number resource)
{
    struct call *call = oracle_call(client->world->oracle, verb);

    call->resources[0] = resource;
    return call;
}

static enum resource_number some_log(struct client *client)
{
    return (enum resource_number)(LOG0 + rng_below(&client->rng, client->world->plan->logs));
}

static int64_t some_ttl_ms(struct client *client)
{
    int64_t max_ms = client->world->plan->ttl_max_ms;
    return sometimes(client, 200) ? chance(client, 10, 60) : chance(client, 60, max_ms);
}

static void think(struct client *client)
{
    bool quick = sometimes(client, client->world->plan->quick_per_mille);
    client_sleep(client, quick ? chance(client, 0, 5) : chance(client, 5, 200));
}

/* Leases. */

/* Does it stand in line by QUEUE? Nothing is drawn in a run where nobody does. */
static bool queues(struct client *client, int count, int id)
{
    return client->world->plan->queue_per_mille > 0 && count == 1 && id != 0 &&
           sometimes(client, client->world->plan->queue_per_mille);
}

/* Until it asks again. False: it has lost patience. */
static bool await_turn(struct client *client, int64_t ttl_ms)
{
    bool calm = client->world->calm;

    client_sleep(client, sometimes(client, 900) || calm ? chance(client, 1, ttl_ms / 2 + 20)
                                                        : chance(client, 500, 3000));
    return calm || !sometimes(client, 30);
}

/* Mostly it says so. */
static void leave_line(struct client *client, enum resource_number resource, int id)
{
    struct call *call = new_call(client, VERB_DEQUEUE, resource);

    call->id = id;
    if (sometimes(client, 700))
        (void)client_call(client, call);
}

/* Acquire one resource or two. Where the reply was lost, ask again with the same ID. */
static bool acquire(struct client *client, const enum resource_number *resources, int count,
                    int64_t tokens[2])
{
    struct world *world = client->world;
    const enum verb verb = count == 1 ? VERB_ACQUIRE : VERB_ACQUIRE_ALL;
    int64_t ttl_ms = world->calm ? 2000 : some_ttl_ms(client);
    int64_t wait_ms = world->calm ? 20000 : sometimes(client, 700) ? chance(client, 1, 4000) : 0;
    int id = world->calm || sometimes(client, 700) ? oracle_id(world->oracle) : 0;
    int owner = sometimes(client, 150) ? client->number : -1;
    bool ephemeral = sometimes(client, 150);
    bool queue = queues(client, count, id);
    int asks = queue && wait_ms > 0 ? ASKS_MAX : 0;

    client->owner = owner;
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        struct call *call = new_call(client, verb, resources[0]);
        call->count = count;
        call->resources[1] = resources[1];
        call->ttl_ms = ttl_ms;
        call->wait_ms = queue ? 0 : wait_ms;
        call->queue = queue;
        call->id = id;
        call->owner = owner;
        call->ephemeral = ephemeral;
        if (!client_call(client, call)) {
            if (id == 0 || sometimes(client, 200))
                return false;
            continue;
        }
        const redisReply *reply = client->reply;
        if (owner >= 0 && reply_is_error(reply, "LEASEDOWN") && sometimes(client, 800)) {
            world->tally->moves += world->plan->daemons > 1;
            client_move(client); /* enters there what may have been granted here */
            continue;
        }
        if (queue && reply_is_queued(reply)) {
            if (asks-- == 0 || !await_turn(client, ttl_ms)) {
                leave_line(client, resources[0], id);
                return false;
            }
            tries--;
            continue;
        }
        if (reply->type != REDIS_REPLY_ARRAY)
            return false;
        tokens[0] = reply_item(reply, 0);
        tokens[1] = count == 1 ? 0 : reply_item(reply, 1);
        for (int i = 0; i < count; i++)
            client->old_tokens[resources[i]] = tokens[i];
        return true;
    }
    return false;
}

static void release(struct client *client, enum resource_number resource, int64_t token)
{
    int id = sometimes(client, 500) ? oracle_id(client->world->oracle) : 0;

    for (int tries = 0; tries < TRIES_MAX; tries++) {
        struct call *call = new_call(client, VERB_RELEASE, resource);
        call->tokens[0] = token;
        call->id = id;
        call->owner = client->owner;
        if (client_call(client, call) && !reply_is_error(client->reply, "BUSY") &&
            !reply_is_error(client->reply, "STORE"))
            return;
    }
}

static bool renew(struct client *client, enum resource_number resource, int64_t token)
{
    struct call *call = new_call(client, VERB_RENEW, resource);

    call->tokens[0] = token;
    call->ttl_ms = some_ttl_ms(client);
    return client_call(client, call) && client->reply->type == REDIS_REPLY_INTEGER;
}

/* Writes. */

enum outcome { APPLIED, REFUSED, UNSURE };

static struct call *op_call(struct client *client, struct op *op, const int64_t tokens[2])
{
    struct call *call = new_call(client, op->verb, op->resources[0]);

    call->op = op;
    call->count = op->count;
    call->resources[1] = op->resources[1];
    call->tokens[0] = tokens[0];
    call->tokens[1] = tokens[1];
    return call;
}

static bool asks_receipt(struct client *client, struct op *op, const int64_t tokens[2],
                         enum outcome *outcome)
{
    struct call *call = op_call(client, op, tokens);

    call->verb = VERB_RECEIPT;
    call->count = 1;
    if (!client_call(client, call) || client->reply->type != REDIS_REPLY_ARRAY)
        return false;
    *outcome = reply_item(client->reply, 0) == 1 ? APPLIED : REFUSED;
    return true;
}

static void remember_open(struct client *client, struct op *op, const int64_t tokens[2])
{
    if (client->open_count < OPEN_OPS_MAX)
        client->open[client->open_count++] = (struct open_op){op, {tokens[0], tokens[1]}};
}

/* Send a write, and send it again where nothing is known of it and it has an ID. */
static enum outcome perform(struct client *client, struct op *op, const int64_t tokens[2])
{
    enum outcome outcome = UNSURE;
    int tries_max = op->has_id ? TRIES_MAX : 1;

    for (int tries = 0; tries < tries_max; tries++) {
        if (client_call(client, op_call(client, op, tokens))) {
            const redisReply *reply = client->reply;
            if (reply->type != REDIS_REPLY_ERROR)
                return APPLIED;
            if (!reply_is_error(reply, "BUSY") && !reply_is_error(reply, "STORE"))
                return REFUSED;
            outcome = tries == 0 || outcome == REFUSED ? REFUSED : UNSURE;
            client_sleep(client, chance(client, 1, 50));
        } else if (op->has_id && sometimes(client, 300) &&
                   asks_receipt(client, op, tokens, &outcome)) {
            if (sometimes(client, 500)) /* whatever the receipt said holds from now on */
                (void)client_call(client, op_call(client, op, tokens));
            return outcome;
        } else {
            outcome = UNSURE;
        }
        if (sometimes(client, 150))
            break;
    }
    if (outcome == UNSURE && op->has_id)
        remember_open(client, op, tokens);
    return outcome;
}

static enum outcome write_op(struct client *client, enum verb verb,
                             const enum resource_number *resources, int count,
                             const int64_t tokens[2])
{
    struct op *op = oracle_op(client->world->oracle, verb, client->number);

    op->count = count;
    op->resources[0] = resources[0];
    op->resources[1] = resources[1];
    op->has_id = client->world->calm || sometimes(client, 700);
    return perform(client, op, tokens);
}

/* Rounds. */

static void read_log(struct client *client, enum resource_number resource, int64_t token)
{
    struct call *call = new_call(client, token != 0 ? VERB_FENCED_GET : VERB_GET, resource);

    call->tokens[0] = token;
    (void)client_call(client, call);
}

/* A lease, and what it is for. */
static void round_of_writes(struct client *client, enum verb verb,
                            const enum resource_number *resources, int count)
{
    int64_t tokens[2];

    if (!acquire(client, resources, count, tokens))
        return;
    /* A write that an earlier lease left open may be sent again under this one. */
    if (client->open_count > 0 && sometimes(client, 500)) {
        struct op *op = client->open[client->open_count - 1].op;
        if (op->verb == verb && op->resources[0] == resources[0] &&
            (count == 1 || op->resources[1] == resources[1])) {
            client->open_count--;
            (void)perform(client, op, tokens);
        }
    }
    for (int64_t writes = chance(client, 1, 5); writes > 0; writes--) {
        if (resources[0] <= LOG2 && sometimes(client, 200))
            read_log(client, resources[0], sometimes(client, 700) ? tokens[0] : 0);
        if (write_op(client, verb, resources, count, tokens) == REFUSED && !sometimes(client, 200))
            break;
        if (sometimes(client, 100))
            client_sleep(client, chance(client, 20, 2 * client->world->plan->ttl_max_ms));
        if (sometimes(client, 250) && !renew(client, resources[0], tokens[0]) &&
            !sometimes(client, 300))
            break;
        if (sometimes(client, 500))
            think(client);
    }
    if (sometimes(client, 100))
        return; /* without a word: the lease runs out */
    for (int i = 0; i < count; i++)
        release(client, resources[i], tokens[i]);
}

static void round_of_lock(struct client *client)
{
    const enum resource_number lock[2] = {LOCK, LOCK};
    int64_t tokens[2];

    if (!acquire(client, lock, 1, tokens))
        return;
    think(client);
    if (sometimes(client, 300) && client->link != NULL) {
        link_close(client->link);
        client->link = NULL;
    } else {
        release(client, lock[0], tokens[0]);
    }
}

/* Old tokens, and tokens that nobody granted. */
static void round_of_mischief(struct client *client)
{
    enum resource_number log[2] = {some_log(client), LOG0};
    int64_t tokens[2] = {client->old_tokens[log[0]], 0};
    struct op *op = oracle_op(client->world->oracle, VERB_APPEND, client->number);

    op->count = 1;
    op->resources[0] = log[0];
    op->has_id = sometimes(client, 500);
    if (tokens[0] == 0 || sometimes(client, 500))
        tokens[0] += sometimes(client, 500) ? 1 : chance(client, 1000000, 1000000000000);
    (void)perform(client, op, tokens);
}

static void one_round(struct client *client)
{
    const int *weights = client->world->plan->weights;
    enum resource_number log = some_log(client);
    const enum resource_number logs[2] = {log, log}, sale[2] = {SOLD, log}, count[2] = {COUNT, 0},
                               pair[2] = {PAIR_A, PAIR_B};
    int64_t all = 0, at;
    int what = 0;

    for (int i = 0; i < 8; i++)
        all += weights[i];
    for (at = rng_below(&client->rng, all); at >= weights[what]; what++)
        at -= weights[what];
    switch (what) {
    case 0: round_of_writes(client, VERB_APPEND, logs, 1); break;
    case 1: round_of_writes(client, VERB_SELL, sale, 2); break;
    case 2: round_of_writes(client, VERB_COUNT, count, 1); break;
    case 3: round_of_writes(client, VERB_PAIR, pair, 2); break;
    case 4: round_of_lock(client); break;
    case 5: read_log(client, log, 0); break;
    case 6:
        if (sometimes(client, 300))
            (void)client_call(client,
                              new_call(client, VERB_REVOKE,
                                       (enum resource_number)rng_below(&client->rng, RESOURCES)));
        break;
    default: round_of_mischief(client);
    }
}

/* Now and then a client asks the daemon that it has talked to what it remembers. It does so by a
 * stream of chance of its own, and in some runs only, so that all others stay as they were. */
static void look_back(struct client *client)
{
    struct world *world = client->world;

    if (world->plan->looks_per_mille == 0)
        return;
    struct rng rng =
        rng_of(world->plan->seed, 'h' + ((uint64_t)client->number << 8), (uint64_t)client->round);
    if (!rng_per_mille(&rng, world->plan->looks_per_mille))
        return;
    enum verb verb = rng_per_mille(&rng, 500) ? VERB_HISTORY : VERB_REFUSALS;
    (void)client_call(client,
                      new_call(client, verb, (enum resource_number)rng_below(&rng, RESOURCES)));
}

/* Nothing may stay open. An ID whose token is over is refused where it was not applied. */
static void settle(struct client *client)
{
    while (client->open_count > 0) {
        const struct open_op open = client->open[client->open_count - 1];
        bool got = client_call(client, op_call(client, open.op, open.tokens));
        if (got && !reply_is_error(client->reply, "BUSY") &&
            !reply_is_error(client->reply, "STORE"))
            client->open_count--;
        else
            client_sleep(client, 50);
    }
}

/* With all faults over, every client gets a lease and writes once more. */
static void final_round(struct client *client)
{
    const enum resource_number logs[2] = {some_log(client), LOG0};
    int64_t tokens[2];

    for (;;) {
        if (acquire(client, logs, 1, tokens)) {
            enum outcome outcome = write_op(client, VERB_APPEND, logs, 1, tokens);
            release(client, logs[0], tokens[0]);
            if (outcome == APPLIED)
                return;
        }
        client_sleep(client, 50);
    }
}

void client_main(struct client *client)
{
    struct world *world = client->world;
    const struct plan *plan = world->plan;

    while (!world->calm) {
        int round = client->round++;
        bool numbered = round < ROUNDS_MAX;
        client->rng =
            rng_of(world->plan->seed, 'c' + ((uint64_t)client->number << 8), (uint64_t)round);
        if (numbered)
            client->round_starts_us[round] = world->now_us;
        if (numbered && plan->round_left_out[client->number][round]) {
            int64_t next_us = plan->round_starts_us[client->number][round + 1];
            client_sleep_until(client, next_us > world->now_us ? next_us : world->now_us + 1000);
            continue;
        }
        one_round(client);
        look_back(client);
        think(client);
    }
    client->rng = rng_of(world->plan->seed, 'f', (uint64_t)client->number);
    settle(client);
    final_round(client);
    settle(client);
    client->done = true;
}
