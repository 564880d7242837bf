/* SPDX-License-Identifier: Apache-2.0 */
/* Steps from state to state. */
#include "fence/base/state.h"

#include <stdio.h>

#include "fence/base/check.h"

void state_check_step(const struct state *states, unsigned from, unsigned to)
{
    char what[80];

    if (states[from].next & STATE_BIT(to))
        return;
    /* LCOV_EXCL_START: a broken invariant ends the process */
    snprintf(what, sizeof what, "%s does not follow %s", states[to].name, states[from].name);
    check_failed(__FILE__, __LINE__, __func__, what);
    /* LCOV_EXCL_STOP */
}
