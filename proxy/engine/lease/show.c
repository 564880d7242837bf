/* SPDX-License-Identifier: Apache-2.0 */
/* LEASE and LEASES: who holds what. The lease service says whether a lease is free; the store knows
 * owner, token and holds, where the lock is its newest grant's.
 *
 *   lock \ row      never granted   live, T          retired, T
 *   none            null            free             free
 *   of token T      -               held, owner      held, owner null: is to be unlocked yet
 *   of another      null            held, owner null held, owner null
 *
 * A lock of another token belongs to a grant on its way to the store, or to one that never arrived:
 * the lease in the store is over, or about to be. Nobody else is granted it then, so it is held; by
 * whom, the store does not know. (Of what was never granted there is nothing to tell.) */
#include <stdlib.h>
#include <string.h>

#include "fence/base/glob.h"
#include "fence/base/mem.h"
#include "proxy/engine/command/exec.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/scope.h"
#include "proxy/engine/session/arguments.h"

#define LEASES_COUNT_DEFAULT 100000
#define VIEW_ROUNDS_MAX      3

/* What a lease is like now. */

static void end_view(struct lease_view *view, enum stk_error error, const char *reason)
{
    view->error = error;
    view->reason = reason;
    view->on_end(view);
}

static void ask(struct lease_view *view);

static void on_answer(struct lease_call *call)
{
    struct lease_view *view = list_entry(call, struct lease_view, call);
    int64_t left_ms = lease_left_ms(call, engine_now_ms(view->engine));

    if (call->answer == LEASE_DOWN) {
        end_view(view, STK_LEASEDOWN, call->reason);
    } else if (call->answer == LEASE_HELD && left_ms == 0 && ++view->rounds < VIEW_ROUNDS_MAX) {
        ask(view); /* the answer took its time, or it ends this very millisecond: ask again */
    } else {
        view->locked = call->answer == LEASE_HELD;
        view->held = view->locked && view->record.live && call->answer_token == view->record.token;
        view->left_ms = view->locked ? left_ms : 0;
        end_view(view, STK_OK, NULL);
    }
}

static void ask(struct lease_view *view)
{
    struct lease_call *call = &view->call;

    *call = (struct lease_call){.verb = LEASE_QUERY,
                                .resource = view->resource,
                                .asked_ms = engine_now_ms(view->engine),
                                .record = view->record,
                                .done = on_answer};
    memcpy(call->nonce, view->record.nonce, sizeof call->nonce);
    lease_ask(view->engine->options.provider, call);
}

static enum stk_error view_run(struct store_op *op, struct store_txn *txn)
{
    struct lease_view *view = list_entry(op, struct lease_view, op);
    return lease_read(txn, view->resource, view->opening, &view->row, &view->record, &view->owner);
}

static void view_done(struct store_op *op)
{
    struct lease_view *view = list_entry(op, struct lease_view, op);

    bool is_new = view->row.fence.state == FENCE_NONE && !view->asks_anyway;

    if (op->error != STK_OK || is_new)
        end_view(view, op->error, NULL);
    else
        ask(view);
}

void lease_view_start(struct lease_view *view)
{
    view->opening = store_opening(view->engine->options.store);
    view->rounds = 0;
    view->locked = view->held = false;
    view->left_ms = 0;
    if (lease_submit(view->engine, &view->op, false, view->resource, view_run, view_done) != STK_OK)
        end_view(view, STK_BUSY, NULL);
}

/* Is it held under the newest token that the store knows, by this owner? */
static bool is_of(const struct lease_view *view, struct bytes owner)
{
    return view->held && bytes_equal(buf_bytes(&view->owner), owner);
}

/* LEASE. */

struct show {
    struct request *request;
    struct bytes owner; /* only a lease of this one is shown; empty: anybody's */
    bool token_only;
    struct lease_view view;
};

static void show_free(void *state)
{
    struct show *show = state;

    buf_free(&show->view.owner);
    free(show);
}

static void reply_lease(const struct show *show)
{
    struct request *request = show->request;
    const struct lease_view *view = &show->view;
    struct buf *out = &request->reply;

    resp_map(out, 6, request->resp3);
    resp_bulk_text(out, "state");
    resp_bulk_text(out, view->locked ? "held" : "free");
    resp_bulk_text(out, "token");
    resp_int(out, view->record.token);
    resp_bulk_text(out, "owner");
    if (view->held)
        resp_bulk(out, scope_name(buf_bytes(&view->owner)));
    else
        resp_null(out, request->resp3);
    resp_bulk_text(out, "ttl_ms");
    resp_int(out, view->left_ms);
    resp_bulk_text(out, "holds");
    resp_int(out, view->held ? view->record.holds : 0);
    resp_bulk_text(out, "waiters");
    resp_int(out, line_waiters(request->engine, view->resource));
}

static void on_seen(struct lease_view *view)
{
    struct show *show = list_entry(view, struct show, view);
    struct request *request = show->request;
    struct engine *engine = request->engine;

    request->op.error = view->error == STK_STORE ? STK_STORE : STK_OK;
    request->op.why = view->op.why;
    if (request_refused(request))
        return;
    if (view->error != STK_OK) {
        request_fail(request, view->error, view->reason == NULL ? NULL : "%s", view->reason);
        return;
    }
    if (view->row.fence.state == FENCE_NONE || (show->owner.len > 0 && !is_of(view, show->owner)))
        resp_null(&request->reply, request->resp3);
    else if (show->token_only)
        resp_int(&request->reply, view->record.token);
    else
        reply_lease(show);
    /* Who asks for its own token takes it to another database, which checks it: no daemon sees
     * that. */
    if (engine->on_presented != NULL && show->owner.len > 0 && is_of(view, show->owner))
        engine->on_presented(engine, view->resource, view->record.token);
    request_finish(request);
}

/* LEASE resource [OWNER owner [TOKEN]] */
void lease_show(struct request *request)
{
    struct show *show = mem_zalloc(sizeof *show);
    struct lease_options options = {0};

    request->state = show;
    request->free_state = show_free;
    show->request = request;
    if (!request_name(request, 1, "a resource") ||
        !lease_options_parse(request, 2, OF_LEASE, &options))
        return;
    show->owner = options.owner;
    show->token_only = lease_option_given(&options, OPTION_TOKEN);
    if (show->token_only && options.owner.len == 0) {
        request_fail(request, STK_ERR, "TOKEN tells an owner's token: it needs OWNER");
        return;
    }
    show->view.engine = request->engine;
    show->view.resource = request->argv[1];
    show->view.on_end = on_seen;
    lease_view_start(&show->view);
}

struct list_leases {
    struct glob *match; /* NULL: everything */
    int64_t count;
    struct exec_collect names;
};

static bool list_one(void *context, int64_t id, struct bytes name, enum value_type type)
{
    struct list_leases *leases = context;

    (void)id, (void)type;
    if ((int64_t)leases->names.count == leases->count)
        return false;
    if (leases->match != NULL && !glob_matches(leases->match, name))
        return true;
    if (leases->names.exec->rights != NULL &&
        !acl_may_touch(leases->names.exec->rights, name, ACL_READS))
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
                        .resp3 = request->resp3,
                        .rights = request->rights};

    leases->names = (struct exec_collect){.exec = &exec};
    buf_clear(&request->reply);
    enum stk_error error = txn_each_live(txn, 0, list_one, leases);
    if (error != STK_OK)
        buf_free(&leases->names.body);
    else if (exec_collect_end(&leases->names, false) != STK_OK)
        replies_refuse(replies, &request->reply);
    return error;
}

static void list_free(void *state)
{
    struct list_leases *leases = state;

    glob_free(leases->match);
    free(leases);
}

void lease_list(struct request *request)
{
    struct list_leases *leases = mem_zalloc(sizeof *leases);

    request->state = leases;
    request->free_state = list_free;
    leases->count = LEASES_COUNT_DEFAULT;
    if (request_match_and_count(request, INT64_MAX, &leases->match, &leases->count))
        request_run(request, false, list_run, request_done);
}
