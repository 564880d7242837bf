/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/acl/log.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"

enum { SAME_WITHIN_MS = 60 * 1000 };

struct acl_log {
    struct acl_log_entry entries[ACL_LOG_MAX]; /* the newest first */
    size_t count;
    uint64_t last;
};

struct acl_log *acl_log_new(void)
{
    return mem_zalloc(sizeof(struct acl_log));
}

void acl_log_free(struct acl_log *log)
{
    free(log);
}

void acl_log_clear(struct acl_log *log)
{
    log->count = 0;
}

static void cut(char *out, size_t size, struct bytes text)
{
    size_t len = text.len < size ? text.len : size - 1;

    if (len > 0)
        memcpy(out, text.data, len);
    out[len] = '\0';
}

/* Move entry `i` to the front. */
static struct acl_log_entry *to_front(struct acl_log *log, size_t i)
{
    struct acl_log_entry entry = log->entries[i];

    memmove(log->entries + 1, log->entries, i * sizeof entry);
    log->entries[0] = entry;
    return &log->entries[0];
}

static bool is_same(const struct acl_log_entry *a, const struct acl_log_entry *b)
{
    return a->reason == b->reason && a->context == b->context &&
           strcmp(a->object, b->object) == 0 && strcmp(a->user, b->user) == 0 &&
           b->updated_ms - a->updated_ms < SAME_WITHIN_MS;
}

void acl_log_add(struct acl_log *log, const struct acl_log_entry *entry, struct bytes object,
                 struct bytes user, struct bytes client)
{
    struct acl_log_entry fresh = *entry;
    size_t i = 0;

    cut(fresh.object, sizeof fresh.object, object);
    cut(fresh.user, sizeof fresh.user, user);
    cut(fresh.client, sizeof fresh.client, client);
    while (i < log->count && !is_same(&log->entries[i], &fresh))
        i++;
    if (i < log->count) {
        struct acl_log_entry *same = to_front(log, i);
        same->count++;
        same->updated_ms = fresh.updated_ms;
        memcpy(same->client, fresh.client, sizeof same->client);
        return;
    }
    if (log->count < ACL_LOG_MAX)
        log->count++;
    fresh.id = log->last++;
    fresh.count = 1;
    log->entries[log->count - 1] = fresh; /* the oldest one goes */
    (void)to_front(log, log->count - 1);
}

const struct acl_log_entry *acl_log_at(const struct acl_log *log, size_t i)
{
    return i < log->count ? &log->entries[i] : NULL;
}
