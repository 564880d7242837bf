/* SPDX-License-Identifier: Apache-2.0 */
/* Each listener has a function that takes from a fact what it wants to know; the table says which
 * of them hears of it. */
#include "proxy/engine/session/facts.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proxy/engine/history/history.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/events.h"
#include "proxy/engine/session/notes.h"
#include "proxy/engine/session/session.h"

/* In the place of a command, where a program's own SQL was refused. */
#define GUARD_COMMAND "guard"

enum { UNHEARD = -1 };

/* What a listener makes of a fact. */
struct hearing {
    const char *how;       /* the first word of the audit's reason, where a lease begins */
    const char *lost;      /* what the holder's connection is told; NULL: nothing */
    size_t counter;        /* in struct engine_counters; 0: none */
    int audit;             /* enum audit_event, or UNHEARD */
    int event;             /* enum event_kind, or UNHEARD */
    enum history_end ends; /* the entry in the history; HISTORY_RUNS: does not end it */
    bool adds, resumes;    /* an entry there; or first the one that it has */
};

#define COUNTS(name) offsetof(struct engine_counters, name)

static const struct hearing table[FACTS] = {
    [FACT_GRANTED] = {.adds = true, .audit = AUDIT_GRANT, .how = "", .event = EVENT_GRANTED},
    [FACT_ENTERED] =
        {.adds = true, .resumes = true, .audit = AUDIT_GRANT, .how = "", .event = UNHEARD},
    [FACT_FOUND] = {.resumes = true, .audit = UNHEARD, .event = UNHEARD},
    [FACT_TAKEN_IN] = {.resumes = true,
                       .audit = AUDIT_RESUME,
                       .how = "taken in ",
                       .event = UNHEARD},
    [FACT_RESUMED] = {.resumes = true,
                      .audit = AUDIT_RESUME,
                      .how = "taken back ",
                      .event = EVENT_RESUMED},
    [FACT_RELEASED] = {.ends = HISTORY_RELEASED,
                       .audit = AUDIT_RELEASE,
                       .event = EVENT_RELEASED,
                       .lost = "released",
                       .counter = COUNTS(leases_released)},
    [FACT_REVOKED] = {.ends = HISTORY_REVOKED,
                      .audit = AUDIT_REVOKE,
                      .event = EVENT_REVOKED,
                      .lost = "revoked",
                      .counter = COUNTS(leases_revoked)},
    [FACT_EXPIRED] = {.ends = HISTORY_EXPIRED,
                      .audit = AUDIT_RELEASE,
                      .event = EVENT_EXPIRED,
                      .lost = "expired",
                      .counter = COUNTS(leases_expired)},
    [FACT_TAKEN] = {.ends = HISTORY_TAKEN,
                    .audit = AUDIT_RELEASE,
                    .event = EVENT_EXPIRED,
                    .lost = "taken",
                    .counter = COUNTS(leases_expired)},
    [FACT_GIVEN_BACK] = {.adds = true,
                         .ends = HISTORY_GIVEN_BACK,
                         .audit = AUDIT_RELEASE,
                         .event = UNHEARD},
    [FACT_TURN] = {.audit = UNHEARD, .event = EVENT_TURN},
    [FACT_REFUSED] = {.audit = AUDIT_REFUSED, .event = EVENT_REFUSED},
};

/* Whose doing it is, or else whose lease it was. */
static struct bytes address_of(const struct fact *fact)
{
    if (fact->by.address.len > 0)
        return fact->by.address;
    return fact->entry != NULL && *fact->entry != NULL ? (*fact->entry)->address
                                                       : session_client(fact->holder).address;
}

static void tell_audit(struct engine *engine, const struct fact *fact,
                       const struct hearing *hearing)
{
    char beginning[80 + RESOURCE_NAME_MAX];
    struct audit_note note = {.event = (enum audit_event)hearing->audit,
                              .code = fact->code,
                              .token = fact->token,
                              .resource = fact->resource,
                              .reason = fact->reason};

    if (engine->options.audit.note == NULL)
        return;
    if (hearing->how != NULL) {
        int len =
            snprintf(beginning, 80, "%sttl_ms=%lld owner=", hearing->how, (long long)fact->ttl_ms);
        memcpy(beginning + len, fact->owner.data, fact->owner.len);
        note.reason = (struct bytes){beginning, (size_t)len + fact->owner.len};
    } else if (hearing->ends != HISTORY_RUNS && note.reason.len == 0) {
        note.reason = bytes_of(history_end_name(hearing->ends));
    }
    if (fact->by.request != NULL) {
        request_audit(fact->by.request, note);
        return;
    }
    note.user = fact->by.user.len > 0 ? fact->by.user : fact->user;
    if (fact->asker != NULL) {
        session_audit(fact->asker, note);
        return;
    }
    note.address = address_of(fact);
    uint64_t ticket = audit_tell(&engine->options.audit, &note);
    if (fact->by.audited != NULL)
        audit_await(engine, fact->by.audited, ticket);
}

static const struct history_client unknown_client = {{"", 0}, {"", 0}, {"", 0}};

/* Return its refusal, where it is one. */
static const struct history_refusal *tell_history(struct engine *engine, const struct fact *fact,
                                                  const struct hearing *hearing)
{
    struct history *history = engine->history;
    struct history_client client = session_client(fact->holder);
    bool ends = hearing->ends != HISTORY_RUNS;

    if (fact->kind == FACT_REFUSED)
        return history_refused(
            history, fact->resource, fact->token, fact->newest, fact->code, fact->command,
            fact->by.request != NULL ? request_client(fact->by.request) : unknown_client);
    if (hearing->resumes &&
        history_resumed(history, fact->resource, fact->token, fact->until_ms, fact->entry))
        return NULL;
    if (ends && fact->entry != NULL)
        history_ended(history, *fact->entry, hearing->ends, fact->reason);
    else if (ends && hearing->adds)
        history_given_back(history, fact->resource, fact->token, fact->ttl_ms, fact->owner, client);
    else if (hearing->adds)
        history_granted(history, fact->resource, fact->token, fact->ttl_ms, fact->until_ms,
                        fact->owner, client, fact->entry);
    return NULL;
}

/* A release is news only to who asked for news, and did not release it himself: in RESP3 a lease is
 * often taken and released over two connections of one pool. */
static void tell_holder(const struct fact *fact, const struct hearing *hearing)
{
    const struct request *request = fact->by.request;

    if (hearing->lost == NULL || fact->holder == NULL)
        return;
    if (fact->kind != FACT_RELEASED ||
        (fact->holder->notified && (request == NULL || request->session != fact->holder)))
        events_push_lost(fact->holder, fact->resource, fact->token, hearing->lost);
}

void engine_tell(struct engine *engine, const struct fact *fact)
{
    const struct hearing *hearing = &table[fact->kind];

    if (hearing->audit != UNHEARD) /* before the history forgets whose it was */
        tell_audit(engine, fact, hearing);
    const struct history_refusal *refusal = tell_history(engine, fact, hearing);
    if (hearing->event != UNHEARD && fact->resource.len > 0)
        events_publish(engine, &(struct event){.kind = (enum event_kind)hearing->event,
                                               .resource = fact->resource,
                                               .owner = fact->owner,
                                               .id = fact->id,
                                               .reason = fact->reason,
                                               .token = fact->token,
                                               .ttl_ms = fact->ttl_ms,
                                               .refusal = refusal});
    tell_holder(fact, hearing);
    if (hearing->counter != 0 && !fact->elsewhere)
        ++*(uint64_t *)((char *)&engine->counters + hearing->counter);
    if (fact->kind == FACT_REFUSED)
        note_refused(engine, fact, refusal);
    else if (fact->kind == FACT_REVOKED && !fact->elsewhere)
        note_revoked(engine, fact);
}

void facts_on_refused(void *context, const struct store_refusal *refusal)
{
    struct engine *engine = context;

    engine_count_verdict(engine, refusal->code);
    engine_tell(engine, &(struct fact){.kind = FACT_REFUSED,
                                       .resource = refusal->resource,
                                       .token = refusal->token,
                                       .newest = refusal->newest,
                                       .reason = bytes_of(GUARD_COMMAND),
                                       .code = refusal->code,
                                       .command = GUARD_COMMAND});
}
