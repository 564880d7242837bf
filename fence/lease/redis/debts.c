/* SPDX-License-Identifier: Apache-2.0 */
/* Debts are in the order in which their locks end, so the one that costs least to forget is first.
 */
#include "fence/lease/redis/debts.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"

static struct debt *first(const struct debts *debts)
{
    struct heap_node *node = heap_first(&debts->heap);
    return node == NULL ? NULL : list_entry(node, struct debt, node);
}

static void forget(struct debts *debts, struct debt *debt)
{
    heap_remove(&debts->heap, &debt->node);
    free(debt);
}

static void keep(struct debts *debts, struct debt *debt, int64_t until_ms)
{
    heap_set(&debts->heap, &debt->node, until_ms);
    if (debts->heap.count > DEBTS_MAX)
        forget(debts, first(debts));
}

void debts_add(struct debts *debts, const struct lease_call *call, int64_t token, int64_t until_ms,
               int64_t now_ms)
{
    if (until_ms <= now_ms)
        return;
    struct debt *debt = mem_zalloc(sizeof *debt + call->resource.len);
    memcpy(debt->resource, call->resource.data, call->resource.len);
    memcpy(debt->call.nonce, call->nonce, sizeof debt->call.nonce);
    debt->call.verb = LEASE_RELEASE;
    debt->call.resource = (struct bytes){debt->resource, call->resource.len};
    debt->call.token = token;
    debt->call.attempt = call->attempt;
    debt->call.revoked = call->revoked;
    keep(debts, debt, until_ms);
}

void debts_note(struct debts *debts, const struct lease_call *call, int64_t now_ms)
{
    if (call->verb == LEASE_RELEASE)
        debts_add(debts, call, call->token, call->deadline_ms, now_ms);
    else if (call->verb == LEASE_GRANT)
        debts_add(debts, call, 0, now_ms + call->ttl_ms, now_ms);
}

struct debt *debts_take(struct debts *debts, int64_t now_ms)
{
    struct debt *debt;

    while ((debt = first(debts)) != NULL && debt->node.at_ms <= now_ms)
        forget(debts, debt);
    if (debt != NULL) {
        debt->call.ttl_ms = debt->node.at_ms - now_ms;
        heap_remove(&debts->heap, &debt->node);
    }
    return debt;
}

void debts_splice(struct debts *to, struct debts *from)
{
    struct debt *debt;

    while ((debt = first(from)) != NULL) {
        heap_remove(&from->heap, &debt->node);
        keep(to, debt, debt->node.at_ms);
    }
}

void debts_free(struct debts *debts)
{
    struct debt *debt;

    while ((debt = first(debts)) != NULL)
        forget(debts, debt);
    heap_free(&debts->heap);
}
