/* SPDX-License-Identifier: Apache-2.0 */
/* MULTI, EXEC, DISCARD. Between MULTI and EXEC a connection's data commands are checked, queued and
 * answered QUEUED; EXEC joins their plans into one, which the store applies whole or not at all. No
 * token of a queued command is judged before that. */
#include <stdlib.h>

#include "fence/base/mem.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/admission.h"
#include "proxy/engine/write/plan.h"

struct multi {
    struct request **queue; /* owned */
    size_t count, room;
    struct bytes id; /* that one of them carries */
    /* By whose rights all of them were judged; NULL: not all by the same. The acl is kept. */
    const struct acl_user *rights;
    struct acl *acl;
};

static void multi_free(void *state)
{
    struct multi *multi = state;

    for (size_t i = 0; i < multi->count; i++)
        request_free(multi->queue[i]);
    free(multi->queue);
    if (multi->acl != NULL)
        acl_drop(multi->acl);
    free(multi);
}

void multi_drop(struct session *session)
{
    session->refused = NULL;
    if (session->multi == NULL)
        return;
    multi_free(session->multi);
    session->multi = NULL;
    session->transaction = TRANSACTION_NONE;
    session_count_queued(session, 0);
}

/* Make its plan. False: it cannot be queued, and its reply says why. */
static bool plan_queued(struct multi *multi, struct request *request)
{
    const struct command *command = request->command;

    if (command->exec == NULL && !(command->flags & (COMMAND_FENCED | COMMAND_FENCEDALL))) {
        resp_error(&request->reply, STK_ERR, "%s is no part of a transaction", command->name);
        return false;
    }
    if (command->prepare != NULL)
        command->prepare(request);
    else
        plan_make(request); /* PING */
    if (request->plan.refused)
        return false;
    if (multi->count >= TRANSACTION_STEPS_MAX ||
        request->session->queued_bytes + request->size > TRANSACTION_BYTES_MAX) {
        resp_error(&request->reply, STK_ERR,
                   "a transaction has at most %d commands and %d MiB of arguments",
                   TRANSACTION_STEPS_MAX, TRANSACTION_BYTES_MAX >> 20);
        return false;
    }
    struct bytes id = request->plan.id;
    if (id.len > 0 && multi->id.len > 0 && !bytes_equal(id, multi->id)) {
        resp_error(&request->reply, STK_ERR, "a transaction has one ID");
        return false;
    }
    return true;
}

/* One more is admitted by the rights that its session has now. */
static void note_rights(struct multi *multi, const struct session *session)
{
    if (multi->count == 0) {
        multi->rights = session->rights;
        multi->acl = acl_keep(session->engine->acl);
    } else if (multi->rights != session->rights || multi->acl != session->engine->acl) {
        multi->rights = NULL;
    }
}

/* A session's on_queued. False: ask again in the next turn. */
static bool queue(struct request *request)
{
    struct session *session = request->session;
    struct multi *multi = session->multi;

    size_t before = session->queued_bytes;
    /* What it may is judged by its plan, which is made once. */
    if (request->looked == 0 && !plan_queued(multi, request))
        request->plan.refused = true;
    if (session_looks_on(session, request))
        return false;
    session->next = NULL;
    session_count_queued(session, before + request->size);
    if (!session_admits(session, request) || request->plan.refused) {
        session_count_queued(session, before);
        session->transaction = TRANSACTION_REFUSED;
        plan_note_refusal(request);
        session_answer(session, buf_bytes(&request->reply));
        request_free(request);
        return true;
    }
    note_rights(multi, session);
    if (request->plan.id.len > 0)
        multi->id = request->plan.id; /* borrowed, for it is queued now */
    if (multi->count == multi->room) {
        multi->room = multi->room * 2 + 8;
        multi->queue = mem_realloc(multi->queue, multi->room * sizeof(struct request *));
    }
    multi->queue[multi->count++] = request;
    session_answer(session, bytes_of("+QUEUED\r\n"));
    return true;
}

void multi_begin(struct request *request)
{
    struct session *session = request->session;

    if (session->multi != NULL) { /* what follows must not join what was queued before */
        session->transaction = TRANSACTION_REFUSED;
        request_fail(request, STK_ERR, "MULTI calls can not be nested");
        return;
    }
    session->multi = mem_zalloc(sizeof *session->multi);
    session->on_queued = queue;
    session->transaction = TRANSACTION_QUEUES;
    session->refused = NULL;
    resp_simple(&request->reply, "OK");
    request_finish(request);
}

void multi_discard(struct request *request)
{
    struct session *session = request->session;

    if (session->multi == NULL && session->refused == NULL) {
        request_fail(request, STK_ERR, "DISCARD without MULTI");
        return;
    }
    multi_drop(session);
    resp_simple(&request->reply, "OK");
    request_finish(request);
}

void multi_exec(struct request *request)
{
    struct session *session = request->session;
    struct multi *multi = session->multi;

    if (request->argc != 1) {
        multi_drop(session);
        request_fail(request, STK_EXECABORT,
                     "Transaction discarded because of: wrong number of arguments for 'exec' "
                     "command");
        return;
    }
    if (multi == NULL) {
        request_fail(request, session->refused == NULL ? STK_ERR : STK_EXECABORT,
                     session->refused == NULL ? "EXEC without MULTI"
                                              : "MULTI was refused; nothing was applied");
        session->refused = NULL;
        return;
    }
    session->refused = NULL;
    request->state = multi; /* whose arguments the plan borrows */
    request->free_state = multi_free;
    bool is_refused = session->transaction == TRANSACTION_REFUSED;
    session->multi = NULL;
    session->transaction = TRANSACTION_NONE;
    session_hand_over_queued(session, request);
    if (is_refused) {
        request_fail(request, STK_EXECABORT, NULL);
        return;
    }
    plan_join(request, multi->queue, multi->count);
    /* Its user's rights may have changed; and what SQL acts under is known only now. */
    if (multi->rights == request->rights && multi->acl == request->acl)
        request->looked = SIZE_MAX;
    if (!session_permits(session, request)) {
        request_finish(request);
        return;
    }
    session->awaited = request;
    plan_start(request);
}

void multi_watch(struct request *request)
{
    request_fail(
        request, STK_ERR,
        "%s is not needed here, and not supported: take a lease (ACQUIRE key ttl_ms), read, "
        "and write under its token (FENCED token ..., also between MULTI and EXEC); EXEC "
        "applies nothing where a token is no longer the newest",
        request->command->name);
}
