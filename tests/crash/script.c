/* SPDX-License-Identifier: Apache-2.0 */
/* What clients do next, and how it looks on the wire. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "tests/crash/model.h"
#include "tests/disk/ramdisk.h"

static bool is_live(const struct model_slot *slot, int resource)
{
    return slot->resources[resource].state == MODEL_LIVE;
}

/* A write of the resource's kind. */
static struct op pick_write(const struct model_slot *slot, int resource, uint64_t *state, int *ids)
{
    static const enum op_kind strings[] = {OP_SET, OP_ADD, OP_ADD, OP_ADD, OP_DELETE},
                              hashes[] = {OP_FIELD_ADD, OP_FIELD_ADD, OP_FIELD_SET, OP_BIG,
                                          OP_BIG_REMOVE};
    struct op op = {.resource = resource, .replies = 1};

    op.kind = (resource == SKU ? strings : hashes)[dice(state) % 5];
    op.token = slot->resources[resource].token;
    op.number = (int64_t)(dice(state) % 100) + 1;
    if (op.kind == OP_BIG)
        op.number = 2000 + op.number * 40;
    if (dice(state) % 10 < 7)
        op.id = ++*ids;
    return op;
}

static bool pick_special(const struct model_slot *slot, uint64_t *state, int *ids, struct op *op)
{
    static const enum op_kind kinds[] = {
        OP_BASKET, OP_BASKET, OP_BASKET_REFUSED, OP_ROW, OP_ROW_ROLLS_BACK, OP_ROW, OP_READ};

    if (!is_live(slot, SKU))
        return false;
    op->kind = kinds[dice(state) % 7];
    op->resource = SKU;
    op->token = slot->resources[SKU].token;
    op->other_token = slot->resources[BOX].token;
    op->number = (int64_t)(dice(state) % 9) + 1;
    if (op->kind != OP_READ && dice(state) % 10 < 7)
        op->id = ++*ids;
    if (op->kind != OP_BASKET && op->kind != OP_BASKET_REFUSED)
        return true;
    op->replies = 4;
    return is_live(slot, BOX);
}

static bool pick_lease(const struct model_slot *slot, int resource, uint64_t *state, int *ids,
                       int64_t now_ms, struct op *op)
{
    const struct model_resource *row = &slot->resources[resource];
    uint64_t what = dice(state) % 32;

    op->token = row->token;
    if (row->state != MODEL_LIVE || (row->until_ms < now_ms && what < 6)) {
        op->kind = OP_ACQUIRE;
        op->id = ++*ids;
        op->owner = op->id;
    } else if (what < (resource == TMP ? 9 : 2)) {
        op->kind = OP_RELEASE;
        op->id = dice(state) % 2 == 0 ? ++*ids : 0;
    } else if (what < 11 && what >= 9) {
        op->kind = OP_REVOKE;
    } else if (what >= 11 && what < 14 && row->until_ms >= now_ms) {
        op->kind = OP_ACQUIRE;
        op->id = ++*ids;
        op->owner = row->owner;
    } else if (what == 14) {
        op->kind = OP_RENEW;
    } else if (what >= 15 && what < 17 && resource == BOX && row->token > 1) {
        op->kind = OP_STALE;
        op->token = row->token - 1;
    } else {
        return false;
    }
    return true;
}

int model_pick(const struct model_slot *slot, uint64_t *state, int *ids, int64_t now_ms,
               struct op *ops, int max)
{
    static const int often[] = {BOX, BOX, BOX, SKU, SKU, SKU, TMP};
    int resource = often[dice(state) % 7], count = 0;

    ops[0] = (struct op){.resource = resource, .replies = 1};
    if (pick_lease(slot, resource, state, ids, now_ms, &ops[0]))
        return 1;
    if (resource == TMP)
        return 0;
    if (dice(state) % 2 == 0) {
        ops[0] = (struct op){.replies = 1};
        if (pick_special(slot, state, ids, &ops[0]))
            return 1;
    }
    for (int wanted = (int)(dice(state) % 3) + 1; count < wanted && count < max; count++)
        ops[count] = pick_write(slot, resource, state, ids);
    return count;
}

/* The wire. */

void model_line(struct buf *out, const char *format, ...)
{
    char *line = mem_alloc(16384), *words[16], *at = line;
    size_t count = 0;
    va_list args;

    va_start(args, format);
    vsnprintf(line, 16384, format, args);
    va_end(args);
    while (*(at += strspn(at, " ")) != '\0') {
        char end = *at == '~' ? '~' : ' ';
        at += end == '~';
        words[count++] = at;
        at += strcspn(at, end == '~' ? "~" : " ");
        if (*at != '\0')
            *at++ = '\0';
    }
    buf_printf(out, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++)
        buf_printf(out, "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
    free(line);
}

static void request_lease(const struct op *op, const char *name, struct buf *out)
{
    char id[16] = "";

    if (op->id != 0)
        snprintf(id, sizeof id, "ID %c%05d", op->kind == OP_ACQUIRE ? 'g' : 'r', op->id);
    if (op->kind == OP_ACQUIRE)
        model_line(out, "ACQUIRE %s %d OWNER o%d %s", name, MODEL_TTL_MS, op->owner, id);
    else if (op->kind == OP_RELEASE)
        model_line(out, "RELEASE %s %" PRId64 " %s", name, op->token, id);
    else if (op->kind == OP_REVOKE)
        model_line(out, "REVOKE %s", name);
    else
        model_line(out, "RENEW %s %" PRId64 " %d", name, op->token, MODEL_TTL_MS);
}

static void request_basket(int slot, const struct op *op, const char *id, struct buf *out)
{
    const char *bound = op->kind == OP_BASKET_REFUSED ? "MIN 999999999" : "";

    model_line(out, "MULTI");
    model_line(out, "FENCED %" PRId64 " %s INCRBY sku:%d %" PRId64, op->token, id, slot,
               op->number);
    model_line(out, "FENCED %" PRId64 " HINCRBY box:%d n -%" PRId64 " %s", op->other_token, slot,
               op->number, bound);
    model_line(out, "EXEC");
}

static void request_value(const struct op *op, const char *fenced, const char *name,
                          struct buf *out)
{
    switch (op->kind) {
    case OP_SET: model_line(out, "%s SET %s %" PRId64, fenced, name, op->number); break;
    case OP_ADD: model_line(out, "%s INCRBY %s %" PRId64, fenced, name, op->number); break;
    case OP_DELETE: model_line(out, "%s DEL %s", fenced, name); break;
    case OP_FIELD_ADD: model_line(out, "%s HINCRBY %s n %" PRId64, fenced, name, op->number); break;
    case OP_STALE:
    case OP_FIELD_SET: model_line(out, "%s HSET %s m %" PRId64, fenced, name, op->number); break;
    case OP_BIG: model_line(out, "%s HSET %s big %0*d", fenced, name, (int)op->number, 7); break;
    default: model_line(out, "%s HDEL %s big", fenced, name); break;
    }
}

void model_request(int slot, const struct op *op, struct buf *out)
{
    char name[16], id[16] = "", fenced[64];

    model_name(slot, op->resource, name);
    if (op->id != 0)
        snprintf(id, sizeof id, "ID w%05d", op->id);
    snprintf(fenced, sizeof fenced, "FENCED %" PRId64 " %s", op->token, id);
    switch (op->kind) {
    case OP_ACQUIRE:
    case OP_RELEASE:
    case OP_REVOKE:
    case OP_RENEW: request_lease(op, name, out); break;
    case OP_BASKET:
    case OP_BASKET_REFUSED: request_basket(slot, op, id, out); break;
    case OP_ROW:
        model_line(out,
                   "FENCEDALL 1 %s %" PRId64 " %s SQL ~INSERT INTO stock VALUES('%d', %" PRId64
                   ") ON CONFLICT(sku) DO UPDATE SET n = n + excluded.n~",
                   name, op->token, id, slot, op->number);
        break;
    case OP_ROW_ROLLS_BACK:
        model_line(out,
                   "FENCEDALL 1 %s %" PRId64 " %s SQL ~INSERT OR ROLLBACK INTO plain"
                   " VALUES('one'), ('one')~",
                   name, op->token, id);
        break;
    case OP_READ: model_line(out, "GET %s", name); break;
    default: request_value(op, fenced, name, out); break;
    }
}
