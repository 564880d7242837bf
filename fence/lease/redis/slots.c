/* SPDX-License-Identifier: Apache-2.0 */
#include "fence/lease/redis/slots.h"

#include <hiredis/hiredis.h>
#include <string.h>

#include "fence/lease/redis/scripts.h"

/* CRC-16/XMODEM. */
static unsigned crc16(struct bytes bytes)
{
    unsigned crc = 0;

    for (size_t i = 0; i < bytes.len; i++) {
        crc ^= (unsigned)(unsigned char)bytes.data[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 0x8000) != 0 ? (crc << 1 ^ 0x1021) & 0xffff : crc << 1 & 0xffff;
    }
    return crc;
}

unsigned slot_of_key(struct bytes key)
{
    const char *open = key.len == 0 ? NULL : memchr(key.data, '{', key.len);

    if (open != NULL) {
        size_t left = key.len - (size_t)(open + 1 - key.data);
        const char *close = left == 0 ? NULL : memchr(open + 1, '}', left);
        if (close != NULL && close > open + 1)
            key = (struct bytes){open + 1, (size_t)(close - open) - 1};
    }
    return crc16(key) % SLOTS;
}

static bool take_host(struct bytes name, int64_t port, const struct uri_host *asked,
                      struct uri_host *host)
{
    *host = (struct uri_host){.port = (int)port};
    if (port < 1 || port > 65535 || name.len >= sizeof host->name)
        return false;
    if (name.len == 0 || bytes_equal(name, BYTES_LITERAL("?")))
        name = bytes_of(asked->name);
    memcpy(host->name, name.data, name.len);
    return true;
}

/* [first, last, [host, port, ...], replicas ...] */
static bool read_range(const redisReply *range, const struct uri_host *asked,
                       struct slot_range *read)
{
    if (range->type != REDIS_REPLY_ARRAY || range->elements < 3 ||
        range->element[0]->type != REDIS_REPLY_INTEGER ||
        range->element[1]->type != REDIS_REPLY_INTEGER)
        return false;
    long long first = range->element[0]->integer, last = range->element[1]->integer;
    const redisReply *master = range->element[2];
    if (first < 0 || last < first || last >= SLOTS || master->type != REDIS_REPLY_ARRAY ||
        master->elements < 2 || master->element[1]->type != REDIS_REPLY_INTEGER)
        return false;
    const redisReply *name = master->element[0];
    struct bytes host = {"", 0};
    if (name->type == REDIS_REPLY_STRING)
        host = (struct bytes){name->str, name->len};
    else if (name->type != REDIS_REPLY_NIL)
        return false;
    read->first = (unsigned)first;
    read->last = (unsigned)last;
    return take_host(host, master->element[1]->integer, asked, &read->master);
}

bool slots_read(const struct redisReply *reply, const struct uri_host *asked,
                void (*each)(void *context, const struct slot_range *range), void *context)
{
    struct slot_range range;

    if (reply->type != REDIS_REPLY_ARRAY)
        return false;
    for (size_t i = 0; i < reply->elements; i++)
        if (!read_range(reply->element[i], asked, &range))
            return false;
    for (size_t i = 0; i < reply->elements; i++) {
        (void)read_range(reply->element[i], asked, &range);
        each(context, &range);
    }
    return true;
}

/* "MOVED 3999 127.0.0.1:6381"; an IPv6 address has colons, too. */
struct redirect redirect_read(struct bytes error, const struct uri_host *asked)
{
    struct bytes word = script_word(&error), slot, port;
    struct redirect redirect = {REDIRECT_NONE, {.port = 0}};
    int64_t number, slot_number;

    if (bytes_equal(word, BYTES_LITERAL("TRYAGAIN")) ||
        bytes_equal(word, BYTES_LITERAL("CLUSTERDOWN"))) {
        redirect.kind = REDIRECT_LATER;
        return redirect;
    }
    bool ask = bytes_equal(word, BYTES_LITERAL("ASK"));
    if (!ask && !bytes_equal(word, BYTES_LITERAL("MOVED")))
        return redirect;
    slot = script_word(&error);
    const char *colon = error.len == 0 ? NULL : memrchr(error.data, ':', error.len);
    if (colon == NULL || !bytes_to_int64(slot, &slot_number))
        return redirect;
    port = (struct bytes){colon + 1, error.len - (size_t)(colon + 1 - error.data)};
    error.len = (size_t)(colon - error.data);
    if (bytes_to_int64(port, &number) && take_host(error, number, asked, &redirect.to))
        redirect.kind = ask ? REDIRECT_ASK : REDIRECT_MOVED;
    return redirect;
}
