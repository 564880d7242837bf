/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a process that took a step which its table does not allow. */
#include "fence/base/state.h"

#include <stdio.h>

#include "fence/base/check.h"

void state_step_failed(const struct state *states, unsigned from, unsigned to)
{
    char what[80];

    snprintf(what, sizeof what, "%s does not follow %s", states[to].name, states[from].name);
    check_failed(__FILE__, __LINE__, __func__, what);
}
