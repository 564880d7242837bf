/* SPDX-License-Identifier: Apache-2.0 */
/* See rig.h. */
#include "tests/unit/fence/rig.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/token.h"
#include "tests/unit/test.h"

#define LEFTOVERS_MS_MAX 20000

static void on_heartbeat(uv_timer_t *timer)
{
    (void)timer;
}

void rig_init(struct rig *rig)
{
    memset(rig, 0, sizeof *rig);
    signal(SIGPIPE, SIG_IGN);
    check(uv_loop_init(&rig->loop) == 0);
    check(uv_timer_init(&rig->loop, &rig->heartbeat) == 0);
    check(uv_timer_start(&rig->heartbeat, on_heartbeat, 5, 5) == 0);
    check(pipe2(rig->log_pipe, O_CLOEXEC | O_NONBLOCK) == 0);
    rig->log_file = LOG_FILE(rig->log_pipe[1]);
    rig->log = (struct log){.level = LOG_DEBUG_LEVEL, .file = &rig->log_file};
    rig->surroundings =
        (struct lease_surroundings){&rig->loop, &clock_monotonic, &chance_system, &rig->log};
}

int rig_setup(void **state)
{
    static struct rig rig;

    rig_init(&rig);
    rig.redis = redis_shared(0);
    *state = &rig;
    return 0;
}

int rig_teardown(void **state)
{
    rig_free(*state);
    return 0;
}

/* Providers. */

static struct lease_provider *open_provider(struct rig *rig, const char *uri_format, va_list args)
{
    char text[512], why[128];
    struct lease_uri uri;

    vsnprintf(text, sizeof text, uri_format, args);
    check(lease_uri_parse(text, &uri, why, sizeof why));
    struct lease_provider *provider = lease_open(&uri, &rig->surroundings, why, sizeof why);
    check(provider != NULL);
    return provider;
}

void rig_open(struct rig *rig, const char *uri_format, ...)
{
    va_list args;

    va_start(args, uri_format);
    rig->provider = open_provider(rig, uri_format, args);
    va_end(args);
}

void rig_open_redis(struct rig *rig, int timeout_ms)
{
    rig_open(rig, "redis://127.0.0.1:%d?timeout_ms=%d", rig->redis->port, timeout_ms);
    rig_until(rig, rig_up(rig));
}

static void on_news(void *context, const struct lease_news *news)
{
    struct watched *watched = context;

    watched->news++;
    watched->revoked += news->revoked;
    watched->token = news->token;
    buf_clear(&watched->resource);
    buf_append_bytes(&watched->resource, news->resource);
}

static struct watched *watch(struct rig *rig, struct lease_provider *provider)
{
    struct watched *watched = rig->watched;

    for (; watched->provider != NULL; watched++)
        check(watched + 1 < rig->watched + sizeof rig->watched / sizeof *rig->watched);
    *watched = (struct watched){.provider = provider};
    lease_provider_watch(provider, on_news, watched);
    return watched;
}

struct watched *rig_watch(struct rig *rig)
{
    return watch(rig, rig->provider);
}

struct watched *rig_open_other(struct rig *rig, const char *uri_format, ...)
{
    va_list args;

    va_start(args, uri_format);
    struct watched *watched = watch(rig, open_provider(rig, uri_format, args));
    va_end(args);
    return watched;
}

void rig_on_closed(void *closed)
{
    *(bool *)closed = true;
}

void rig_on_event(void *count)
{
    ++*(int *)count;
}

static void close_on_answer(struct lease_call *call)
{
    struct closer *closer = (struct closer *)(void *)call;

    lease_provider_close(closer->rig->provider, rig_on_closed, &closer->closed);
    closer->rig->provider = NULL;
}

void rig_ask_and_close(struct rig *rig, struct closer *closer)
{
    *closer = (struct closer){.asked = rig_question(LEASE_QUERY, "", 0), .rig = rig};
    closer->asked.call.done = close_on_answer;
    lease_ask(rig->provider, &closer->asked.call);
}

static void close_provider(struct rig *rig, struct lease_provider *provider)
{
    bool closed = false;
    int64_t end_ms = clock_now_ms(&clock_monotonic) + 10000;

    lease_provider_close(provider, rig_on_closed, &closed);
    while (!closed) {
        check(clock_now_ms(&clock_monotonic) < end_ms);
        rig_turn(rig);
    }
    for (size_t i = 0; i < sizeof rig->watched / sizeof *rig->watched; i++)
        if (rig->watched[i].provider == provider) {
            rig->watched[i].provider = NULL;
            buf_free(&rig->watched[i].resource);
        }
}

void rig_close(struct rig *rig)
{
    struct lease_provider *provider = rig->provider;

    rig->provider = NULL;
    if (provider != NULL)
        close_provider(rig, provider);
}

void rig_turn(struct rig *rig)
{
    uv_run(&rig->loop, UV_RUN_ONCE);
}

void rig_free(struct rig *rig)
{
    rig_close(rig);
    for (size_t i = 0; i < sizeof rig->watched / sizeof *rig->watched; i++)
        if (rig->watched[i].provider != NULL)
            close_provider(rig, rig->watched[i].provider);
    if (rig->chatterbox.port != 0)
        uv_close((uv_handle_t *)&rig->chatterbox.listener, NULL);
    /* The heartbeat goes on while anything else is open: a name's lookup may take its time. */
    uv_unref((uv_handle_t *)&rig->heartbeat);
    int64_t end_ms = clock_now_ms(&clock_monotonic) + LEFTOVERS_MS_MAX;
    while (uv_loop_alive(&rig->loop)) {
        if (clock_now_ms(&clock_monotonic) >= end_ms)
            uv_print_active_handles(&rig->loop, stderr);
        check(clock_now_ms(&clock_monotonic) < end_ms && "something is left on the loop");
        rig_turn(rig);
    }
    uv_close((uv_handle_t *)&rig->heartbeat, NULL);
    uv_run(&rig->loop, UV_RUN_DEFAULT);
    check(uv_loop_close(&rig->loop) == 0);
    buf_free(&rig->chatterbox.says);
    close(rig->log_pipe[0]);
    close(rig->log_pipe[1]);
}

/* The chatterbox. */

struct visitor {
    uv_tcp_t tcp;
    uv_write_t write;
    struct buf says; /* what the chatterbox said when this one came */
};

static void on_visitor_closed(uv_handle_t *handle)
{
    struct visitor *visitor = handle->data;

    buf_free(&visitor->says);
    free(visitor);
}

static void on_visitor_read(uv_stream_t *stream, ssize_t len, const uv_buf_t *buf)
{
    (void)buf;
    if (len < 0)
        uv_close((uv_handle_t *)stream, on_visitor_closed);
}

static void on_visitor_alloc(uv_handle_t *handle, size_t size, uv_buf_t *buf)
{
    static char sink[65536];

    (void)handle;
    (void)size;
    *buf = uv_buf_init(sink, sizeof sink);
}

static void on_visitor(uv_stream_t *listener, int status)
{
    struct chatterbox *box = listener->data;
    struct visitor *visitor = mem_zalloc(sizeof *visitor);

    check(status == 0);
    uv_tcp_init(listener->loop, &visitor->tcp);
    visitor->tcp.data = visitor;
    check(uv_accept(listener, (uv_stream_t *)&visitor->tcp) == 0);
    box->visitors++;
    if (box->says.len == 0) {
        uv_close((uv_handle_t *)&visitor->tcp, on_visitor_closed);
        return;
    }
    buf_append_bytes(&visitor->says, buf_bytes(&box->says));
    uv_buf_t says = uv_buf_init(visitor->says.data, (unsigned)visitor->says.len);
    uv_write(&visitor->write, (uv_stream_t *)&visitor->tcp, &says, 1, NULL);
    uv_read_start((uv_stream_t *)&visitor->tcp, on_visitor_alloc, on_visitor_read);
}

static void chatterbox_open(struct chatterbox *box, uv_loop_t *loop)
{
    struct sockaddr_in address;
    int size = sizeof address;

    uv_tcp_init(loop, &box->listener);
    box->listener.data = box;
    uv_ip4_addr("127.0.0.1", 0, &address);
    check(uv_tcp_bind(&box->listener, (struct sockaddr *)&address, 0) == 0);
    check(uv_listen((uv_stream_t *)&box->listener, 16, on_visitor) == 0);
    uv_tcp_getsockname(&box->listener, (struct sockaddr *)&address, &size);
    box->port = ntohs(address.sin_port);
}

void rig_say(struct rig *rig, const char *says, size_t len)
{
    struct chatterbox *box = &rig->chatterbox;

    if (box->port == 0)
        chatterbox_open(box, &rig->loop);
    box->visitors = 0;
    buf_clear(&box->says);
    buf_append(&box->says, says, len);
}

/* What can be seen of a provider. */

bool rig_up(const struct rig *rig)
{
    return lease_provider_health(rig->provider).up;
}

bool rig_detail_has(const struct rig *rig, const char *text)
{
    return strstr(lease_provider_health(rig->provider).detail, text) != NULL;
}

const char *rig_logged(struct rig *rig, char *out, size_t size)
{
    ssize_t len = read(rig->log_pipe[0], out, size - 1);
    out[len < 0 ? 0 : len] = '\0';
    return out;
}

size_t rig_count(const char *text, const char *part)
{
    size_t times = 0;

    for (; (text = strstr(text, part)) != NULL; text++)
        times++;
    return times;
}

/* Calls. */

struct asked rig_question(enum lease_verb verb, const char *nonce, int64_t token)
{
    struct asked asked = {.call = {.verb = verb,
                                   .resource = BYTES_LITERAL("sku:1"),
                                   .token = token,
                                   .ttl_ms = 60000,
                                   .believed_max = token_believed_max(0, 0)}};

    snprintf(asked.call.nonce, sizeof asked.call.nonce, "%s", nonce);
    return asked;
}

static void on_answer(struct lease_call *call)
{
    struct asked *asked = (struct asked *)(void *)call;

    asked->answered = true;
    asked->times++;
}

void rig_ask_at(struct lease_provider *provider, struct asked *asked)
{
    asked->call.done = on_answer;
    asked->answered = false;
    lease_ask(provider, &asked->call);
}

void rig_ask(struct rig *rig, struct asked *asked)
{
    rig_ask_at(rig->provider, asked);
}

void rig_answer(struct rig *rig, struct asked *asked)
{
    rig_ask(rig, asked);
    rig_until(rig, asked->answered);
}

struct lease_call rig_call(struct rig *rig, enum lease_verb verb, const char *nonce, int64_t token)
{
    struct asked asked = rig_question(verb, nonce, token);

    rig_answer(rig, &asked);
    return asked.call;
}

struct lease_call rig_grant(struct rig *rig, const char *nonce, int64_t floor)
{
    struct asked asked = rig_question(LEASE_GRANT, nonce, 0);

    asked.call.floor = floor;
    asked.call.believed_max = token_believed_max(floor, 0);
    rig_answer(rig, &asked);
    return asked.call;
}

bool rig_is_free(struct rig *rig)
{
    return rig_call(rig, LEASE_QUERY, "", 0).answer == LEASE_FREE;
}
