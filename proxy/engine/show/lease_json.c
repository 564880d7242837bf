/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "proxy/engine/show/lease_json.h"

#include "fence/base/glob.h"
#include "fence/base/json.h"

int64_t show_wall_ms(const struct engine *engine, int64_t at_ms)
{
    return clock_wall_us(engine->options.clock) / 1000 - (engine_now_ms(engine) - at_ms);
}

bool waiter_is_shown(const struct waiter *waiter)
{
    return !waiter->passed_over && waiter->events->on_shown(waiter).way != NULL;
}

struct shown_waiter waiter_shown(const struct engine *engine, const struct waiter *waiter)
{
    const struct waiter_about about = waiter->events->on_shown(waiter);
    const struct history_client client = session_client(about.session);

    return (struct shown_waiter){.client = client.name,
                                 .address = client.address,
                                 .owner = about.owner,
                                 .waited_ms = engine_now_ms(engine) - waiter->joined_ms,
                                 .way = about.way};
}

static bool take_longest(void *context, const struct waiter *waiter)
{
    int64_t *since_ms = context;

    if (!waiter_is_shown(waiter))
        return true;
    *since_ms = waiter->joined_ms;
    return false;
}

struct shown_lease lease_shown(struct engine *engine, const struct held_shown *held)
{
    struct shown_lease lease = {
        .resource = held->resource,
        .owner = held->owner,
        .token = held->token,
        .granted_ms = held->granted_ms,
        .until_ms = held->until_ms,
        .ttl_ms = held->ttl_ms,
        .waiting_since_ms = -1,
    };

    if (held->holder != NULL) {
        lease.client = bytes_of(held->holder->name);
        lease.address = bytes_of(held->holder->peer);
    }
    lease.waiters = line_each(engine, held->resource, take_longest, &lease.waiting_since_ms);
    return lease;
}

void lease_json(struct engine *engine, const struct shown_lease *lease, struct buf *json)
{
    int64_t now_ms = engine_now_ms(engine);
    int64_t left_ms = lease->until_ms > now_ms ? lease->until_ms - now_ms : 0;

    buf_append_text(json, "{\"resource\":");
    json_string(json, lease->resource);
    buf_append_text(json, ",\"owner\":");
    json_string(json, lease->owner);
    buf_append_text(json, ",\"client\":");
    json_string(json, lease->client);
    buf_append_text(json, ",\"address\":");
    json_string(json, lease->address);
    buf_printf(json, ",\"token\":%lld,\"granted_ms\":%lld,\"ttl_ms\":%lld,\"left_ms\":%lld",
               (long long)lease->token, (long long)lease->granted_ms, (long long)lease->ttl_ms,
               (long long)left_ms);
    buf_printf(json, ",\"waiters\":%lld,\"longest_wait_ms\":", (long long)lease->waiters);
    if (lease->waiting_since_ms < 0)
        buf_append_text(json, "null}");
    else
        buf_printf(json, "%lld}", (long long)(now_ms - lease->waiting_since_ms));
}

struct glob *show_glob(struct bytes match)
{
    for (size_t i = 0; i < match.len; i++)
        if (strchr("*?[\\", match.data[i]) != NULL && match.data[i] != '\0')
            return glob_new(match);
    return NULL;
}

bool show_matches(struct bytes match, const struct glob *glob, struct bytes name)
{
    if (glob != NULL)
        return glob_matches(glob, name);
    return match.len == 0 || memmem(name.data, name.len, match.data, match.len) != NULL;
}
