/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/command/deed.h"

#include <stddef.h>

const struct deed_needs deeds_table[] = {
#define X(deed, category, keys, command, spec)                                                     \
    [DEED_##deed] = {CATEGORY_##category, keys, command, spec},
    DEEDS(X)
#undef X
};
