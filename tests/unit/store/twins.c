/* SPDX-License-Identifier: Apache-2.0 */
/* See twins.h. */
#include "tests/unit/store/twins.h"
#include "tests/support/flush.h"

#include "fence/base/check.h"

enum { NAMES = 24, FIELDS = 5, IDS = 6, KEEP_MS = TWINS_KEEP_MS };

unsigned twins_draw(uint64_t *state, unsigned below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (unsigned)(*state % below);
}

static struct bytes drawn(uint64_t *state, char *text, size_t size, const char *what, unsigned of)
{
    int len = snprintf(text, size, "%s%u", what, twins_draw(state, of));
    return (struct bytes){text, (size_t)len};
}

static enum stk_error change_value(struct store_txn *txn, struct resource *resource,
                                   uint64_t *state)
{
    char name[16], text[16];
    struct bytes field = drawn(state, name, sizeof name, "f", FIELDS);
    struct bytes value = drawn(state, text, sizeof text, "v", 1000);
    bool found;

    switch (twins_draw(state, 4)) {
    case 0: return txn_value_clear(txn, resource);
    case 1:
        if (resource->type == VALUE_STRING && txn_value_clear(txn, resource) != STK_OK)
            return STK_STORE;
        return txn_field_put(txn, resource, field, value);
    case 2: return txn_field_remove(txn, resource, field, &found);
    default:
        if (resource->type == VALUE_HASH && txn_value_clear(txn, resource) != STK_OK)
            return STK_STORE;
        return txn_string_put(txn, resource, value);
    }
}

static struct lease drawn_lease(uint64_t *state, char *text, size_t size)
{
    return (struct lease){.owner = drawn(state, text, size, "o", 100),
                          .anonymous = twins_draw(state, 2) == 0,
                          .holds = 1 + twins_draw(state, 3),
                          .ttl_ms = twins_draw(state, 1000),
                          .opening = twins_draw(state, 5),
                          .connection = twins_draw(state, 50)};
}

/* Grant a resource that has no row, or is said to have none. */
static enum stk_error make_fence(struct store_txn *txn, struct bytes name,
                                 struct resource *resource, uint64_t *state)
{
    char text[16];
    struct lease lease = drawn_lease(state, text, sizeof text);

    resource->id = 0;
    resource->fence.token = resource->fence.floor + 1 + twins_draw(state, 3);
    resource->fence.state = FENCE_LIVE;
    return txn_fence_make(txn, name, resource, &lease);
}

static enum stk_error change_fence(struct store_txn *txn, struct resource *resource,
                                   uint64_t *state)
{
    char text[16];
    struct lease lease;

    if (txn_lease(txn, resource, &lease) != STK_OK)
        return STK_STORE;
    if (resource->fence.state == FENCE_LIVE && twins_draw(state, 2) == 0) {
        resource->fence.state = twins_draw(state, 2) == 0 ? FENCE_RELEASED : FENCE_REVOKED;
        lease.holds = 0;
    } else {
        resource->fence.token = resource->fence.floor + 1 + twins_draw(state, 3);
        resource->fence.state = FENCE_LIVE;
        lease = drawn_lease(state, text, sizeof text);
    }
    return txn_fence_put(txn, resource, &lease);
}

static enum stk_error put_receipt(struct store_txn *txn, const struct resource *resource,
                                  uint64_t *state)
{
    char id[16], reply[16];
    struct bytes name = drawn(state, id, sizeof id, "i", IDS);
    struct receipt receipt = {.token = resource->fence.token,
                              .fingerprint = twins_draw(state, 9),
                              .reply = drawn(state, reply, sizeof reply, "+", 1000)};
    return txn_receipt_put(txn, resource, name, &receipt);
}

static enum stk_error remove_receipt(struct store_txn *txn, const struct resource *resource,
                                     uint64_t *state)
{
    char id[16];
    return txn_receipt_remove(txn, resource, drawn(state, id, sizeof id, "i", IDS));
}

static enum stk_error change_one(struct store_txn *txn, uint64_t *state)
{
    char text[16];
    struct bytes name = drawn(state, text, sizeof text, "r", NAMES);
    struct resource resource;

    enum stk_error error = txn_resource(txn, name, &resource);
    if (error == STK_OK && twins_draw(state, resource.id == 0 ? 2 : 20) == 0)
        return make_fence(txn, name, &resource, state);
    if (error == STK_OK)
        error = txn_resource_make(txn, name, &resource);
    if (error != STK_OK)
        return error;
    switch (twins_draw(state, 7)) {
    case 6: return remove_receipt(txn, &resource, state);
    case 0:
    case 1: return change_fence(txn, &resource, state);
    case 2: return put_receipt(txn, &resource, state);
    case 3: return txn_value_clear(txn, &resource);
    default: return change_value(txn, &resource, state);
    }
}

static enum stk_error sweep(struct store_txn *txn, struct drawing *drawing, uint64_t *state)
{
    int64_t before_ms = txn_now_ms(txn) - KEEP_MS, live_before_ms = before_ms - KEEP_MS;
    int64_t after = twins_draw(state, NAMES), looked_to = after;
    size_t max = 1 + twins_draw(state, 6), removed = 0;
    bool receipts = twins_draw(state, 2) == 0, due = false, more = false, more_to_look = false;
    enum stk_error error;

    if (receipts)
        error = txn_receipts_due(txn, before_ms, &due);
    else
        error =
            txn_resources_due(txn, before_ms, live_before_ms, max, &looked_to, &due, &more_to_look);
    if (error != STK_OK)
        return error;
    check(!due || looked_to == after);
    error = receipts
                ? txn_sweep_receipts(txn, before_ms, max, &removed, &more)
                : txn_sweep_resources(txn, before_ms, live_before_ms, max, &after, &removed, &more);
    if (error != STK_OK)
        return error;
    check(due || (removed == 0 && looked_to == after && more_to_look == more));
    drawing->outcome = after * 1000 + (int64_t)removed * 10 + more * 2 + due;
    return error;
}

enum stk_error twins_change(struct store_txn *txn, void *arg)
{
    struct drawing *drawing = arg;
    uint64_t state = drawing->seed;

    drawing->outcome = 0;
    for (unsigned left = 1 + twins_draw(&state, 4); left > 0; left--) {
        unsigned saved = twins_draw(&state, 6);
        enum stk_error error = saved < 2 ? txn_savepoint(txn) : STK_OK;
        if (error == STK_OK)
            error = !drawing->plain && twins_draw(&state, 5) == 0 ? sweep(txn, drawing, &state)
                                                                  : change_one(txn, &state);
        if (error == STK_OK && saved < 2)
            error = saved == 0 ? txn_savepoint_undo(txn) : txn_savepoint_keep(txn);
        if (error != STK_OK)
            return error;
    }
    if (!drawing->plain && twins_draw(&state, 150) == 0)
        return flush_in_steps(txn);
    return twins_draw(&state, 8) == 0 ? STK_ERR : STK_OK;
}

static bool dump_field(void *context, struct bytes field, struct bytes value)
{
    buf_printf(context, " %.*s=%.*s", (int)field.len, field.data, (int)value.len, value.data);
    return true;
}

static bool dump_listed(void *context, struct bytes id, const struct receipt *receipt)
{
    buf_printf(context, " %.*s@%lld", (int)id.len, id.data, (long long)receipt->token);
    return true;
}

static enum stk_error dump_receipts(struct store_txn *txn, const struct resource *resource,
                                    struct buf *out)
{
    char id[16];

    for (unsigned i = 0; i < IDS; i++) {
        struct receipt receipt;
        bool found;
        int len = snprintf(id, sizeof id, "i%u", i);
        if (txn_receipt(txn, resource, (struct bytes){id, (size_t)len}, &found, &receipt) != STK_OK)
            return STK_STORE;
        if (found)
            buf_printf(out, " %s %lld %d %.*s", id, (long long)receipt.token,
                       (int)receipt.fingerprint, (int)receipt.reply.len, receipt.reply.data);
    }
    return txn_each_receipt(txn, resource, dump_listed, out);
}

enum stk_error twins_view(struct store_txn *txn, void *arg)
{
    struct view *view = arg;
    struct buf *out = &view->text;
    int64_t count = 0, keys = 0, live = 0;
    char text[16];

    buf_clear(out);
    for (unsigned i = 0; i < NAMES; i++) {
        struct resource resource;
        struct lease lease;
        struct bytes value = {"", 0};
        bool found;
        int len = snprintf(text, sizeof text, "r%u", i);
        if (txn_resource(txn, (struct bytes){text, (size_t)len}, &resource) != STK_OK)
            return STK_STORE;
        buf_printf(out, "%s id %lld type %d token %lld state %d floor %lld", text,
                   view->shared ? resource.id != 0 : (long long)resource.id, (int)resource.type,
                   (long long)resource.fence.token, (int)resource.fence.state,
                   (long long)resource.fence.floor);
        if (txn_lease(txn, &resource, &lease) != STK_OK)
            return STK_STORE;
        buf_printf(out, " owner %.*s %d %lld %lld %lld %lld", (int)lease.owner.len,
                   lease.owner.data, lease.anonymous, (long long)lease.holds,
                   (long long)lease.ttl_ms, (long long)lease.opening, (long long)lease.connection);
        if (!view->shared)
            buf_printf(out, " changed %lld gone %lld", (long long)lease.changed_ms,
                       (long long)lease.receipts_gone);
        buf_append_text(out, " receipts");
        if (dump_receipts(txn, &resource, out) != STK_OK)
            return STK_STORE;
        if (txn_string(txn, &resource, &found, &value) != STK_OK)
            return STK_STORE;
        buf_printf(out, " string %.*s fields", found ? (int)value.len : 0, value.data);
        if (txn_each_field_from(txn, &resource, BYTES_LITERAL(""), dump_field, out) != STK_OK)
            return STK_STORE;
        buf_append_text(out, " from f2");
        if (txn_each_field_from(txn, &resource, BYTES_LITERAL("f2"), dump_field, out) != STK_OK ||
            txn_count_fields(txn, &resource, &count) != STK_OK)
            return STK_STORE;
        buf_printf(out, " of %lld\n", (long long)count);
    }
    if (txn_count_keys(txn, &keys) != STK_OK || txn_count_live(txn, &live) != STK_OK)
        return STK_STORE;
    buf_printf(out, "%lld keys, %lld live\n", (long long)keys, (long long)live);
    return STK_OK;
}
