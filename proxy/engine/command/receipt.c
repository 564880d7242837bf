/* SPDX-License-Identifier: Apache-2.0 */
/* RECEIPT resource token id: was this request applied? The receipt and the fence are read from one
 * snapshot. So the answer "no, and it never will be" stays true: what was accepted before is in
 * that snapshot, and nothing is accepted under a token that is retired there. */
#include "fence/base/mem.h"
#include "proxy/engine/command/exec.h"
#include "proxy/engine/command/handlers.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/arguments.h"

struct asked {
    int64_t token, keep_ms;
};

/* Answer where there is no receipt. */
static enum stk_error without(struct request *request, struct store_txn *txn,
                              const struct resource *resource)
{
    const struct asked *asked = request->state;
    enum stk_error error;
    struct lease lease;

    request->verdict = fence_judge(&resource->fence, asked->token);
    if (request->verdict == STK_UNKNOWN && asked->token <= resource->fence.floor)
        request->verdict = STK_EXPIRED; /* its row was cleaned up */
    if (request->verdict == STK_OK)
        resp_null(&request->reply, request->resp3);
    if (request->verdict != STK_STALE)
        return STK_OK;
    if (txn_failed(error = txn_lease(txn, resource, &lease)))
        return error;
    if (asked->token <= lease.receipts_gone ||
        lease.changed_ms + asked->keep_ms < txn_now_ms(txn)) {
        request->verdict = STK_EXPIRED;
        return STK_OK;
    }
    request->verdict = STK_OK;
    resp_array(&request->reply, 2);
    resp_int(&request->reply, 0);
    resp_null(&request->reply, request->resp3);
    return STK_OK;
}

static enum stk_error receipt_run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);
    enum stk_error error;
    struct resource resource;
    struct receipt receipt;
    bool found = false;

    buf_clear(&request->reply);
    request->verdict = STK_OK;
    if (txn_failed(error = txn_resource(txn, request->argv[1], &resource)))
        return error;
    if (resource.id != 0 &&
        txn_failed(error = txn_receipt(txn, &resource, request->argv[3], &found, &receipt)))
        return error;
    if (!found)
        return without(request, txn, &resource);
    resp_array(&request->reply, 2);
    resp_int(&request->reply, 1);
    resp_append_value(&request->reply, receipt.reply, receipt.resp3, request->resp3);
    return STK_OK;
}

void receipt_show(struct request *request)
{
    struct asked *asked = mem_zalloc(sizeof *asked);

    request->state = asked;
    asked->keep_ms = request->engine->options.receipts_keep_ms;
    if (!request_name(request, 1, "a resource") || !request_token(request, 2, &asked->token))
        return;
    if (request_id(request, 3))
        request_run(request, false, receipt_run, request_done);
}
