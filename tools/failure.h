/* SPDX-License-Identifier: Apache-2.0 */
/* Why something failed, as a sentence for people: what happened and, where there is something to
 * do, what to do. Functions that can fail return false and fill one of these. */
#ifndef STOCKADE_TOOLS_FAILURE_H
#define STOCKADE_TOOLS_FAILURE_H

#include <stdbool.h>

struct failure {
    char text[1280]; /* cut to fit; empty: nothing failed */
};

/* Set the sentence. Always return false, so that a caller can return it. */
bool failure_set(struct failure *failure, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
