/* SPDX-License-Identifier: Apache-2.0 */
/* See rig.h. */
#include "tests/unit/fence/rig.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "fence/base/check.h"
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
    rig->log = (struct log){LOG_DEBUG_LEVEL, rig->log_pipe[1]};
    rig->surroundings =
        (struct lease_surroundings){&rig->loop, &clock_monotonic, &chance_system, &rig->log};
}

void rig_open(struct rig *rig, const char *uri_format, ...)
{
    char text[512], why[128];
    struct lease_uri uri;
    va_list args;

    va_start(args, uri_format);
    vsnprintf(text, sizeof text, uri_format, args);
    va_end(args);
    check(lease_uri_parse(text, &uri, why, sizeof why));
    rig->provider = lease_open(&uri, &rig->surroundings);
}

void rig_turn(struct rig *rig)
{
    uv_run(&rig->loop, UV_RUN_ONCE);
}

static void on_closed(void *context)
{
    *(bool *)context = true;
}

void rig_close(struct rig *rig)
{
    bool closed = false;
    int64_t end_ms = clock_now_ms(&clock_monotonic) + 10000;

    if (rig->provider == NULL)
        return;
    lease_provider_close(rig->provider, on_closed, &closed);
    rig->provider = NULL;
    while (!closed) {
        check(clock_now_ms(&clock_monotonic) < end_ms);
        rig_turn(rig);
    }
}

void rig_free(struct rig *rig)
{
    rig_close(rig);
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
    close(rig->log_pipe[0]);
    close(rig->log_pipe[1]);
}

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

struct asked rig_question(enum lease_verb verb, const char *nonce, int64_t token)
{
    struct asked asked = {
        .call = {
            .verb = verb, .resource = BYTES_LITERAL("sku:1"), .token = token, .ttl_ms = 60000}};

    snprintf(asked.call.nonce, sizeof asked.call.nonce, "%s", nonce);
    return asked;
}

static void on_answer(struct lease_call *call)
{
    struct asked *asked = (struct asked *)(void *)call;

    asked->answered = true;
    asked->times++;
}

void rig_ask(struct rig *rig, struct asked *asked)
{
    asked->call.done = on_answer;
    asked->answered = false;
    lease_ask(rig->provider, &asked->call);
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
