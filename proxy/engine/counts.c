/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/counts.h"

#include "fence/base/check.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/account.h"

void counts_check(const struct engine *engine)
{
#define X(name, value, help) check_nought(#name, value);
    ENGINE_COUNTS(X)
#undef X
}
