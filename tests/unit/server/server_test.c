/* SPDX-License-Identifier: Apache-2.0 */
/* Listeners and connections: real sockets, a real engine over the memory store, one thread. The
 * test is the client; the loop turns whenever the client waits. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <uv.h>

#include "fence/base/mem.h"
#include "fence/lease/open.h"
#include "proxy/server/conn.h"
#include "proxy/server/server.h"
#include "tests/twins/memory_store.h"
#include "tests/unit/deadline.h"
#include "tests/unit/folder.h"
#include "tests/unit/test.h"

enum {
    LINGER_MS = 2000,
    LINGER_WRITING_MS = 30000,
    UNREAD_BYTES = 16777216,
    FLOOD_BYTES = 200 << 10,
};

/* The clock of the server's deadlines, in place of libuv's; its timer is asked for by tick(). */
static uint64_t time_ms;
static uv_timer_t *ticking;
static uv_timer_cb on_tick;

uint64_t uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return time_ms;
}

int uv_timer_start(uv_timer_t *timer, uv_timer_cb fired, uint64_t timeout_ms, uint64_t repeat_ms)
{
    (void)timeout_ms, (void)repeat_ms;
    ticking = timer;
    on_tick = fired;
    return 0;
}

/* So much time has passed. */
static void tick(uint64_t later_ms)
{
    time_ms += later_ms;
    assert_non_null(ticking);
    on_tick(ticking);
}

struct rig {
    uv_loop_t loop;
    uv_prepare_t turn;
    struct store *store;
    struct lease_provider *provider;
    struct engine *engine;
    struct server *server;
    char folder[64], path[80]; /* of a unix socket */
    int port;                  /* of the TCP listener */
    struct log_file log_file;
    struct log log;
};

static void on_turn(uv_prepare_t *turn)
{
    struct rig *rig = turn->data;
    while (store_step(rig->store))
        store_collect(rig->store);
    engine_turn(rig->engine);
}

static void bind_both(struct rig *rig)
{
    char why[256], address[120];

    assert_true(server_bind(rig->server, "127.0.0.1:0", why, sizeof why));
    snprintf(address, sizeof address, "unix:%s", rig->path);
    assert_true(server_bind(rig->server, address, why, sizeof why));
    assert_int_equal(sscanf(server_address(rig->server, 0), "127.0.0.1:%d", &rig->port), 1);
    assert_string_equal(server_address(rig->server, 1), address);
    assert_null(server_address(rig->server, 2));
}

/* Set up a server that accepts at most `sessions_max` sessions. */
static struct rig *rig_new(size_t sessions_max)
{
    struct rig *rig = mem_zalloc(sizeof *rig);
    char why[256];

    folder_make(rig->folder, sizeof rig->folder);
    snprintf(rig->path, sizeof rig->path, "%s/s.sock", rig->folder);
    assert_int_equal(uv_loop_init(&rig->loop), 0);
    rig->store = store_memory_new(
        &(struct store_options){.path = "", .queue_ops_max = 1000, .batch_ops_max = 100});
    rig->provider = lease_local_new(&clock_monotonic);
    rig->engine =
        engine_new(&(struct engine_options){.host = {.changed = conn_on_change},
                                            .store = rig->store,
                                            .provider = rig->provider,
                                            .clock = &clock_monotonic,
                                            .chance = &chance_system,
                                            .sessions_max = sessions_max,
                                            .limits = {.things = {[ACCOUNT_WAITERS] = 10}},
                                            .address = ""});
    ticking = NULL;
    rig->log_file = LOG_FILE(memfd_create("log", MFD_CLOEXEC));
    rig->log = (struct log){.level = LOG_INFO_LEVEL, .file = &rig->log_file};
    rig->server = server_new(&rig->loop, &rig->log);
    bind_both(rig);
    assert_true(server_open(rig->server, rig->engine, why, sizeof why));
    uv_prepare_init(&rig->loop, &rig->turn);
    rig->turn.data = rig;
    uv_prepare_start(&rig->turn, on_turn);
    return rig;
}

static void on_closed(void *context)
{
    (void)context;
}

static int rig_free(void **state)
{
    struct rig *rig = *state;

    server_close(rig->server);
    engine_drain(rig->engine);
    while (!engine_idle(rig->engine)) /* a sweep may be under way */
        on_turn(&rig->turn);
    uv_close((uv_handle_t *)&rig->turn, NULL);
    assert_int_equal(uv_run(&rig->loop, UV_RUN_DEFAULT), 0);
    server_free(rig->server);
    engine_free(rig->engine);
    lease_provider_close(rig->provider, on_closed, NULL);
    store_close(rig->store);
    assert_int_equal(uv_loop_close(&rig->loop), 0);
    assert_int_equal(rmdir(rig->folder), 0); /* the socket file is gone */
    close(rig->log_file.fd);
    free(rig);
    return 0;
}

static int rig_of_ten(void **state)
{
    *state = rig_new(10);
    return 0;
}

static int rig_of_one(void **state)
{
    *state = rig_new(1);
    return 0;
}

#define RIG_TEST(name)    TEST_WITH(rig_of_ten, rig_free, struct rig *rig, name)
#define SINGLE_TEST(name) TEST_WITH(rig_of_one, rig_free, struct rig *rig, name)

/* Turn the loop once, then wait a moment for `events` at the client. */
static void turn(struct rig *rig, int fd, short events)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    uv_run(&rig->loop, UV_RUN_NOWAIT);
    poll(&poll_fd, 1, 1);
}

static int client_to(struct rig *rig, const struct sockaddr *address, socklen_t len)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    while (connect(fd, address, len) != 0) {
        assert_true(errno == EINPROGRESS || errno == EALREADY || errno == EAGAIN);
        turn(rig, fd, POLLOUT);
    }
    return fd;
}

static int client(struct rig *rig)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)rig->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    return client_to(rig, (struct sockaddr *)&address, sizeof address);
}

static void send_all(struct rig *rig, int fd, const char *data, size_t len)
{
    struct deadline deadline = deadline_in(HANG_MS);

    while (len > 0) {
        ssize_t sent = send(fd, data, len, MSG_NOSIGNAL);
        assert_true(sent > 0 || errno == EAGAIN);
        deadline_keep(&deadline);
        if (sent > 0) {
            data += sent;
            len -= (size_t)sent;
        }
        turn(rig, fd, POLLOUT);
    }
}

static void send_text(struct rig *rig, int fd, const char *text)
{
    send_all(rig, fd, text, strlen(text));
}

/* Receive `len` bytes, or less at the end of the stream. Return -1 if the connection was reset. */
static ssize_t receive(struct rig *rig, int fd, char *data, size_t len)
{
    struct deadline deadline = deadline_in(HANG_MS);
    size_t at = 0;

    while (at < len) {
        ssize_t got = recv(fd, data + at, len - at, 0);
        if (got == 0)
            break;
        if (got < 0 && errno != EAGAIN)
            return -1;
        deadline_keep(&deadline);
        if (got > 0)
            at += (size_t)got;
        else
            turn(rig, fd, POLLIN);
    }
    return (ssize_t)at;
}

/* Expect this reply, in which a ? stands for any character. */
static void expect(struct rig *rig, int fd, const char *reply)
{
    char got[256] = "";
    assert_int_equal(receive(rig, fd, got, strlen(reply)), strlen(reply));
    for (size_t i = 0; reply[i] != '\0'; i++)
        if (reply[i] == '?')
            got[i] = '?';
    assert_string_equal(got, reply);
}

/* Expect the end of the stream, in order and not by a reset. */
static void expect_end(struct rig *rig, int fd)
{
    char byte;
    assert_int_equal(receive(rig, fd, &byte, 1), 0);
    close(fd);
}

RIG_TEST(tcp_and_unix_sockets_serve_the_same)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int tcp = client(rig);

    memcpy(address.sun_path, rig->path, strlen(rig->path));
    int local = client_to(rig, (struct sockaddr *)&address, sizeof address);
    send_text(rig, tcp, "ACQUIRE r 60000\r\nFENCED 1 SET r v\r\n");
    expect(rig, tcp, "*2\r\n:1\r\n:?????\r\n+OK\r\n");
    send_text(rig, local, "GET r\r\n");
    expect(rig, local, "$1\r\nv\r\n");
    assert_null(server_exposed(rig->server, true));
    close(tcp);
    close(local);
}

RIG_TEST(a_request_that_dribbles_in_is_answered)
{
    const char *request = "*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\n";
    int fd = client(rig);

    for (const char *c = request; *c != '\0'; c++)
        send_all(rig, fd, c, 1);
    expect(rig, fd, "$5\r\nhello\r\n");
    close(fd);
}

RIG_TEST(a_reader_that_stops_is_not_read_from_and_loses_nothing)
{
    enum { BODY = 50000 };
    char *request = mem_alloc(BODY + 64), *reply = mem_alloc(BODY + 64);
    size_t head = (size_t)sprintf(request, "*2\r\n$4\r\nECHO\r\n$%d\r\n", BODY);
    size_t reply_head = (size_t)sprintf(reply, "$%d\r\n", BODY);
    int fd = client(rig), small = 64 * 1024, idle_turns = 0, requests = 0;

    memset(request + head, 'x', BODY);
    memcpy(request + head + BODY, "\r\n", 2);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    size_t len = head + BODY + 2, at = 0;
    while (idle_turns < 50) {
        ssize_t sent = send(fd, request + at, len - at, MSG_NOSIGNAL);
        idle_turns = sent > 0 ? 0 : idle_turns + 1;
        at += sent > 0 ? (size_t)sent : 0;
        if (at == len) {
            at = 0;
            requests++;
        }
        assert_true(requests < 2000); /* 100 MB: it reads without end */
        turn(rig, fd, POLLOUT);
    }
    assert_false(server_is_flushed(rig->server));

    int other = client(rig); /* nobody else is held up */
    send_text(rig, other, "PING\r\n");
    expect(rig, other, "+PONG\r\n");
    close(other);
    for (int i = 0; i < requests; i++) {
        char *got = mem_alloc(len);
        assert_int_equal(receive(rig, fd, got, reply_head + BODY + 2), reply_head + BODY + 2);
        assert_memory_equal(got, reply, reply_head);
        free(got);
    }
    send_all(rig, fd, request + at, len - at);
    send_text(rig, fd, "PING\r\n");
    assert_int_equal(receive(rig, fd, request, reply_head + BODY + 2), reply_head + BODY + 2);
    expect(rig, fd, "+PONG\r\n");
    close(fd);
    free(request);
    free(reply);
}

static void count_socket(uv_handle_t *handle, void *context)
{
    size_t *count = context;

    if ((handle->type == UV_TCP || handle->type == UV_NAMED_PIPE) && !uv_is_closing(handle))
        ++*count;
}

/* Return how many connections the server keeps open. */
static size_t connections(struct rig *rig)
{
    size_t count = 0, listeners = 2;

    uv_walk(&rig->loop, count_socket, &count);
    return count - listeners;
}

/* Each of them costs a descriptor until its client has read the reason and hung up. */
SINGLE_TEST(those_turned_away_that_do_not_go_are_few)
{
    enum { CLIENTS = 160, LINGERING_MAX = 128 };
    int fds[CLIENTS];

    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client(rig);
        turn(rig, fds[i], POLLIN);
        assert_in_range(connections(rig), 1, 1 + LINGERING_MAX); /* the first one has a session */
    }
    assert_int_equal(connections(rig), 1 + LINGERING_MAX);
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
}

SINGLE_TEST(who_is_one_too_many_can_read_why)
{
    int first = client(rig);

    send_text(rig, first, "PING\r\n");
    expect(rig, first, "+PONG\r\n");
    int second = client(rig);
    send_text(rig, second, "PING\r\nPING\r\n");
    expect(rig, second, "-ERR max number of clients reached\r\n");
    expect_end(rig, second);
    close(first);
    int third;
    char byte = 0;
    do { /* the first one's end may still be on its way */
        third = client(rig);
        send_text(rig, third, "PING\r\n");
        assert_int_equal(receive(rig, third, &byte, 1), 1);
        if (byte != '+')
            close(third);
    } while (byte != '+');
    close(third);
}

RIG_TEST(a_broken_protocol_is_told_before_the_end_even_behind_a_flood)
{
    size_t flood = 4 << 20;
    char *data = mem_alloc(flood);
    int fd = client(rig);

    memset(data, 'x', flood);
    memcpy(data, "PING\r\n*1\r\n$99999999\r\n", 21);
    send_all(rig, fd, data, flood);
    expect(rig, fd, "+PONG\r\n-ERR Protocol error: an argument has at most 16777216 bytes\r\n");
    expect_end(rig, fd);
    free(data);
}

/* So many lines were logged when one more handshake had failed: TLS, on a plain address. */
static int lines_after_a_failure(struct rig *rig)
{
    char alert[7], logged[4096];
    int fd = client(rig), lines = 0;

    send_text(rig, fd, "\x16\x03");
    assert_int_equal(receive(rig, fd, alert, sizeof alert), sizeof alert);
    close(fd);
    ssize_t len = pread(rig->log_file.fd, logged, sizeof logged, 0);
    for (ssize_t i = 0; i < len; i++)
        lines += logged[i] == '\n';
    return lines;
}

/* Whoever can connect may let many fail. */
RIG_TEST(of_handshakes_that_fail_one_a_second_is_logged)
{
    time_ms += 1000;
    assert_int_equal(lines_after_a_failure(rig), 1);
    assert_int_equal(lines_after_a_failure(rig), 1);
    time_ms += 999;
    assert_int_equal(lines_after_a_failure(rig), 1);
    time_ms += 1;
    assert_int_equal(lines_after_a_failure(rig), 2);
    assert_int_equal(lines_after_a_failure(rig), 2);
}

RIG_TEST(quit_answers_what_came_before_and_drops_what_comes_after)
{
    int fd = client(rig);

    send_text(rig, fd, "PING\r\nQUIT\r\nPING\r\n");
    expect(rig, fd, "+PONG\r\n+OK\r\n");
    expect_end(rig, fd);
}

RIG_TEST(who_does_not_hang_up_after_the_end_is_hung_up)
{
    int fd = client(rig);
    struct deadline deadline = deadline_in(HANG_MS);

    send_text(rig, fd, "QUIT\r\n");
    expect(rig, fd, "+OK\r\n");
    while (send(fd, "x", 1, MSG_NOSIGNAL) == 1) { /* until a reset says that nobody is there */
        deadline_keep(&deadline);
        tick(LINGER_MS / 10);
        turn(rig, fd, POLLERR);
    }
    close(fd);
}

/* Each way in which a session ends behind a reply that its client has not read. */
static const struct {
    const char *request, *reply;
} ends[] = {
    {"GET r\r\nQUIT\r\n", "+OK\r\n"},
    {"GET r\r\n*1\r\n$99999999\r\n",
     "-ERR Protocol error: an argument has at most 16777216 bytes\r\n"},
};

static void set_unread(struct rig *rig)
{
    char *value = mem_zalloc(UNREAD_BYTES);
    int fd = client(rig);

    send_text(rig, fd, "ACQUIRE r 60000\r\n");
    expect(rig, fd, "*2\r\n:1\r\n:?????\r\n");
    send_text(rig, fd, "*5\r\n$6\r\nFENCED\r\n$1\r\n1\r\n$3\r\nSET\r\n$1\r\nr\r\n$16777216\r\n");
    send_all(rig, fd, value, UNREAD_BYTES);
    send_text(rig, fd, "\r\nQUIT\r\n");
    expect(rig, fd, "+OK\r\n+OK\r\n");
    expect_end(rig, fd);
    while (connections(rig) > 0)
        turn(rig, -1, 0);
    free(value);
}

/* Have a session end behind that value, of which its client has read nothing. */
static int end_unread(struct rig *rig, const char *request)
{
    int fd = client(rig), small = 64 * 1024;
    struct deadline deadline = deadline_in(HANG_MS);

    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    ticking = NULL;
    send_text(rig, fd, request);
    while (ticking == NULL) { /* it lingers */
        deadline_keep(&deadline);
        turn(rig, fd, POLLERR);
    }
    assert_false(server_is_flushed(rig->server));
    return fd;
}

RIG_TEST(a_slow_reader_has_30_s_for_what_a_session_said_last)
{
    const char head[] = "$16777216\r\n";
    size_t len = strlen(head) + UNREAD_BYTES + 2;
    char *reply = mem_alloc(len);

    set_unread(rig);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        int fd = end_unread(rig, ends[i].request);
        tick(LINGER_WRITING_MS - 1);
        assert_int_equal(receive(rig, fd, reply, len), len);
        assert_memory_equal(reply, head, strlen(head));
        expect(rig, fd, ends[i].reply);
        tick(LINGER_MS - 1); /* in which it may hang up by itself */
        assert_int_equal(connections(rig), 1);
        tick(1);
        assert_int_equal(connections(rig), 0);
        expect_end(rig, fd);

        fd = end_unread(rig, ends[i].request);
        tick(LINGER_WRITING_MS);
        uv_run(&rig->loop, UV_RUN_NOWAIT);
        assert_true(server_is_flushed(rig->server));
        close(fd);
    }
    free(reply);
}

/* A stop waits until all is with the kernel. What its client has sent since is not read any more,
 * and a socket that is closed with that in it would be reset. */
RIG_TEST(hanging_up_takes_no_reply_back_that_was_sent)
{
    size_t len = strlen("$16777216\r\n") + UNREAD_BYTES + 2, got = 0;
    char *reply = mem_alloc(len), *flood = mem_alloc(FLOOD_BYTES);

    set_unread(rig);
    int fd = client(rig), small = 64 * 1024;
    for (size_t i = 0; i < FLOOD_BYTES; i++)
        flood[i] = "PING\r\n"[i % 6];
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    send_text(rig, fd, "GET r\r\n");
    while (server_is_flushed(rig->server))
        turn(rig, fd, POLLERR);
    (void)send(fd, flood, FLOOD_BYTES, MSG_NOSIGNAL);
    while (!server_is_flushed(rig->server) && got < len) {
        got += (size_t)receive(rig, fd, reply + got, len - got < 4096 ? len - got : 4096);
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    }
    assert_true(got < len);
    server_hang_up(rig->server);
    uv_run(&rig->loop, UV_RUN_NOWAIT);
    assert_int_equal(receive(rig, fd, reply + got, len - got), len - got);
    assert_in_range(receive(rig, fd, reply, len), 0, len - 1); /* and the end, by no reset */
    close(fd);
    while (!server_is_empty(rig->server))
        turn(rig, -1, 0);
    free(flood);
    free(reply);
}

RIG_TEST(a_reset_in_the_middle_of_a_reply_ends_only_that_connection)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};
    char *value = mem_alloc(200000);
    int fd = client(rig), other = client(rig);

    memset(value, 'x', 200000);
    send_text(rig, fd, "*2\r\n$4\r\nECHO\r\n$200000\r\n");
    send_all(rig, fd, value, 200000);
    for (int i = 0; i < 20; i++)
        send_text(rig, fd, "\r\n*2\r\n$4\r\nECHO\r\n$6\r\n123456");
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
    send_text(rig, other, "PING\r\n");
    expect(rig, other, "+PONG\r\n");
    while (!server_is_flushed(rig->server))
        turn(rig, other, POLLIN);
    close(other);
    free(value);
}

RIG_TEST(hanging_up_ends_every_connection)
{
    int fds[5];

    for (size_t i = 0; i < 5; i++) {
        fds[i] = client(rig);
        send_text(rig, fds[i], "PING\r\n");
        expect(rig, fds[i], "+PONG\r\n");
    }
    server_stop_listening(rig->server);
    server_hang_up(rig->server);
    for (size_t i = 0; i < 5; i++)
        expect_end(rig, fds[i]);
}

static bool binds(struct rig *rig, const char *address, char why[256])
{
    struct server *server = server_new(&rig->loop, NULL);
    bool bound = server_bind(server, address, why, 256);
    server_close(server);
    uv_run(&rig->loop, UV_RUN_NOWAIT);
    server_free(server);
    return bound;
}

RIG_TEST(an_address_in_use_is_refused_by_name)
{
    char why[256], address[120];

    snprintf(address, sizeof address, "127.0.0.1:%d", rig->port);
    assert_false(binds(rig, address, why));
    assert_non_null(strstr(why, address));
    assert_non_null(strstr(why, "in use"));
    snprintf(address, sizeof address, "unix:%s", rig->path);
    assert_false(binds(rig, address, why));
    assert_non_null(strstr(why, "somebody answers there"));
    assert_int_equal(access(rig->path, F_OK), 0);
}

RIG_TEST(a_left_over_socket_is_replaced_and_any_other_file_is_not)
{
    struct sockaddr_un left = {.sun_family = AF_UNIX};
    char why[256], address[120];
    struct stat status;

    snprintf(left.sun_path, sizeof left.sun_path, "%s/left", rig->folder);
    snprintf(address, sizeof address, "unix:%s", left.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&left, sizeof left), 0);
    close(fd); /* the file stays, as after kill -9 */
    assert_true(binds(rig, address, why));
    assert_int_equal(access(left.sun_path, F_OK), -1); /* taken away at the end */

    fd = open(left.sun_path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_false(binds(rig, address, why));
    assert_non_null(strstr(why, "not a socket"));
    assert_int_equal(unlink(left.sun_path), 0);

    assert_int_equal(stat(rig->path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0700);
}

RIG_TEST(a_listener_for_other_machines_is_exposed)
{
    char why[256];

    assert_null(server_exposed(rig->server, true));
    assert_true(server_bind(rig->server, "0.0.0.0:0", why, sizeof why));
    assert_non_null(server_exposed(rig->server, false));
}
