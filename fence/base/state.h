/* SPDX-License-Identifier: Apache-2.0 */
/* State machines. Where something stands is an enum, with a table that says which states may follow
 * each. Every change goes through one function of its owner, which asks the table here and then
 * checks what holds in the new state. tests/system/test_states.py holds each table to the drawing
 * at the top of its file. */
#ifndef STOCKADE_BASE_STATE_H
#define STOCKADE_BASE_STATE_H

#include <stdint.h>

/* A row of the table, at the number of its state. */
struct state {
    const char *name;
    uint32_t next; /* those that may follow: STATE_BIT() of each */
};

#define STATE_BIT(state) (UINT32_C(1) << (state))

/* Say which step was taken that the table does not allow, and abort. */
_Noreturn void state_step_failed(const struct state *states, unsigned from, unsigned to);

/* May `to` follow `from`? If not, that is a bug, and the process ends. */
static inline void state_check_step(const struct state *states, unsigned from, unsigned to)
{
    if ((states[from].next & STATE_BIT(to)) == 0)
        state_step_failed(states, from, to);
}

#endif
