/* SPDX-License-Identifier: Apache-2.0 */
/* RELEASE and REVOKE: first the store retires the token, so that it never writes again; only then
 * the lease service lets go, and the next in line is woken.
 *
 *   retire (store) ──▶ unlock (lease service) ──▶ wake the line ──▶ reply
 *      └─ where the store is the only memory of leases, the head of the line gets the lease here,
 *         in the same transaction
 *
 * The writer's queue is in order, so a release commits after the holder's writes before it. Where
 * the lease service is down the command still succeeds: the provider remembers to let go, and the
 * TTL does so anyway. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/log.h"
#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/notes.h"
#include "proxy/engine/write/lock_value.h"

static uint64_t fingerprint(void)
{
    return lease_fingerprint("RELEASE", (struct bytes){"", 0});
}

/* The store's part, on its thread. */

/* RELEASE with an id: a repeat counts nothing, and gets what the first one got. */
static enum stk_error replay(struct release *release, struct store_txn *txn,
                             const struct resource *row, bool *found)
{
    struct receipt receipt;
    enum stk_error error = txn_receipt(txn, row, release->id, found, &receipt);

    if (error != STK_OK || !*found)
        return error;
    release->misused = receipt.fingerprint != fingerprint() || receipt.token != release->hold.token;
    if (!release->misused)
        (void)bytes_to_int64((struct bytes){receipt.reply.data + 1, receipt.reply.len - 3},
                             &release->holds);
    return STK_OK;
}

static enum stk_error remember(const struct release *release, struct store_txn *txn,
                               const struct resource *row)
{
    struct buf reply = {0};

    resp_int(&reply, release->holds);
    enum stk_error error = txn_receipt_put(txn, row, release->id,
                                           &(struct receipt){.token = release->hold.token,
                                                             .fingerprint = fingerprint(),
                                                             .reply = buf_bytes(&reply)});
    buf_free(&reply);
    return error;
}

/* Connections are numbered by each daemon from 1: the opening tells whose it is. */
static bool is_still_its_own(const struct release *release, const struct lease *lease)
{
    return lease->opening == release->opening && lease->connection == release->connection;
}

/* The receipts of a grant that nobody was told of go with it: who asks again with the same id, or
 * for a lock with the same value, repeats nothing. */
static enum stk_error forget_grant(const struct release *release, struct store_txn *txn,
                                   const struct resource *row)
{
    struct receipt receipt;
    bool found = false;
    enum stk_error error = STK_OK;

    if (release->value.len > 0)
        error = lock_value_forget(txn, row, release->value, release->hold.token);
    if (error != STK_OK || release->grant_id.len == 0)
        return error;
    error = txn_receipt(txn, row, release->grant_id, &found, &receipt);
    if (error != STK_OK || !found || receipt.token != release->hold.token)
        return error;
    return txn_receipt_remove(txn, row, release->grant_id);
}

/* Retire the token, or count one hold less. */
static enum stk_error retire_run(struct store_op *op, struct store_txn *txn)
{
    struct release *release = list_entry(op, struct release, op);
    struct resource row;
    struct lease lease;
    bool found = false;
    enum stk_error error = txn_resource(txn, release->hold.resource, &row);

    release->ended = release->misused = false;
    release->holds = 0;
    release->retired_token = row.fence.token;
    release->verdict = STK_OK;
    if (error != STK_OK)
        return error;
    if (release->kind == RELEASE_REVOKE && release->hold.token != 0 &&
        release->hold.token != row.fence.token) {
        release->verdict = fence_judge(&row.fence, release->hold.token);
        return STK_OK;
    }
    if (release->kind == RELEASE_REVOKE && row.fence.state != FENCE_LIVE)
        return STK_OK;
    if (release->id.len > 0 && row.id != 0) {
        error = replay(release, txn, &row, &found);
        if (error != STK_OK || found)
            return error;
    }
    if (release->kind != RELEASE_REVOKE) {
        release->verdict = fence_judge(&row.fence, release->hold.token);
        if (release->verdict == STK_STALE && release->hold.token == row.fence.token &&
            row.fence.state == FENCE_RELEASED)
            release->verdict = STK_OK;     /* the last release again: still free */
        if (release->verdict == STK_STALE) /* another was faster, or revoked it */
            return forget_grant(release, txn, &row);
        if (release->verdict != STK_OK || row.fence.state != FENCE_LIVE)
            return STK_OK;
    }
    error = txn_lease(txn, &row, &lease);
    if (error != STK_OK || (release->own_only && !is_still_its_own(release, &lease)))
        return error;
    lease_nonce(lease.owner, lease.anonymous, release->nonce);
    release->ttl_ms = lease.ttl_ms;
    lease.holds = release->kind == RELEASE_HOLD ? lease.holds - 1 : 0;
    release->holds = lease.holds;
    if (lease.holds == 0) {
        row.fence.state = release->kind == RELEASE_REVOKE ? FENCE_REVOKED : FENCE_RELEASED;
        release->ended = true;
    }
    error = lease_rewrite(txn, &row, &lease);
    if (error == STK_OK && release->id.len > 0)
        error = remember(release, txn, &row);
    if (error == STK_OK)
        error = forget_grant(release, txn, &row);
    if (error == STK_OK && release->ended && release->heir != NULL)
        error = release->heir->events->on_inherit(release->heir, txn);
    return error;
}

/* The loop's part. */

/* Nothing ended, so nothing was inherited. */
static void end_unchanged(struct release *release)
{
    if (release->heir != NULL)
        release->heir->events->on_inherited(release->heir, false);
    release->on_end(release);
}

static void on_unlocked(struct lease_call *call)
{
    struct release *release = list_entry(call, struct release, call);

    if (release->heir != NULL)
        release->heir->events->on_inherited(release->heir, true);
    else
        line_wake(release->engine, release->hold.resource);
    release->on_end(release);
}

static void on_retired(struct store_op *op)
{
    struct release *release = list_entry(op, struct release, op);
    struct lease_call *call = &release->call;

    release->error = op->error;
    release->ended &= release->error == STK_OK; /* `run` has said so before the commit */
    if (!release->ended) {
        end_unchanged(release);
        return;
    }
    if (!release->unannounced)
        held_released(release);
    *call = (struct lease_call){.verb = LEASE_RELEASE,
                                .resource = release->hold.resource,
                                .token = release->retired_token,
                                .ttl_ms = release->ttl_ms,
                                .revoked = release->kind == RELEASE_REVOKE,
                                .done = on_unlocked};
    memcpy(call->nonce, release->nonce, sizeof call->nonce);
    lease_ask(release->engine->options.provider, call);
}

void release_start(struct release *release)
{
    struct engine *engine = release->engine;

    release->heir = lease_provider_relies_on_store(engine->options.provider)
                        ? line_take_heir(engine, release->hold.resource)
                        : NULL;
    release->error =
        lease_submit(engine, &release->op, true, release->hold.resource, retire_run, on_retired);
    if (release->error != STK_OK)
        end_unchanged(release);
}

/* Leases that nobody is left to release. */

enum { OWED_FIRST_MS = 20, OWED_MAX_MS = 1000 };

/* One that has to end. It is tried at once, and where the store takes nothing now (a row is locked,
 * the database is away, its queue is full), again and again, less and less often. */
struct owed {
    struct release release;
    struct list in_engine; /* engine->owed, where it has failed */
    struct timer again;
    int64_t pause_ms, until_ms;
    struct buf text; /* what the release has borrowed */
};

static void owed_free(struct owed *owed)
{
    timer_stop(owed->release.engine, &owed->again);
    list_remove(&owed->in_engine);
    buf_free(&owed->text);
    free(owed);
}

/* Is it held still, as far as is known here? Somebody may have renewed it. */
static bool is_owed_still(struct owed *owed)
{
    struct engine *engine = owed->release.engine;
    struct held_shown held;

    if (held_find(engine, owed->release.hold.resource, &held) &&
        held.token == owed->release.hold.token)
        owed->until_ms = held.until_ms;
    return engine_now_ms(engine) < owed->until_ms;
}

static void try_again_later(struct owed *owed)
{
    struct engine *engine = owed->release.engine;
    const char *why = owed->release.error == STK_BUSY ? "it has too much to do"
                      : owed->release.op.why != NULL  ? owed->release.op.why
                                                      : "it failed";

    if (list_empty(&engine->owed)) /* and not of each one, for there may be thousands */
        log_warn(engine->options.log,
                 "the store cannot release leases that nobody has any more: %s; it is tried again "
                 "until they are released or their time is over",
                 why);
    if (list_empty(&owed->in_engine))
        list_append(&engine->owed, &owed->in_engine);
    timer_set(engine, &owed->again, engine_now_ms(engine) + owed->pause_ms);
    owed->pause_ms = owed->pause_ms * 2 < OWED_MAX_MS ? owed->pause_ms * 2 : OWED_MAX_MS;
}

static void on_owed_end(struct release *release)
{
    struct owed *owed = list_entry(release, struct owed, release);
    struct engine *engine = release->engine;

    engine->requests_open--;
    if (release->error != STK_OK && is_owed_still(owed))
        try_again_later(owed);
    else
        owed_free(owed);
}

static void try_owed(struct owed *owed)
{
    owed->release.engine->requests_open++;
    release_start(&owed->release);
}

static void on_again(struct timer *timer)
{
    struct owed *owed = list_entry(timer, struct owed, again);

    if (is_owed_still(owed))
        try_owed(owed);
    else
        owed_free(owed);
}

/* Have the owed release own these bytes of another one's. */
static void own(struct owed *owed, struct bytes *bytes)
{
    size_t at = owed->text.len;

    buf_append_bytes(&owed->text, *bytes);
    bytes->data = owed->text.data + at;
}

void release_owe(const struct release *release, int64_t until_ms)
{
    struct owed *owed = mem_zalloc(sizeof *owed);

    owed->pause_ms = OWED_FIRST_MS;
    owed->until_ms = until_ms;
    owed->again.fire = on_again;
    list_init(&owed->in_engine);
    owed->release = (struct release){.engine = release->engine,
                                     .kind = release->kind,
                                     .hold = release->hold,
                                     .opening = release->opening,
                                     .connection = release->connection,
                                     .own_only = release->own_only,
                                     .unannounced = release->unannounced,
                                     .grant_id = release->grant_id,
                                     .value = release->value,
                                     .on_end = on_owed_end};
    buf_reserve(&owed->text,
                release->hold.resource.len + release->grant_id.len + release->value.len + 1);
    own(owed, &owed->release.hold.resource);
    own(owed, &owed->release.grant_id);
    own(owed, &owed->release.value);
    try_owed(owed);
}

void release_ephemeral(struct engine *engine, struct hold hold, uint64_t connection)
{
    release_owe(&(struct release){.engine = engine,
                                  .kind = RELEASE_ALL,
                                  .hold = hold,
                                  .opening = store_opening(engine->options.store),
                                  .connection = -(int64_t)connection,
                                  .own_only = true},
                engine_now_ms(engine));
}

void release_init(struct engine *engine)
{
    list_init(&engine->owed);
}

void release_free(struct engine *engine)
{
    struct list *link;

    while ((link = list_pop(&engine->owed)) != NULL)
        owed_free(list_entry(link, struct owed, in_engine));
}

/* EPHEMERAL: a lease that goes with its connection. */
static void close_lease(struct session *session, struct hold hold)
{
    release_ephemeral(session->engine, hold, session->id);
}

void release_session_closed(struct session *session)
{
    held_forget_session(session, close_lease);
}

/* The commands. */

struct release_command {
    struct request *request;
    struct release release;
};

static void on_end(struct release *release)
{
    struct request *request = list_entry(release, struct release_command, release)->request;

    request->op.error = release->error;
    request->op.why = release->op.why;
    request->verdict = release->verdict;
    if (release->error == STK_BUSY) {
        request_fail(request, STK_BUSY, NULL);
        return;
    }
    if (request_refused(request))
        return;
    if (release->misused) {
        request_fail(request, STK_ERR, ID_OF_ANOTHER);
        return;
    }
    if (release->kind == RELEASE_REVOKE && !release->ended)
        note_revoked_nothing(request, release->hold.resource);
    if (release->kind == RELEASE_HOLD)
        resp_int(&request->reply, release->holds);
    else if (release->retired_token == 0)
        resp_null(&request->reply, request->resp3);
    else
        resp_int(&request->reply, release->retired_token);
    request_finish(request);
}

static void start(struct request *request, enum release_kind kind, int64_t token, struct bytes id)
{
    if (!request_may_audit(request, AUDIT_LEASES))
        return;
    struct release_command *command = mem_zalloc(sizeof *command);
    request->state = command;
    command->request = request;
    command->release.engine = request->engine;
    command->release.kind = kind;
    command->release.hold = (struct hold){request->argv[1], token};
    command->release.id = id;
    command->release.by.request = request;
    command->release.on_end = on_end;
    release_start(&command->release);
}

/* RELEASE resource token [ID id] */
void lease_release(struct request *request)
{
    struct lease_options options = {0};
    int64_t token;

    if (request_name(request, 1, "a resource") && request_token(request, 2, &token) &&
        lease_options_parse(request, 3, OF_RELEASE, &options))
        start(request, RELEASE_HOLD, token, options.id);
}

/* REVOKE resource */
void lease_revoke(struct request *request)
{
    if (request_name(request, 1, "a resource"))
        start(request, RELEASE_REVOKE, 0, (struct bytes){"", 0});
}
