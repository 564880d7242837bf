/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody waits here for a lease that another daemon on the same store has granted. A flag in the
 * resource's row asks for news of its end, and the daemon that ends it sends them through the
 * store. If it has ended before the flag was set, the waiter has its turn at once. If anything
 * fails, it costs a second at most: the head of a line asks that often in any case. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"

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

void elsewhere_await(struct engine *engine, struct bytes resource, int64_t token)
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

void elsewhere_on_freed(void *context, struct bytes resource)
{
    line_wake(context, resource);
}
