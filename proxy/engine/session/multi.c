/* SPDX-License-Identifier: Apache-2.0 */
/* MULTI, EXEC, DISCARD. Between them a connection's data commands are checked, queued and answered
 * QUEUED; EXEC joins their plans into one, which the store applies whole or not at all. Nothing of
 * a queued command is judged before that. */
#include <stdlib.h>

#include "fence/base/mem.h"
#include "proxy/engine/internal.h"

struct multi {
    struct request **queue; /* owned */
    size_t count, room, bytes;
    bool spoiled;    /* EXEC will refuse */
    struct bytes id; /* that one of them carries */
};

void multi_free(struct multi *multi)
{
    if (multi == NULL)
        return;
    for (size_t i = 0; i < multi->count; i++)
        request_free(multi->queue[i]);
    free(multi->queue);
    free(multi);
}

void multi_spoil(struct session *session)
{
    if (session->multi != NULL)
        session->multi->spoiled = true;
}

bool multi_takes(const struct session *session, const struct command *command)
{
    return session->multi != NULL && !(command->flags & COMMAND_UNQUEUED);
}

/* Why it cannot be queued is in its reply. */
static bool may_queue(struct multi *multi, struct request *request)
{
    const struct command *command = request->command;
    bool data =
        command->exec != NULL || command->start == data_fenced || command->start == data_fenced_all;

    if (!data) {
        resp_error(&request->reply, STK_ERR, "%s is no part of a transaction", command->name);
        return false;
    }
    plan_make(request, true);
    if (request->plan.refused)
        return false;
    if (multi->count >= TRANSACTION_STEPS_MAX ||
        multi->bytes + request->size > TRANSACTION_BYTES_MAX) {
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
    if (id.len > 0)
        multi->id = id;
    return true;
}

void multi_queue(struct request *request)
{
    struct session *session = request->session;
    struct multi *multi = session->multi;

    if (!session_admits(session, request) || !may_queue(multi, request)) {
        multi->spoiled = true;
        request_count_refusal(request);
        session_answer(session, buf_bytes(&request->reply));
        request_free(request);
        return;
    }
    if (multi->count == multi->room) {
        multi->room = multi->room * 2 + 8;
        multi->queue = mem_realloc(multi->queue, multi->room * sizeof(struct request *));
    }
    multi->queue[multi->count++] = request;
    multi->bytes += request->size;
    session_answer(session, bytes_of("+QUEUED\r\n"));
}

/* Between MULTI and EXEC it is no part of a transaction. */
void multi_watch(struct request *request)
{
    request_fail(
        request, STK_ERR,
        "%s is not needed here, and not supported: take a lease (ACQUIRE key ttl_ms), read, "
        "and write under its token (FENCED token ..., also between MULTI and EXEC); EXEC "
        "applies nothing where a token is no longer the newest",
        request->command->name);
}

void multi_begin(struct request *request)
{
    struct session *session = request->session;

    if (session->multi != NULL) {
        request_fail(request, STK_ERR, "MULTI calls can not be nested");
        return;
    }
    session->multi = mem_zalloc(sizeof *session->multi);
    resp_simple(&request->reply, "OK");
    request_finish(request);
}

void multi_discard(struct request *request)
{
    struct session *session = request->session;

    if (session->multi == NULL) {
        request_fail(request, STK_ERR, "DISCARD without MULTI");
        return;
    }
    multi_free(session->multi);
    session->multi = NULL;
    resp_simple(&request->reply, "OK");
    request_finish(request);
}

void multi_exec(struct request *request)
{
    struct session *session = request->session;
    struct multi *multi = session->multi;

    if (multi == NULL) {
        request_fail(request, STK_ERR, "EXEC without MULTI");
        return;
    }
    request->multi = multi; /* whose arguments the plan borrows */
    session->multi = NULL;
    if (multi->spoiled) {
        request_fail(request, STK_EXECABORT, NULL);
        return;
    }
    plan_join(request, multi->queue, multi->count);
    request->plan.marked = request->plan.judged_first || session->engine->marks_left > 0;
    session->engine->marks_left -= session->engine->marks_left > 0;
    session->exec_under_way = true;
    data_start(request);
}
