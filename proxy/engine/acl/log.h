/* SPDX-License-Identifier: Apache-2.0 */
/* ACL LOG: what was denied lately, the newest first. The same once more within a minute makes no
 * new entry, but counts up. */
#ifndef STOCKADE_ENGINE_ACL_LOG_H
#define STOCKADE_ENGINE_ACL_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"

#define ACL_LOG_MAX 128

struct acl_log_entry {
    uint64_t id, count;
    const char *reason, *context; /* "command", "key", "channel", "auth"; "toplevel", "multi" */
    char object[129], user[65], client[257];
    int64_t created_ms, updated_ms; /* since 1970 */
};

struct acl_log;
struct acl_log *acl_log_new(void);
void acl_log_free(struct acl_log *log);
/* The texts are copied, and cut. `client` describes the connection. */
void acl_log_add(struct acl_log *log, const struct acl_log_entry *entry, struct bytes object,
                 struct bytes user, struct bytes client);
void acl_log_clear(struct acl_log *log);
/* Return the i-th entry, of which 0 is the newest; NULL: there are no more. */
const struct acl_log_entry *acl_log_at(const struct acl_log *log, size_t i);

#endif
