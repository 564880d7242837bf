/* SPDX-License-Identifier: Apache-2.0 */
/* Names that are a user's own: owners, and the IDs of requests. Re-entry and repeats match only
 * within one user, so what the store and the lease service know is the name with its user behind
 * it; what people see is the name. Names of `default` are kept as they are, unless they look as if
 * they had a user. */
#ifndef STOCKADE_ENGINE_SCOPE_H
#define STOCKADE_ENGINE_SCOPE_H

#include <string.h>

#include "fence/base/bytes.h"

#define SCOPE_MARK '\x1f' /* ASCII's unit separator, which no user's name has in it */

/* The name as its client gave it. */
static inline struct bytes scope_name(struct bytes scoped)
{
    const char *mark = scoped.len == 0 ? NULL : memrchr(scoped.data, SCOPE_MARK, scoped.len);
    return mark == NULL ? scoped : (struct bytes){scoped.data, (size_t)(mark - scoped.data)};
}

#endif
