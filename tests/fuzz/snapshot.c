/* SPDX-License-Identifier: Apache-2.0 */
/* See snapshot.h. One read through the store's primitives. */
#include "tests/fuzz/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/txn.h"
#include "tests/fuzz/store_file.h"

struct taking {
    struct store_op op;
    struct snapshot *now;
    const struct snapshot *before;
    bool done;
};

const struct seen *snapshot_find(const struct snapshot *snapshot, const char *name, size_t len)
{
    for (size_t i = 0; i < snapshot->count; i++)
        if (snapshot->all[i].name_len == len && memcmp(snapshot->all[i].name, name, len) == 0)
            return &snapshot->all[i];
    return NULL;
}

static void add_name(struct snapshot *now, struct bytes name)
{
    if (now->count == SNAPSHOT_MAX || snapshot_find(now, name.data, name.len) != NULL)
        return;
    struct seen *seen = &now->all[now->count++];
    *seen = (struct seen){.name = mem_alloc(name.len), .name_len = name.len};
    memcpy(seen->name, name.data, name.len);
}

static bool on_name(void *context, int64_t id, struct bytes name, enum value_type type)
{
    (void)id, (void)type;
    add_name(context, name);
    return true;
}

/* FNV-1a over the bytes and their length. */
static void add_bytes(uint64_t *sum, struct bytes text)
{
    *sum = (*sum ^ text.len) * 1099511628211u;
    for (size_t i = 0; i < text.len; i++)
        *sum = (*sum ^ (unsigned char)text.data[i]) * 1099511628211u;
}

static bool on_field(void *context, struct bytes field, struct bytes value)
{
    add_bytes(context, field);
    add_bytes(context, value);
    return true;
}

static enum stk_error take_value(struct store_txn *txn, struct seen *seen)
{
    struct resource resource;
    struct bytes text;
    bool found;
    enum stk_error error = txn_resource(txn, (struct bytes){seen->name, seen->name_len}, &resource);

    if (error != STK_OK)
        return error;
    seen->fence = resource.fence;
    seen->value = 0;
    if (resource.type == VALUE_NONE)
        return STK_OK;
    seen->value = 14695981039346656037u + (uint64_t)resource.type;
    if (resource.type == VALUE_HASH)
        return txn_each_field_from(txn, &resource, (struct bytes){"", 0}, on_field, &seen->value);
    error = txn_string(txn, &resource, &found, &text);
    if (error != STK_OK)
        return error;
    check(found);
    add_bytes(&seen->value, text);
    return STK_OK;
}

static enum stk_error take_run(struct store_op *op, struct store_txn *txn)
{
    struct taking *taking = (struct taking *)op;
    struct snapshot *now = taking->now;

    /* It may run again, and then starts anew. */
    snapshot_free(now);
    for (size_t i = 0; taking->before != NULL && i < taking->before->count; i++) {
        const struct seen *seen = &taking->before->all[i];
        add_name(now, (struct bytes){seen->name, seen->name_len});
    }
    enum stk_error error = txn_each_key(txn, 0, on_name, now);
    if (error == STK_OK)
        error = txn_each_live(txn, 0, on_name, now);
    for (size_t i = 0; i < now->count && error == STK_OK; i++)
        error = take_value(txn, &now->all[i]);
    return error;
}

static void take_done(struct store_op *op)
{
    ((struct taking *)op)->done = true;
}

void snapshot_take(struct snapshot *now, const struct snapshot *before, struct store *store)
{
    struct taking taking = {
        .op = {.run = take_run, .done = take_done}, .now = now, .before = before};

    now->count = 0;
    store_perform(store, &taking.op);
    check(taking.done && taking.op.error == STK_OK);
}

void snapshot_free(struct snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->count; i++)
        free(snapshot->all[i].name);
    snapshot->count = 0;
}
