/* SPDX-License-Identifier: Apache-2.0 */
/* bench-relay: a network in between. It takes connections on a free port of the loopback, which it
 * prints, and passes on what comes, either way, a fixed time later. Not for users: tools/bench
 * starts it. It ends with its parent.
 *
 * The time is the same for all, so what came first is due first: one line for all connections. What
 * is due and does not fit into its socket waits in its direction; a direction that has too much
 * under way is not read. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tools/options.h"

#define SECOND_NS  1000000000ULL
#define EVENTS_MAX 256
#define READ_MAX   65536
#define HELD_MAX   (4U << 20) /* bytes of a direction that are under way */

struct settings {
    int64_t port, delay_us;
};

struct piece { /* bytes on their way; none: the end */
    struct piece *next;
    struct direction *direction;
    uint64_t due_ns;
    size_t len, sent;
    char bytes[];
};

struct pieces {
    struct piece *first, *last;
};

struct direction {
    struct pair *pair;
    int from, to;
    size_t held;
    bool reads;        /* its end has not come in yet */
    struct pieces due; /* and not sent yet */
};

struct pair {
    struct direction ways[2];
    int ended;              /* directions whose end was passed on */
    struct pair *next_over; /* in the list of those that can be freed */
};

struct relay {
    const struct settings *settings;
    int listener, poll;
    struct pieces under_way;
    struct pair *over;
};

static uint64_t now_ns(void)
{
    struct timespec now;

    check(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void push(struct pieces *pieces, struct piece *piece)
{
    piece->next = NULL;
    *(pieces->first != NULL ? &pieces->last->next : &pieces->first) = piece;
    pieces->last = piece;
}

static struct piece *pop(struct pieces *pieces)
{
    struct piece *piece = pieces->first;

    pieces->first = piece->next;
    return piece;
}

static struct direction *back(struct direction *direction)
{
    return &direction->pair->ways[direction == &direction->pair->ways[0]];
}

/* A socket is read for one direction, and written for the other one. */
static void watch(struct relay *relay, struct direction *direction, int how)
{
    struct epoll_event event = {.data.ptr = direction};

    event.events = (direction->reads && direction->held < HELD_MAX ? (uint32_t)EPOLLIN : 0) |
                   (back(direction)->due.first != NULL ? (uint32_t)EPOLLOUT : 0);
    check(epoll_ctl(relay->poll, how, direction->from, &event) == 0);
}

static struct sockaddr_in loopback(int64_t port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void join(struct relay *relay)
{
    struct sockaddr_in there = loopback(relay->settings->port);
    int ends[2] = {accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC),
                   socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    int yes = 1;

    if (ends[0] < 0 || ends[1] < 0 ||
        connect(ends[1], (struct sockaddr *)&there, sizeof there) != 0) {
        (void)close(ends[0]);
        (void)close(ends[1]);
        return;
    }
    struct pair *pair = mem_zalloc(sizeof *pair);
    for (int i = 0; i < 2; i++) {
        (void)setsockopt(ends[i], IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        pair->ways[i] =
            (struct direction){.pair = pair, .from = ends[i], .to = ends[1 - i], .reads = true};
        watch(relay, &pair->ways[i], EPOLL_CTL_ADD);
    }
}

static void take(struct relay *relay, struct direction *direction)
{
    char bytes[READ_MAX];
    ssize_t got = recv(direction->from, bytes, sizeof bytes, MSG_DONTWAIT);

    if (got < 0 && errno == EAGAIN)
        return;
    size_t len = got > 0 ? (size_t)got : 0;
    struct piece *piece = mem_zalloc(sizeof *piece + len);
    piece->direction = direction;
    piece->due_ns = now_ns() + (uint64_t)relay->settings->delay_us * 1000;
    piece->len = len;
    memcpy(piece->bytes, bytes, len);
    push(&relay->under_way, piece);
    direction->held += len;
    direction->reads = len > 0;
    if (direction->held >= HELD_MAX || !direction->reads)
        watch(relay, direction, EPOLL_CTL_MOD);
}

/* Send what is due, as far as it fits. Where nobody is there any more, it is dropped, and so is
 * what comes later. */
static void give(struct relay *relay, struct direction *direction)
{
    size_t held = direction->held;
    struct piece *piece;

    while ((piece = direction->due.first) != NULL) {
        ssize_t sent = send(direction->to, piece->bytes + piece->sent, piece->len - piece->sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0)
            (void)shutdown(direction->from, SHUT_RD);
        piece->sent += sent >= 0 ? (size_t)sent : piece->len - piece->sent;
        if (piece->sent < piece->len)
            continue;
        direction->held -= piece->len;
        if (piece->len == 0) {
            (void)shutdown(direction->to, SHUT_WR);
            if (++direction->pair->ended == 2) {
                direction->pair->next_over = relay->over;
                relay->over = direction->pair;
            }
        }
        free(pop(&direction->due));
    }
    if (piece != NULL)
        watch(relay, back(direction), EPOLL_CTL_MOD);
    if (held >= HELD_MAX)
        watch(relay, direction, EPOLL_CTL_MOD);
}

/* Give what is due; return how long it takes until more is. */
static uint64_t pass_on(struct relay *relay)
{
    while (relay->under_way.first != NULL) {
        uint64_t now = now_ns(), due_ns = relay->under_way.first->due_ns;
        if (due_ns > now)
            return due_ns - now;
        struct piece *piece = pop(&relay->under_way);
        struct direction *direction = piece->direction;
        bool waits = direction->due.first != NULL;
        push(&direction->due, piece);
        if (!waits)
            give(relay, direction);
    }
    return SECOND_NS;
}

static void turn(struct relay *relay)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t wait_ns = pass_on(relay);
    struct timespec wait = {(time_t)(wait_ns / SECOND_NS), (long)(wait_ns % SECOND_NS)};
    int count = epoll_pwait2(relay->poll, events, EVENTS_MAX, &wait, NULL);

    for (int i = 0; i < count; i++) {
        struct direction *direction = events[i].data.ptr;
        if (direction == NULL) {
            join(relay);
            continue;
        }
        if ((events[i].events & EPOLLOUT) != 0) {
            give(relay, back(direction));
            watch(relay, direction, EPOLL_CTL_MOD);
        }
        if (direction->reads && (events[i].events & ~(uint32_t)EPOLLOUT) != 0)
            take(relay, direction);
        else if ((events[i].events & (EPOLLERR | EPOLLHUP)) != 0)
            (void)shutdown(direction->to, SHUT_RD);
    }
    while (relay->over != NULL) {
        struct pair *pair = relay->over;
        relay->over = pair->next_over;
        (void)close(pair->ways[0].from);
        (void)close(pair->ways[1].from);
        free(pair);
    }
}

#define NUMBER(name, field, max, help)                                                             \
    {                                                                                              \
        name, OPTION_NUMBER, offsetof(struct settings, field), 0, max, "N", help, NULL             \
    }
static const struct option_row rows[] = {
    NUMBER("port", port, 65535, "of the server, on loopback"),
    NUMBER("delay-us", delay_us, 10000000, "microseconds, each way"),
};
static const struct option_table table = {
    .command = "bench-relay",
    .usage = "bench-relay --port N --delay-us N",
    .about = "Passes on what comes a fixed time later.",
    OPTION_ROWS(rows),
};

int main(int argc, char **argv)
{
    struct settings settings = {.port = 0};
    struct relay relay = {.settings = &settings};
    struct sockaddr_in here = loopback(0);
    struct epoll_event event = {.events = EPOLLIN};
    socklen_t size = sizeof here;

    switch (options_parse(&table, &settings, NULL, argc, argv)) {
    case OPTIONS_HELPED: return 0;
    case OPTIONS_WRONG: return 2;
    default: break;
    }
    check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && prctl(PR_SET_TIMERSLACK, 1UL) == 0);
    relay.poll = epoll_create1(EPOLL_CLOEXEC);
    relay.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (relay.poll < 0 || relay.listener < 0 ||
        bind(relay.listener, (struct sockaddr *)&here, size) != 0 ||
        listen(relay.listener, SOMAXCONN) != 0 ||
        getsockname(relay.listener, (struct sockaddr *)&here, &size) != 0 ||
        epoll_ctl(relay.poll, EPOLL_CTL_ADD, relay.listener, &event) != 0) {
        perror("bench-relay");
        return 1;
    }
    printf("%d\n", ntohs(here.sin_port));
    (void)fflush(stdout);
    for (;;)
        turn(&relay);
}
