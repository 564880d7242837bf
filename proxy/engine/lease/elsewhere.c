/* SPDX-License-Identifier: Apache-2.0 */
/* When the head of a line that was denied asks again, and how it hears of what other daemons do.
 *
 * Somebody waits here for a lease that another daemon on the same store has granted. A flag in the
 * resource's row asks for news of its end, and the daemon that ends it sends them through the
 * store. If it has ended before the flag was set, the waiter has its turn at once. If anything
 * fails, it costs a second at most: the head of a line asks that often in any case. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"

#define STORE_POLL_MS 15 /* or so: what another daemon holds in the same file */

struct notice {
    struct store_op op;
    struct engine *engine;
    int64_t token;
    bool ended; /* the lease was over when the flag was to be set */
    size_t name_len;
    char name[];
};

static struct bytes name_of(const struct notice *notice)
{
    return (struct bytes){notice->name, notice->name_len};
}

static enum stk_error await_run(struct store_op *op, struct store_txn *txn)
{
    struct notice *notice = list_entry(op, struct notice, op);
    struct resource row;
    enum stk_error error = txn_resource(txn, name_of(notice), &row);

    if (error != STK_OK)
        return error;
    notice->ended = row.fence.token != notice->token || row.fence.state != FENCE_LIVE;
    return notice->ended ? STK_OK : txn_await(txn, &row);
}

static void await_done(struct store_op *op)
{
    struct notice *notice = list_entry(op, struct notice, op);
    struct engine *engine = notice->engine;

    engine->requests_open--;
    if (op->error == STK_OK && notice->ended)
        line_wake(engine, name_of(notice));
    free(notice);
}

static void ask_for_news(struct engine *engine, struct bytes resource, int64_t token)
{
    struct notice *notice = mem_zalloc(sizeof *notice + resource.len);

    notice->engine = engine;
    notice->token = token;
    notice->name_len = resource.len;
    memcpy(notice->name, resource.data, resource.len);
    if (lease_submit(engine, &notice->op, true, name_of(notice), await_run, await_done) == STK_OK)
        engine->requests_open++;
    else
        free(notice);
}

/* Is it this daemon's own lease that the call was denied for? */
static bool is_held_here(const struct lease_call *call, const struct lease_record *record)
{
    return call->answer == LEASE_HELD && record->live && record->this_opening &&
           record->token == call->answer_token;
}

/* When to ask again. What another daemon holds, with no lease service between the two, somebody
 * may tell through the store. Else nobody does: a read of the store is cheap, and where many wait
 * there are fewer for each. */
static int64_t poll_in_ms(const struct engine *engine, const struct lease_call *call,
                          const struct lease_record *record)
{
    int64_t poll_ms = STORE_POLL_MS + (int64_t)engine->use.things[ACCOUNT_WAITERS] / 2;
    unsigned char random; /* two daemons that ask in step would not take turns */

    if (is_held_here(call, record) || !lease_provider_relies_on_store(engine->options.provider))
        return call->answer_ttl_ms;
    if (store_hears(engine->options.store))
        return call->answer_ttl_ms;
    engine->options.chance->fill(engine->options.chance, &random, sizeof random);
    poll_ms += random % STORE_POLL_MS;
    return poll_ms < call->answer_ttl_ms ? poll_ms : call->answer_ttl_ms;
}

void elsewhere_await_turn(struct engine *engine, struct bytes resource, struct waiter *head,
                          const struct lease_call *call, const struct lease_record *record,
                          int64_t *awaited)
{
    bool held = call->answer == LEASE_HELD;

    line_poll_in(head, held ? poll_in_ms(engine, call, record) : LINE_POLL_MS);
    if (!held || is_held_here(call, record) ||
        !lease_provider_relies_on_store(engine->options.provider) ||
        !store_hears(engine->options.store) || *awaited == call->answer_token)
        return;
    *awaited = call->answer_token;
    ask_for_news(engine, resource, *awaited);
}

void elsewhere_on_freed(void *context, struct bytes resource)
{
    line_wake(context, resource);
}
