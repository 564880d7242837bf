/* SPDX-License-Identifier: Apache-2.0 */
/* From arguments to plans. What can be refused without the store is refused here: unknown commands,
 * wrong counts and names, writes whose token was not presented. */
#include "proxy/engine/write/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fence/base/mem.h"
#include "proxy/engine/internal.h"

static bool refuse(struct request *request, enum stk_error error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool refuse(struct request *request, enum stk_error error, const char *format, ...)
{
    request->plan.refused = true;
    request->verdict = error;
    buf_clear(&request->reply);
    if (format == NULL) {
        resp_error(&request->reply, error, NULL);
        return false;
    }
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    resp_error(&request->reply, error, "%s", text);
    return false;
}

static bool is_name(struct bytes name)
{
    return name.len >= 1 && name.len <= RESOURCE_NAME_MAX;
}

/* The positions of a step's keys in its argv: from key_first up to this, by key_step. */
static size_t last_key(const struct step *step)
{
    const struct command *command = step->command;
    return command->key_last < 0 ? step->argc - 1 : (size_t)command->key_last;
}

static bool claims_have(const struct claim *claims, size_t count, struct bytes name)
{
    for (size_t i = 0; i < count; i++)
        if (bytes_equal(claims[i].resource, name))
            return true;
    return false;
}

/* Is there a claim for every key that the step writes? Its own ones are the likely ones. */
static bool all_claimed(struct request *request, const struct step *step)
{
    const struct plan *plan = &request->plan;
    const struct command *command = step->command;

    if (!(command->flags & COMMAND_WRITES) || step->unfenced)
        return true;
    for (size_t i = (size_t)command->key_first; i <= last_key(step); i += (size_t)command->key_step)
        if (!claims_have(step->claims, step->claims_count, step->argv[i]) &&
            !claims_have(plan->claims, plan->claims_count, step->argv[i])) {
            request->refused_name = step->argv[i];
            return refuse(request, STK_NOTOKEN, "no token was presented for key '%.*s'",
                          (int)(step->argv[i].len < 64 ? step->argv[i].len : 64),
                          step->argv[i].data);
        }
    return true;
}

/* Fills in the step from argv[at] on, and checks what it can on its own. */
static bool take_step(struct request *request, size_t at, struct step *step)
{
    struct bytes name = request->argv[at];

    step->command = command_find(&request->engine->index, name);
    step->argc = request->argc - at;
    step->argv = request->argv + at;
    if (step->command == NULL)
        return refuse(request, STK_ERR, "%s: unknown command '%.*s'", request->command->name,
                      (int)(name.len < 64 ? name.len : 64), name.data);
    if (!command_arity_fits(step->command, step->argc)) {
        request_arity_error(request, step->command->name);
        request->plan.refused = true;
        return false;
    }
    if (step->command->key_first == 0)
        return true;
    for (size_t i = (size_t)step->command->key_first; i <= last_key(step);
         i += (size_t)step->command->key_step)
        if (!is_name(step->argv[i]))
            return refuse(request, STK_ERR, "a key must be 1 to %d bytes long", RESOURCE_NAME_MAX);
    return true;
}

/* [ID id] at argv[*at]; moves on behind it. */
static bool take_id(struct request *request, size_t *at)
{
    if (!request_is_word(request, *at, "ID"))
        return true;
    if (*at + 1 >= request->argc || request->argv[*at + 1].len < 1 ||
        request->argv[*at + 1].len > RECEIPT_ID_MAX)
        return refuse(request, STK_ERR, "an ID must be 1 to %d bytes long", RECEIPT_ID_MAX);
    request->plan.id = request->argv[*at + 1];
    *at += 2;
    return true;
}

static void hash_bytes(XXH3_state_t *hash, struct bytes bytes)
{
    XXH3_64bits_update(hash, &bytes.len, sizeof bytes.len);
    XXH3_64bits_update(hash, bytes.data, bytes.len);
}

/* What makes a repeat the same request: everything but the tokens, which a repeat may have anew. */
static void take_fingerprint(struct plan *plan)
{
    if (plan->id.len == 0)
        return;
    XXH3_state_t *hash = XXH3_createState();
    XXH3_64bits_reset(hash);
    for (size_t i = 0; i < plan->claims_count; i++)
        hash_bytes(hash, plan->claims[i].resource);
    for (size_t i = 0; i < plan->steps_count; i++) {
        XXH3_64bits_update(hash, &plan->steps[i].argc, sizeof plan->steps[i].argc);
        for (size_t j = 0; j < plan->steps[i].argc; j++)
            hash_bytes(hash, plan->steps[i].argv[j]);
    }
    plan->fingerprint = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
}

/* FENCED token [ID id] command key [arg ...] */
static bool make_fenced(struct request *request)
{
    struct plan *plan = &request->plan;
    struct step *step = &plan->only_step;
    size_t at = 2;

    if (!token_parse(request->argv[1], &plan->only_claim.token))
        return refuse(request, STK_ERR, "a token is a number from 1 to %lld", (long long)TOKEN_MAX);
    if (!take_id(request, &at))
        return false;
    if (at >= request->argc) {
        request_arity_error(request, "FENCED");
        plan->refused = true;
        return false;
    }
    if (!take_step(request, at, step))
        return false;
    if (step->command->start != NULL || step->command->key_first == 0)
        return refuse(request, STK_ERR, "FENCED takes a command on a key, not %s%s",
                      step->command->name,
                      step->command->exec == sql_exec ? ": use FENCEDALL" : "");
    if ((size_t)step->command->key_first + (size_t)step->command->key_step <= last_key(step))
        return refuse(
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
        return refuse(request, STK_ERR, "FENCEDALL takes 1 to %d resources and tokens",
                      PLAN_CLAIMS_MAX);
    size_t at = 2 + 2 * (size_t)count;
    if (at >= request->argc)
        return refuse(request, STK_ERR,
                      "FENCEDALL %lld takes %lld resources with tokens, "
                      "then a command",
                      (long long)count, (long long)count);
    plan->claims = mem_alloc((size_t)count * sizeof *plan->claims);
    for (; plan->claims_count < (size_t)count; plan->claims_count++) {
        struct claim *claim = &plan->claims[plan->claims_count];
        claim->resource = request->argv[2 + 2 * plan->claims_count];
        if (!is_name(claim->resource))
            return refuse(request, STK_ERR, "a resource must be 1 to %d bytes long",
                          RESOURCE_NAME_MAX);
        if (!token_parse(request->argv[3 + 2 * plan->claims_count], &claim->token))
            return refuse(request, STK_ERR, "a token is a number from 1 to %lld",
                          (long long)TOKEN_MAX);
    }
    if (!take_id(request, &at))
        return false;
    if (at >= request->argc)
        return refuse(request, STK_ERR, "FENCEDALL: the command is missing");
    if (!take_step(request, at, step))
        return false;
    if (step->command->start != NULL)
        return refuse(request, STK_ERR, "FENCEDALL takes a data command or SQL, not %s",
                      step->command->name);
    step->sql_right = SQL_MAY_WRITE;
    plan->marked = step->command->exec == sql_exec;
    request->order = plan->id.len > 0 || plan->marked ? ORDER_WRITE : step->command->order;
    return true;
}

/* A data command or SQL without a token. */
static bool make_bare(struct request *request, bool queued)
{
    struct plan *plan = &request->plan;
    struct step *step = &plan->only_step;

    if (!take_step(request, 0, step))
        return false;
    if (step->command->exec == sql_exec) {
        if (!sql_is_definition(sql_statement(step->argv, step->argc)))
            return true;
        if (queued)
            return refuse(request, STK_ERR, "DDL is no part of a transaction here: send it alone");
        if (!session_is_admin(request->session))
            return refuse(request, STK_NOPERM, NULL);
        step->sql_right = SQL_MAY_DEFINE;
        plan->marked = true;
        request->order = ORDER_WRITE;
        return true;
    }
    step->unfenced = step->command->flags & COMMAND_WRITES;
    if (step->unfenced && !request->engine->options.unfenced_writes) {
        request->refused_name = step->argv[step->command->key_first];
        return refuse(request, STK_NOTOKEN,
                      string_set_expires(step->argv, step->argc) ? SET_EXPIRES_ERROR : NULL);
    }
    return true;
}

void plan_make(struct request *request, bool queued)
{
    struct plan *plan = &request->plan;
    struct step *step = &plan->only_step;
    bool made = request->command->start == data_fenced       ? make_fenced(request)
                : request->command->start == data_fenced_all ? make_fenced_all(request)
                                                             : make_bare(request, queued);

    if (!made)
        return;
    plan->steps = step;
    plan->steps_count = 1;
    step->claims = plan->claims;
    step->claims_count = plan->claims_count;
    if (queued || all_claimed(request, step))
        take_fingerprint(plan);
}

void plan_join(struct request *request, struct request *const *queued, size_t count)
{
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
        plan->claims_count += part->claims_count;
        plan->steps[plan->steps_count++] = part->only_step;
        plan->judged_first |= part->only_step.command->exec == sql_exec;
        if (part->id.len > 0)
            plan->id = part->id;
    }
    for (size_t i = 0; i < count; i++)
        if (!all_claimed(request, &plan->steps[i]))
            return;
    take_fingerprint(plan);
}

void plan_free(struct plan *plan)
{
    if (plan->claims != &plan->only_claim)
        free(plan->claims);
    if (plan->steps != &plan->only_step)
        free(plan->steps);
}
