/* SPDX-License-Identifier: Apache-2.0 */
/* What operations do, and what is there then. */
#include "tests/crash/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "tests/crash/host.h"

static const char *const state_names[] = {"none", "live", "released", "revoked"};

const char *op_name(enum op_kind kind)
{
    static const char *const names[OP_KINDS] = {"acquire",
                                                "release",
                                                "revoke",
                                                "renew",
                                                "set",
                                                "add",
                                                "delete",
                                                "field add",
                                                "field set",
                                                "large field",
                                                "large field removed",
                                                "basket",
                                                "basket refused",
                                                "row",
                                                "row rolled back",
                                                "stale",
                                                "read"};
    return names[kind];
}

const char *model_name(int slot, int resource, char out[16])
{
    static const char *const kinds[] = {"box", "sku", "tmp"};
    snprintf(out, 16, "%s:%d", kinds[resource], slot);
    return out;
}

/* The token's time is over. */
static void end_token(struct model_slot *slot, int resource, int64_t now_ms)
{
    for (int i = 0; i < slot->receipts_count; i++) {
        struct model_receipt *receipt = &slot->receipts[i];
        if (receipt->resource == resource && receipt->ended_ms == 0)
            receipt->ended_ms = now_ms;
    }
}

static void remember(struct model_slot *slot, const struct op *op, int resource, int64_t token,
                     char kind, const char *reply)
{
    if (op->id == 0)
        return;
    check(slot->receipts_count < MODEL_RECEIPTS_MAX);
    struct model_receipt *receipt = &slot->receipts[slot->receipts_count++];
    *receipt =
        (struct model_receipt){.resource = resource, .id = op->id, .kind = kind, .token = token};
    if (kind == 'w')
        snprintf(receipt->reply, sizeof receipt->reply, "%s", reply);
}

static bool granted(const struct bytes *reply, int64_t *token)
{
    long long number = 0;
    char text[64] = "";

    if (reply->len < sizeof text)
        memcpy(text, reply->data, reply->len);
    if (sscanf(text, "*2\r\n:%lld\r\n:", &number) != 1)
        return false;
    *token = number;
    return true;
}

static bool acquire(struct model_slot *slot, const struct op *op, const struct bytes *reply,
                    int64_t token, int64_t now_ms, char *expected)
{
    struct model_resource *resource = &slot->resources[op->resource];
    bool again = resource->state == MODEL_LIVE && resource->owner == op->owner &&
                 now_ms < resource->until_ms;

    snprintf(expected, MODEL_REPLY_MAX, "a token %s %" PRId64, again ? "that is" : "above",
             resource->token);
    if (reply != NULL && !granted(reply, &token))
        return false;
    if (again ? token != resource->token : token <= resource->token)
        return false;
    if (!again) {
        end_token(slot, op->resource, now_ms);
        *resource = (struct model_resource){
            .state = MODEL_LIVE, .token = token, .owner = op->owner, .changed_ms = now_ms};
    }
    resource->holds++;
    resource->changed_ms = now_ms;
    resource->until_ms = now_ms + MODEL_TTL_MS;
    remember(slot, op, op->resource, token, 'g', "");
    return true;
}

static void release(struct model_slot *slot, const struct op *op, int64_t now_ms, char *expected)
{
    struct model_resource *resource = &slot->resources[op->resource];

    snprintf(expected, MODEL_REPLY_MAX, ":%d\r\n", --resource->holds);
    remember(slot, op, op->resource, op->token, 'r', "");
    resource->changed_ms = now_ms;
    if (resource->holds > 0)
        return;
    resource->state = MODEL_RELEASED;
    end_token(slot, op->resource, now_ms);
}

static void revoke(struct model_slot *slot, const struct op *op, int64_t now_ms, char *expected)
{
    struct model_resource *resource = &slot->resources[op->resource];

    snprintf(expected, MODEL_REPLY_MAX, ":%" PRId64 "\r\n", resource->token);
    resource->state = MODEL_REVOKED;
    resource->holds = 0;
    resource->changed_ms = now_ms;
    end_token(slot, op->resource, now_ms);
}

static void renew(struct model_slot *slot, const struct op *op, int64_t now_ms, char *expected)
{
    snprintf(expected, MODEL_REPLY_MAX, ":%d\r\n", MODEL_TTL_MS);
    slot->resources[op->resource].until_ms = now_ms + MODEL_TTL_MS;
}

/* Writes, and what they answer. */
static void write_value(struct model_slot *slot, const struct op *op, char *expected)
{
    int64_t number = 0;

    switch (op->kind) {
    case OP_SET: slot->sku = op->number, slot->has_sku = true; break;
    case OP_ADD: number = slot->sku += op->number, slot->has_sku = true; break;
    case OP_DELETE: number = slot->has_sku, slot->sku = 0, slot->has_sku = false; break;
    case OP_FIELD_ADD: number = slot->n += op->number, slot->has_n = true; break;
    case OP_FIELD_SET: number = !slot->has_m, slot->m = op->number, slot->has_m = true; break;
    case OP_BIG: number = slot->big == 0, slot->big = op->number; break;
    default: number = slot->big != 0, slot->big = 0; break;
    }
    if (op->kind == OP_SET)
        strcpy(expected, "+OK\r\n");
    else
        snprintf(expected, MODEL_REPLY_MAX, ":%" PRId64 "\r\n", number);
    remember(slot, op, op->resource, op->token, 'w', expected);
}

static void write_basket(struct model_slot *slot, const struct op *op, char *expected)
{
    slot->sku += op->number;
    slot->n -= op->number;
    slot->has_sku = slot->has_n = true;
    snprintf(expected, MODEL_REPLY_MAX, "*2\r\n:%" PRId64 "\r\n:%" PRId64 "\r\n", slot->sku,
             slot->n);
    remember(slot, op, SKU, op->token, 'w', expected);
    remember(slot, op, BOX, op->other_token, 'w', expected);
}

static void write_row(struct model_slot *slot, const struct op *op, char *expected)
{
    snprintf(expected, MODEL_REPLY_MAX,
             "*8\r\n$7\r\ncolumns\r\n*0\r\n$4\r\nrows\r\n*0\r\n$7\r\nchanges\r\n:1\r\n"
             "$17\r\nlast_insert_rowid\r\n:%d\r\n",
             0);
    slot->row = slot->has_row ? slot->row + op->number : op->number;
    slot->has_row = true;
    remember(slot, op, SKU, op->token, 'w', expected);
}

static void read_value(const struct model_slot *slot, char *expected)
{
    char number[24];
    int len = snprintf(number, sizeof number, "%" PRId64, slot->sku);

    if (slot->has_sku)
        snprintf(expected, MODEL_REPLY_MAX, "$%d\r\n%s\r\n", len, number);
    else
        strcpy(expected, "$-1\r\n");
}

bool model_apply(struct model_slot *slot, const struct op *op, const struct bytes *reply,
                 int64_t token, int64_t now_ms, char expected[MODEL_REPLY_MAX])
{
    const char *refusal = NULL;

    switch (op->kind) {
    case OP_ACQUIRE: return acquire(slot, op, reply, token, now_ms, expected);
    case OP_RELEASE: release(slot, op, now_ms, expected); break;
    case OP_REVOKE: revoke(slot, op, now_ms, expected); break;
    case OP_RENEW: renew(slot, op, now_ms, expected); break;
    case OP_BASKET: write_basket(slot, op, expected); break;
    case OP_ROW: write_row(slot, op, expected); break;
    case OP_READ: read_value(slot, expected); break;
    case OP_BASKET_REFUSED: refusal = "-RANGE"; break;
    case OP_ROW_ROLLS_BACK: refusal = "-ERR"; break;
    case OP_STALE: refusal = "-STALE"; break;
    default: write_value(slot, op, expected); break;
    }
    if (refusal == NULL)
        return reply == NULL || bytes_equal(*reply, bytes_of(expected));
    snprintf(expected, MODEL_REPLY_MAX, "%s", refusal);
    return reply == NULL ||
           (reply->len > strlen(refusal) && memcmp(reply->data, refusal, strlen(refusal)) == 0);
}

void model_restart(struct model_slot *slot, int64_t now_ms)
{
    for (int i = 0; i < MODEL_RESOURCES; i++)
        slot->resources[i].until_ms = now_ms + MODEL_TTL_MS;
}

/* Lines. */

static bool is_old(const struct model_receipt *receipt, int64_t now_ms)
{
    return receipt->ended_ms != 0 && receipt->ended_ms + HOST_RECEIPTS_KEEP_MS < now_ms;
}

/* Nothing holds the row in the store any more. */
static bool is_forgettable(const struct model_slot *slot, int resource, int64_t now_ms)
{
    const struct model_resource *row = &slot->resources[resource];

    if (row->state == MODEL_LIVE || row->changed_ms + HOST_FORGET_MS >= now_ms ||
        (resource == SKU && slot->has_sku) ||
        (resource == BOX && (slot->has_n || slot->has_m || slot->big != 0)))
        return false;
    for (int i = 0; i < slot->receipts_count; i++)
        if (slot->receipts[i].resource == resource && !is_old(&slot->receipts[i], now_ms))
            return false;
    return true;
}

static void lines_of_resource(const struct model_slot *slot, int resource, int64_t now_ms,
                              struct buf *out)
{
    const struct model_resource *row = &slot->resources[resource];
    char name[16];

    if (row->state == MODEL_NONE)
        return;
    buf_printf(out, "%sfence %s %" PRId64 " %s o%d %d\n",
               is_forgettable(slot, resource, now_ms) ? "?" : "",
               model_name(slot->number, resource, name), row->token, state_names[row->state],
               row->owner, row->holds);
}

/* As SQLite orders them: by resource, then by id as text. */
static void lines_of_receipts(const struct model_slot *slot, int64_t now_ms, struct buf *out)
{
    char name[16];

    for (int resource = 0; resource < MODEL_RESOURCES; resource++)
        for (int i = 0; i < slot->receipts_count; i++) {
            const struct model_receipt *receipt = &slot->receipts[i];
            if (receipt->resource != resource)
                continue;
            buf_printf(out, "%sreceipt %s %c%05d %" PRId64 " ", is_old(receipt, now_ms) ? "?" : "",
                       model_name(slot->number, resource, name), receipt->kind, receipt->id,
                       receipt->token);
            for (const char *at = receipt->reply; *at != '\0'; at++)
                buf_append(out, *at == '\r' || *at == '\n' ? "|" : at, 1);
            buf_append_text(out, "\n");
        }
}

void model_lines(const struct model_slot *slot, int64_t now_ms, struct buf *out)
{
    for (int i = 0; i < MODEL_RESOURCES; i++)
        lines_of_resource(slot, i, now_ms, out);
    if (slot->has_sku)
        buf_printf(out, "value sku:%d %" PRId64 "\n", slot->number, slot->sku);
    if (slot->big != 0)
        buf_printf(out, "field box:%d big %" PRId64 " bytes\n", slot->number, slot->big);
    if (slot->has_m)
        buf_printf(out, "field box:%d m %" PRId64 "\n", slot->number, slot->m);
    if (slot->has_n)
        buf_printf(out, "field box:%d n %" PRId64 "\n", slot->number, slot->n);
    lines_of_receipts(slot, now_ms, out);
    if (slot->has_row)
        buf_printf(out, "row %d %" PRId64 "\n", slot->number, slot->row);
}
