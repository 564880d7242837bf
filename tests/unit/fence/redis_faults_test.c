/* SPDX-License-Identifier: Apache-2.0 */
/* Redis in trouble: not there, silent, paused, restarted, refusing, or not a Redis at all. What
 * must hold each time: every call is answered once and in time, with the reason; the provider comes
 * back by itself; what could not be given back is given back then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "fence/base/mem.h"
#include "tests/unit/fence/redis_server.h"
#include "tests/unit/fence/rig.h"

#define CALLS_MAX 100000 /* the provider's */

static const char ann[] = "a0000000000000000000000000000001";
static const char bob[] = "b0000000000000000000000000000002";

static struct redis_server *server;

static int setup(void **state)
{
    static struct rig rig;

    redis_server_reset(server);
    rig_init(&rig);
    *state = &rig;
    return 0;
}

static int teardown(void **state)
{
    rig_free(*state);
    return 0;
}

static struct rig *opened(void **state, int timeout_ms)
{
    struct rig *rig = *state;

    rig_open(rig, "redis://127.0.0.1:%d?timeout_ms=%d", server->port, timeout_ms);
    rig_until(rig, rig_up(rig));
    return rig;
}

static struct asked question(enum lease_verb verb, const char *nonce, int64_t token)
{
    struct asked asked = {
        .call = {
            .verb = verb, .resource = BYTES_LITERAL("sku:1"), .token = token, .ttl_ms = 60000}};

    snprintf(asked.call.nonce, sizeof asked.call.nonce, "%s", nonce);
    return asked;
}

static void put(struct rig *rig, struct asked *asked)
{
    rig_ask(rig, asked);
    rig_until(rig, asked->answered);
}

static struct lease_call ask(struct rig *rig, enum lease_verb verb, const char *nonce,
                             int64_t token)
{
    struct asked asked = question(verb, nonce, token);

    put(rig, &asked);
    return asked.call;
}

#define assert_answer(call, answer_, token_)                                                       \
    do {                                                                                           \
        struct lease_call got_ = (call);                                                           \
        assert_int_equal(got_.answer, answer_);                                                    \
        assert_int_equal(got_.answer_token, token_);                                               \
    } while (0)

#define assert_down(call, reason_)                                                                 \
    do {                                                                                           \
        struct lease_call got_ = (call);                                                           \
        assert_int_equal(got_.answer, LEASE_DOWN);                                                 \
        if (strstr(got_.reason, reason_) == NULL)                                                  \
            fail_msg("the reason is \"%s\"", got_.reason);                                         \
    } while (0)

static bool is_free(struct rig *rig)
{
    return ask(rig, LEASE_QUERY, "", 0).answer == LEASE_FREE;
}

static size_t count(const char *text, const char *part)
{
    size_t times = 0;

    for (; (text = strstr(text, part)) != NULL; text++)
        times++;
    return times;
}

static void on_first(void *context)
{
    ++*(int *)context;
}

static void test_a_redis_that_is_not_there_yet_is_told_once_and_found_later(void **state)
{
    struct rig *rig = *state;
    char text[4096];
    int firsts = 0;

    redis_server_kill(server);
    rig_open(rig, "redis://127.0.0.1:%d", server->port);
    lease_on_first_attempt(rig->provider, on_first, &firsts);
    assert_false(rig_up(rig));
    assert_true(rig_detail_has(rig, "connecting"));
    assert_down(ask(rig, LEASE_GRANT, ann, 0), "not connected yet");
    rig_until(rig, firsts == 1);
    assert_true(rig_detail_has(rig, ": connection refused, trying again in 0."));
    assert_down(ask(rig, LEASE_GRANT, ann, 0), "connection refused");
    int64_t end_ms = clock_now_ms(&clock_monotonic) + 500; /* several attempts */
    rig_until(rig, clock_now_ms(&clock_monotonic) > end_ms);
    rig_logged(rig, text, sizeof text);
    assert_int_equal(count(text, "\n"), 1);
    assert_int_equal(count(text, "is down: connection refused"), 1);

    redis_server_start(server, NULL);
    rig_until(rig, rig_up(rig));
    assert_answer(ask(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    rig_logged(rig, text, sizeof text);
    assert_int_equal(count(text, "\n"), 1);
    assert_int_equal(count(text, "is ready"), 1);
    lease_on_first_attempt(rig->provider, on_first, &firsts);
    assert_int_equal(firsts, 2); /* at once */
}

static void test_a_unix_socket_that_is_not_there_is_told(void **state)
{
    struct rig *rig = *state;

    rig_open(rig, "redis+unix:%s/nothing.sock", server->folder);
    rig_until(rig, rig_detail_has(rig, "/nothing.sock: no such file or directory"));
    assert_down(ask(rig, LEASE_GRANT, ann, 0), "no such file or directory");
}

static void test_a_name_without_address_is_told(void **state)
{
    struct rig *rig = *state;

    rig_open(rig, "redis://no-such-host.invalid:6379?timeout_ms=300");
    rig_until(rig, rig_detail_has(rig, "resolved"));
    assert_down(ask(rig, LEASE_GRANT, ann, 0), "resolved");
}

static void test_a_server_that_accepts_and_stays_silent_is_noticed(void **state)
{
    struct rig *rig = *state;
    int port, firsts = 0, fd = silent_server(&port);

    rig_open(rig, "redis://127.0.0.1:%d?timeout_ms=50", port);
    lease_on_first_attempt(rig->provider, on_first, &firsts);
    rig_until(rig, rig_detail_has(rig, "no answer within 50 ms"));
    assert_int_equal(firsts, 1);
    close(fd);
    rig_until(rig, rig_detail_has(rig, "connection refused"));
}

static void test_the_first_attempt_counts_as_ended_after_a_second(void **state)
{
    struct rig *rig = *state;
    int port, firsts = 0, fd = silent_server(&port);
    int64_t start_ms = clock_now_ms(&clock_monotonic);

    rig_open(rig, "redis://127.0.0.1:%d?timeout_ms=60000", port);
    lease_on_first_attempt(rig->provider, on_first, &firsts);
    rig_until(rig, firsts == 1);
    assert_in_range(clock_now_ms(&clock_monotonic) - start_ms, 1000, 5000);
    close(fd);
}

static void test_a_paused_redis_answers_down_in_time_and_gets_back_what_it_granted(void **state)
{
    struct rig *rig = opened(state, 100);
    struct asked calls[] = {question(LEASE_GRANT, ann, 0), question(LEASE_QUERY, "", 0)};

    redis_server_pause(server);
    int64_t start_ms = clock_now_ms(&clock_monotonic);
    for (size_t i = 0; i < 2; i++)
        rig_ask(rig, &calls[i]);
    rig_until(rig, calls[0].answered && calls[1].answered);
    assert_in_range(clock_now_ms(&clock_monotonic) - start_ms, 100, 2000);
    for (size_t i = 0; i < 2; i++) {
        assert_down(calls[i].call, "no answer within 100 ms");
        assert_int_equal(calls[i].times, 1);
    }
    assert_false(rig_up(rig));
    assert_down(ask(rig, LEASE_GRANT, bob, 0), "no answer within 100 ms"); /* at once */

    /* The grant sits in the paused server's socket; it happens there, and is let go again. */
    redis_server_resume(server);
    rig_until(rig, rig_up(rig));
    rig_until(rig, is_free(rig));
    assert_true(lease_provider_health(rig->provider).reconnects >= 1);
}

static void test_a_reentry_without_answer_leaves_the_lease_alone(void **state)
{
    struct rig *rig = opened(state, 100);
    struct asked again = question(LEASE_GRANT, ann, 0);

    assert_answer(ask(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    again.call.memory = (struct lease_memory){.token = 1, .live = true, .this_run = true};
    memcpy(again.call.memory.nonce, ann, sizeof ann);
    redis_server_pause(server);
    put(rig, &again);
    assert_down(again.call, "no answer");
    redis_server_resume(server);
    rig_until(rig, rig_up(rig));
    assert_answer(ask(rig, LEASE_QUERY, "", 0), LEASE_HELD, 1);
}

static void test_a_release_asked_while_redis_is_away_is_delivered_when_it_is_back(void **state)
{
    struct rig *rig = opened(state, 100);

    assert_answer(ask(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    redis_server_pause(server);
    assert_down(ask(rig, LEASE_QUERY, "", 0), "no answer");
    assert_false(rig_up(rig));
    assert_down(ask(rig, LEASE_RELEASE, ann, 1), "no answer"); /* at once, and not sent */
    redis_server_resume(server);
    rig_until(rig, rig_up(rig));
    assert_answer(ask(rig, LEASE_QUERY, "", 0), LEASE_FREE, 0); /* the debt went first */
}

static void test_a_release_lost_on_its_way_is_delivered_when_redis_is_back(void **state)
{
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    struct redis_server *keeper = redis_server_new(durable);
    struct rig *rig = *state;
    struct asked lost = question(LEASE_RELEASE, ann, 1);

    rig_open(rig, "redis://127.0.0.1:%d?timeout_ms=5000", keeper->port);
    rig_until(rig, rig_up(rig));
    assert_answer(ask(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    redis_server_pause(keeper);
    rig_ask(rig, &lost);
    rig_turn(rig); /* it is sent, and dies unread with the server */
    redis_server_kill(keeper);
    rig_until(rig, lost.answered);
    assert_int_equal(lost.call.answer, LEASE_DOWN);
    redis_server_start(keeper, durable);
    redisReply *reply = redis_server_ask(keeper, "GET stockade:{sku:1}:lock");
    assert_int_equal(reply->type, REDIS_REPLY_STRING); /* restored from its log */
    freeReplyObject(reply);
    rig_until(rig, rig_up(rig));
    assert_answer(ask(rig, LEASE_QUERY, "", 0), LEASE_FREE, 0);
    redis_server_free(keeper);
}

static void test_a_debt_that_is_paid_late_cannot_undo_a_newer_grant(void **state)
{
    struct rig *rig = opened(state, 100);

    assert_answer(ask(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    redis_server_pause(server);
    assert_down(ask(rig, LEASE_RELEASE, ann, 1), "no answer");
    assert_down(ask(rig, LEASE_GRANT, bob, 1), "no answer");
    redis_server_resume(server);
    rig_until(rig, rig_up(rig));
    struct asked next = question(LEASE_GRANT, bob, 0);
    next.call.floor = 1;
    put(rig, &next);
    assert_answer(next.call, LEASE_GRANTED, next.call.answer_token);
    assert_true(next.call.answer_token >= 2);
    assert_answer(ask(rig, LEASE_QUERY, "", 0), LEASE_HELD, next.call.answer_token);
}

static void test_a_debt_is_forgotten_when_the_lease_is_over(void **state)
{
    struct rig *rig = opened(state, 100);
    struct asked brief = question(LEASE_RELEASE, ann, 1);

    assert_answer(ask(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    redis_server_pause(server);
    brief.call.ttl_ms = 1;
    put(rig, &brief);
    /* What was sent before the silence is read when the server goes on: begin with a new lock. */
    redis_server_resume(server);
    rig_until(rig, rig_up(rig));
    redis_server_do(server, "SET stockade:{sku:1}:lock %b", "1 a0000000000000000000000000000001",
                    (size_t)34);
    assert_answer(ask(rig, LEASE_QUERY, "", 0), LEASE_HELD, 1);
}

static void test_a_restarted_and_empty_redis_mints_above_the_floor(void **state)
{
    struct rig *rig = opened(state, 1000);
    struct asked next = question(LEASE_GRANT, bob, 0);

    next.call.floor = 41;
    put(rig, &next);
    assert_answer(next.call, LEASE_GRANTED, 42);
    redis_server_kill(server);
    rig_until(rig, !rig_up(rig));
    assert_down(ask(rig, LEASE_GRANT, ann, 0), "");
    redis_server_start(server, NULL);
    rig_until(rig, rig_up(rig));
    next = question(LEASE_GRANT, ann, 0);
    next.call.floor = 42;
    put(rig, &next);
    assert_answer(next.call, LEASE_GRANTED, 43);
}

static void test_calls_under_way_when_redis_dies_are_answered_once(void **state)
{
    struct rig *rig = opened(state, 5000);
    struct asked calls[100];

    redis_server_pause(server);
    for (int i = 0; i < 100; i++) {
        calls[i] = question(LEASE_QUERY, "", 0);
        rig_ask(rig, &calls[i]);
        assert_false(calls[i].answered);
    }
    rig_turn(rig);
    redis_server_kill(server);
    int64_t start_ms = clock_now_ms(&clock_monotonic);
    rig_until(rig, calls[99].answered);
    assert_true(clock_now_ms(&clock_monotonic) - start_ms < 4000); /* not by the time limit */
    for (int i = 0; i < 100; i++) {
        assert_int_equal(calls[i].times, 1);
        assert_int_equal(calls[i].call.answer, LEASE_DOWN);
        assert_string_not_equal(calls[i].call.reason, "");
    }
    redis_server_start(server, NULL);
    rig_until(rig, rig_up(rig));
}

static void test_too_many_calls_under_way_are_refused(void **state)
{
    struct rig *rig = opened(state, 2000);
    struct asked *calls = mem_zalloc((CALLS_MAX + 1) * sizeof *calls);

    redis_server_pause(server);
    for (int i = 0; i <= CALLS_MAX; i++) {
        calls[i] = question(LEASE_QUERY, "", 0);
        rig_ask(rig, &calls[i]);
        assert_int_equal(calls[i].answered, i == CALLS_MAX);
    }
    assert_down(calls[CALLS_MAX].call, "too many calls");
    redis_server_resume(server);
    rig_until(rig, calls[CALLS_MAX - 1].answered);
    for (int i = 0; i < CALLS_MAX; i++)
        assert_int_equal(calls[i].call.answer, LEASE_FREE);
    free(calls);
}

static void test_a_pause_of_our_own_is_not_taken_for_silence(void **state)
{
    struct rig *rig = opened(state, 50);
    struct asked asked = question(LEASE_GRANT, ann, 0);

    rig_ask(rig, &asked);
    rig_turn(rig);  /* it is sent */
    usleep(200000); /* the pause itself */
    rig_until(rig, asked.answered);
    assert_answer(asked.call, LEASE_GRANTED, 1);
    assert_true(rig_up(rig));
}

static void test_refusals_are_down_with_the_reason_and_told_once(void **state)
{
    struct rig *rig = opened(state, 1000);
    struct asked other = question(LEASE_GRANT, bob, 0);
    char text[4096];

    other.call.resource = BYTES_LITERAL("sku:2");
    assert_answer(ask(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    rig_logged(rig, text, sizeof text);
    redis_server_do(server, "REPLICAOF 127.0.0.1 1");
    for (int i = 0; i < 3; i++) {
        struct asked again = other;
        put(rig, &again);
        assert_down(again.call, "READONLY");
        assert_answer(ask(rig, LEASE_QUERY, "", 0), LEASE_HELD, 1); /* questions it answers */
    }
    assert_down(ask(rig, LEASE_RELEASE, ann, 1), "READONLY");
    assert_false(rig_up(rig));
    assert_true(rig_detail_has(rig, ": refuses: READONLY"));

    redis_server_do(server, "REPLICAOF NO ONE");
    put(rig, &other);
    assert_int_equal(other.call.answer, LEASE_GRANTED);
    assert_true(rig_up(rig));
    assert_true(is_free(rig)); /* the release has followed */
    rig_logged(rig, text, sizeof text);
    assert_int_equal(count(text, "refuses: READONLY"), 1);
    assert_int_equal(count(text, "accepts again"), 1);
    assert_int_equal(count(text, "\n"), 2);

    redis_server_do(server, "CONFIG SET maxmemory 1");
    assert_down(ask(rig, LEASE_GRANT, ann, 0), "OOM");
    redis_server_do(server, "CONFIG SET maxmemory 0");
    assert_int_equal(ask(rig, LEASE_GRANT, ann, 0).answer, LEASE_GRANTED);
}

static void test_a_redis_that_is_full_is_told_and_entered_later(void **state)
{
    struct rig *rig = *state;

    redis_server_do(server, "CONFIG SET maxclients 1");
    redisContext *only = redisConnectUnix(server->socket);
    freeReplyObject(redisCommand(only, "PING"));
    rig_open(rig, "redis://127.0.0.1:%d", server->port);
    rig_until(rig, rig_detail_has(rig, "max number of clients reached"));
    freeReplyObject(redisCommand(only, "CONFIG SET maxclients 1000"));
    redisFree(only);
    rig_until(rig, rig_up(rig));
}

/* Something that is no Redis: says the same to everyone, and counts who came. */
struct chatterbox {
    uv_tcp_t listener;
    const char *says; /* "": nothing, closes at once */
    size_t len;
    int port, visitors;
};

struct visitor {
    uv_tcp_t tcp;
    uv_write_t write;
};

static void on_visitor_closed(uv_handle_t *handle)
{
    free(handle->data);
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
    uv_buf_t says = uv_buf_init((char *)(uintptr_t)box->says, (unsigned)box->len);

    assert_int_equal(status, 0);
    uv_tcp_init(listener->loop, &visitor->tcp);
    visitor->tcp.data = visitor;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)&visitor->tcp), 0);
    box->visitors++;
    if (box->len == 0) {
        uv_close((uv_handle_t *)&visitor->tcp, on_visitor_closed);
        return;
    }
    uv_write(&visitor->write, (uv_stream_t *)&visitor->tcp, &says, 1, NULL);
    uv_read_start((uv_stream_t *)&visitor->tcp, on_visitor_alloc, on_visitor_read);
}

static void chatterbox_open(struct chatterbox *box, struct rig *rig, const char *says, size_t len)
{
    struct sockaddr_in address;
    struct sockaddr_storage bound;
    int size = sizeof bound;

    *box = (struct chatterbox){.says = says, .len = len};
    uv_tcp_init(&rig->loop, &box->listener);
    box->listener.data = box;
    uv_ip4_addr("127.0.0.1", 0, &address);
    assert_int_equal(uv_tcp_bind(&box->listener, (struct sockaddr *)&address, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&box->listener, 16, on_visitor), 0);
    uv_tcp_getsockname(&box->listener, (struct sockaddr *)&bound, &size);
    box->port = ntohs(((struct sockaddr_in *)&bound)->sin_port);
}

static void test_what_is_no_redis_is_told_and_harms_nobody(void **state)
{
    struct rig *rig = *state;
    char *endless = mem_zalloc(2 * 1024 * 1024), many[8192];
    memset(endless, '+', 2 * 1024 * 1024);
    memset(many, 0, sizeof many);
    for (size_t i = 0; i < 1000; i++)
        memcpy(many + i * 5, "+OK\r\n", 5);
    const struct {
        const char *says, *reason;
        size_t len;
    } cases[] = {
        {"HTTP/1.1 400 Bad Request\r\n\r\n", "rotocol error", 28},
        {many, "SCRIPT LOAD did not answer with a SHA", 5000},
        {"*100000000\r\n", "an array of 100000000 elements", 12},
        {endless, "a reply without end", 2 * 1024 * 1024},
        {"-ERR go away\r\n-ERR\r\n-ERR\r\n-ERR\r\n-ERR\r\n-ERR\r\n", "ERR go away", 44},
        {"", "erver closed the connection", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chatterbox box;
        chatterbox_open(&box, rig, cases[i].says, cases[i].len);
        rig_open(rig, "redis://127.0.0.1:%d", box.port);
        rig_until(rig, rig_detail_has(rig, cases[i].reason));
        rig_until(rig, box.visitors >= 3); /* and it tries again */
        assert_false(rig_up(rig));
        rig_close(rig);
        uv_close((uv_handle_t *)&box.listener, NULL);
        rig_turn(rig);
    }
    free(endless);
}

/* A greeting's worth of right answers, then more than was asked for. */
static void test_an_answer_that_nobody_asked_for_ends_the_connection_only(void **state)
{
    struct rig *rig = *state;
    struct chatterbox box;
    static const char says[] = "$40\r\n0123456789012345678901234567890123456789\r\n"
                               "$40\r\n0123456789012345678901234567890123456789\r\n"
                               "$40\r\n0123456789012345678901234567890123456789\r\n"
                               "$40\r\n0123456789012345678901234567890123456789\r\n"
                               "+OK\r\n:1\r\n:2\r\n";

    chatterbox_open(&box, rig, says, sizeof says - 1);
    rig_open(rig, "redis://127.0.0.1:%d", box.port);
    rig_until(rig, rig_detail_has(rig, "a reply that nobody asked for"));
    rig_close(rig);
    uv_close((uv_handle_t *)&box.listener, NULL);
    rig_turn(rig);
}

static void fill_zero(const struct chance *chance, void *bytes, size_t len)
{
    (void)chance;
    memset(bytes, 0, len);
}

static void test_attempts_come_at_growing_distances(void **state)
{
    struct rig *rig = *state;
    struct chatterbox box;
    const struct chance lowest = {.fill = fill_zero};

    chatterbox_open(&box, rig, "", 0);
    rig->surroundings.chance = &lowest;
    rig_open(rig, "redis://127.0.0.1:%d", box.port);
    rig_until(rig, box.visitors == 1);
    int64_t start_ms = clock_now_ms(&clock_monotonic);
    rig_until(rig, box.visitors == 5);
    assert_in_range(clock_now_ms(&clock_monotonic) - start_ms, 50 + 100 + 200 + 400 - 10, 5000);
    uv_close((uv_handle_t *)&box.listener, NULL);
    rig_close(rig);
}

static void test_closing_answers_what_is_under_way(void **state)
{
    struct rig *rig = opened(state, 1000);
    struct asked asked = question(LEASE_GRANT, ann, 0);

    redis_server_pause(server);
    rig_ask(rig, &asked);
    rig_close(rig);
    assert_down(asked.call, "closed");
    assert_int_equal(asked.times, 1);
    redis_server_resume(server);

    rig_open(rig, "redis://no-such-host.invalid:6379"); /* while it resolves */
    rig_turn(rig);
    rig_close(rig);
    rig_open(rig, "redis://127.0.0.1:%d", server->port); /* before it has begun */
    rig_close(rig);
    rig_open(rig, "redis://127.0.0.1:%d", server->port); /* while it connects */
    rig_turn(rig);
    rig_close(rig);
}

struct closer {
    struct asked asked;
    struct rig *rig;
    bool closed;
};

static void on_provider_closed(void *context)
{
    ((struct closer *)context)->closed = true;
}

static void close_from_answer(struct lease_call *call)
{
    struct closer *closer = (struct closer *)(void *)call;

    lease_provider_close(closer->rig->provider, on_provider_closed, closer);
    closer->rig->provider = NULL;
}

static void test_it_may_be_closed_from_an_answer(void **state)
{
    struct rig *rig = opened(state, 1000);
    struct closer closer = {.asked = question(LEASE_QUERY, "", 0), .rig = rig};
    struct asked behind = question(LEASE_QUERY, "", 0);

    closer.asked.call.done = close_from_answer;
    assert_false(lease_ask(rig->provider, &closer.asked.call));
    rig_ask(rig, &behind);
    rig_until(rig, closer.closed);
    assert_int_equal(behind.times, 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_redis_that_is_not_there_yet_is_told_once_and_found_later),
        TEST(a_unix_socket_that_is_not_there_is_told),
        TEST(a_name_without_address_is_told),
        TEST(a_server_that_accepts_and_stays_silent_is_noticed),
        TEST(the_first_attempt_counts_as_ended_after_a_second),
        TEST(a_paused_redis_answers_down_in_time_and_gets_back_what_it_granted),
        TEST(a_reentry_without_answer_leaves_the_lease_alone),
        TEST(a_release_asked_while_redis_is_away_is_delivered_when_it_is_back),
        TEST(a_release_lost_on_its_way_is_delivered_when_redis_is_back),
        TEST(a_debt_that_is_paid_late_cannot_undo_a_newer_grant),
        TEST(a_debt_is_forgotten_when_the_lease_is_over),
        TEST(a_restarted_and_empty_redis_mints_above_the_floor),
        TEST(calls_under_way_when_redis_dies_are_answered_once),
        TEST(too_many_calls_under_way_are_refused),
        TEST(a_pause_of_our_own_is_not_taken_for_silence),
        TEST(refusals_are_down_with_the_reason_and_told_once),
        TEST(a_redis_that_is_full_is_told_and_entered_later),
        TEST(what_is_no_redis_is_told_and_harms_nobody),
        TEST(an_answer_that_nobody_asked_for_ends_the_connection_only),
        TEST(attempts_come_at_growing_distances),
        TEST(closing_answers_what_is_under_way),
        TEST(it_may_be_closed_from_an_answer),
    };
#undef TEST
    server = redis_server_new(NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_server_free(server);
    return failed;
}
