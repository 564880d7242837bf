/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: one epoll, all clients. It ends at the time or the count given, when each client has
 * finished what it began; what ends after the time is not counted.
 *
 * A client is busy from its operation's first byte to its last reply, or paused until due_ns. */
#include "tools/bench/load/load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fence/base/mem.h"

#define SECOND_NS   1000000000ULL
#define MS_NS       1000000ULL
#define RETRY_NS    (20 * MS_NS)
#define JITTER_NS   (5 * MS_NS)
#define STALL_NS    (50 * MS_NS)
#define SILENCE_NS  (60 * SECOND_NS)
#define EVENTS_MAX  512
#define RECEIVE_MAX 65536
#define VALUE_FIRST (1U << 30) /* recorded values are above all random ones */

uint64_t client_random(struct client *client, uint64_t below)
{
    uint64_t x = client->random; /* xorshift64* */

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    client->random = x;
    return (x * 2685821657736338717ULL >> 11) % below;
}

uint64_t client_any_key(struct client *client)
{
    const struct settings *settings = client->load->settings;
    uint64_t clients = (uint64_t)settings->clients, keys = client->load->key_count;

    if (settings->sequential)
        return client_next_key(client);
    if (!client->load->acknowledged)
        return client_random(client, keys);
    return client->number + clients * client_random(client, keys / clients);
}

uint64_t client_next_value(struct client *client)
{
    client->value =
        client->load->acknowledged ? client->value + 1 : client_random(client, 1U << 30);
    return client->value;
}

uint64_t client_next_key(struct client *client)
{
    return client->load->next_key++ % client->load->key_count;
}

uint64_t client_cycle_key(const struct client *client)
{
    return client->load->settings->hot ? 0 : client->number;
}

struct bytes client_reply(const struct client *client, unsigned index)
{
    struct span span = client->replies[index];

    return (struct bytes){client->replies_in->data + span.at, span.len};
}

enum turn client_fail(struct client *client, const char *what, struct bytes said)
{
    snprintf(client->load->why, sizeof client->load->why, "%s: %.*s", what,
             (int)(said.len < 160 ? said.len : 160), said.data ? said.data : "");
    return TURN_FAILED;
}

enum turn client_await(struct client *client, unsigned replies)
{
    client->awaits = replies;
    client->step++;
    return TURN_WAIT;
}

bool client_verify(struct client *client, uint64_t key, struct bytes value)
{
    struct load *load = client->load;
    uint64_t found = 0;

    if (!load->expected)
        return true;
    for (size_t i = 0; i < value.len; i++)
        found = found * 10 + (uint64_t)(value.data[i] - '0');
    load->verified += load->expected[key] > 0;
    return found >= load->expected[key];
}

void client_acknowledge(struct client *client, uint64_t key, uint64_t value)
{
    if (client->load->acknowledged)
        client->load->acknowledged[key] = value;
}

void client_found(struct client *client, struct buf *where, size_t at, size_t len)
{
    client->replies_in = where;
    client->replies[client->got++] = (struct span){at, len};
}

static void watch(struct client *client, bool writing)
{
    struct epoll_event event = {.events = EPOLLIN | (writing ? (uint32_t)EPOLLOUT : 0),
                                .data.u32 = client->number};

    if (client->writing != writing)
        epoll_ctl(client->load->poll, EPOLL_CTL_MOD, client->fd, &event);
    client->writing = writing;
}

void client_flush(struct client *client)
{
    while (client->out_sent < client->out.len) {
        ssize_t sent = send(client->fd, client->out.data + client->out_sent,
                            client->out.len - client->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            break; /* full, or broken: then reading says so */
        client->out_sent += (size_t)sent;
    }
    watch(client, client->out_sent < client->out.len);
    if (client->out_sent == client->out.len) {
        buf_clear(&client->out);
        client->out_sent = 0;
    }
}

static bool is_over(const struct load *load)
{
    const struct settings *settings = load->settings;

    if (settings->ops > 0)
        return load->issued >= (uint64_t)settings->ops;
    return load->closed || now_ns() >= load->ended_ns;
}

static void pause_until(struct client *client, uint64_t due_ns)
{
    client->due_ns = due_ns;
    client->paused = true;
    client->load->paused++;
}

/* Its last operation is over, or its connection. */
static void leave(struct client *client)
{
    if (!client->has_left)
        client->load->busy--;
    client->has_left = true;
}

static bool take_turn(struct client *client);

static bool begin(struct client *client)
{
    struct load *load = client->load;

    if (is_over(load)) {
        leave(client);
        return true;
    }
    load->issued++;
    client->step = 0;
    client->begun_ns = load->settings->rate > 0 ? client->due_ns : now_ns();
    return take_turn(client);
}

static bool finish(struct client *client)
{
    struct load *load = client->load;
    uint64_t now = now_ns();

    if (load->settings->ops > 0 || now <= load->ended_ns) {
        histogram_add(&load->histogram, now - client->begun_ns);
        client->done++;
        load->done++;
        uint64_t gap = now - load->last_done_ns;
        if (gap > load->gap_max_ns)
            load->gap_max_ns = gap;
        load->gaps += gap > STALL_NS;
        load->last_done_ns = now;
    }
    if (load->settings->rate > 0) {
        uint64_t every =
            (uint64_t)load->settings->clients * SECOND_NS / (uint64_t)load->settings->rate;
        if (client->due_ns + every > now) {
            pause_until(client, client->due_ns + every);
            return true;
        }
        client->due_ns += every;
    }
    return begin(client);
}

static bool get_ready(struct client *client, enum turn turn)
{
    if (turn != TURN_DONE)
        return turn == TURN_WAIT;
    client->prepared = true;
    client->load->ready++;
    return true;
}

/* Call the work until it waits for something. */
static bool take_turn(struct client *client)
{
    const struct work *work = client->load->work;

    client->awaits = 0;
    enum turn turn = client->prepared ? work->step(client) : work->prepare(client);
    if (client->in_used > 0)
        buf_consume(&client->in, client->in_used);
    client->in_used = 0;
    client->got = client->bodies = 0;
    buf_clear(&client->body);
    client_flush(client);
    if (!client->prepared)
        return get_ready(client, turn);
    if (turn == TURN_DONE)
        return finish(client);
    if (turn == TURN_RETRY) {
        client->step = 0;
        pause_until(client, now_ns() + RETRY_NS - JITTER_NS + client_random(client, 2 * JITTER_NS));
    }
    return turn != TURN_FAILED;
}

static bool went_away(struct client *client)
{
    struct load *load = client->load;

    if (!load->acknowledged) {
        snprintf(load->why, sizeof load->why, "the server closed a connection");
        return false;
    }
    load->closed = true;
    epoll_ctl(load->poll, EPOLL_CTL_DEL, client->fd, NULL);
    leave(client);
    return true;
}

/* What is there may be more than one step's replies: news follows the answer to a watch. */
static bool digest(struct client *client)
{
    do {
        if (!client->load->work->protocol->feed(client)) {
            client_fail(client, "refused, or not the protocol", buf_bytes(&client->in));
            return false;
        }
        if (client->awaits == 0 || client->got < client->awaits)
            return true;
        if (!take_turn(client))
            return false;
    } while (client->in.len > client->in_used);
    return true;
}

static bool receive(struct client *client)
{
    for (;;) {
        char *room = buf_reserve(&client->in, RECEIVE_MAX);
        ssize_t got = recv(client->fd, room, RECEIVE_MAX, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        if (got <= 0)
            return went_away(client);
        client->in.len += (size_t)got;
        if (!digest(client))
            return false;
        if (got < RECEIVE_MAX)
            return true;
    }
}

static bool connect_client(struct client *client)
{
    struct load *load = client->load;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)load->settings->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = client->number};
    int yes = 1;

    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->fd < 0 || connect(client->fd, (struct sockaddr *)&address, sizeof address) != 0) {
        snprintf(load->why, sizeof load->why, "cannot connect: %s", strerror(errno));
        return false;
    }
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (epoll_ctl(load->poll, EPOLL_CTL_ADD, client->fd, &event) != 0)
        return false;
    if (load->work->protocol->greet)
        load->work->protocol->greet(client);
    client_flush(client);
    return true;
}

static bool wake_paused(struct load *load, uint64_t *wait_ns)
{
    uint64_t now = now_ns(), next = now + SECOND_NS / 10;

    for (int64_t i = 0; load->paused > 0 && i < load->settings->clients; i++) {
        struct client *client = &load->clients[i];
        if (client->paused && (client->due_ns <= now || is_over(load))) {
            client->paused = false;
            load->paused--;
            bool retried = client->step == 0 && load->settings->rate == 0;
            if (retried && !is_over(load) ? !take_turn(client) : !begin(client))
                return false;
        } else if (client->paused && client->due_ns < next) {
            next = client->due_ns;
        }
    }
    *wait_ns = next > now ? next - now : 0;
    return true;
}

static bool turn_loop(struct load *load)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t wait_ns = SECOND_NS / 10;

    if (load->paused > 0 && !wake_paused(load, &wait_ns))
        return false;
    struct timespec wait = {(time_t)(wait_ns / SECOND_NS), (long)(wait_ns % SECOND_NS)};
    int count = epoll_pwait2(load->poll, events, EVENTS_MAX, &wait, NULL);
    for (int i = 0; i < count; i++) {
        struct client *client = &load->clients[events[i].data.u32];
        if ((events[i].events & EPOLLOUT) != 0)
            client_flush(client);
        if ((events[i].events & ~(uint32_t)EPOLLOUT) != 0 && !receive(client))
            return false;
    }
    return true;
}

static bool begin_all(struct load *load)
{
    const struct settings *settings = load->settings;
    uint64_t now = now_ns(), clients = (uint64_t)settings->clients;

    load->started_ns = load->last_done_ns = now;
    load->ended_ns = now + (uint64_t)settings->duration_ms * MS_NS;
    load->busy = (unsigned)clients;
    for (unsigned i = 0; i < clients; i++)
        if (settings->rate > 0)
            pause_until(&load->clients[i], now + i * SECOND_NS / (uint64_t)settings->rate);
        else if (!begin(&load->clients[i]))
            return false;
    return true;
}

bool load_run(struct load *load)
{
    unsigned clients = (unsigned)load->settings->clients;
    uint64_t seed = load->settings->seed > 0 ? (uint64_t)load->settings->seed : now_ns();

    load->poll = epoll_create1(EPOLL_CLOEXEC);
    load->clients = mem_zalloc(clients * sizeof *load->clients);
    for (unsigned i = 0; i < clients; i++) {
        struct client *client = &load->clients[i];
        *client = (struct client){.load = load, .number = i};
        client->random = seed * 2654435761ULL + i * 7919ULL + 1;
        client->prepared = !load->work->prepare;
        client->value = load->acknowledged ? VALUE_FIRST : 0;
        load->ready += client->prepared;
        if (!connect_client(client) || (!client->prepared && !take_turn(client)))
            return false;
    }
    while (load->ready < clients)
        if (!turn_loop(load))
            return false;
    if (!begin_all(load))
        return false;
    while (load->busy > 0) {
        if (!turn_loop(load))
            return false;
        if (now_ns() > load->last_done_ns + SILENCE_NS) {
            snprintf(load->why, sizeof load->why, "no reply for %llu s", SILENCE_NS / SECOND_NS);
            return false;
        }
    }
    if (load->settings->ops > 0)
        load->ended_ns = now_ns();
    return true;
}
