/* SPDX-License-Identifier: Apache-2.0 */
/* LEASE and LEASES: who holds what. The lease service says whether a lease is free; the store knows
 * owner, token and holds. */
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/write/exec.h"

#define LEASES_COUNT_DEFAULT 100000
#define SHOW_ROUNDS_MAX      3

struct show {
    struct request *request;
    unsigned rounds;
    int64_t session;
    struct resource row;
    struct lease_record record;
    struct buf owner;
    struct lease_call call;
};

static void show_reply(struct show *show, bool held, int64_t ttl_ms)
{
    struct request *request = show->request;
    struct buf *out = &request->reply;

    resp_map(out, 6, request->resp3);
    resp_bulk_text(out, "state");
    resp_bulk_text(out, held ? "held" : "free");
    resp_bulk_text(out, "token");
    resp_int(out, show->record.token);
    resp_bulk_text(out, "owner");
    if (held)
        resp_bulk(out, buf_bytes(&show->owner));
    else
        resp_null(out, request->resp3);
    resp_bulk_text(out, "ttl_ms");
    resp_int(out, held ? ttl_ms : 0);
    resp_bulk_text(out, "holds");
    resp_int(out, held ? show->record.holds : 0);
    resp_bulk_text(out, "waiters");
    resp_int(out, line_waiters(request->engine, request->argv[1]));
    buf_free(&show->owner);
    request_finish(request);
}

static void ask(struct show *show);

static void on_answer(struct lease_call *call)
{
    struct show *show = list_entry(call, struct show, call);
    int64_t left_ms = lease_left_ms(call, engine_now_ms(show->request->engine));

    if (call->answer == LEASE_DOWN) {
        buf_free(&show->owner);
        request_fail(show->request, STK_LEASEDOWN, "%s", call->reason);
    } else if (call->answer == LEASE_HELD && left_ms == 0 && ++show->rounds < SHOW_ROUNDS_MAX) {
        ask(show); /* the answer took its time, or it ends this very millisecond: ask again */
    } else {
        /* A lock under another token belongs to a grant on its way, or to one that never arrived:
         * the lease in the store is over, or about to be. */
        show_reply(show, call->answer == LEASE_HELD && show->record.live, left_ms);
    }
}

static void ask(struct show *show)
{
    struct lease_call *call = &show->call;

    *call = (struct lease_call){.verb = LEASE_QUERY,
                                .resource = show->request->argv[1],
                                .asked_ms = engine_now_ms(show->request->engine),
                                .record = show->record,
                                .done = on_answer};
    memcpy(call->nonce, show->record.nonce, sizeof call->nonce);
    lease_ask(show->request->engine->options.provider, call);
}

static enum stk_error show_run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);
    struct show *show = request->state;
    return lease_read(txn, request->argv[1], show->session, &show->row, &show->record,
                      &show->owner);
}

static void show_done(struct store_op *op)
{
    struct request *request = request_of_op(op);
    struct show *show = request->state;

    if (op->error != STK_OK) {
        buf_free(&show->owner);
        request_refused(request);
        return;
    }
    if (show->row.fence.state == FENCE_NONE) {
        resp_null(&request->reply, request->resp3);
        request_finish(request);
        return;
    }
    ask(show);
}

void lease_show(struct request *request)
{
    struct show *show = mem_zalloc(sizeof *show);

    request->state = show;
    show->request = request;
    show->session = store_session(request->engine->options.store);
    if (!request_name(request, 1, "a resource"))
        return;
    request_run(request, false, show_run, show_done);
}

struct list_leases {
    bool matches;
    struct bytes match;
    int64_t count;
    struct exec_collect names;
};

static bool list_one(void *context, int64_t id, struct bytes name, enum value_type type)
{
    struct list_leases *leases = context;

    (void)id, (void)type;
    if ((int64_t)leases->names.count == leases->count)
        return false;
    if (leases->matches && !bytes_match_glob(leases->match, name))
        return true;
    return exec_collect(&leases->names, name);
}

static enum stk_error list_run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);
    struct list_leases *leases = request->state;
    struct replies *replies = &request->engine->replies;
    struct exec exec = {.out = &request->reply,
                        .replies = replies,
                        .share = &request->share,
                        .resp3 = request->resp3};

    leases->names = (struct exec_collect){.exec = &exec};
    buf_clear(&request->reply);
    enum stk_error error = txn_each_live(txn, 0, list_one, leases);
    if (error != STK_OK)
        buf_free(&leases->names.body);
    else if (exec_collect_end(&leases->names, false) != STK_OK)
        replies_refuse(replies, &request->reply);
    return error;
}

void lease_list(struct request *request)
{
    struct list_leases *leases = mem_zalloc(sizeof *leases);

    request->state = leases;
    leases->count = LEASES_COUNT_DEFAULT;
    for (size_t i = 1; i < request->argc; i += 2) {
        if (i + 1 < request->argc && request_is_word(request, i, "MATCH")) {
            leases->matches = true;
            leases->match = request->argv[i + 1];
        } else if (i + 1 < request->argc && request_is_word(request, i, "COUNT")) {
            if (!request_int(request, i + 1, 1, INT64_MAX, "COUNT", &leases->count))
                return;
        } else {
            request_fail(request, STK_ERR, "syntax error: LEASES [MATCH glob] [COUNT n]");
            return;
        }
    }
    request_run(request, false, list_run, request_done);
}
