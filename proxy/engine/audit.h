/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine tells an audit: who logged in, who was granted what, how it ended, what was
 * refused. Where the lines go, and how they are chained, is the host's business.
 *
 * The engine's files call session_audit (session/session.h) where a connection is behind it, and
 * audit_tell where none is. An event that is asked for as durable gives a ticket: who has to be
 * answered waits until engine_audited says that the ticket is on disk (audit_await). */
#ifndef STOCKADE_ENGINE_AUDIT_H
#define STOCKADE_ENGINE_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/err.h"
#include "fence/base/list.h"

/* X(id, name). The last four are lines that the audit writes about itself: its file begins here; a
 * crash tore the last line; events were lost; at the start the file was not the one that the store
 * knows. */
#define AUDIT_EVENTS(X)                                                                            \
    X(LOGIN, "login")               /* a connection has become this user */                        \
    X(LOGIN_FAILED, "login_failed") /* `user` is the one it named */                               \
    X(GRANT, "grant")               /* `reason`: "ttl_ms=N owner=OWNER" */                         \
    X(RELEASE, "release")           /* `reason`: released, expired, taken, given back */           \
    X(REVOKE, "revoke")             /* `reason`: what was given, or revoked */                     \
    X(RESUME, "resume")             /* a renewal: "taken back ttl_ms=N owner=OWNER" where the      \
                                       lease had expired, "taken in ..." where it was granted by   \
                                       another daemon or before this start */                      \
    X(REFUSED, "refused")           /* by the token rule or a guard; `reason`: the command */      \
    X(DENIED, "denied")             /* for want of a right; `reason`: the command */               \
    X(ADMIN, "admin")               /* an administrator's command; `reason`: its name */           \
    X(GUARD, "guard")               /* `resource`: the table; `reason`: what was done */           \
    X(RESTORE, "restore")           /* a backup was put in the store's place */                    \
    X(START, "start")               /* the daemon */                                               \
    X(STOP, "stop")                                                                                \
    X(CHAIN, "chain")                                                                              \
    X(TORN, "torn")                                                                                \
    X(GAP, "gap")                                                                                  \
    X(MISMATCH, "mismatch")

enum audit_event {
#define X(id, name) AUDIT_##id,
    AUDIT_EVENTS(X)
#undef X
        AUDIT_EVENT_COUNT
};

/* One event. Borrowed for the call; what is empty, 0 or STK_OK is null in the line. */
struct audit_note {
    enum audit_event event;
    enum stk_error code; /* the error in the client's reply */
    int64_t token;
    struct bytes user, address, resource, reason;
};

#define AUDIT_BIT(event) (1u << (event))
/* What becomes of leases. */
#define AUDIT_LEASES                                                                               \
    (AUDIT_BIT(AUDIT_GRANT) | AUDIT_BIT(AUDIT_RELEASE) | AUDIT_BIT(AUDIT_REVOKE) |                 \
     AUDIT_BIT(AUDIT_RESUME))

/* How long an answer waits for its event to be on disk. Then the connection is closed, or the page
 * gets an error. */
#define AUDIT_WAIT_MS 3000

#define AUDIT_LOST UINT64_MAX /* there was no room for a durable event: do not answer */

/* Somebody whose answers wait until their events are on disk. Embed it, and initialise its link. */
struct audit_wait {
    struct list link; /* engine->unaudited, in the order of tickets; empty: it does not wait */
    uint64_t ticket;
    int64_t since_ms;
    void (*on_end)(struct audit_wait *wait, bool on_disk); /* false: it gets no answer */
};

/* How the audit is doing. */
struct audit_state {
    const char *failing; /* one line: why lines cannot be written now; NULL: they can */
    const char *chain;   /* its id: 32 hexadecimal digits */
    const char *head;    /* the hash of the newest synced line: 64 of them; "" before the first */
    uint64_t lines;      /* of the chain, up to that line */
    uint64_t written, lost, syncs; /* lines and fdatasyncs since the start */
    size_t queued_bytes;
};

/* Given to the engine by its host. All NULL: there is no audit. */
struct audit {
    /* Take a note, without waiting. Return 0, or for a durable event its ticket, or AUDIT_LOST. */
    uint64_t (*note)(void *context, const struct audit_note *note);
    struct audit_state (*state)(void *context);
    uint32_t durable; /* AUDIT_BIT of each event */
    void *context;
};

/* May a command begin that may cause one of these events? NULL: yes. Else why not: the event would
 * have to be on disk, and the audit cannot be written. */
static inline const char *audit_refuses(const struct audit *audit, uint32_t events)
{
    return audit->note == NULL || (audit->durable & events) == 0
               ? NULL
               : audit->state(audit->context).failing;
}

/* Note what no connection is behind. Return what `note` returns; most callers have nobody whose
 * answer would have to wait, and ignore it. */
static inline uint64_t audit_tell(const struct audit *audit, const struct audit_note *note)
{
    return audit->note == NULL ? 0 : audit->note(audit->context, note);
}

#endif
