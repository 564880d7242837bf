/* SPDX-License-Identifier: Apache-2.0 */
/* Each event is one JSON object, its fields always in the same order. An event tells what has
 * happened already, so nothing here can fail or hold anybody up. */
#include "proxy/engine/session/events.h"

#include "fence/base/json.h"
#include "proxy/engine/history/history.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/session.h"

static const char *const names[] = {
    [EVENT_GRANTED] = "granted", [EVENT_RELEASED] = "released", [EVENT_EXPIRED] = "expired",
    [EVENT_REVOKED] = "revoked", [EVENT_RESUMED] = "resumed",   [EVENT_TURN] = "turn",
    [EVENT_REFUSED] = "refused",
};

static void append_event(struct buf *json, const struct event *event, int64_t time_ms)
{
    if (event->kind == EVENT_REFUSED) {
        buf_append_text(json, "{\"event\":\"refused\",");
        history_refusal_json(json, event->refusal);
        buf_append_text(json, "}");
        return;
    }
    buf_printf(json, "{\"event\":\"%s\",\"resource\":", names[event->kind]);
    json_string(json, event->resource);
    if (event->kind == EVENT_TURN) {
        buf_append_text(json, ",\"id\":");
        json_string(json, event->id);
    } else {
        buf_printf(json, ",\"token\":%lld", (long long)event->token);
    }
    if (event->kind != EVENT_TURN) {
        buf_append_text(json, ",\"owner\":");
        json_string(json, event->owner);
    }
    if (event->reason.len > 0) {
        buf_append_text(json, ",\"reason\":");
        json_string(json, event->reason);
    }
    if (event->kind == EVENT_GRANTED || event->kind == EVENT_RESUMED)
        buf_printf(json, ",\"ttl_ms\":%lld", (long long)event->ttl_ms);
    buf_printf(json, ",\"time_ms\":%lld}", (long long)time_ms);
}

void events_publish(struct engine *engine, const struct event *event)
{
    struct buf json = {0}, channel = {0};

    engine->counters.events_published++;
    if (engine->pubsub.subscriptions == 0)
        return;
    append_event(&json, event, clock_wall_us(engine->options.clock) / 1000);
    pubsub_send(engine, BYTES_LITERAL(EVENTS_CHANNEL), buf_bytes(&json), event->resource);
    buf_append_text(&channel, EVENTS_CHANNEL ":");
    buf_append_bytes(&channel, event->resource);
    pubsub_send(engine, buf_bytes(&channel), buf_bytes(&json), event->resource);
    buf_free(&json);
    buf_free(&channel);
}

void events_push_lost(struct session *session, struct bytes resource, int64_t token,
                      const char *reason)
{
    if ((!session->resp3 && !session->notified) || session->life != SESSION_OPEN)
        return;
    resp_push(&session->out, 4, session->resp3);
    resp_bulk_text(&session->out, "stockade:lost");
    resp_bulk(&session->out, resource);
    resp_int(&session->out, token);
    resp_bulk_text(&session->out, reason);
    session_pushed(session);
}

void events_push_turn(struct session *session, struct bytes resource, struct bytes id)
{
    if (!session->resp3 || session->life != SESSION_OPEN)
        return;
    resp_push(&session->out, 3, true);
    resp_bulk_text(&session->out, "stockade:turn");
    resp_bulk(&session->out, resource);
    resp_bulk(&session->out, id);
    session_pushed(session);
}
