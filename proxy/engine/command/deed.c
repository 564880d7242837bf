/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/command/deed.h"

#include <stddef.h>

#include "fence/base/check.h"

static const struct deed_needs needs[] = {
#define X(deed, category, keys, command, spec)                                                     \
    [DEED_##deed] = {CATEGORY_##category, keys, command, spec},
    DEEDS(X)
#undef X
};

const struct deed_needs *deed_needs(enum deed deed)
{
    check(deed > DEED_NOT_SAID && deed < DEEDS_END);
    return &needs[deed];
}
