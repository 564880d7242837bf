/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: every TICK_MS it is looked whether there is news, and what is new is written once, for
 * all streams. A stream without news is suspended, so that libmicrohttpd does not ask for more.
 *
 *   news ──▶ pending (a stream's own, bounded) ──resume──▶ on_room() ──▶ socket
 *
 * How it fails: a browser that does not read lets its socket's buffers fill, then `pending`.
 * libmicrohttpd closes a connection that takes nothing for some seconds, and one whose `pending`
 * would exceed PENDING_MAX ends. The page connects again by itself. */
#include "proxy/server/live.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "fence/base/check.h"
#include "fence/base/list.h"
#include "fence/base/mem.h"
#include "proxy/engine/show/show.h"
#include "proxy/server/http.h"

enum {
    TICK_MS = 200,
    TICKS_STATE = 5, /* a state each second, and `leases` no more often */
    TICKS_SAMPLE = 25,
    SAMPLE_MS = TICK_MS * TICKS_SAMPLE,
    SAMPLES_MAX = 60,
    MINUTE_SAMPLES = 60000 / SAMPLE_MS,
    REFUSALS_MAX = 20, /* told one by one in a second */
    PENDING_MAX = 64 << 10,
    BLOCK_BYTES = 4096,
    SEND_BUFFER_BYTES = 32 << 10, /* of the socket, so that it does not hide a reader that stops */
    GONE_MS = 20000,              /* so long a peer that is gone may not answer */
};

struct stream {
    struct list link; /* live->streams */
    struct live *live;
    struct MHD_Connection *connection;
    struct buf pending;
    size_t sent;          /* bytes of pending */
    struct reader reader; /* its acl is kept */
    bool may_revoke, suspended, ending;
};

/* What happened in SAMPLE_MS. */
struct sample {
    uint64_t grants, writes, refusals;
    int64_t commit_p99_us;     /* -1: there was none */
    struct show_counts before; /* when it began */
};

struct live {
    uv_timer_t timer;
    struct engine *engine;
    char *service_uri;
    struct waker waker;
    struct list streams;
    size_t streams_count;
    uint64_t ticks, changed_tick; /* the tick at which `leases` was sent last */
    uint64_t changes;             /* of show_counts, as they were told last */
    uint64_t refusals_seen, refusals_untold;
    size_t refusals_told; /* in this second */
    struct show_counts sampled;
    struct sample samples[SAMPLES_MAX]; /* a ring */
    size_t samples_begin, samples_count;
    bool ended;
    void (*closed)(void *context);
    void *context;
};

/* The last minutes. */

static int64_t p99_us(const struct show_counts *from, const struct show_counts *to)
{
    struct durations commits = durations_between(&from->commits, &to->commits);
    return durations_quantile_us(&commits, 0.99);
}

/* What was counted when the last minute began. */
static const struct show_counts *a_minute_ago(const struct live *live)
{
    size_t back = live->samples_count < MINUTE_SAMPLES ? live->samples_count : MINUTE_SAMPLES;
    size_t at = live->samples_begin + live->samples_count - back;

    return back == 0 ? &live->sampled : &live->samples[at % SAMPLES_MAX].before;
}

static void take_sample(struct live *live)
{
    struct show_counts now = show_counts(live->engine);

    if (live->samples_count == SAMPLES_MAX)
        live->samples_begin = (live->samples_begin + 1) % SAMPLES_MAX;
    else
        live->samples_count++;
    size_t at = (live->samples_begin + live->samples_count - 1) % SAMPLES_MAX;
    live->samples[at] = (struct sample){.grants = now.grants - live->sampled.grants,
                                        .writes = now.writes - live->sampled.writes,
                                        .refusals = now.refusals - live->sampled.refusals,
                                        .commit_p99_us = p99_us(&live->sampled, &now),
                                        .before = live->sampled};
    live->sampled = now;
}

static void append_series(const struct live *live, const char *name, size_t offset,
                          struct buf *json)
{
    buf_printf(json, ",\"%s\":[", name);
    for (size_t i = 0; i < live->samples_count; i++) {
        const struct sample *sample = &live->samples[(live->samples_begin + i) % SAMPLES_MAX];
        uint64_t value;
        memcpy(&value, (const char *)sample + offset, sizeof value);
        buf_printf(json, i == 0 ? "%llu" : ",%llu", (unsigned long long)value);
    }
    buf_append_text(json, "]");
}

/* The state, but for what depends on who asks, which comes first. */
static void append_shared_state(struct live *live, struct reader reader, struct buf *json)
{
    show_state(live->engine, live->service_uri, a_minute_ago(live), reader, json);
    buf_printf(json, ",\"series\":{\"step_ms\":%d", SAMPLE_MS);
    append_series(live, "grants", offsetof(struct sample, grants), json);
    append_series(live, "writes", offsetof(struct sample, writes), json);
    append_series(live, "refusals", offsetof(struct sample, refusals), json);
    buf_append_text(json, ",\"commit_p99_us\":[");
    for (size_t i = 0; i < live->samples_count; i++) {
        int64_t us = live->samples[(live->samples_begin + i) % SAMPLES_MAX].commit_p99_us;
        if (i > 0)
            buf_append_text(json, ",");
        if (us < 0)
            buf_append_text(json, "null");
        else
            buf_printf(json, "%lld", (long long)us);
    }
    buf_append_text(json, "]}}");
}

static void append_may_revoke(bool may_revoke, struct buf *json)
{
    buf_printf(json, "{\"may_revoke\":%s,", may_revoke ? "true" : "false");
}

void live_state(struct live *live, struct reader reader, bool may_revoke, struct buf *json)
{
    append_may_revoke(may_revoke, json);
    append_shared_state(live, reader, json);
}

/* Streams. */

/* libmicrohttpd has room for `max` bytes. */
static ssize_t on_room(void *context, uint64_t position, char *out, size_t max)
{
    struct stream *stream = context;
    size_t len = stream->pending.len - stream->sent;

    (void)position;
    if (stream->ending)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (len == 0) {
        stream->suspended = true;
        MHD_suspend_connection(stream->connection);
        return 0;
    }
    if (len > max)
        len = max;
    memcpy(out, stream->pending.data + stream->sent, len);
    stream->sent += len;
    if (stream->sent == stream->pending.len) {
        buf_free(&stream->pending);
        stream->sent = 0;
    }
    return (ssize_t)len;
}

static void on_stream_closed(void *context)
{
    struct stream *stream = context;

    list_remove(&stream->link);
    acl_drop(stream->reader.acl);
    stream->live->streams_count--;
    buf_free(&stream->pending);
    free(stream);
}

static void resume(struct stream *stream)
{
    if (!stream->suspended)
        return;
    stream->suspended = false;
    http_resume(stream->connection, &stream->live->waker);
}

/* Append an event; its data is `prefix`, then `data`. */
static void tell(struct stream *stream, const char *event, struct bytes prefix, struct bytes data)
{
    struct buf *pending = &stream->pending;

    if (stream->ending)
        return;
    if (pending->len - stream->sent + prefix.len + data.len > PENDING_MAX) {
        stream->ending = true;
    } else {
        buf_consume(pending, stream->sent);
        stream->sent = 0;
        buf_printf(pending, "event: %s\ndata: ", event);
        buf_append_bytes(pending, prefix);
        buf_append_bytes(pending, data);
        buf_append_text(pending, "\n\n");
    }
    resume(stream);
}

static void tell_state(struct stream *stream, struct bytes shared)
{
    struct buf prefix = {0};

    append_may_revoke(stream->may_revoke, &prefix);
    tell(stream, "state", buf_bytes(&prefix), shared);
    buf_free(&prefix);
}

static void tell_all(struct live *live, const char *event, struct bytes data)
{
    for (struct list *link = live->streams.next; link != &live->streams; link = link->next)
        tell(list_entry(link, struct stream, link), event, BYTES_LITERAL(""), data);
}

/* What all may see is made once. */
static void tell_all_state(struct live *live)
{
    struct buf shared = {0}, own = {0};

    append_shared_state(live, (struct reader){NULL, NULL}, &shared);
    for (struct list *link = live->streams.next; link != &live->streams; link = link->next) {
        struct stream *stream = list_entry(link, struct stream, link);
        buf_clear(&own);
        if (stream->reader.rights != NULL)
            append_shared_state(live, stream->reader, &own);
        tell_state(stream, buf_bytes(stream->reader.rights != NULL ? &own : &shared));
    }
    buf_free(&shared);
    buf_free(&own);
}

static void tell_changes(struct live *live)
{
    uint64_t changes = show_counts(live->engine).changes;
    struct buf data = {0};

    if (changes == live->changes || live->ticks - live->changed_tick < TICKS_STATE)
        return;
    buf_printf(&data, "{\"changed\":%llu}", (unsigned long long)(changes - live->changes));
    tell_all(live, "leases", buf_bytes(&data));
    buf_free(&data);
    live->changes = changes;
    live->changed_tick = live->ticks;
}

static void tell_refusal(void *context, struct bytes name, struct bytes json)
{
    struct live *live = context;

    for (struct list *link = live->streams.next; link != &live->streams; link = link->next) {
        struct stream *stream = list_entry(link, struct stream, link);
        if (reader_may(stream->reader, name))
            tell(stream, "refused", BYTES_LITERAL(""), json);
    }
}

/* End streams that began under other users: a browser comes again, and is asked who it is. */
static void end_changed(struct live *live)
{
    for (struct list *link = live->streams.next; link != &live->streams; link = link->next) {
        struct stream *stream = list_entry(link, struct stream, link);
        if (stream->reader.acl == engine_acl(live->engine) || stream->ending)
            continue;
        stream->ending = true;
        resume(stream);
    }
}

/* Those above REFUSALS_MAX in a second are only counted. */
static void tell_refusals(struct live *live)
{
    size_t max = REFUSALS_MAX - live->refusals_told;
    uint64_t total = show_new_refusals(live->engine, live->refusals_seen, max, tell_refusal, live);
    uint64_t fresh = total - live->refusals_seen;

    live->refusals_told += fresh < max ? (size_t)fresh : max;
    live->refusals_untold += fresh < max ? 0 : fresh - max;
    live->refusals_seen = total;
}

static void tell_more_refusals(struct live *live)
{
    struct buf data = {0};

    if (live->refusals_untold > 0) {
        buf_printf(&data, "{\"count\":%llu}", (unsigned long long)live->refusals_untold);
        tell_all(live, "more", buf_bytes(&data));
        buf_free(&data);
    }
    live->refusals_told = 0;
    live->refusals_untold = 0;
}

static void on_tick(uv_timer_t *timer)
{
    struct live *live = timer->data;

    live->ticks++;
    end_changed(live);
    if (live->ticks % TICKS_SAMPLE == 0)
        take_sample(live);
    tell_refusals(live);
    tell_changes(live);
    if (live->ticks % TICKS_STATE != 0)
        return;
    tell_more_refusals(live);
    if (live->streams_count > 0)
        tell_all_state(live);
}

static void set_limits(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    int bytes = SEND_BUFFER_BYTES;
    unsigned gone_ms = GONE_MS;

    if (info == NULL)
        return;
    setsockopt(info->connect_fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(info->connect_fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &gone_ms, sizeof gone_ms);
}

bool live_stream(struct live *live, struct MHD_Connection *connection, struct reader reader,
                 bool may_revoke, enum MHD_Result *queued)
{
    struct buf shared = {0};

    if (live->streams_count == LIVE_STREAMS_MAX || live->ended)
        return false;
    struct stream *stream = mem_zalloc(sizeof *stream);
    stream->live = live;
    stream->connection = connection;
    stream->may_revoke = may_revoke;
    stream->reader = (struct reader){acl_keep(reader.acl), reader.rights};
    list_append(&live->streams, &stream->link);
    live->streams_count++;
    set_limits(connection);
    buf_append_text(&stream->pending, "retry: 1000\n\n");
    append_shared_state(live, reader, &shared);
    tell_state(stream, buf_bytes(&shared));
    buf_free(&shared);
    struct MHD_Response *response = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, BLOCK_BYTES, on_room, stream, on_stream_closed);
    if (response == NULL) {
        on_stream_closed(stream);
        return false;
    }
    *queued = http_queue(connection, MHD_HTTP_OK, "text/event-stream; charset=utf-8", response);
    MHD_destroy_response(response);
    return true;
}

struct live *live_new(uv_loop_t *loop, struct engine *engine, const char *service_uri,
                      struct waker waker)
{
    struct live *live = mem_zalloc(sizeof *live);

    live->engine = engine;
    live->service_uri = mem_strdup(service_uri);
    live->waker = waker;
    live->sampled = show_counts(engine);
    live->changes = live->sampled.changes;
    list_init(&live->streams);
    check(uv_timer_init(loop, &live->timer) == 0);
    live->timer.data = live;
    check(uv_timer_start(&live->timer, on_tick, TICK_MS, TICK_MS) == 0);
    return live;
}

void live_end(struct live *live)
{
    live->ended = true;
    for (struct list *link = live->streams.next; link != &live->streams; link = link->next) {
        struct stream *stream = list_entry(link, struct stream, link);
        stream->ending = true;
        resume(stream);
    }
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct live *live = handle->data;

    live->closed(live->context);
    free(live->service_uri);
    free(live);
}

void live_close(struct live *live, void (*closed)(void *context), void *context)
{
    check(list_empty(&live->streams));
    check_nought("streams", live->streams_count);
    live->closed = closed;
    live->context = context;
    uv_close((uv_handle_t *)&live->timer, on_timer_closed);
}
