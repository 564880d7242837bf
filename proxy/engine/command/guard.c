/* SPDX-License-Identifier: Apache-2.0 */
/* GUARD CREATE table column prefix [TOKEN column] | DROP table | LIST: which of the users' tables
 * are guarded. The store makes, removes and checks guards; this is only the command. */
#include "fence/base/mem.h"
#include "proxy/engine/command/handlers.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/session.h"

/* What the store says of it. */
struct outcome {
    enum stk_error error;
    char why[SQL_WHY_MAX];
};

/* A refusal has changed nothing, so the operation succeeds, and its reply says why not. */
static enum stk_error conclude(struct request *request, enum stk_error error)
{
    struct outcome *outcome = request->state;

    outcome->error = error;
    return error == STK_STORE ? error : STK_OK;
}

static enum stk_error create_run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);
    struct outcome *outcome = request->state;

    const struct table_guard guard = {.table = request->argv[2],
                                      .column = request->argv[3],
                                      .prefix = request->argv[4],
                                      .token = request->argc > 5 ? request->argv[6]
                                                                 : (struct bytes){"", 0}};

    return conclude(request, txn_guard_create(txn, &guard, outcome->why));
}

static enum stk_error drop_run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);
    struct outcome *outcome = request->state;

    return conclude(request, txn_guard_drop(txn, request->argv[2], outcome->why));
}

/* "CREATE table column prefix" */
static void audit_change(const struct request *request)
{
    struct buf reason = {0};

    for (size_t i = 1; i < request->argc; i++) {
        buf_append_text(&reason, i > 1 ? " " : "");
        buf_append_bytes(&reason, request->argv[i]);
    }
    request_audit(request, (struct audit_note){.event = AUDIT_GUARD,
                                               .resource = request->argv[2],
                                               .reason = buf_bytes(&reason)});
    buf_free(&reason);
}

static void change_done(struct store_op *op)
{
    struct request *request = request_of_op(op);
    const struct outcome *outcome = request->state;

    if (request_refused(request))
        return;
    if (outcome->error != STK_OK) {
        request_fail(request, outcome->error, "%s", outcome->why);
        return;
    }
    audit_change(request);
    resp_simple(&request->reply, "OK");
    request_finish(request);
}

struct listing {
    struct buf body;
    size_t count;
    bool resp3;
};

static void list_one(void *context, const struct table_guard *guard, struct bytes flaw)
{
    struct listing *listing = context;
    struct buf *out = &listing->body;

    resp_map(out, 4u + (guard->token.len > 0) + (flaw.len > 0), listing->resp3);
    resp_bulk_text(out, "table");
    resp_bulk(out, guard->table);
    resp_bulk_text(out, "column");
    resp_bulk(out, guard->column);
    resp_bulk_text(out, "prefix");
    resp_bulk(out, guard->prefix);
    if (guard->token.len > 0) {
        resp_bulk_text(out, "token_column");
        resp_bulk(out, guard->token);
    }
    resp_bulk_text(out, "state");
    resp_bulk_text(out, flaw.len > 0 ? "broken" : "ok");
    if (flaw.len > 0) {
        resp_bulk_text(out, "problem");
        resp_bulk(out, flaw);
    }
    listing->count++;
}

static enum stk_error list_run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);
    struct listing listing = {.resp3 = request->resp3};
    enum stk_error error = txn_guards(txn, list_one, &listing);

    buf_clear(&request->reply);
    resp_array(&request->reply, listing.count);
    buf_append_bytes(&request->reply, buf_bytes(&listing.body));
    buf_free(&listing.body);
    return error;
}

static void change(struct request *request, store_run *run)
{
    if (!request_may_audit(request, AUDIT_BIT(AUDIT_GUARD)))
        return;
    request->state = mem_zalloc(sizeof(struct outcome));
    request_run(request, true, run, change_done);
}

static void guard_create(struct request *request)
{
    if (request->argc > 5 &&
        (request->argc != 7 || !request_is_word(request, 5, "TOKEN") || request->argv[6].len == 0))
        request_fail(request, STK_ERR,
                     "syntax error: GUARD CREATE table column prefix [TOKEN column]");
    else
        change(request, create_run);
}

static void guard_drop(struct request *request)
{
    change(request, drop_run);
}

/* On the writer too, which knows the guards, and checks them where another program has committed.
 */
static void guard_list(struct request *request)
{
    request_run(request, true, list_run, request_show_done);
}

const struct subcommand guard_subcommands[] = {
    {"guard|create", -5, guard_create, DEED_ADMIN},
    {"guard|drop", 3, guard_drop, DEED_ADMIN},
    {"guard|list", 2, guard_list, DEED_ADMIN},
    {"guard|help", 2, request_help, DEED_ADMIN},
    {.name = NULL},
};
