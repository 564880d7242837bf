/* SPDX-License-Identifier: Apache-2.0 */
/* ZooKeeper's own protocol, as far as a benchmark needs it: a session for each client, requests and
 * replies of big-endian numbers behind a length (Apache ZooKeeper, zookeeper.jute).
 *
 * The cycle is ZooKeeper's recipe for locks: an ephemeral sequential node; the lowest one holds the
 * lock, each other watches the one before it. What can go together does: ZooKeeper keeps the order
 * of a session's requests. */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench/load/load.h"

enum { CREATE = 1, DELETE = 2, GET_DATA = 4, SET_DATA = 5, GET_CHILDREN = 8 };
enum { EPHEMERAL_SEQUENTIAL = 3, HEADER_SIZE = 16, STAT_VERSION = 32 };
enum { NO_NODE = -101, NODE_EXISTS = -110 };

#define SESSION_MS 30000

static void put32(struct buf *out, int32_t number)
{
    uint32_t bytes = htobe32((uint32_t)number);

    buf_append(out, &bytes, sizeof bytes);
}

static int32_t get32(const char *at)
{
    uint32_t bytes;

    memcpy(&bytes, at, sizeof bytes);
    return (int32_t)be32toh(bytes);
}

static void put_text(struct buf *out, const char *text)
{
    put32(out, (int32_t)strlen(text));
    buf_append_text(out, text);
}

/* Where the length goes; finish() fills it in. */
static size_t start(struct client *client, int32_t type)
{
    size_t at = client->out.len;

    put32(&client->out, 0);
    put32(&client->out, (int32_t)++client->sequence);
    put32(&client->out, type);
    return at;
}

static void finish(struct client *client, size_t at)
{
    uint32_t length = htobe32((uint32_t)(client->out.len - at - 4));

    memcpy(client->out.data + at, &length, sizeof length);
}

static void create(struct client *client, const char *path, int32_t flags)
{
    size_t at = start(client, CREATE);

    put_text(&client->out, path);
    put_text(&client->out, "000000000000");
    put32(&client->out, 1); /* one entry of access: anyone, everything */
    put32(&client->out, 31);
    put_text(&client->out, "world");
    put_text(&client->out, "anyone");
    put32(&client->out, flags);
    finish(client, at);
}

static void ask(struct client *client, int32_t type, const char *path, bool watch)
{
    size_t at = start(client, type);

    put_text(&client->out, path);
    buf_append(&client->out, watch ? "\1" : "\0", 1);
    finish(client, at);
}

static void set_data(struct client *client, const char *path, uint64_t value, int32_t version)
{
    size_t at = start(client, SET_DATA);
    char text[16];

    snprintf(text, sizeof text, "%012llu", (unsigned long long)value);
    put_text(&client->out, path);
    put_text(&client->out, text);
    put32(&client->out, version);
    finish(client, at);
}

static void delete_node(struct client *client, const char *path)
{
    size_t at = start(client, DELETE);

    put_text(&client->out, path);
    put32(&client->out, -1);
    finish(client, at);
}

static void greet(struct client *client)
{
    static const char zeros[24];

    put32(&client->out, 45);
    buf_append(&client->out, zeros, 12); /* version, last zxid */
    put32(&client->out, SESSION_MS);
    buf_append(&client->out, zeros, 8); /* a new session */
    put32(&client->out, 16);
    buf_append(&client->out, zeros, 17); /* password, not read-only */
}

static bool feed(struct client *client)
{
    while (client->got < client->awaits && client->in.len - client->in_used >= 4) {
        int32_t length = get32(client->in.data + client->in_used);
        if (length < HEADER_SIZE || length > 1 << 20)
            return false;
        if (client->in.len - client->in_used - 4 < (size_t)length)
            break;
        client_found(client, &client->in, client->in_used + 4, (size_t)length);
        client->in_used += 4 + (size_t)length;
    }
    return true;
}

static const struct protocol protocol = {.greet = greet, .feed = feed};

static int32_t error_of(const struct client *client, unsigned index)
{
    return get32(client_reply(client, index).data + 12);
}

static enum turn failed(struct client *client, const char *what, unsigned index)
{
    snprintf(client->load->why, sizeof client->load->why, "%s: ZooKeeper's error %d", what,
             error_of(client, index));
    return TURN_FAILED;
}

/* The answer to greet(). */
static enum turn connected(struct client *client)
{
    return client->step == 0 ? client_await(client, 1) : TURN_DONE;
}

static const char *path_of(char *path, size_t size, const char *kind, uint64_t number)
{
    snprintf(path, size, "/%s:%012llu", kind, (unsigned long long)number);
    return path;
}

static enum turn all_good(struct client *client)
{
    for (unsigned i = 0; i < client->got; i++)
        if (error_of(client, i) != 0 && error_of(client, i) != NODE_EXISTS)
            return failed(client, "refused", i);
    return TURN_DONE;
}

static enum turn make_step(struct client *client)
{
    char path[64];

    if (client->step > 0)
        return all_good(client);
    for (int64_t i = 0; i < client->load->settings->pipeline; i++)
        create(client, path_of(path, sizeof path, "key", client_next_key(client)), 0);
    return client_await(client, (unsigned)client->load->settings->pipeline);
}

static enum turn set_step(struct client *client)
{
    char path[64];

    if (client->step > 0) {
        client_acknowledge(client, client->key, client->value);
        return all_good(client);
    }
    for (int64_t i = 0; i < client->load->settings->pipeline; i++) {
        client->key = client_any_key(client);
        set_data(client, path_of(path, sizeof path, "key", client->key), client_next_value(client),
                 -1);
    }
    return client_await(client, (unsigned)client->load->settings->pipeline);
}

static enum turn get_step(struct client *client)
{
    char path[64];

    if (client->step == 0) {
        client->key = client_any_key(client);
        ask(client, GET_DATA, path_of(path, sizeof path, "key", client->key), false);
        return client_await(client, 1);
    }
    if (error_of(client, 0) != 0)
        return failed(client, "not read", 0);
    struct bytes reply = client_reply(client, 0);
    struct bytes value = {reply.data + HEADER_SIZE + 4, (size_t)get32(reply.data + HEADER_SIZE)};
    if (!client_verify(client, client->key, value))
        return client_fail(client, "lost what was acknowledged", value);
    return TURN_DONE;
}

/* The cycle. token: the number of our node in the line; name: its whole path. */

static enum turn prepare_cycle(struct client *client)
{
    char path[64];

    if (client->step == 0)
        return client_await(client, 1);
    if (client->step == 2)
        return all_good(client);
    create(client, path_of(path, sizeof path, "lock", client_cycle_key(client)), 0);
    create(client, path_of(path, sizeof path, "value", client_cycle_key(client)), 0);
    return client_await(client, 2);
}

static uint64_t number_at_end(struct bytes name)
{
    uint64_t number = 0;

    for (size_t i = name.len > 10 ? name.len - 10 : 0; i < name.len; i++)
        number = number * 10 + (uint64_t)(name.data[i] - '0');
    return number;
}

/* The number of the node before ours, or ours: nobody is before us. */
static uint64_t before_us(const struct client *client, struct bytes reply)
{
    const char *at = reply.data + HEADER_SIZE + 4;
    uint64_t before = client->token;
    bool found = false;

    for (int32_t left = get32(reply.data + HEADER_SIZE); left > 0; left--) {
        struct bytes name = {at + 4, (size_t)get32(at)};
        uint64_t number = number_at_end(name);
        if (number < client->token && (!found || number > before)) {
            before = number;
            found = true;
        }
        at += 4 + name.len;
    }
    return before;
}

static void look(struct client *client)
{
    char path[64];

    ask(client, GET_CHILDREN, path_of(path, sizeof path, "lock", client_cycle_key(client)), false);
    ask(client, GET_DATA, path_of(path, sizeof path, "value", client_cycle_key(client)), false);
}

/* What the replies that have come were asked for. */
enum { BEGUN, JOINED, WATCHED, TOLD, LOOKED, WRITTEN };

static enum turn await_as(struct client *client, unsigned step, unsigned replies)
{
    client_await(client, replies);
    client->step = step;
    return TURN_WAIT;
}

/* replies[first]: who is in line; replies[first + 1]: the value. */
static enum turn write_or_wait(struct client *client, unsigned first)
{
    char path[64], before[96];
    uint64_t number = before_us(client, client_reply(client, first));
    struct bytes value = client_reply(client, first + 1);
    int32_t length = get32(value.data + HEADER_SIZE);

    if (number != client->token) {
        snprintf(before, sizeof before, "%s/n-%010" PRIu64,
                 path_of(path, sizeof path, "lock", client_cycle_key(client)), number);
        ask(client, GET_DATA, before, true);
        return await_as(client, WATCHED, 1);
    }
    int32_t version = get32(value.data + HEADER_SIZE + 4 + length + STAT_VERSION);
    set_data(client, path_of(path, sizeof path, "value", client_cycle_key(client)), ++client->value,
             version);
    delete_node(client, client->name.data);
    return await_as(client, WRITTEN, 2);
}

static enum turn join(struct client *client)
{
    char path[64], node[96];

    snprintf(node, sizeof node, "%s/n-",
             path_of(path, sizeof path, "lock", client_cycle_key(client)));
    create(client, node, EPHEMERAL_SEQUENTIAL);
    look(client);
    return await_as(client, JOINED, 3);
}

static void keep_name(struct client *client)
{
    struct bytes made = client_reply(client, 0);
    struct bytes name = {made.data + HEADER_SIZE + 4, (size_t)get32(made.data + HEADER_SIZE)};

    client->token = number_at_end(name);
    buf_clear(&client->name);
    buf_append_bytes(&client->name, name);
    buf_append(&client->name, "", 1);
}

static enum turn cycle_step(struct client *client)
{
    if (client->step == BEGUN)
        return join(client);
    if (client->step == WATCHED && error_of(client, 0) == 0)
        return await_as(client, TOLD, 1); /* it is still there: what comes next is the news */
    if (client->step == WATCHED && error_of(client, 0) != NO_NODE)
        return failed(client, "cannot watch", 0);
    if (client->step == WATCHED || client->step == TOLD) {
        look(client);
        return await_as(client, LOOKED, 2);
    }
    if (all_good(client) == TURN_FAILED)
        return TURN_FAILED;
    if (client->step == WRITTEN)
        return TURN_DONE;
    if (client->step == JOINED)
        keep_name(client);
    return write_or_wait(client, client->step == JOINED ? 1 : 0);
}

const struct work zookeeper_make_work = {
    .name = "zookeeper-make", .protocol = &protocol, .step = make_step, .prepare = connected};
const struct work zookeeper_set_work = {
    .name = "zookeeper-set", .protocol = &protocol, .step = set_step, .prepare = connected};
const struct work zookeeper_get_work = {
    .name = "zookeeper-get", .protocol = &protocol, .step = get_step, .prepare = connected};
const struct work zookeeper_cycle_work = {
    .name = "zookeeper-cycle", .protocol = &protocol, .step = cycle_step, .prepare = prepare_cycle};
