/* SPDX-License-Identifier: Apache-2.0 */
/* While an exchange works on its answer its connection is suspended, so the client can neither
 * hurry it nor go away: what it works on stays where it is. */
#include "proxy/server/api.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/glob.h"
#include "fence/base/json.h"
#include "fence/base/list.h"
#include "fence/base/mem.h"
#include "fence/token.h"
#include "proxy/engine/show/show.h"
#include "proxy/server/address.h"
#include "proxy/server/http.h"
#include "store/txn.h"

enum { COUNT_DEFAULT = 50, REASON_MAX = 200, FROM_MAX = 1000000000 };

struct exchange {
    struct list link; /* api->exchanges */
    struct api *api;
    struct MHD_Connection *connection;
    enum api_call call;
    bool answered, suspended;
    char peer[ADDRESS_TEXT_MAX];
    struct reader reader; /* its acl is kept */
    char user[ACL_USER_MAX + 1];
    struct bytes body; /* the caller's */
    struct buf name, reason;
    unsigned status; /* of the answer */
    const char *refusal;
    struct buf json;
    struct window window;
    struct resource_ask resource;
    struct revocation revocation;
};

struct api {
    uv_timer_t timer; /* runs while lists are being made */
    struct engine *engine;
    struct lists *lists;
    bool show_values;
    struct waker waker;
    struct list exchanges;
    void (*closed)(void *context);
    void *context;
};

/* Answers. */

static void answered(struct exchange *exchange, unsigned status)
{
    exchange->status = status;
    exchange->answered = true;
    if (exchange->suspended) {
        exchange->suspended = false;
        http_resume(exchange->connection, &exchange->api->waker);
    }
}

static void refuse(struct exchange *exchange, unsigned status, const char *reason)
{
    exchange->refusal = reason;
    answered(exchange, status);
}

static void refuse_error(struct exchange *exchange, enum stk_error error)
{
    refuse(exchange, MHD_HTTP_SERVICE_UNAVAILABLE,
           error == STK_BUSY              ? "too much is asked at once; try again"
           : exchange->call == API_REVOKE ? "the store failed, or the audit cannot be written: "
                                            "look again whether the lease has ended"
                                          : "the store failed");
}

static enum MHD_Result send_answer(struct exchange *exchange)
{
    if (exchange->refusal != NULL)
        return http_refuse(exchange->connection, exchange->status, true, NULL, exchange->refusal);
    return http_reply(exchange->connection, exchange->status, HTTP_JSON,
                      buf_bytes(&exchange->json));
}

/* What was asked. */

static struct bytes argument(const struct exchange *exchange, const char *name)
{
    const char *value = NULL;
    size_t len = 0;

    if (MHD_lookup_connection_value_n(exchange->connection, MHD_GET_ARGUMENT_KIND, name,
                                      strlen(name), &value, &len) != MHD_YES ||
        value == NULL)
        return (struct bytes){"", 0};
    return (struct bytes){value, len};
}

/* False: the exchange is refused. */
static bool number(struct exchange *exchange, const char *name, int64_t max, int64_t *value)
{
    struct bytes text = argument(exchange, name);

    if (text.len == 0 || (bytes_to_int64(text, value) && *value >= 0 && *value <= max))
        return true;
    refuse(exchange, MHD_HTTP_BAD_REQUEST, "from and count are numbers, count at most 200");
    return false;
}

/* False: the exchange is refused. */
static bool is_match(struct exchange *exchange, struct bytes match)
{
    if (match.len <= GLOB_MAX)
        return true;
    refuse(exchange, MHD_HTTP_BAD_REQUEST, GLOB_TOO_LONG);
    return false;
}

static void on_window(struct window *window)
{
    struct exchange *exchange = list_entry(window, struct exchange, window);

    exchange->json = window->json;
    window->json = (struct buf){0};
    answered(exchange, MHD_HTTP_OK);
}

static void on_timer(uv_timer_t *timer)
{
    struct api *api = timer->data;

    if (!lists_work(api->lists))
        uv_timer_stop(timer);
}

static void ask_leases(struct exchange *exchange)
{
    struct api *api = exchange->api;
    int64_t from = 0, count = COUNT_DEFAULT;

    if (!number(exchange, "from", FROM_MAX, &from) ||
        !number(exchange, "count", LEASES_COUNT_MAX, &count))
        return;
    exchange->window = (struct window){.match = argument(exchange, "match"),
                                       .sort = argument(exchange, "sort"),
                                       .reader = exchange->reader,
                                       .from = (size_t)from,
                                       .count = (size_t)count,
                                       .on_end = on_window};
    list_init(&exchange->window.link);
    if (!lists_know(exchange->window.sort))
        refuse(exchange, MHD_HTTP_BAD_REQUEST,
               "sort is wait, resource, owner, client, token, left, granted or waiters");
    else if (!is_match(exchange, exchange->window.match))
        return;
    else if (!lists_ask(api->lists, &exchange->window))
        refuse_error(exchange, STK_BUSY);
    else if (!exchange->answered && !uv_is_active((uv_handle_t *)&api->timer))
        uv_timer_start(&api->timer, on_timer, LISTS_REST_MS, LISTS_REST_MS);
}

static void on_resource(struct resource_ask *ask)
{
    struct exchange *exchange = list_entry(ask, struct exchange, resource);

    exchange->json = ask->json;
    ask->json = (struct buf){0};
    if (ask->error == STK_OK)
        answered(exchange, MHD_HTTP_OK);
    else
        refuse_error(exchange, ask->error);
}

static bool is_name(struct exchange *exchange, struct bytes name)
{
    if (name.len > 0 && name.len <= RESOURCE_NAME_MAX)
        return true;
    refuse(exchange, MHD_HTTP_BAD_REQUEST, "a resource has 1 to 512 bytes");
    return false;
}

/* Has its user the right to the resource? */
static bool may(struct exchange *exchange, unsigned needs)
{
    if (exchange->reader.rights == NULL ||
        acl_may_touch(exchange->reader.rights, buf_bytes(&exchange->name), needs))
        return true;
    refuse(exchange, MHD_HTTP_FORBIDDEN, "this user has not the right to that resource");
    return false;
}

static void ask_resource(struct exchange *exchange)
{
    show_name(exchange->api->engine, argument(exchange, "name"), &exchange->name);
    if (!is_name(exchange, buf_bytes(&exchange->name)) || !may(exchange, ACL_READS))
        return;
    exchange->resource = (struct resource_ask){.engine = exchange->api->engine,
                                               .resource = buf_bytes(&exchange->name),
                                               .with_value = exchange->api->show_values,
                                               .on_end = on_resource};
    resource_ask(&exchange->resource);
}

static void ask_refusals(struct exchange *exchange)
{
    struct bytes match = argument(exchange, "match");
    int64_t count = COUNT_DEFAULT;

    if (!number(exchange, "count", LEASES_COUNT_MAX, &count) || !is_match(exchange, match))
        return;
    show_refusals(exchange->api->engine, match, (size_t)count, exchange->reader, &exchange->json);
    answered(exchange, MHD_HTTP_OK);
}

/* POST /api/revoke. */

static struct bytes text_of(json_object *value)
{
    return (struct bytes){json_object_get_string(value), (size_t)json_object_get_string_len(value)};
}

/* What is wrong with the body, for people; NULL: nothing, and it has been read. */
static const char *parse_revocation(struct exchange *exchange, json_object *body, int64_t *token)
{
    json_object *resource = NULL, *number = NULL, *reason = NULL;

    if (!json_object_is_type(body, json_type_object) ||
        !json_object_object_get_ex(body, "resource", &resource) ||
        !json_object_object_get_ex(body, "token", &number) ||
        !json_object_object_get_ex(body, "reason", &reason) ||
        !json_object_is_type(resource, json_type_string) ||
        !json_object_is_type(number, json_type_int) ||
        !json_object_is_type(reason, json_type_string))
        return "the body has to be {\"resource\":\"...\",\"token\":N,\"reason\":\"...\"}";
    *token = json_object_get_int64(number);
    if (*token < 1 || *token > TOKEN_MAX)
        return "a token is a number from 1 on";
    if (text_of(reason).len < 1 || text_of(reason).len > REASON_MAX)
        return "a reason has 1 to 200 bytes";
    show_name(exchange->api->engine, text_of(resource), &exchange->name);
    buf_append_bytes(&exchange->reason, text_of(reason));
    return NULL;
}

/* Read the body. False: the exchange is refused. */
static bool read_revocation(struct exchange *exchange, int64_t *token)
{
    json_tokener *tokener = json_tokener_new();
    json_object *body = NULL;

    check(tokener != NULL);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    if (exchange->body.len > 0)
        body = json_tokener_parse_ex(tokener, exchange->body.data, (int)exchange->body.len);
    const char *wrong = parse_revocation(exchange, body, token);
    json_object_put(body);
    json_tokener_free(tokener);
    if (wrong == NULL)
        return is_name(exchange, buf_bytes(&exchange->name));
    refuse(exchange, MHD_HTTP_BAD_REQUEST, wrong);
    return false;
}

static void on_revoked(struct revocation *revocation)
{
    struct exchange *exchange = list_entry(revocation, struct exchange, revocation);
    bool other = revocation->error == STK_STALE || revocation->error == STK_UNKNOWN;

    if (revocation->error != STK_OK && !other) {
        refuse_error(exchange, revocation->error);
        return;
    }
    if (revocation->ended) {
        buf_printf(&exchange->json, "{\"revoked\":%lld}\n", (long long)revocation->token);
        answered(exchange, MHD_HTTP_OK);
        return;
    }
    buf_printf(&exchange->json, "{\"error\":\"%s\",\"newest\":%lld}\n",
               other ? "the newest token is another one: look again"
                     : "that lease has ended already",
               (long long)revocation->newest);
    answered(exchange, MHD_HTTP_CONFLICT);
}

static void ask_revoke(struct exchange *exchange)
{
    int64_t token;

    if (!read_revocation(exchange, &token) || !may(exchange, ACL_WRITES))
        return;
    exchange->revocation = (struct revocation){.engine = exchange->api->engine,
                                               .resource = buf_bytes(&exchange->name),
                                               .reason = buf_bytes(&exchange->reason),
                                               .from = exchange->peer,
                                               .user = exchange->user,
                                               .token = token,
                                               .on_end = on_revoked};
    revocation_start(&exchange->revocation);
}

/* An exchange's life. */

static void (*const calls[])(struct exchange *exchange) = {
    [API_LEASES] = ask_leases,
    [API_RESOURCE] = ask_resource,
    [API_REFUSALS] = ask_refusals,
    [API_REVOKE] = ask_revoke,
};

struct exchange *api_begin(struct api *api, struct MHD_Connection *connection, enum api_call call,
                           struct bytes body, const char *peer, struct reader reader,
                           const char *user)
{
    struct exchange *exchange = mem_zalloc(sizeof *exchange);

    exchange->api = api;
    exchange->connection = connection;
    exchange->call = call;
    exchange->body = body;
    exchange->reader = (struct reader){acl_keep(reader.acl), reader.rights};
    text_print(exchange->user, sizeof exchange->user, "%s", user);
    text_print(exchange->peer, sizeof exchange->peer, "%s", peer);
    list_append(&api->exchanges, &exchange->link);
    if (engine_is_draining(api->engine))
        refuse(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, "the daemon is stopping");
    else
        calls[call](exchange);
    return exchange;
}

enum MHD_Result api_go_on(struct exchange *exchange)
{
    if (exchange->answered)
        return send_answer(exchange);
    exchange->suspended = true;
    MHD_suspend_connection(exchange->connection);
    return MHD_YES;
}

void api_forget(struct exchange *exchange)
{
    check(exchange->answered);
    list_remove(&exchange->link);
    acl_drop(exchange->reader.acl);
    buf_free(&exchange->name);
    buf_free(&exchange->reason);
    buf_free(&exchange->json);
    free(exchange);
}

struct api *api_new(uv_loop_t *loop, struct engine *engine, bool show_values, struct waker waker)
{
    struct api *api = mem_zalloc(sizeof *api);

    api->engine = engine;
    api->lists = lists_new(engine);
    api->show_values = show_values;
    api->waker = waker;
    list_init(&api->exchanges);
    check(uv_timer_init(loop, &api->timer) == 0);
    api->timer.data = api;
    return api;
}

void api_end(struct api *api)
{
    for (struct list *link = api->exchanges.next; link != &api->exchanges; link = link->next) {
        struct exchange *exchange = list_entry(link, struct exchange, link);
        if (exchange->answered)
            continue;
        check(exchange->call == API_LEASES); /* the others count as the engine's work */
        lists_cancel(&exchange->window);
        refuse(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, "the daemon is stopping");
    }
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct api *api = handle->data;

    api->closed(api->context);
    free(api);
}

void api_close(struct api *api, void (*closed)(void *context), void *context)
{
    check(list_empty(&api->exchanges));
    lists_free(api->lists);
    api->closed = closed;
    api->context = context;
    uv_close((uv_handle_t *)&api->timer, on_timer_closed);
}
