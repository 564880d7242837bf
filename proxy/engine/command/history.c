/* SPDX-License-Identifier: Apache-2.0 */
/* HISTORY and REFUSALS: what proxy/engine/history remembers, the newest first. WAITERS: the line of
 * those who want a resource now. */
#include "proxy/engine/history/history.h"
#include "fence/base/glob.h"
#include "proxy/engine/command/handlers.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/show/lease_json.h"

enum { COUNT_DEFAULT = 100, COUNT_MAX = 10000 };

static void put_int(struct buf *out, const char *name, int64_t value)
{
    resp_bulk_text(out, name);
    resp_int(out, value);
}

static void put_text(struct buf *out, const char *name, struct bytes text)
{
    resp_bulk_text(out, name);
    resp_bulk(out, text);
}

/* `none` is null. */
static void put_int_or(struct buf *out, const char *name, int64_t value, int64_t none, bool resp3)
{
    resp_bulk_text(out, name);
    if (value == none)
        resp_null(out, resp3);
    else
        resp_int(out, value);
}

static void put_text_or_null(struct buf *out, const char *name, struct bytes text, bool resp3)
{
    resp_bulk_text(out, name);
    if (text.len == 0)
        resp_null(out, resp3);
    else
        resp_bulk(out, text);
}

static void put_end(struct buf *out, const char *name, enum history_end end, bool resp3)
{
    const char *text = history_end_name(end);
    put_text_or_null(out, name, text == NULL ? (struct bytes){"", 0} : bytes_of(text), resp3);
}

static void put_grant(struct buf *out, const struct history_grant *grant, bool resp3)
{
    resp_map(out, 12, resp3);
    put_int(out, "token", grant->token);
    put_text(out, "owner", grant->owner);
    put_text(out, "user", grant->user);
    put_text(out, "client", grant->client);
    put_text(out, "address", grant->address);
    put_int(out, "granted_ms", grant->granted_ms);
    put_int(out, "ttl_ms", grant->ttl_ms);
    put_int_or(out, "ended_ms", grant->end == HISTORY_RUNS ? 0 : grant->ended_ms, 0, resp3);
    put_end(out, "end", grant->end, resp3);
    put_text_or_null(out, "reason", buf_bytes(&grant->reason), resp3);
    put_int(out, "writes", grant->writes);
    put_int(out, "refused", grant->refused);
}

static void put_refusal(struct buf *out, const struct history_refusal *refusal, bool resp3)
{
    resp_map(out, 14, resp3);
    put_int(out, "time_ms", refusal->time_ms);
    put_text(out, "resource", history_refusal_name(refusal));
    put_int_or(out, "token", refusal->token, 0, resp3);
    put_text(out, "code", bytes_of(stk_error_code(refusal->code)));
    put_text(out, "command", bytes_of(refusal->command));
    put_text(out, "user", refusal->user);
    put_text(out, "client", refusal->client);
    put_text(out, "address", refusal->address);
    put_int_or(out, "granted_ms", refusal->granted_ms, 0, resp3);
    put_int_or(out, "late_ms", refusal->late_ms, -1, resp3);
    put_end(out, "ended", refusal->ended, resp3);
    put_int_or(out, "newest", refusal->newest, 0, resp3);
    put_text_or_null(out, "newest_owner", refusal->newest_owner, resp3);
    put_text_or_null(out, "newest_address", refusal->newest_address, resp3);
}

/* The array's head comes last, when their number is known. */
static void reply(struct request *request, struct buf *entries, size_t count)
{
    resp_array(&request->reply, count);
    buf_append_bytes(&request->reply, buf_bytes(entries));
    buf_free(entries);
    request_show(request);
}

/* resource [COUNT n]. False: the request has failed. */
static bool parse_resource(struct request *request, int64_t *count)
{
    *count = COUNT_DEFAULT;
    if (!request_name(request, 1, "a resource"))
        return false;
    if (request->argc > 2 && (request->argc != 4 || !request_is_word(request, 2, "COUNT"))) {
        request_fail(request, STK_ERR, "syntax error: %s resource [COUNT n]",
                     request->command->name);
        return false;
    }
    return request->argc == 2 || request_int(request, 3, 1, COUNT_MAX, "COUNT", count);
}

/* HISTORY resource [COUNT n] */
void history_show(struct request *request)
{
    struct buf entries = {0};
    int64_t count;
    size_t shown = 0;

    if (!parse_resource(request, &count))
        return;
    for (const struct history_grant *grant =
             history_grants(request->engine->history, request->argv[1]);
         grant != NULL && shown < (size_t)count; grant = grant->older, shown++)
        put_grant(&entries, grant, request->resp3);
    reply(request, &entries, shown);
}

struct waiters {
    struct request *request;
    struct buf entries;
    size_t count, max;
};

static bool put_waiter(void *context, const struct waiter *waiter)
{
    struct waiters *waiters = context;
    struct buf *out = &waiters->entries;

    if (!waiter_is_shown(waiter))
        return true;
    struct shown_waiter shown = waiter_shown(waiters->request->engine, waiter);
    resp_map(out, 6, waiters->request->resp3);
    put_int(out, "place", (int64_t)++waiters->count);
    put_text(out, "owner", shown.owner);
    put_text(out, "client", shown.client);
    put_text(out, "address", shown.address);
    put_int(out, "waited_ms", shown.waited_ms);
    put_text(out, "way", bytes_of(shown.way));
    return waiters->count < waiters->max;
}

/* WAITERS resource [COUNT n] */
void waiters_show(struct request *request)
{
    struct waiters waiters = {.request = request};
    int64_t count;

    if (!parse_resource(request, &count))
        return;
    waiters.max = (size_t)count;
    (void)line_each(request->engine, request->argv[1], put_waiter, &waiters);
    reply(request, &waiters.entries, waiters.count);
}

static void show_matching(struct request *request, const struct glob *match, size_t count)
{
    const struct history *history = request->engine->history;
    struct buf entries = {0};
    size_t shown = 0;

    for (const struct history_refusal *refusal = history_refusals(history);
         refusal != NULL && shown < count; refusal = history_refusal_before(history, refusal)) {
        struct bytes name = history_refusal_name(refusal);
        if ((match != NULL && !glob_matches(match, name)) ||
            (request->rights != NULL && !acl_may_touch(request->rights, name, ACL_READS)))
            continue;
        put_refusal(&entries, refusal, request->resp3);
        shown++;
    }
    reply(request, &entries, shown);
}

/* REFUSALS [MATCH glob] [COUNT n] */
void history_refusals_show(struct request *request)
{
    struct glob *match = NULL;
    int64_t count = COUNT_DEFAULT;

    if (request_match_and_count(request, COUNT_MAX, &match, &count))
        show_matching(request, match, (size_t)count);
    glob_free(match);
}
