/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of those whose answers wait for the audit's line to be on disk: in the order of their
 * tickets, for AUDIT_WAIT_MS at most. */
#include "proxy/engine/audit.h"

#include "proxy/engine/internal.h"
#include "proxy/engine/session/session.h"

static struct audit_wait *first(const struct engine *engine)
{
    return list_empty(&engine->unaudited)
               ? NULL
               : list_entry(engine->unaudited.next, struct audit_wait, link);
}

static void set_limit(struct engine *engine)
{
    const struct audit_wait *wait = first(engine);

    if (wait == NULL)
        timer_stop(engine, &engine->audit_limit);
    else
        timer_set(engine, &engine->audit_limit, wait->since_ms + AUDIT_WAIT_MS);
}

static void end(struct audit_wait *wait, bool on_disk)
{
    list_remove(&wait->link);
    wait->on_end(wait, on_disk);
}

void audit_late(struct timer *timer)
{
    struct engine *engine = list_entry(timer, struct engine, audit_limit);
    int64_t now_ms = engine_now_ms(engine);
    struct audit_wait *wait;

    while ((wait = first(engine)) != NULL && now_ms - wait->since_ms >= AUDIT_WAIT_MS)
        end(wait, false);
    set_limit(engine);
}

void audit_await(struct engine *engine, struct audit_wait *wait, uint64_t ticket)
{
    bool is_first = list_empty(&engine->unaudited);

    if (ticket == AUDIT_LOST) {
        end(wait, false);
        return;
    }
    if (ticket == 0)
        return;
    wait->ticket = ticket;
    wait->since_ms = engine_now_ms(engine);
    list_remove(&wait->link);
    list_append(&engine->unaudited, &wait->link);
    if (is_first)
        set_limit(engine);
}

void engine_audited(struct engine *engine, uint64_t ticket)
{
    struct audit_wait *wait;

    while ((wait = first(engine)) != NULL && wait->ticket <= ticket)
        end(wait, true);
    set_limit(engine);
}

void engine_audit_failed(struct engine *engine)
{
    struct audit_wait *wait;

    while ((wait = first(engine)) != NULL)
        end(wait, false);
    set_limit(engine);
}

/* Notes with somebody's name. */

void session_audit(struct session *session, struct audit_note note)
{
    const struct audit *audit = &session->engine->options.audit;

    if (audit->note == NULL)
        return;
    if (note.user.len == 0)
        note.user = bytes_of(session_user(session));
    note.address = bytes_of(session->peer);
    audit_await(session->engine, &session->unaudited, audit->note(audit->context, &note));
}

void request_audit(const struct request *request, struct audit_note note)
{
    if (request->session != NULL) {
        session_audit(request->session, note);
        return;
    }
    note.user = request_client(request).user;
    note.address = request_client(request).address;
    (void)audit_tell(&request->engine->options.audit, &note);
}

bool request_may_audit(struct request *request, uint32_t events)
{
    const char *failing = audit_refuses(&request->engine->options.audit, events);

    if (failing != NULL)
        request_fail(request, STK_STORE,
                     "the audit cannot be written, and this would have to be in it: %s; nothing of "
                     "this command was applied",
                     failing);
    return failing == NULL;
}
