/* SPDX-License-Identifier: Apache-2.0 */
/* Owners and the IDs of requests belong to a user: re-entry and repeats match only within one user.
 * So the store and the lease service get the name with its user behind it, and people see the name
 * alone. Names of `default` stay as they are, unless they contain the mark. */
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

/* The user whose it is; empty: that of `default`. */
static inline struct bytes scope_user(struct bytes scoped)
{
    size_t name_len = scope_name(scoped).len;
    return name_len == scoped.len
               ? (struct bytes){"", 0}
               : (struct bytes){scoped.data + name_len + 1, scoped.len - name_len - 1};
}

#endif
