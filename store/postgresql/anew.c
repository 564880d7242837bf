/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/anew.h"

#include <stddef.h>

const char *pg_anew_why(const struct pg_signs *signs)
{
    if (signs->fresh)
        return NULL;
    if (signs->lost)
        return "this server lacks what was committed and told";
    if (signs->other)
        return "this is another database than the one that the store was in";
    if (signs->promoted)
        return "this server was promoted";
    return signs->restarted ? "this server was started anew" : NULL;
}

bool pg_anew_ends_all(const struct pg_signs *signs)
{
    bool nothing_lost = signs->witness && signs->replicated && !signs->unreplicated;

    return !signs->fresh && (signs->other || signs->lost || (signs->promoted && !nothing_lost));
}
