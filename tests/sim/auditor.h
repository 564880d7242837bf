/* SPDX-License-Identifier: Apache-2.0 */
/* The auditor checks the promises after every step, from what clients sent and got and from what is
 * durable. It shares no code with the engine, and knows nothing of its state.
 *
 * When the disk has changed (audit_committed), it compares what is durable with what was before:
 *   P1, P3  an operation that came in carried the token that was current then
 *   P2      tokens only rise, and none is given to two owners
 *   P4      nothing that was there has gone or changed
 *   P5      what was written together is there together
 *   P6      no operation is there twice
 * When a reply leaves a daemon (audit_answered), it compares the reply with what is durable, and
 * with the first reply. From time to time (audit_live) it checks who waits, and since when: P8.
 */
#ifndef STOCKADE_TESTS_SIM_AUDITOR_H
#define STOCKADE_TESTS_SIM_AUDITOR_H

#include "tests/sim/calls.h"
#include "tests/sim/link.h"

struct auditor *auditor_new(struct world *world);
void auditor_free(struct auditor *auditor);

/* Calls and operations are the auditor's; they live as long as it does. */
struct call *audit_call(struct auditor *auditor, enum verb verb);
struct op *audit_op(struct auditor *auditor, enum verb verb, int client);
/* Return a number for an ACQUIRE's ID. */
int audit_id(struct auditor *auditor);

/* The call has arrived at its daemon; its daemon has answered it. */
void audit_arrived(struct auditor *auditor, struct call *call);
void audit_answered(struct auditor *auditor, struct call *call, const redisReply *reply);
/* The session is closed: nobody waits for its call any more. */
void audit_gone(struct auditor *auditor, const struct link *link);
/* The disk has changed, or may have. */
void audit_committed(struct auditor *auditor);
/* Time has passed: does anybody wait for too long? */
void audit_live(struct auditor *auditor);
/* Everything is quiet: the books must balance. */
void audit_end(struct auditor *auditor);

#endif
