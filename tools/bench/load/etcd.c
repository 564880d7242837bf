/* SPDX-License-Identifier: Apache-2.0 */
/* etcd's API: gRPC over HTTP/2, as far as a benchmark needs it. Each call is a stream: one HEADERS
 * frame without compression state, one DATA frame with the message. Of what comes back, headers are
 * not looked at: a call that failed ends without a message (RFC 9113, RFC 7541; gRPC over HTTP/2).
 *
 * The cycle takes etcd's own mutex (v3lockpb), reads, writes in a transaction that asks whether the
 * lock's key is still there, and unlocks. */
#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench/load/load.h"

enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, PING = 6, GOAWAY = 7, WINDOW = 8 };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4 };
enum { FRAME_HEAD = 9, MESSAGE_HEAD = 5, LEASE_S = 600 };

#define WINDOW_SIZE (1U << 30) /* more than a run receives */

static void put32(struct buf *out, uint32_t number)
{
    uint32_t bytes = htobe32(number);

    buf_append(out, &bytes, sizeof bytes);
}

static void frame(struct client *client, size_t length, int type, int flags, uint32_t stream)
{
    const unsigned char head[5] = {(unsigned char)(length >> 16), (unsigned char)(length >> 8),
                                   (unsigned char)length, (unsigned char)type,
                                   (unsigned char)flags};

    buf_append(&client->out, head, sizeof head);
    put32(&client->out, stream);
}

static void put_header(struct buf *out, const char *name, size_t name_len, const char *value)
{
    size_t len = strlen(value);
    char byte = (char)len;

    buf_append(out, name, name_len);
    buf_append(out, &byte, 1); /* below 127: one byte, no Huffman code */
    buf_append(out, value, len);
}

static void call(struct client *client, const char *path, struct bytes message)
{
    struct buf headers = {0};
    uint32_t stream = 2 * client->sequence++ + 1;

    buf_append(&headers, "\x83\x86", 2); /* :method POST, :scheme http */
    put_header(&headers, "\x04", 1, path);
    put_header(&headers, "\x01", 1, "localhost");
    put_header(&headers, "\x0f\x10", 2, "application/grpc"); /* content-type */
    put_header(&headers, "\0\2te", 4, "trailers");
    frame(client, headers.len, HEADERS, END_HEADERS, stream);
    buf_append_bytes(&client->out, buf_bytes(&headers));
    frame(client, MESSAGE_HEAD + message.len, DATA, END_STREAM, stream);
    buf_append(&client->out, "", 1); /* not compressed */
    put32(&client->out, (uint32_t)message.len);
    buf_append_bytes(&client->out, message);
    buf_free(&headers);
}

static void greet(struct client *client)
{
    buf_append_text(&client->out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    frame(client, 6, SETTINGS, 0, 0);
    buf_append(&client->out, "\0\4", 2); /* INITIAL_WINDOW_SIZE */
    put32(&client->out, WINDOW_SIZE);
    frame(client, 4, WINDOW, 0, 0);
    put32(&client->out, WINDOW_SIZE);
}

/* One frame. False: the server ended the stream or the connection, or a call failed. */
static bool take_frame(struct client *client, int type, int flags, const char *data, size_t len)
{
    if (type == SETTINGS && (flags & ACK) == 0) {
        frame(client, 0, SETTINGS, ACK, 0);
        client_flush(client);
    } else if (type == PING && (flags & ACK) == 0) {
        frame(client, len, PING, ACK, 0);
        buf_append(&client->out, data, len);
        client_flush(client);
    } else if (type == DATA && len >= MESSAGE_HEAD && client->bodies < REPLIES_MAX) {
        client->replies[client->bodies++] =
            (struct span){client->body.len + MESSAGE_HEAD, len - MESSAGE_HEAD};
        buf_append(&client->body, data, len);
    } else if (type == HEADERS && (flags & END_STREAM) != 0) {
        client->replies_in = &client->body;
        return ++client->got <= client->bodies;
    }
    return type != GOAWAY && type != RST_STREAM;
}

static bool feed(struct client *client)
{
    while (client->in.len - client->in_used >= FRAME_HEAD) {
        const unsigned char *head = (const unsigned char *)client->in.data + client->in_used;
        size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        if (client->in.len - client->in_used - FRAME_HEAD < len)
            break;
        if (!take_frame(client, head[3], head[4], (const char *)head + FRAME_HEAD, len))
            return false;
        client->in_used += FRAME_HEAD + len;
    }
    return true;
}

static const struct protocol protocol = {.greet = greet, .feed = feed};

/* Protocol buffers: fields in order, a number's type 0, bytes' type 2. */

static void put_varint(struct buf *out, uint64_t number)
{
    for (; number > 127; number >>= 7) {
        char byte = (char)(number | 128);
        buf_append(out, &byte, 1);
    }
    char last = (char)number;
    buf_append(out, &last, 1);
}

static void put_bytes(struct buf *out, unsigned field, struct bytes value)
{
    put_varint(out, field << 3 | 2);
    put_varint(out, value.len);
    buf_append_bytes(out, value);
}

static void put_number(struct buf *out, unsigned field, uint64_t value)
{
    put_varint(out, field << 3);
    put_varint(out, value);
}

static uint64_t take_varint(struct bytes *from)
{
    uint64_t number = 0;

    for (unsigned shift = 0; from->len > 0 && shift < 64; shift += 7) {
        unsigned char byte = (unsigned char)*from->data++;
        from->len--;
        number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            break;
    }
    return number;
}

/* A field of a message: its bytes, or its number. False: it is not there. */
static bool find(struct bytes message, unsigned field, struct bytes *bytes, uint64_t *number)
{
    while (message.len > 0) {
        uint64_t tag = take_varint(&message), value = take_varint(&message);
        struct bytes content = {message.data, 0};
        if ((tag & 7) == 2) {
            if (value > message.len)
                return false;
            content.len = (size_t)value;
            message.data += value;
            message.len -= (size_t)value;
        }
        if (tag >> 3 == field) {
            if (bytes)
                *bytes = content;
            if (number)
                *number = value;
            return true;
        }
    }
    return false;
}

static struct bytes key_name(char *text, size_t size, const char *kind, uint64_t number)
{
    int len = snprintf(text, size, "%s:%012llu", kind, (unsigned long long)number);

    return (struct bytes){text, (size_t)len};
}

static void put_message(struct buf *out, struct bytes key, uint64_t value)
{
    char text[16];
    int len = snprintf(text, sizeof text, "%012llu", (unsigned long long)value);

    put_bytes(out, 1, key);
    put_bytes(out, 2, (struct bytes){text, (size_t)len});
}

static void send_and_free(struct client *client, const char *path, struct buf *message)
{
    call(client, path, buf_bytes(message));
    buf_free(message);
}

static void send_get(struct client *client, struct bytes key)
{
    struct buf message = {0};

    put_bytes(&message, 1, key);
    send_and_free(client, "/etcdserverpb.KV/Range", &message);
}

static enum turn put_step(struct client *client)
{
    char name[32];
    int64_t count = client->load->settings->pipeline;

    if (client->step > 0) {
        client_acknowledge(client, client->key, client->value);
        return TURN_DONE;
    }
    for (int64_t i = 0; i < count; i++) {
        struct buf message = {0};
        client->key = client_any_key(client);
        put_message(&message, key_name(name, sizeof name, "key", client->key),
                    client_next_value(client));
        send_and_free(client, "/etcdserverpb.KV/Put", &message);
    }
    return client_await(client, (unsigned)count);
}

static enum turn get_step(struct client *client)
{
    char name[32];
    struct bytes pair, value = {0};

    if (client->step == 0) {
        client->key = client_any_key(client);
        send_get(client, key_name(name, sizeof name, "key", client->key));
        return client_await(client, 1);
    }
    if (find(client_reply(client, 0), 2, &pair, NULL))
        find(pair, 5, &value, NULL);
    if (!client_verify(client, client->key, value))
        return client_fail(client, "lost what was acknowledged", value);
    return TURN_DONE;
}

/* A session: a lease of etcd's, which the locks hang on. */
static enum turn prepare_cycle(struct client *client)
{
    struct buf message = {0};

    if (client->step > 0)
        return find(client_reply(client, 0), 2, NULL, &client->lease)
                   ? TURN_DONE
                   : client_fail(client, "no lease", client_reply(client, 0));
    put_number(&message, 1, LEASE_S);
    send_and_free(client, "/etcdserverpb.Lease/LeaseGrant", &message);
    return client_await(client, 1);
}

static void send_lock(struct client *client)
{
    struct buf message = {0};
    char name[32];

    put_bytes(&message, 1, key_name(name, sizeof name, "lock", client_cycle_key(client)));
    put_number(&message, 2, client->lease);
    send_and_free(client, "/v3lockpb.Lock/Lock", &message);
}

/* If the lock's key was created (and is still there), put. */
static void send_fenced_put(struct client *client)
{
    struct buf compare = {0}, put = {0}, op = {0}, message = {0};
    char name[32];

    put_number(&compare, 1, 1); /* greater than */
    put_number(&compare, 2, 1); /* create revision */
    put_bytes(&compare, 3, buf_bytes(&client->name));
    put_number(&compare, 5, 0);
    put_message(&put, key_name(name, sizeof name, "value", client_cycle_key(client)),
                ++client->value);
    put_bytes(&op, 2, buf_bytes(&put));
    put_bytes(&message, 1, buf_bytes(&compare));
    put_bytes(&message, 2, buf_bytes(&op));
    send_and_free(client, "/etcdserverpb.KV/Txn", &message);
    buf_free(&compare);
    buf_free(&put);
    buf_free(&op);
}

static enum turn cycle_step(struct client *client)
{
    struct buf message = {0};
    struct bytes key;
    uint64_t succeeded = 0;
    char name[32];

    switch (client->step) {
    case 0: send_lock(client); break;
    case 1:
        if (!find(client_reply(client, 0), 2, &key, NULL))
            return client_fail(client, "not locked", client_reply(client, 0));
        buf_clear(&client->name);
        buf_append_bytes(&client->name, key);
        send_get(client, key_name(name, sizeof name, "value", client_cycle_key(client)));
        break;
    case 2: send_fenced_put(client); break;
    case 3:
        if (!find(client_reply(client, 0), 2, NULL, &succeeded) || !succeeded)
            return client_fail(client, "lost the lock", client_reply(client, 0));
        put_bytes(&message, 1, buf_bytes(&client->name));
        send_and_free(client, "/v3lockpb.Lock/Unlock", &message);
        break;
    default: return TURN_DONE;
    }
    return client_await(client, 1);
}

const struct work etcd_put_work = {.name = "etcd-put", .protocol = &protocol, .step = put_step};
const struct work etcd_get_work = {.name = "etcd-get", .protocol = &protocol, .step = get_step};
const struct work etcd_cycle_work = {
    .name = "etcd-cycle", .protocol = &protocol, .step = cycle_step, .prepare = prepare_cycle};
