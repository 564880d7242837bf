/* SPDX-License-Identifier: Apache-2.0 */
/* ACQUIRE, the grant protocol:
 *
 *        ┌────────────── wake, look ───────────────┐
 *        ▼                                         │
 *   READING ──▶ ASKING ──held, free for another──▶ WAITING ──deadline──▶ null
 *   (floor)     (lease       │
 *                service)    └─granted, own──▶ RECORDING ──▶ reply [token, ttl left]
 *                ▲                             (store)
 *                └── the store knows better ───┘  │
 *                                                 └─ nobody can receive it ─▶ RETURNING
 *
 * - A grant is the client's only when the store has recorded its token, and so has fenced every
 *   older one (P1). What the lease service says is never enough: a daemon that died between the two
 *   steps leaves a lock whose token the store never saw. Such a token is ended in the store before
 *   the lock is replaced: whose grant it was may still be on its way to record it.
 * - A token the store does not admit is never handed out; the next one is minted above the store's
 *   floor (P2), at most ACQUIRE_ROUNDS_MAX times.
 * - A repeat with the id of a lease that still runs renews it instead of asking for one.
 * - A lease that is over by then is given back and tried for again while there is time to wait;
 *   else the answer is null. The id of such a grant is free again: nobody was told.
 * - A client that goes away: what waits leaves the line, what is on its way is given back.
 * - Where the store is the only memory of leases (local:), the head of the line needs no question
 *   when the lease is released here: it inherits it, in the transaction that retires the old token.
 */
#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"

#define ACQUIRE_ROUNDS_MAX 16
#define LEASE_GLANCE_MS    15 /* or so: what another daemon holds in the same file */

static struct acquire *acquire_of_op(struct store_op *op)
{
    return request_of_op(op)->state;
}

/* Out of the line and of the timers; `granted_ms` as for line_leave. */
static struct request *leave(struct acquire *acquire, int64_t granted_ms)
{
    timer_stop(acquire->request->engine, &acquire->deadline);
    line_leave(acquire, granted_ms);
    return acquire->request;
}

/* Nobody gets it and nobody reads the reply, or it is null. */
static void end_with_null(struct acquire *acquire)
{
    struct request *request = leave(acquire, 0);

    request->engine->counters.leases_denied++;
    resp_null_array(&request->reply, request->resp3);
    request_finish(request);
}

void acquire_stop(struct acquire *acquire)
{
    request_fail(leave(acquire, 0), STK_BUSY, "the daemon is stopping; try again");
}

/* The client is gone or the daemon stops: nothing should be taken any more. */
static bool is_over(const struct acquire *acquire)
{
    return acquire->request->session == NULL || acquire->request->engine->draining;
}

static void end_over(struct acquire *acquire)
{
    if (acquire->request->session != NULL)
        acquire_stop(acquire);
    else
        request_finish(leave(acquire, 0));
}

static void deadline_fired(struct timer *timer)
{
    struct acquire *acquire = list_entry(timer, struct acquire, deadline);

    /* One that is on its way learns at its next denial that the time is up. */
    if (acquire->phase == ACQUIRE_WAITING)
        end_with_null(acquire);
}

void acquire_abandon(struct request *request)
{
    struct acquire *acquire = request->state;
    if (acquire != NULL && acquire->phase == ACQUIRE_WAITING)
        end_over(acquire);
}

/* Step 4, where the lease cannot be used: the store retires the token, the service lets go. */
static void returned(struct lease_return *back)
{
    struct acquire *acquire = list_entry(back, struct acquire, back);

    back->engine->counters.leases_given_back++;
    if (is_over(acquire))
        end_over(acquire);
    else if (acquire->options.wait_until_ms > engine_now_ms(back->engine))
        acquire_try(acquire);
    else
        end_with_null(acquire);
}

bool acquire_counted(const struct request *sub)
{
    const struct acquire *acquire = sub->state;
    return !acquire->repeats || !acquire->entered;
}

/* A repeat that counted nothing has nothing to give back; and what a repeat of this one has been
 * told meanwhile is its client's. (Of one in a basket there is no repeat yet.) */
static void give_back(struct acquire *acquire)
{
    struct lease_return *back = &acquire->back;

    acquire->phase = ACQUIRE_RETURNING;
    *back = (struct lease_return){.engine = acquire->request->engine,
                                  .kind = RETURN_RELEASE,
                                  .resource = acquire->request->argv[1],
                                  .token = acquire->call.answer_token,
                                  .session = acquire->session,
                                  .connection = acquire->connection,
                                  .own_only = acquire->options.id.len > 0 && !acquire->of_basket,
                                  .grant_id =
                                      acquire->of_basket ? (struct bytes){0} : acquire->options.id,
                                  .unseen = true,
                                  .done = returned};
    if (acquire_counted(acquire->request))
        lease_return_start(back);
    else
        returned(back);
}

static void reply_granted(struct acquire *acquire)
{
    int64_t token = acquire->call.answer_token, left_ms = acquire->left_ms;
    struct request *request = leave(acquire, left_ms);

    held_granted(request->engine, &(struct held_grant){.resource = request->argv[1],
                                                       .owner = acquire->owner,
                                                       .token = token,
                                                       .ttl_ms = left_ms,
                                                       .session = request->session,
                                                       .ephemeral = acquire->options.ephemeral,
                                                       .fresh = !acquire->entered,
                                                       .behind = acquire->behind});

    if (acquire->entered)
        request->engine->counters.leases_reentered++;
    else
        request->engine->counters.leases_granted++;
    resp_array(&request->reply, 2);
    resp_int(&request->reply, token);
    resp_int(&request->reply, left_ms);
    request_finish(request);
}

/* The store did not record the grant: why, once the lock is let go. */
static void end_unrecorded(struct acquire *acquire)
{
    enum stk_error error = acquire->request->op.error;

    if (is_over(acquire)) {
        end_over(acquire);
    } else if (error != STK_OK) {
        acquire->request->engine->counters.store_errors += error == STK_STORE;
        request_fail(leave(acquire, 0), error, NULL);
    } else {
        request_fail(leave(acquire, 0), STK_LEASEDOWN,
                     "the lease service keeps minting tokens that were used already");
    }
}

static void unlocked(struct lease_call *call)
{
    end_unrecorded(list_entry(call, struct acquire, call));
}

/* Only the service's lock has to go: the store never took this token. */
static void unlock(struct acquire *acquire)
{
    struct lease_call *call = &acquire->call;

    acquire->phase = ACQUIRE_RETURNING;
    call->verb = LEASE_RELEASE;
    call->token = call->answer_token;
    call->done = unlocked;
    lease_ask(acquire->request->engine->options.provider, call);
}

/* The store failed. A lock entered again is still its owner's, by the earlier entry. */
static void record_failed(struct acquire *acquire, enum stk_error error)
{
    acquire->request->op.error = error;
    if (acquire->call.answer == LEASE_OWN)
        end_unrecorded(acquire);
    else
        unlock(acquire);
}

static enum stk_error record_run(struct store_op *op, struct store_txn *txn)
{
    return acquire_record(acquire_of_op(op), txn);
}

static void ask(struct acquire *acquire);

/* Step 4: the client's, if there is somebody and something left. */
static void recorded(struct acquire *acquire)
{
    acquire->left_ms = lease_left_ms(&acquire->call, engine_now_ms(acquire->request->engine));
    if (is_over(acquire) || acquire->left_ms == 0)
        give_back(acquire);
    else
        reply_granted(acquire);
}

static void record_done(struct store_op *op)
{
    struct acquire *acquire = acquire_of_op(op);
    struct engine *engine = acquire->request->engine;

    if (op->error != STK_OK) {
        record_failed(acquire, op->error);
        return;
    }
    if (!acquire->recorded) {
        /* The service had lost state, or a daemon died here before: mint above the store's floor.
         */
        engine->counters.grants_repeated++;
        if (++acquire->rounds > ACQUIRE_ROUNDS_MAX || is_over(acquire)) {
            unlock(acquire);
            return;
        }
        acquire->call.void_token = acquire->call.answer_token;
        ask(acquire);
        return;
    }
    recorded(acquire);
}

static void record(struct acquire *acquire)
{
    struct request *request = acquire->request;

    acquire->phase = ACQUIRE_RECORDING;
    enum stk_error error = request_submit(request, true, record_run, record_done);
    if (error != STK_OK) /* else the operation is the store's already */
        record_failed(acquire, error);
}

/* When to look again. What another daemon holds, with no lease service between the two, nobody
 * tells: a glance at the store is cheap, and where many wait there are fewer for each. */
static int64_t look_in_ms(const struct acquire *acquire)
{
    const struct engine *engine = acquire->request->engine;
    const struct lease_memory *memory = &acquire->view.memory;
    const struct lease_call *call = &acquire->call;
    bool ours = memory->live && memory->this_run && memory->token == call->answer_token;
    int64_t glance_ms = LEASE_GLANCE_MS + (int64_t)engine->acquires_count / 2;
    unsigned char random; /* two daemons that look in step would not take turns */

    if (ours || !lease_provider_needs_memory(engine->options.provider))
        return call->answer_ttl_ms;
    engine->options.chance->fill(engine->options.chance, &random, sizeof random);
    glance_ms += random % LEASE_GLANCE_MS;
    return glance_ms < call->answer_ttl_ms ? glance_ms : call->answer_ttl_ms;
}

/* Step 2, denied: wait, or say so. */
static void denied(struct acquire *acquire)
{
    struct request *request = acquire->request;
    const struct lease_call *call = &acquire->call;
    const struct lease_memory *memory = &acquire->view.memory;

    if (acquire->options.wait_until_ms <= engine_now_ms(request->engine)) {
        end_with_null(acquire);
        return;
    }
    if (call->answer == LEASE_HELD && memory->live && memory->this_run &&
        memory->token == call->answer_token && acquire->view.connection == acquire->connection) {
        request_fail(leave(acquire, 0), STK_DEADLOCK, NULL);
        return;
    }
    if (acquire->deadline.node.place == 0) {
        request->engine->counters.leases_waited++;
        timer_set(request->engine, &acquire->deadline, acquire->options.wait_until_ms);
    }
    acquire->phase = ACQUIRE_WAITING;
    if (!line_is_head(acquire))
        return;
    if (line_take_again(acquire) || call->answer == LEASE_FREE)
        acquire_try(acquire); /* it became the head, or was woken, while it asked */
    else
        line_look_in(acquire, look_in_ms(acquire));
}

static void asked(struct lease_call *call)
{
    struct acquire *acquire = list_entry(call, struct acquire, call);
    bool taken = call->answer == LEASE_GRANTED || call->answer == LEASE_OWN;

    if (call->verb == LEASE_RENEW && call->answer == LEASE_GRANTED)
        call->answer = LEASE_OWN;
    if (is_over(acquire) && call->answer == LEASE_GRANTED)
        unlock(acquire);
    else if (is_over(acquire))
        end_over(acquire); /* entering again was not counted yet: nothing to give back */
    else if (call->answer == LEASE_DOWN)
        request_fail(leave(acquire, 0), STK_LEASEDOWN, "%s", call->reason);
    else if (taken)
        record(acquire);
    else
        denied(acquire);
}

/* Step 2: the lease service. */
static void ask(struct acquire *acquire)
{
    struct lease_call *call = &acquire->call;
    struct engine *engine = acquire->request->engine;
    const struct lease_view *view = &acquire->view;
    /* A repeat whose lease still runs gets that one, though the service may have lost its lock, or
     * those of several masters that can be reached. */
    bool renews = acquire->repeats && view->runs && call->void_token == 0;

    acquire->phase = ACQUIRE_ASKING;
    call->verb = renews ? LEASE_RENEW : LEASE_GRANT;
    call->asked_ms = engine_now_ms(engine);
    call->token = renews ? view->memory.token : 0;
    call->floor = acquire->view.row.fence.floor;
    call->reentry_only = !line_is_head(acquire);
    call->waits = acquire->options.wait_until_ms > call->asked_ms;
    call->memory = acquire->view.memory;
    call->done = asked;
    lease_ask(engine->options.provider, call);
}

/* Was this very request granted before? Then it enters that lease again, if it still is one. */
static enum stk_error look_for_repeat(struct acquire *acquire, struct store_txn *txn)
{
    struct request *request = acquire->request;
    struct receipt receipt;
    bool found = false;
    enum stk_error error =
        txn_receipt(txn, &acquire->view.row, acquire->options.id, &found, &receipt);

    if (error != STK_OK || !found)
        return error;
    if (receipt.fingerprint != acquire->fingerprint)
        request->verdict = STK_ERR;
    else
        request->verdict = fence_judge(&acquire->view.row.fence, receipt.token);
    acquire->repeats = request->verdict == STK_OK;
    return STK_OK;
}

/* Step 1: the store's floor. */
static enum stk_error read_run(struct store_op *op, struct store_txn *txn)
{
    struct acquire *acquire = acquire_of_op(op);
    struct request *request = acquire->request;
    bool has_id = acquire->options.id.len > 0;
    enum stk_error error = lease_view_read(txn, request->argv[1], acquire->session, &acquire->view,
                                           has_id ? &request->scratch : NULL);

    request->verdict = STK_OK;
    acquire->repeats = false;
    if (error != STK_OK || !has_id || acquire->view.row.id == 0)
        return error;
    return look_for_repeat(acquire, txn);
}

/* As the owner that it was granted to. */
static void become_owner(struct acquire *acquire)
{
    acquire->owner = buf_bytes(&acquire->request->scratch);
    for (size_t i = 0; i < sizeof acquire->call.nonce; i++)
        acquire->call.nonce[i] = acquire->view.memory.nonce[i];
}

static void read_done(struct store_op *op)
{
    struct acquire *acquire = acquire_of_op(op);

    if (is_over(acquire)) {
        end_over(acquire);
    } else if (op->error != STK_OK) {
        acquire->request->engine->counters.store_errors++;
        request_fail(leave(acquire, 0), op->error, NULL);
    } else if (acquire->request->verdict == STK_ERR) {
        request_fail(leave(acquire, 0), STK_ERR, "this ID was used for another command");
    } else if (acquire->request->verdict != STK_OK) {
        request_fail(leave(acquire, 0), STK_STALE,
                     "the lease that this ID was granted is over; ask again with another ID");
    } else {
        if (acquire->repeats)
            become_owner(acquire);
        acquire->call.void_token = 0;
        acquire->rounds = 0;
        acquire->behind = false;
        ask(acquire);
    }
}

void acquire_try(struct acquire *acquire)
{
    acquire->phase = ACQUIRE_READING;
    if (request_submit(acquire->request, false, read_run, read_done) != STK_OK)
        request_fail(leave(acquire, 0), STK_BUSY, NULL);
}

void acquire_inherit(struct acquire *acquire)
{
    acquire->phase = ACQUIRE_RECORDING;
    acquire->call.asked_ms = engine_now_ms(acquire->request->engine); /* before others see it */
    acquire->recorded = false;
}

static void inheritance_known(struct lease_call *call)
{
    struct acquire *acquire = list_entry(call, struct acquire, call);

    if (call->answer == LEASE_GRANTED) {
        recorded(acquire);
        return;
    }
    call->answer_token = call->token;
    give_back(acquire); /* another daemon was granted it since */
}

void acquire_inherited(struct acquire *acquire, bool committed)
{
    struct lease_call *call = &acquire->call;

    if (!committed || !acquire->recorded) {
        acquire_try(acquire);
        return;
    }
    call->verb = LEASE_RENEW; /* which is how a lease gets to be known that is held already */
    call->token = call->answer_token;
    call->memory = (struct lease_memory){.token = call->token, .live = true, .this_run = true};
    call->done = inheritance_known;
    lease_ask(acquire->request->engine->options.provider, call);
}

void acquire_prepare(struct request *request)
{
    request->order = ORDER_LEASE;
    for (size_t i = 3; i < request->argc; i++)
        if (request_is_word(request, i, "WAIT"))
            request->order = ORDER_ALONE;
}

static void make_owner(struct acquire *acquire)
{
    acquire->owner = acquire->options.owner;
    acquire->anonymous = acquire->owner.len == 0;
    if (acquire->anonymous) {
        lease_make_nonce(acquire->request->engine->options.chance, acquire->nonce);
        acquire->owner = (struct bytes){acquire->nonce, LEASE_NONCE_LEN};
    } else {
        lease_nonce(acquire->owner, false, acquire->nonce);
    }
    if (acquire->options.id.len > 0 && !acquire->of_basket)
        acquire->fingerprint = lease_fingerprint("ACQUIRE", acquire->options.owner);
}

/* `basket`: the fingerprint of that which it belongs to, or NULL. */
static void begin(struct request *request, const uint64_t *basket)
{
    struct engine *engine = request->engine;
    struct acquire *acquire = mem_zalloc(sizeof *acquire);

    request->state = acquire;
    acquire->request = request;
    acquire->session = store_session(engine->options.store);
    acquire->connection = (int64_t)request->session->id;
    list_init(&acquire->in_line);
    acquire->deadline.fire = deadline_fired;
    acquire->of_basket = basket != NULL;
    acquire->fingerprint = basket != NULL ? *basket : 0;
    if (!request_name(request, 1, "a resource") ||
        !request_int(request, 2, LEASE_TTL_MIN_MS, LEASE_TTL_MAX_MS, "ttl_ms", &acquire->ttl_ms) ||
        !lease_options_parse(request, 3, &acquire->options))
        return;
    if (engine->acquires_count >= engine->options.waiters_max) {
        request_fail(request, STK_BUSY, "too many are waiting (max-waiters); try again");
        return;
    }
    make_owner(acquire);
    acquire->call.resource = request->argv[1];
    acquire->call.ttl_ms = acquire->ttl_ms;
    for (size_t i = 0; i < sizeof acquire->nonce; i++)
        acquire->call.nonce[i] = acquire->nonce[i];
    line_join(engine, acquire);
    acquire_try(acquire);
}

void lease_acquire(struct request *request)
{
    begin(request, NULL);
}

void acquire_for_basket(struct request *sub, uint64_t fingerprint)
{
    begin(sub, &fingerprint);
}
