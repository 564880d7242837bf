/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle checks the promises after every step, from what clients sent and got and from what is
 * durable. It shares no code with the engine, and knows nothing of its state.
 *
 * When the disk has changed (oracle_committed), it compares what is durable with what was before:
 *   P1, P3  an operation that came in carried the token that was current then
 *   P2      tokens only rise, and none is given to two owners
 *   P4      nothing that was there has gone or changed
 *   P5      what was written together is there together
 *   P6      no operation is there twice
 * When a reply leaves a daemon (oracle_answered), it compares the reply with what is durable, and
 * with the first reply. From time to time (oracle_live) it checks who waits, and since when: P8.
 */
#ifndef STOCKADE_TESTS_SIM_ORACLE_H
#define STOCKADE_TESTS_SIM_ORACLE_H

#include "tests/sim/calls.h"
#include "tests/sim/link.h"

struct oracle *oracle_new(struct world *world);
void oracle_free(struct oracle *oracle);

/* Calls and operations are the oracle's; they live as long as it does. */
struct call *oracle_call(struct oracle *oracle, enum verb verb);
struct op *oracle_op(struct oracle *oracle, enum verb verb, int client);
/* Return a number for an ACQUIRE's ID. */
int oracle_id(struct oracle *oracle);

/* The call has arrived at its daemon; its daemon has answered it. */
void oracle_arrived(struct oracle *oracle, struct call *call);
void oracle_answered(struct oracle *oracle, struct call *call, const redisReply *reply);
/* The session is closed: nobody waits for its call any more. */
void oracle_gone(struct oracle *oracle, const struct link *link);
/* The disk has changed, or may have. */
void oracle_committed(struct oracle *oracle);
/* Time has passed: does anybody wait for too long? */
void oracle_live(struct oracle *oracle);
/* Everything is quiet: the books must balance. */
void oracle_end(struct oracle *oracle);

#endif
