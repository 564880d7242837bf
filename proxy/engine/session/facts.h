/* SPDX-License-Identifier: Apache-2.0 */
/* What has happened to leases and to commands is told once, by whoever saw it, and here it goes to
 * all who listen: the history, the audit, the events, the holder's connection, the counters, the
 * log. Which of them hears of what is one table in facts.c. A fact is over and done with: nobody
 * who hears of it can refuse it. */
#ifndef STOCKADE_ENGINE_FACTS_H
#define STOCKADE_ENGINE_FACTS_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/err.h"

struct audit_wait;
struct engine;
struct history_grant;
struct request;
struct session;
struct store_refusal;

enum fact_kind {
    FACT_GRANTED,
    FACT_ENTERED,    /* its owner entered a lease again that is not known here */
    FACT_FOUND,      /* a lease from before the daemon's start lives still */
    FACT_TAKEN_IN,   /* a lease is known here from its renewal on: another daemon granted it, or an
                        earlier run */
    FACT_RESUMED,    /* it had expired, and a renewal has taken it back */
    FACT_RELEASED,   /* by its holder */
    FACT_REVOKED,    /* by force */
    FACT_EXPIRED,    /* its time is over */
    FACT_TAKEN,      /* another was granted it before its time was over */
    FACT_GIVEN_BACK, /* nobody could receive the grant */
    FACT_TURN,       /* of a place in the line: `id`; nobody is granted anything yet */
    FACT_REFUSED,    /* a command, by the token rule or a guard: `code` */
    FACTS
};

/* By whose doing: a command's, or that of somebody who has no connection. All empty: nobody's. */
struct doer {
    const struct request *request;
    struct bytes user, address; /* without a request */
    struct audit_wait *audited; /* waits until the audit's line is on disk; NULL: nobody does */
};

/* Borrowed for the call, with all that it points to. */
struct fact {
    enum fact_kind kind;
    struct bytes resource, owner;
    struct bytes user; /* whose lease it is */
    int64_t token;
    int64_t ttl_ms;         /* as it was asked for */
    int64_t until_ms;       /* of one that begins: its end, by the engine's clock */
    struct session *asker;  /* of one that begins: whose request it was; NULL: gone, or nobody's */
    struct session *holder; /* whose connection has it; NULL: it is gone, or at another daemon */
    /* Where the lease keeps its entry in the history, which is set and forgotten there. NULL: it
     * has none. */
    struct history_grant **entry;
    struct bytes reason; /* of FACT_REVOKED, for people; empty: none was given */
    struct bytes id;     /* of FACT_TURN */
    enum stk_error code; /* of FACT_REFUSED: why; */
    const char *command; /* which, its name lives as long as the program; */
    int64_t newest;      /* and the newest token; 0: none */
    struct doer by;      /* of an end, or FACT_REFUSED */
    bool elsewhere;      /* of an end: another daemon's doing, which counts it */
};

/* On the loop's thread. */
void engine_tell(struct engine *engine, const struct fact *fact);
/* The store's news that a program which writes by itself was refused, see store_listen. Nobody
 * knows who it was. `context` is the engine. */
void facts_on_refused(void *context, const struct store_refusal *refusal);

#endif
