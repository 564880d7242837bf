/* SPDX-License-Identifier: Apache-2.0 */
/* Paths, names and contents of nodes. What others may have written there is judged strictly. */
#include "fence/lease/zookeeper/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/plain.h"
#include "fence/token.h"

#define NODE_TTL_MAX_MS INT32_MAX /* longer than any lease that a daemon grants */

/* One step of a path. ZooKeeper takes neither zeros nor most control characters, nor "." and "..",
 * and text only: so all but plain characters become %XX. */
static void encode(struct buf *out, struct bytes text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool plain = plain_is_alnum(c) || c == '-' || c == '_' || c == ':' || (c == '.' && i > 0);
        if (plain)
            buf_append(out, &c, 1);
        else
            buf_printf(out, "%%%02X", (unsigned char)c);
    }
}

static void take(struct buf *path, char *out, size_t max)
{
    check(path->len <= max);
    memcpy(out, path->data, path->len);
    out[path->len] = '\0';
    buf_free(path);
}

void node_base(const struct lease_uri *uri, char out[NODE_BASE_MAX + 1])
{
    struct buf path = {0};

    buf_printf(&path, "%s/", uri->name);
    encode(&path, bytes_of(uri->prefix));
    take(&path, out, NODE_BASE_MAX);
}

void node_parent(const char *base, struct bytes resource, char *out)
{
    struct buf path = {0};

    buf_printf(&path, "%s/", base);
    encode(&path, resource);
    take(&path, out, NODE_PATH_MAX);
}

bool node_name_parse(const char *text, struct node_name *name)
{
    size_t len = strlen(text);
    char *end;

    if (len > NODE_NAME_MAX || len < NODE_ORIGIN_LEN + 2 || text[NODE_ORIGIN_LEN] != '-' ||
        strspn(text, "0123456789abcdef") != NODE_ORIGIN_LEN)
        return false;
    long number = strtol(text + NODE_ORIGIN_LEN + 1, &end, 10); /* from -2^31 on after 2^31-1 */
    if (*end != '\0' || number < INT32_MIN || number > INT32_MAX)
        return false;
    memcpy(name->text, text, len + 1);
    name->number = (int32_t)number;
    return true;
}

bool node_is_of(const struct node_name *name, const char *origin)
{
    return strncmp(name->text, origin, NODE_ORIGIN_LEN) == 0;
}

struct node_name node_name_at(const struct node_name *place, const char *origin)
{
    struct node_name name = {.number = place->number};

    snprintf(name.text, sizeof name.text, "%.*s-%010d", NODE_ORIGIN_LEN, origin, place->number);
    return name;
}

bool node_before(const struct node_name *a, const struct node_name *b)
{
    return (int32_t)((uint32_t)a->number - (uint32_t)b->number) < 0;
}

int node_write(const struct node_lease *lease, bool exact, char out[NODE_DATA_MAX])
{
    if (lease->queued)
        return snprintf(out, NODE_DATA_MAX, "q");
    return snprintf(out, NODE_DATA_MAX, "%c %lld %lld %s", exact ? '=' : '+',
                    (long long)lease->token, (long long)lease->ttl_ms, lease->nonce);
}

static bool word(struct bytes *text, struct bytes *out)
{
    const char *space = text->len == 0 ? NULL : memchr(text->data, ' ', text->len);

    if (space == NULL)
        return false;
    *out = (struct bytes){text->data, (size_t)(space - text->data)};
    *text = (struct bytes){space + 1, text->len - out->len - 1};
    return true;
}

bool node_read(struct bytes data, int64_t zxid, struct node_lease *lease)
{
    struct bytes sign, token, ttl;

    *lease = (struct node_lease){.queued = bytes_equal(data, BYTES_LITERAL("q"))};
    if (lease->queued)
        return true;
    if (!word(&data, &sign) || !word(&data, &token) || !word(&data, &ttl) ||
        !token_parse(token, &lease->token) || !bytes_to_int64(ttl, &lease->ttl_ms) ||
        lease->ttl_ms <= 0 || lease->ttl_ms > NODE_TTL_MAX_MS || data.len != LEASE_NONCE_LEN)
        return false;
    memcpy(lease->nonce, data.data, LEASE_NONCE_LEN);
    if (bytes_equal(sign, BYTES_LITERAL("=")))
        return true;
    lease->token = node_token(zxid, lease->token - 1);
    return bytes_equal(sign, BYTES_LITERAL("+"));
}

int64_t node_token(int64_t zxid, int64_t floor)
{
    if (zxid > floor && zxid <= TOKEN_MAX)
        return zxid;
    return floor >= TOKEN_MAX ? 0 : floor + 1;
}
