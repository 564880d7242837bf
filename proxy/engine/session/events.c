/* SPDX-License-Identifier: Apache-2.0 */
/* Events as JSON: one object, its fields always in the same order. An event tells of what is over
 * already, so nothing here can fail or hold anybody up. */
#include "proxy/engine/session/events.h"

#include "proxy/engine/internal.h"
#include "proxy/engine/session/session.h"

static const char *const names[] = {
    [EVENT_GRANTED] = "granted", [EVENT_RELEASED] = "released", [EVENT_EXPIRED] = "expired",
    [EVENT_REVOKED] = "revoked", [EVENT_REFUSED] = "refused",
};

/* How long the UTF-8 character at text[at] is; 0: there is none (RFC 3629). */
static size_t character_len(struct bytes text, size_t at)
{
    const unsigned char *c = (const unsigned char *)text.data + at;
    size_t len = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    unsigned char low = 0x80, high = 0xbf; /* of the second byte */

    if (c[0] > 0xf4 || len == 0 || len > text.len - at)
        return 0;
    if (c[0] == 0xe0)
        low = 0xa0; /* else shorter forms would do */
    else if (c[0] == 0xf0)
        low = 0x90;
    else if (c[0] == 0xed)
        high = 0x9f; /* surrogates */
    else if (c[0] == 0xf4)
        high = 0x8f; /* beyond U+10FFFF */
    for (size_t i = 1; i < len; i++, low = 0x80, high = 0xbf)
        if (c[i] < low || c[i] > high)
            return 0;
    return len;
}

static bool is_utf8(struct bytes text)
{
    size_t len;

    for (size_t at = 0; at < text.len; at += len)
        if ((len = character_len(text, at)) == 0)
            return false;
    return true;
}

/* Names that are no UTF-8 show each byte from 0x80 on as the character of that number. */
static void append_string(struct buf *json, struct bytes text)
{
    bool utf8 = is_utf8(text);

    buf_append_text(json, "\"");
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c == '"' || c == '\\')
            buf_printf(json, "\\%c", c);
        else if (c < 0x20 || (c >= 0x80 && !utf8))
            buf_printf(json, "\\u%04x", c);
        else
            buf_append(json, text.data + i, 1);
    }
    buf_append_text(json, "\"");
}

static int64_t wall_ms(const struct clock *clock)
{
    return clock->wall_us != NULL ? clock->wall_us(clock) / 1000 : clock_now_ms(clock);
}

static void append_event(struct buf *json, const struct event *event, int64_t time_ms)
{
    buf_printf(json, "{\"event\":\"%s\",\"resource\":", names[event->kind]);
    append_string(json, event->resource);
    buf_printf(json, ",\"token\":%lld", (long long)event->token);
    if (event->kind == EVENT_REFUSED) {
        buf_printf(json, ",\"newest\":%lld", (long long)event->newest);
    } else {
        buf_append_text(json, ",\"owner\":");
        append_string(json, event->owner);
    }
    if (event->kind == EVENT_GRANTED)
        buf_printf(json, ",\"ttl_ms\":%lld", (long long)event->ttl_ms);
    buf_printf(json, ",\"time_ms\":%lld}", (long long)time_ms);
}

void events_publish(struct engine *engine, const struct event *event)
{
    struct buf json = {0}, channel = {0};

    engine->counters.events_published++;
    if (engine->pubsub.subscriptions == 0)
        return;
    append_event(&json, event, wall_ms(engine->options.clock));
    pubsub_send(engine, BYTES_LITERAL(EVENTS_CHANNEL), buf_bytes(&json));
    buf_append_text(&channel, EVENTS_CHANNEL ":");
    buf_append_bytes(&channel, event->resource);
    pubsub_send(engine, buf_bytes(&channel), buf_bytes(&json));
    buf_free(&json);
    buf_free(&channel);
}

void events_push_lost(struct session *session, struct bytes resource, int64_t token,
                      const char *reason)
{
    if ((!session->resp3 && !session->notified) || session->ending)
        return;
    resp_push(&session->out, 4, session->resp3);
    resp_bulk_text(&session->out, "stockade:lost");
    resp_bulk(&session->out, resource);
    resp_int(&session->out, token);
    resp_bulk_text(&session->out, reason);
    session_pushed(session);
}
