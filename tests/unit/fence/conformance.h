/* SPDX-License-Identifier: Apache-2.0 */
/* What every lease provider must do, as one body of tests. A subject brings a provider, and says
 * how time passes for it. */
#ifndef STOCKADE_TESTS_CONFORMANCE_H
#define STOCKADE_TESTS_CONFORMANCE_H

#include <stddef.h>

#include "fence/lease/provider.h"

/* As cmocka's fixtures: *state is a subject from setup to teardown. */
struct subject {
    struct lease_provider *provider;
    /* Something may have happened: let answers arrive. */
    void (*turn)(struct subject *subject);
    /* Lets at least so much time pass; NULL: real time does. */
    void (*pass)(struct subject *subject, int64_t ms);
    /* Where tokens are not counted up from the floor but may leap: added to every token, so high
     * that there is nothing to leap to. */
    int64_t base;
    int many; /* resources at once; 0: ten thousand */
};

/* Runs them all under the group's name; the number of failures. */
int conformance_run(const char *name, int (*setup)(void **state), int (*teardown)(void **state));

#endif
