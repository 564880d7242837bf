/* SPDX-License-Identifier: Apache-2.0 */
/* A read's way, from its words to its reply:
 *
 *   read_prepare ─▶ (its turn comes) ─▶ read_start ─▶ run, in the store ─▶ done
 *
 * No token is judged and nothing is kept for a repeat. Under a token, and between MULTI and EXEC, a
 * read is a step of a plan (write/plan.h). */
#include "proxy/engine/command/exec.h"
#include "proxy/engine/command/step.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/request.h"

void read_prepare(struct request *request)
{
    struct plan *plan = &request->plan;

    if (!step_take(request, 0, request->command, &plan->only_step))
        return;
    plan->steps = &plan->only_step; /* where others see what it names, and EXEC finds it */
    plan->steps_count = 1;
}

/* May run more than once. */
static enum stk_error run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);
    const struct step *step = &request->plan.only_step;
    struct exec exec;

    buf_clear(&request->reply);
    replies_count(&request->engine->replies, &request->share, 0);
    step_begin(step, request, txn, &exec);
    enum stk_error error = step_run(step, &exec);
    if (error == STK_BUSY)
        replies_refuse(&request->engine->replies, &request->reply);
    return error;
}

static void done(struct store_op *op)
{
    struct request *request = request_of_op(op);

    if (op->error == STK_STORE || (op->error != STK_OK && request->reply.len == 0)) {
        (void)request_refused(request);
        return;
    }
    if (op->error == STK_BUSY) /* there is no room for the reply, which says so now */
        request->engine->counters.refused_busy++;
    request_finish(request);
}

void read_start(struct request *request)
{
    if (request->plan.refused)
        request_finish(request);
    else
        request_run(request, false, run, done);
}
