/* SPDX-License-Identifier: Apache-2.0 */
/* One resource, as the page shows it: its lease, who waits for it, what the store knows of it. */
#include <string.h>

#include "fence/base/json.h"
#include "proxy/engine/history/history.h"
#include "proxy/engine/scope.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/show/lease_json.h"
#include "proxy/engine/show/show.h"

enum {
    WAITERS_MAX = 100,
    VALUE_BYTES_MAX = 4096,
    FIELDS_MAX = 100,
    HISTORY_MAX = 100,
    RECEIPTS_MAX = 100,
    RECEIPTS_LOOKED_AT_MAX = 999 /* for these: locks leave many that are the daemon's own */
};

/* On the store's thread. */

struct fields {
    struct buf *json;
    size_t count;
};

static void append_text(struct buf *json, struct bytes text)
{
    json_string(json,
                (struct bytes){text.data, text.len < VALUE_BYTES_MAX ? text.len : VALUE_BYTES_MAX});
}

static bool append_field(void *context, struct bytes field, struct bytes value)
{
    struct fields *fields = context;

    if (fields->count++ > 0)
        buf_append_text(fields->json, ",");
    buf_append_text(fields->json, "[");
    json_string(fields->json, field);
    buf_append_text(fields->json, ",");
    append_text(fields->json, value);
    buf_append_text(fields->json, "]");
    return fields->count < FIELDS_MAX;
}

static enum stk_error read_value(struct store_txn *txn, const struct resource *row,
                                 struct buf *json)
{
    struct fields fields = {.json = json};
    struct bytes value = {"", 0};
    enum stk_error error = STK_OK;
    int64_t count = 0;
    bool found = false;

    if (row->type == VALUE_STRING) {
        error = txn_string(txn, row, &found, &value);
        buf_printf(json, "{\"type\":\"string\",\"bytes\":%zu,\"text\":", value.len);
        append_text(json, value);
        buf_append_text(json, "}");
    } else if (row->type == VALUE_HASH) {
        error = txn_count_fields(txn, row, &count);
        buf_printf(json, "{\"type\":\"hash\",\"fields_total\":%lld,\"fields\":[", (long long)count);
        if (error == STK_OK)
            error = txn_each_field_from(txn, row, (struct bytes){"", 0}, append_field, &fields);
        buf_append_text(json, "]}");
    } else {
        buf_append_text(json, "null");
    }
    return error;
}

struct receipts {
    struct resource_ask *ask;
    size_t count, looked_at;
};

static bool append_receipt(void *context, struct bytes id, const struct receipt *receipt)
{
    struct receipts *receipts = context;
    struct buf *json = &receipts->ask->receipts;

    if (receipts->looked_at++ == RECEIPTS_LOOKED_AT_MAX ||
        (receipts->count == RECEIPTS_MAX && !receipt_id_is_own(id))) {
        receipts->ask->receipts_more = true;
        return false;
    }
    if (receipt_id_is_own(id))
        return true;
    buf_append_text(json, receipts->count++ == 0 ? "{\"id\":" : ",{\"id\":");
    json_string(json, scope_name(id));
    buf_printf(json, ",\"token\":%lld,\"written_ms\":%lld", (long long)receipt->token,
               (long long)receipt->written_ms);
    if (receipts->ask->with_value) {
        buf_append_text(json, ",\"reply\":");
        append_text(json, receipt->reply);
    }
    buf_append_text(json, "}");
    return true;
}

static enum stk_error read_run(struct store_op *op, struct store_txn *txn)
{
    struct resource_ask *ask = list_entry(op, struct resource_ask, op);
    struct receipts receipts = {.ask = ask};
    struct resource row;
    enum stk_error error = txn_resource(txn, ask->resource, &row);

    buf_clear(&ask->value);
    buf_clear(&ask->receipts);
    ask->receipts_more = false;
    ask->newest = row.fence.state == FENCE_NONE ? 0 : row.fence.token;
    if (error == STK_OK && ask->with_value)
        error = read_value(txn, &row, &ask->value);
    if (error == STK_OK)
        error = txn_each_receipt(txn, &row, append_receipt, &receipts);
    return error;
}

/* On the loop. */

struct line_json {
    struct engine *engine;
    struct buf *json;
    size_t count;
};

static bool append_waiter(void *context, const struct waiter *waiter)
{
    struct line_json *line = context;
    struct buf *json = line->json;

    if (!waiter_is_shown(waiter))
        return true;
    struct shown_waiter shown = waiter_shown(line->engine, waiter);
    buf_append_text(json, line->count++ == 0 ? "{\"client\":" : ",{\"client\":");
    json_string(json, shown.client);
    buf_append_text(json, ",\"address\":");
    json_string(json, shown.address);
    buf_append_text(json, ",\"owner\":");
    json_string(json, shown.owner);
    buf_printf(json, ",\"waited_ms\":%lld,\"place\":%zu,\"way\":\"%s\"}",
               (long long)shown.waited_ms, line->count, shown.way);
    return line->count < WAITERS_MAX;
}

static void append_newest(struct buf *json, int64_t newest)
{
    if (newest == 0)
        buf_append_text(json, ",\"newest\":null");
    else
        buf_printf(json, ",\"newest\":%lld", (long long)newest);
}

static void append_history(const struct engine *engine, struct bytes resource, struct buf *json)
{
    const struct history_grant *grant = history_grants(engine->history, resource);
    const struct history_refusal *refusal = history_refusals_of(engine->history, resource);

    buf_append_text(json, ",\"history\":[");
    for (size_t i = 0; i < HISTORY_MAX && grant != NULL; i++, grant = grant->older) {
        buf_append_text(json, i == 0 ? "{" : ",{");
        history_grant_json(json, grant);
        buf_append_text(json, "}");
    }
    buf_append_text(json, "],\"refusals\":[");
    for (size_t i = 0; i < HISTORY_MAX && refusal != NULL; i++, refusal = refusal->older) {
        buf_append_text(json, i == 0 ? "{" : ",{");
        history_refusal_json(json, refusal);
        buf_append_text(json, "}");
    }
    buf_append_text(json, "]");
}

static void write(struct resource_ask *ask)
{
    struct engine *engine = ask->engine;
    struct buf *json = &ask->json;
    struct line_json line = {.engine = engine, .json = json};
    struct held_shown held;

    buf_append_text(json, "{\"resource\":");
    json_string(json, ask->resource);
    buf_append_text(json, ",\"lease\":");
    if (held_find(engine, ask->resource, &held)) {
        const struct shown_lease lease = lease_shown(engine, &held);
        lease_json(engine, &lease, json);
    } else {
        buf_append_text(json, "null");
    }
    append_newest(json, ask->newest);
    buf_append_text(json, ",\"waiters\":[");
    int64_t total = line_each(engine, ask->resource, append_waiter, &line);
    buf_printf(json, "],\"waiters_total\":%lld", (long long)total);
    append_history(engine, ask->resource, json);
    buf_append_text(json, ",\"receipts\":[");
    buf_append_bytes(json, buf_bytes(&ask->receipts));
    buf_printf(json, "],\"receipts_more\":%s", ask->receipts_more ? "true" : "false");
    if (ask->with_value) {
        buf_append_text(json, ",\"value\":");
        buf_append_bytes(json, buf_bytes(&ask->value));
    }
    buf_append_text(json, "}\n");
}

static void end(struct resource_ask *ask, enum stk_error error)
{
    ask->error = error;
    if (error == STK_OK)
        write(ask);
    buf_free(&ask->receipts);
    buf_free(&ask->value);
    ask->on_end(ask);
}

static void on_read(struct store_op *op)
{
    struct resource_ask *ask = list_entry(op, struct resource_ask, op);

    ask->engine->requests_open--;
    end(ask, op->error);
}

void resource_ask(struct resource_ask *ask)
{
    ask->engine->requests_open++;
    if (lease_submit(ask->engine, &ask->op, false, ask->resource, read_run, on_read) == STK_OK)
        return;
    ask->engine->requests_open--;
    end(ask, STK_BUSY);
}
