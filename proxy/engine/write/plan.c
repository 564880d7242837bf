/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's life: made from arguments, run in the store, answered.
 *
 *   plan_make ─▶ (its turn comes) ─▶ plan_start ─▶ run ─▶ commit ─▶ done ─▶ reply
 *     └ refused: unknown command,                  └ repeat? judge, apply, remember
 *       wrong name, no token
 *
 * - A write is judged inside the transaction that applies it, a read inside the transaction that
 *   serves it: nothing can happen between the judgement and the deed.
 * - A repeat is looked for before anything is judged: what was applied once gets its first reply,
 *   whatever has become of its token.
 * - A refused plan has changed nothing and leaves no receipt. */
#include "proxy/engine/write/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fence/base/log.h"
#include "fence/base/mem.h"
#include "proxy/engine/command/exec.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/facts.h"
#include "proxy/engine/session/session.h"
#include "proxy/engine/write/lock_value.h"

/* A savepoint costs each transaction a tenth; going without costs the batch of one that fails a
 * lot. */
#define SAVEPOINTS_AFTER_FAILURE 1000

/* Made: from arguments to claims and steps, on the loop's thread. */

/* The resources of a plan's claims, to find one among many. */
struct claim_index {
    const struct claim *claims;
    size_t count, mask;
    uint32_t *slots; /* owned: where a claim is, from 1; NULL: they are few */
};

enum { CLAIMS_FEW = 8 };

static size_t slot_of(const struct claim_index *index, struct bytes name)
{
    return (size_t)XXH3_64bits(name.data, name.len) & index->mask;
}

static void index_claims(struct claim_index *index)
{
    const struct claim *claims = index->claims;

    for (index->mask = 2 * CLAIMS_FEW; index->mask < 2 * index->count;)
        index->mask *= 2;
    index->slots = mem_zalloc(index->mask * sizeof *index->slots);
    index->mask--;
    for (size_t i = 0; i < index->count; i++) {
        size_t slot = slot_of(index, claims[i].resource);
        while (index->slots[slot] != 0 &&
               !bytes_equal(claims[index->slots[slot] - 1].resource, claims[i].resource))
            slot = (slot + 1) & index->mask;
        index->slots[slot] = (uint32_t)i + 1;
    }
}

static bool claims_have(const struct claim_index *index, struct bytes name)
{
    for (size_t i = 0; index->slots == NULL && i < index->count; i++)
        if (bytes_equal(index->claims[i].resource, name))
            return true;
    if (index->slots == NULL)
        return false;
    for (size_t slot = slot_of(index, name); index->slots[slot] != 0;
         slot = (slot + 1) & index->mask)
        if (bytes_equal(index->claims[index->slots[slot] - 1].resource, name))
            return true;
    return false;
}

static bool needs_claims(const struct step *step)
{
    return (step->command->flags & COMMAND_WRITES) && !step->unfenced;
}

/* As is usual in a transaction. */
static bool is_own_claim(const struct step *step, struct bytes name)
{
    return step->claims_count > 0 && bytes_equal(step->claims[0].resource, name);
}

/* Is there a claim for every key that the step writes? */
static bool step_is_claimed(struct request *request, const struct step *step,
                            const struct claim_index *index)
{
    const struct command *command = step->command;

    if (!needs_claims(step))
        return true;
    for (size_t i = (size_t)command->key_first; i <= step_last_key(step);
         i += (size_t)command->key_step)
        if (!is_own_claim(step, step->argv[i]) && !claims_have(index, step->argv[i])) {
            request->refused_name = step->argv[i];
            return step_refuse(request, STK_NOTOKEN, "no token was presented for key '%.*s'",
                               BYTES_CUT(step->argv[i], 64));
        }
    return true;
}

/* Is there one for every key that these steps write? */
static bool all_claimed(struct request *request, const struct step *steps, size_t count)
{
    const struct plan *plan = &request->plan;
    struct claim_index index = {.claims = plan->claims, .count = plan->claims_count};
    bool claimed = true;

    if (index.count > CLAIMS_FEW)
        index_claims(&index);
    for (size_t i = 0; claimed && i < count; i++)
        claimed = step_is_claimed(request, &steps[i], &index);
    if (index.slots != NULL)
        free(index.slots);
    return claimed;
}

/* Take the step of a command within another: FENCED token SET key value. */
static bool take_inner_step(struct request *request, size_t at, struct step *step)
{
    struct bytes name = request->argv[at];
    const struct command *command = command_find(&request->engine->index, name);
    char hint[NEAREST_HINT_MAX];

    if (command == NULL)
        return step_refuse(request, STK_ERR, "%s: unknown command '%.*s' behind '%.*s'%s",
                           request->command->name, BYTES_CUT(name, 64),
                           BYTES_CUT(request->argv[at - 1], 64),
                           command_hint(&request->engine->index, name, hint));
    if (!words_fit(command, request->argc - at)) {
        request_reply_misfit(request, command, request->argc - at);
        request->plan.refused = true;
        return false;
    }
    return step_take(request, at, command, step);
}

/* [ID id] at argv[*at]; moves on behind it. */
static bool take_id(struct request *request, size_t *at)
{
    if (!request_is_word(request, *at, "ID"))
        return true;
    const char *why =
        receipt_id_refused(*at + 1 < request->argc ? request->argv[*at + 1] : (struct bytes){0});
    if (why == NULL)
        why = request_scope(request, *at + 1);
    if (why != NULL)
        return step_refuse(request, STK_ERR, "%s", why);
    request->plan.id = request->argv[*at + 1];
    *at += 2;
    return true;
}

/* The token of a claim, or, where there are lock keys, the value of a lock that stands for it. */
static bool take_token(struct request *request, struct bytes text, struct claim *claim)
{
    if (token_parse(text, &claim->token))
        return true;
    if (request->engine->lock_patterns.count > 0 && lock_value_is(text)) {
        claim->value = text;
        request->plan.has_values = true;
        return true;
    }
    return step_refuse(request, STK_ERR, "a token is a number from 1 to %lld",
                       (long long)TOKEN_MAX);
}

/* A hash of many short pieces: they are put together first, which is quicker. */
struct hasher {
    XXH3_state_t *state;
    size_t used;
    char pieces[1024];
};

static void hash_flush(struct hasher *hasher)
{
    XXH3_64bits_update(hasher->state, hasher->pieces, hasher->used);
    hasher->used = 0;
}

static void hash_raw(struct hasher *hasher, const void *data, size_t len)
{
    if (hasher->used + len > sizeof hasher->pieces)
        hash_flush(hasher);
    if (len > sizeof hasher->pieces) {
        XXH3_64bits_update(hasher->state, data, len);
    } else if (len > 0) {
        memcpy(hasher->pieces + hasher->used, data, len);
        hasher->used += len;
    }
}

static void hash_bytes(struct hasher *hasher, struct bytes bytes)
{
    hash_raw(hasher, &bytes.len, sizeof bytes.len);
    hash_raw(hasher, bytes.data, bytes.len);
}

/* What makes a repeat the same request: everything but the tokens, which a repeat may have anew. A
 * transaction of one step is not that step alone: it replies with an array. */
static void take_fingerprint(struct plan *plan)
{
    if (plan->id.len == 0)
        return;
    struct hasher hasher;
    char title[COMMAND_LOWER_SIZE];
    hasher.state = XXH3_createState();
    hasher.used = 0;
    XXH3_64bits_reset(hasher.state);
    for (size_t i = 0; i < plan->claims_count; i++)
        hash_bytes(&hasher, plan->claims[i].resource);
    for (size_t i = 0; i < plan->steps_count; i++) {
        hash_raw(&hasher, &plan->steps[i].argc, sizeof plan->steps[i].argc);
        /* In whatever case it came, as most clients write it: receipts of earlier versions hold. */
        hash_bytes(&hasher, bytes_of(command_title(plan->steps[i].command->name, title)));
        for (size_t j = 1; j < plan->steps[i].argc; j++)
            hash_bytes(&hasher, plan->steps[i].argv[j]);
    }
    if (plan->whole && plan->steps_count == 1)
        hash_bytes(&hasher, BYTES_LITERAL("MULTI"));
    hash_flush(&hasher);
    plan->fingerprint = XXH3_64bits_digest(hasher.state);
    XXH3_freeState(hasher.state);
}

/* FENCED token [ID id] command key [arg ...] */
static bool make_fenced(struct request *request)
{
    struct plan *plan = &request->plan;
    struct step *step = &plan->only_step;
    size_t at = 2;

    if (!take_token(request, request->argv[1], &plan->only_claim))
        return false;
    if (!take_id(request, &at))
        return false;
    if (at >= request->argc) {
        request_reply_arity(request, "FENCED");
        plan->refused = true;
        return false;
    }
    if (!take_inner_step(request, at, step))
        return false;
    if (step->command->exec == NULL || step->command->key_first == 0)
        return step_refuse(request, STK_ERR, "FENCED takes a command on a key, not %s%s",
                           step->command->name,
                           step->command->flags & COMMAND_SQL ? ": use FENCEDALL" : "");
    if ((size_t)step->command->key_first + (size_t)step->command->key_step <= step_last_key(step))
        return step_refuse(
            request, STK_ERR,
            "%s takes one key here: a token belongs to one resource; FENCEDALL takes more",
            step->command->name);
    plan->only_claim.resource = step->argv[step->command->key_first];
    step->claims_key = true;
    plan->claims = &plan->only_claim;
    plan->claims_count = 1;
    request->order = plan->id.len > 0 ? ORDER_WRITE : step->command->order;
    return true;
}

/* FENCEDALL n resource token ... [ID id] command [arg ...] */
static bool make_fenced_all(struct request *request)
{
    struct plan *plan = &request->plan;
    struct step *step = &plan->only_step;
    int64_t count;

    if (!bytes_to_int64(request->argv[1], &count) || count < 1 || count > PLAN_CLAIMS_MAX)
        return step_refuse(request, STK_ERR, "FENCEDALL takes 1 to %d resources and tokens",
                           PLAN_CLAIMS_MAX);
    size_t at = 2 + 2 * (size_t)count;
    if (at >= request->argc)
        return step_refuse(request, STK_ERR,
                           "FENCEDALL %lld takes %lld resources with tokens, "
                           "then a command",
                           (long long)count, (long long)count);
    plan->claims = mem_alloc((size_t)count * sizeof *plan->claims);
    for (; plan->claims_count < (size_t)count; plan->claims_count++) {
        struct claim *claim = &plan->claims[plan->claims_count];
        *claim = (struct claim){.resource = request->argv[2 + 2 * plan->claims_count]};
        if (!step_is_name(claim->resource))
            return step_refuse(request, STK_ERR, "a resource must be 1 to %d bytes long",
                               RESOURCE_NAME_MAX);
        if (!step_is_no_lock(request, claim->resource) ||
            !take_token(request, request->argv[3 + 2 * plan->claims_count], claim))
            return false;
    }
    if (!take_id(request, &at))
        return false;
    if (at >= request->argc)
        return step_refuse(request, STK_ERR, "FENCEDALL: the command is missing");
    if (!take_inner_step(request, at, step))
        return false;
    if (step->command->exec == NULL || step->command->order == ORDER_NOW) /* as PING */
        return step_refuse(request, STK_ERR, "FENCEDALL takes a data command or SQL, not %s",
                           step->command->name);
    step->sql_right = SQL_MAY_WRITE;
    plan->needs_savepoint = step->command->flags & COMMAND_SQL;
    request->order = plan->id.len > 0 || plan->needs_savepoint ? ORDER_WRITE : step->command->order;
    return true;
}

/* A data command without a token. */
static bool make_bare(struct request *request)
{
    struct step *step = &request->plan.only_step;

    if (!step_take(request, 0, request->command, step))
        return false;
    step->unfenced = step->command->flags & COMMAND_WRITES;
    if (!step->unfenced || request->engine->options.unfenced_writes)
        return true;
    request->refused_name = step->argv[step->command->key_first];
    return step_refuse(request, STK_NOTOKEN, NULL);
}

void plan_make(struct request *request)
{
    struct plan *plan = &request->plan;
    struct step *step = &plan->only_step;
    unsigned flags = request->command->flags;
    bool made = flags & COMMAND_FENCED      ? make_fenced(request)
                : flags & COMMAND_FENCEDALL ? make_fenced_all(request)
                                            : make_bare(request);

    if (!made)
        return;
    plan->steps = step;
    plan->steps_count = 1;
    step->claims = plan->claims;
    step->claims_count = plan->claims_count;
    /* Of what is queued, plan_join sees the other claims, too. */
    if (request->stage == REQUEST_QUEUED || !needs_claims(step) || all_claimed(request, step, 1))
        take_fingerprint(plan);
}

void plan_join(struct request *request, struct request *const *queued, size_t count)
{
    struct engine *engine = request->engine;
    struct plan *plan = &request->plan;
    size_t claims = 0;

    for (size_t i = 0; i < count; i++)
        claims += queued[i]->plan.claims_count;
    plan->whole = true;
    plan->claims = mem_alloc((claims + 1) * sizeof *plan->claims);
    plan->steps = mem_alloc((count + 1) * sizeof *plan->steps);
    for (size_t i = 0; i < count; i++) {
        const struct plan *part = &queued[i]->plan;
        if (part->claims_count > 0)
            memcpy(plan->claims + plan->claims_count, part->claims,
                   part->claims_count * sizeof *plan->claims);
        struct step *step = &plan->steps[plan->steps_count++];
        *step = part->only_step;
        step->claims = plan->claims + plan->claims_count;
        plan->claims_count += part->claims_count;
        plan->has_values |= part->has_values;
        plan->judged_first |= (part->only_step.command->flags & COMMAND_SQL) != 0;
        if (part->id.len > 0)
            plan->id = part->id;
    }
    plan->needs_savepoint = plan->judged_first || engine->savepoints_left > 0;
    engine->savepoints_left -= engine->savepoints_left > 0;
    if (all_claimed(request, plan->steps, count))
        take_fingerprint(plan);
}

/* Started: the loop hands it to the store. */

static enum stk_error run(struct store_op *op, struct store_txn *txn);
static void done(struct store_op *op);

void plan_start(struct request *request)
{
    if ((request->order == ORDER_WRITE || request->plan.claims_count > 0) &&
        !request_may_audit(request, AUDIT_BIT(AUDIT_REFUSED)))
        return;
    if (request->plan.refused) {
        plan_note_refusal(request);
        request_finish(request);
        return;
    }
    request->plan.sql_limit_ms = request->engine->options.sql_limit_ms;
    request_run(request, request->order == ORDER_WRITE, run, done);
}

/* Run: in the store, on its thread. */

static enum stk_error replay(struct request *request, struct store_txn *txn);
static enum stk_error find_tokens(struct request *request, struct store_txn *txn);
static enum stk_error apply(struct request *request, struct store_txn *txn);
static enum stk_error run_steps(struct request *request, struct store_txn *txn);
static enum stk_error run_step(struct request *request, struct store_txn *txn,
                               const struct step *step);
static enum stk_error judge(struct request *request, struct store_txn *txn, const struct step *step,
                            struct resource *first);
static enum stk_error judge_unfenced(struct request *request, struct store_txn *txn,
                                     const struct step *step);
static enum stk_error remember(struct request *request, struct store_txn *txn);

/* May run more than once. An error of its own (not STK_STORE) comes with the reply that says why.
 */
static enum stk_error run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);

    buf_clear(&request->reply);
    replies_count(&request->engine->replies, &request->share, 0);
    request->verdict = STK_OK;
    request->refused_claim = NULL;
    request->replayed = false;
    if (request->plan.id.len > 0) {
        enum stk_error error = replay(request, txn);
        if (error != STK_OK || request->replayed)
            return error;
    }
    if (request->plan.has_values) {
        enum stk_error error = find_tokens(request, txn);
        if (error != STK_OK || request->verdict != STK_OK)
            return error;
    }
    return apply(request, txn);
}

static bool reply_is_error(const struct buf *reply, size_t at)
{
    return reply->len > at && reply->data[at] == '-';
}

/* Make the error the whole reply; `text` NULL: the usual one. */
static void reply_error(struct request *request, enum stk_error error, const char *text)
{
    buf_clear(&request->reply);
    resp_error(&request->reply, error, text != NULL ? "%s" : NULL, text);
}

/* Look for a receipt of the plan's ID on the resource of each claim. Where there is one it is the
 * reply. */
static enum stk_error replay(struct request *request, struct store_txn *txn)
{
    const struct plan *plan = &request->plan;

    for (size_t i = 0; i < plan->claims_count; i++) {
        enum stk_error error;
        struct resource resource;
        struct receipt receipt;
        bool found = false;

        if (txn_failed(error = txn_resource(txn, plan->claims[i].resource, &resource)))
            return error;
        if (resource.id != 0 &&
            txn_failed(error = txn_receipt(txn, &resource, plan->id, &found, &receipt)))
            return error;
        if (!found)
            continue;
        request->replayed = true;
        if (receipt.fingerprint != plan->fingerprint)
            reply_error(request, STK_ERR, "this ID was used for another command");
        else
            resp_append_value(&request->reply, receipt.reply, receipt.resp3, request->resp3);
        return STK_OK;
    }
    return STK_OK;
}

/* Find the tokens that values stand for. One that stands for none is the request's verdict. */
static enum stk_error find_tokens(struct request *request, struct store_txn *txn)
{
    struct plan *plan = &request->plan;

    for (size_t i = 0; i < plan->claims_count; i++) {
        struct claim *claim = &plan->claims[i];
        enum stk_error error;
        const char *why;

        if (claim->value.len == 0)
            continue;
        if (txn_failed(
                error = lock_value_token(txn, claim->resource, claim->value, &claim->token, &why)))
            return error;
        if (claim->token != 0)
            continue;
        char name[128], text[320];
        request->verdict = STK_UNKNOWN;
        request->refused_claim = claim;
        request->refused_name = claim->resource;
        snprintf(text, sizeof text, "%s: %s", log_quoted(claim->resource, name, sizeof name), why);
        reply_error(request, STK_UNKNOWN, text);
        break;
    }
    return STK_OK;
}

/* Run the steps, and keep the reply for a repeat; or undo all of it. */
static enum stk_error apply(struct request *request, struct store_txn *txn)
{
    const struct plan *plan = &request->plan;
    bool in_savepoint = plan->needs_savepoint && request->op.writes;
    enum stk_error error;

    if (plan->claims_count > 0)
        txn_present(txn, plan->claims, plan->claims_count);
    if (in_savepoint && txn_failed(error = txn_savepoint(txn)))
        return error;
    error = plan->whole ? run_steps(request, txn) : run_step(request, txn, &plan->steps[0]);
    if (error == STK_BUSY)
        replies_refuse(&request->engine->replies, &request->reply);
    if (error != STK_OK)
        return error;
    if (request->verdict != STK_OK || reply_is_error(&request->reply, 0))
        return in_savepoint ? txn_savepoint_undo(txn) : plan->whole ? STK_ERR : STK_OK;
    if (plan->id.len > 0 && txn_failed(error = remember(request, txn)))
        return error;
    return in_savepoint ? txn_savepoint_keep(txn) : STK_OK;
}

/* Run the steps of a transaction until one fails: then its error is the whole reply. */
static enum stk_error run_steps(struct request *request, struct store_txn *txn)
{
    const struct plan *plan = &request->plan;
    struct buf *reply = &request->reply;

    for (size_t i = 0; plan->judged_first && i < plan->steps_count; i++) {
        struct resource first;
        enum stk_error error = judge(request, txn, &plan->steps[i], &first);
        if (error != STK_OK || request->verdict != STK_OK)
            return error;
    }
    resp_array(reply, plan->steps_count);
    for (size_t i = 0; i < plan->steps_count; i++) {
        size_t at = reply->len;
        enum stk_error error = run_step(request, txn, &plan->steps[i]);
        if (error != STK_OK)
            return error;
        if (request->verdict != STK_OK)
            return STK_OK;
        if (reply_is_error(reply, at)) {
            buf_consume(reply, at);
            return STK_OK;
        }
        if (reply->len > REPLY_BYTES_MAX) {
            reply_error(request, STK_ERR,
                        "the transaction's replies are too large; nothing was applied");
            return STK_OK;
        }
    }
    return STK_OK;
}

/* Judge a step, run it, and append its reply. */
static enum stk_error run_step(struct request *request, struct store_txn *txn,
                               const struct step *step)
{
    enum stk_error error;
    struct exec exec;

    step_begin(step, request, txn, &exec);
    if (txn_failed(error = step->unfenced ? judge_unfenced(request, txn, step)
                                          : judge(request, txn, step, &exec.resource)))
        return error;
    return request->verdict == STK_OK ? step_run(step, &exec) : STK_OK;
}

/* Judge the claims of a step, in request->verdict. `first`: the resource of the first one. */
static enum stk_error judge(struct request *request, struct store_txn *txn, const struct step *step,
                            struct resource *first)
{
    for (size_t i = 0; i < step->claims_count; i++) {
        const struct claim *claim = &step->claims[i];
        enum stk_error error;
        struct resource resource;

        if (txn_failed(error = txn_resource(txn, claim->resource, &resource)))
            return error;
        if (i == 0)
            *first = resource;
        request->verdict = fence_judge(&resource.fence, claim->token);
        if (request->verdict == STK_OK)
            continue;
        request->refused_claim = claim;
        request->refused_name = claim->resource;
        request->newest = resource.fence.token;
        if (request->plan.claims_count == 1) {
            reply_error(request, request->verdict, NULL);
        } else {
            char name[128], text[256];
            snprintf(text, sizeof text, "token %lld of %s: %s", (long long)claim->token,
                     log_quoted(claim->resource, name, sizeof name),
                     stk_error_text(request->verdict));
            reply_error(request, request->verdict, text);
        }
        break;
    }
    return STK_OK;
}

/* A write without a token: no key of it may be held. */
static enum stk_error judge_unfenced(struct request *request, struct store_txn *txn,
                                     const struct step *step)
{
    const struct command *command = step->command;

    for (size_t i = (size_t)command->key_first; i <= step_last_key(step);
         i += (size_t)command->key_step) {
        enum stk_error error;
        struct resource resource;
        if (txn_failed(error = txn_resource(txn, step->argv[i], &resource)))
            return error;
        if (!fence_unclaimed(&resource.fence)) {
            request->verdict = STK_NOTOKEN;
            request->refused_name = step->argv[i];
            reply_error(request, STK_NOTOKEN, NULL);
            return STK_OK;
        }
    }
    return STK_OK;
}

/* Write the receipts, one for each resource. Fails where the reply is too large for one. */
static enum stk_error remember(struct request *request, struct store_txn *txn)
{
    const struct plan *plan = &request->plan;
    struct receipt receipt = {.fingerprint = plan->fingerprint,
                              .resp3 = request->resp3,
                              .reply = buf_bytes(&request->reply)};

    if (receipt.reply.len > RECEIPT_REPLY_MAX) {
        reply_error(request, STK_ERR,
                    "the reply is too large to be kept for a repeat; nothing was applied");
        return STK_ERR;
    }
    for (size_t i = 0; i < plan->claims_count; i++) {
        enum stk_error error;
        struct resource resource;
        struct receipt present;
        bool found = false;
        if (txn_failed(error = txn_resource(txn, plan->claims[i].resource, &resource)))
            return error;
        if (i > 0 && txn_failed(error = txn_receipt(txn, &resource, plan->id, &found, &present)))
            return error;
        receipt.token = plan->claims[i].token;
        if (!found && txn_failed(error = txn_receipt_put(txn, &resource, plan->id, &receipt)))
            return error;
    }
    return STK_OK;
}

/* Answered: back on the loop's thread. */

/* By the token rule, or a guard. */
static void tell_refused(struct request *request, enum stk_error code)
{
    const struct plan *plan = &request->plan;
    const struct claim *claim = request->refused_claim;
    const struct command *inner =
        plan->whole || plan->only_step.command == NULL ? request->command : plan->only_step.command;

    engine_tell(request->engine,
                &(struct fact){.kind = FACT_REFUSED,
                               .resource = claim != NULL ? claim->resource : request->refused_name,
                               .token = claim != NULL ? claim->token : 0,
                               .reason = bytes_of(inner->name),
                               .code = code,
                               .command = inner->name,
                               .newest = request->newest,
                               .by = {.request = request}});
}

void plan_note_refusal(struct request *request)
{
    enum stk_error verdict = request->verdict;

    if (verdict == STK_OK)
        return;
    engine_count_verdict(request->engine, verdict);
    if (verdict == STK_STALE || verdict == STK_UNKNOWN || verdict == STK_NOTOKEN)
        tell_refused(request, verdict);
}

static void note_presented(const struct request *request)
{
    const struct plan *plan = &request->plan;
    struct engine *engine = request->engine;

    for (size_t i = 0; engine->on_presented != NULL && i < plan->claims_count; i++)
        engine->on_presented(engine, plan->claims[i].resource, plan->claims[i].token);
}

static void note_writes(const struct request *request)
{
    const struct plan *plan = &request->plan;
    struct history *history = request->engine->history;

    for (size_t i = 0; i < plan->steps_count; i++) {
        const struct step *step = &plan->steps[i];
        if (step->command->flags & (COMMAND_WRITES | COMMAND_SQL))
            for (size_t j = 0; j < step->claims_count; j++)
                history_wrote(
                    history_find(history, step->claims[j].resource, step->claims[j].token), 1);
    }
}

static bool is_guarded(const struct buf *reply)
{
    static const struct bytes start = BYTES_LITERAL("-GUARDED ");
    return reply_is_error(reply, 0) && reply->len > start.len &&
           memcmp(reply->data, start.data, start.len) == 0;
}

static void done(struct store_op *op)
{
    struct request *request = request_of_op(op);
    struct engine_counters *counters = &request->engine->counters;

    if (op->error == STK_STORE || (op->error != STK_OK && request->reply.len == 0)) {
        (void)request_refused(request);
        return;
    }
    if (op->error == STK_BUSY) { /* there is no room for the reply, which says so now */
        counters->refused_busy++;
        request_finish(request);
        return;
    }
    note_presented(request);
    plan_note_refusal(request);
    if (is_guarded(&request->reply))
        tell_refused(request, STK_GUARDED);
    counters->receipts_replayed += request->replayed;
    if (request->verdict == STK_OK && !request->replayed) {
        counters->fenced_accepted += request->plan.claims_count > 0;
        if (!reply_is_error(&request->reply, 0))
            note_writes(request);
    }
    if (request->plan.whole && reply_is_error(&request->reply, 0))
        request->engine->savepoints_left = SAVEPOINTS_AFTER_FAILURE;
    else if (request->plan.whole)
        counters->transactions_committed += !request->replayed;
    request_finish(request);
}
