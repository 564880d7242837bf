/* SPDX-License-Identifier: Apache-2.0 */
/* The link's states and its one timer.
 *
 * - Whatever goes wrong ends in link_fail, which only changes the state. The wire is freed from the
 *   timer, never inside of hiredis's callbacks.
 * - Requests are under way only in LINK_READY, or while the wire of a failed link is being freed.
 * - All requests have the same time limit, so the oldest one's deadline is the only one watched.
 * When it is over, the socket is read once more before the verdict: maybe it is we who were paused.
 */
#include "fence/lease/redis/link.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/base/text.h"
#include "fence/lease/patience.h"
#include "fence/lease/redis/link_impl.h"

#define COMMAND_ARGS_MAX 4

static void on_timer(uv_timer_t *timer);

static void wake_in(struct redis_link *link, int64_t delay_ms)
{
    uv_timer_start(&link->timer, on_timer, delay_ms < 0 ? 0 : (uint64_t)delay_ms, 0);
}

/* When the time of the link's state is over; -1: it has no end. */
static int64_t state_due_ms(const struct redis_link *link)
{
    if (link->state != LINK_READY || link->heard != NULL)
        return link->due_ms;
    if (list_empty(&link->under_way))
        return -1;
    return patience_due_ms(
        list_entry(link->under_way.next, struct redis_request, link)->deadline_ms, link->heard_ms,
        link->uri.timeout_ms);
}

static void schedule(struct redis_link *link)
{
    int64_t due_ms = link->grace_until_ms != 0 ? link->grace_until_ms : state_due_ms(link);

    if (link->first != NULL && (due_ms < 0 || due_ms > link->first_by_ms))
        due_ms = link->first_by_ms;
    if (link->state == LINK_CLOSING || (link->state == LINK_WAITING && link->wire != NULL))
        wake_in(link, 0);
    else if (due_ms >= 0)
        wake_in(link, due_ms - link_now_ms(link));
    else
        uv_timer_stop(&link->timer);
}

static void end_first(struct redis_link *link)
{
    void (*first)(void *context) = link->first;

    link->first = NULL;
    link->first_ended = true;
    if (first != NULL)
        first(link->first_context);
}

static void become_ready(struct redis_link *link)
{
    link->failures = 0;
    link->connections++;
    link->reason[0] = link->refusal[0] = '\0';
    if (link->heard != NULL) {
        link_listen_ready(link);
        return;
    }
    if (link->logged != LOGGED_UP)
        log_info(link->env.log, "lease service %s is ready", link->name);
    link->logged = LOGGED_UP;
    link->ready(link->context);
    end_first(link);
}

void link_enter(struct redis_link *link, enum link_state state)
{
    link->state = state;
    link->grace_until_ms = 0;
    link->due_ms = link_now_ms(link) + link->uri.timeout_ms;
    if (state == LINK_READY)
        become_ready(link);
    schedule(link);
}

static void tell_failure(struct redis_link *link, bool refused)
{
    if (link->named != NULL) {
        link->named(link->context, NULL, link->reason);
        return;
    }
    if (link->heard != NULL) {
        link_listen_failed(link, refused);
        return;
    }
    if (link->logged != LOGGED_DOWN)
        log_warn(link->env.log, "lease service %s is down: %s; trying again until it is back",
                 link->name, link->reason);
    link->logged = LOGGED_DOWN;
}

void link_fail(struct redis_link *link, const char *reason)
{
    if (link->state == LINK_WAITING || link->state == LINK_CLOSING)
        return;
    bool more = link->state == LINK_CONNECTING && link->addresses_tried < link->addresses_count;
    bool refused = link->state == LINK_GREETING && link->wire != NULL && wire_refused(link->wire);
    bool located = link->state > LINK_LOCATING;
    link->state = LINK_WAITING;
    link->grace_until_ms = 0;
    link->due_ms = link_now_ms(link);
    snprintf(link->reason, sizeof link->reason, "%s", reason);
    if (!more) {
        link->addresses_tried = link->addresses_count = 0;
        link->failures++;
        link->due_ms += patience_backoff_ms(link->env.chance, link->failures);
        tell_failure(link, refused);
        end_first(link);
        if (located)
            link_lost_master(link);
    }
    schedule(link);
}

void link_hurry(struct redis_link *link)
{
    link->state = LINK_WAITING;
    link->grace_until_ms = 0;
    link->failures = 0;
    link->due_ms = link_now_ms(link);
    schedule(link);
}

/* The wire's events. */

static void on_connected(void *context)
{
    struct redis_link *link = context;

    if (link->state != LINK_CONNECTING)
        return;
    link_enter(link, LINK_GREETING);
    link_greet(link);
}

static void on_reply(void *context, void *asked, const struct redisReply *reply)
{
    struct redis_link *link = context;

    if (reply == NULL)
        link_fail(link, wire_error(link->wire));
    if (link->greetings > 0) {
        if (reply != NULL)
            link_greeted(link, asked, reply);
        return;
    }
    if (link->heard != NULL) {
        if (reply != NULL)
            link_listen_heard(link, reply);
        return;
    }
    struct redis_request *request = asked;
    list_remove(&request->link);
    link->heard_ms = link_now_ms(link);
    request->done(request, reply, reply == NULL ? link->reason : NULL);
}

static void on_gone(void *context)
{
    struct redis_link *link = context;

    link_fail(link, wire_error(link->wire));
    check(list_empty(&link->under_way));
    link->wire = NULL;
}

static void on_broken(void *context)
{
    struct redis_link *link = context;
    link_fail(link, wire_error(link->wire));
}

void link_handle_closed(void *context)
{
    struct redis_link *link = context;

    link->handles--;
    if (link->handles > 0)
        return;
    void (*closed)(void *context) = link->closed;
    void *closed_context = link->closed_context;
    free(link);
    closed(closed_context);
}

const struct wire_events link_wire_events = {
    .connected = on_connected,
    .reply = on_reply,
    .gone = on_gone,
    .broken = on_broken,
    .closed = link_handle_closed,
};

/* Time. */

static void on_timer_closed(uv_handle_t *handle)
{
    link_handle_closed(handle->data);
}

static void give_up(struct redis_link *link)
{
    char why[64];

    if (link->state == LINK_LOCATING) {
        link_reach(link, true);
        return;
    }
    snprintf(why, sizeof why, "%s within %d ms",
             link->state == LINK_RESOLVING    ? "the name was not resolved"
             : link->state == LINK_CONNECTING ? "no connection"
                                              : "no answer",
             link->uri.timeout_ms);
    link_fail(link, why);
}

/* The time of a step or of a request was over at `due_ms`. If we come late to it, so may the
 * answer. */
static void on_overdue(struct redis_link *link, int64_t due_ms, int64_t now_ms)
{
    if (link->grace_until_ms == 0)
        link->grace_until_ms = patience_grace_ms(now_ms, due_ms, link->uri.timeout_ms);
    else if (now_ms >= link->grace_until_ms)
        give_up(link);
}

static void on_timer(uv_timer_t *timer)
{
    struct redis_link *link = timer->data;
    int64_t now_ms = link_now_ms(link), due_ms;

    if (link->first != NULL && now_ms >= link->first_by_ms)
        end_first(link);
    due_ms = state_due_ms(link);
    if (due_ms < 0 || now_ms < due_ms)
        link->grace_until_ms = 0;
    else if (link->state == LINK_WAITING && link->wire == NULL)
        link_reach(link, false);
    else if (link->state != LINK_WAITING && link->state != LINK_CLOSING &&
             !link_listen_ask_again(link))
        on_overdue(link, due_ms, now_ms);
    if (link->wire != NULL && (link->state == LINK_WAITING || link->state == LINK_CLOSING))
        wire_free(link->wire);
    if (link->state != LINK_CLOSING)
        schedule(link);
    else if (!uv_is_closing((uv_handle_t *)timer))
        uv_close((uv_handle_t *)timer, on_timer_closed);
}

/* The interface. */

struct redis_link *redis_link_new(const struct lease_uri *uri,
                                  const struct lease_surroundings *surroundings,
                                  void (*ready)(void *context), void *context)
{
    struct redis_link *link = mem_zalloc(sizeof *link);

    link->uri = *uri;
    link->env = *surroundings;
    lease_uri_text(uri, link->name, sizeof link->name);
    link->ready = ready;
    link->context = context;
    link->state = LINK_WAITING;
    link->due_ms = link_now_ms(link);
    list_init(&link->under_way);
    check(uv_timer_init(link->env.loop, &link->timer) == 0);
    link->timer.data = link;
    link->handles = 1;
    schedule(link);
    return link;
}

bool redis_link_ready(const struct redis_link *link)
{
    return link->state == LINK_READY;
}

const char *redis_link_reason(const struct redis_link *link)
{
    return link->reason[0] != '\0' ? link->reason : "not connected yet";
}

static void send_request(struct redis_link *link, struct redis_request *request, int argc,
                         const char **argv, const size_t *lens)
{
    bool idle = list_empty(&link->under_way);

    check(link->state == LINK_READY);
    request->owner = link;
    request->deadline_ms = link_now_ms(link) + link->uri.timeout_ms;
    list_append(&link->under_way, &request->link);
    wire_send(link->wire, request, argc, argv, lens);
    if (idle)
        schedule(link);
}

void redis_link_send_command(struct redis_link *link, struct redis_request *request, int argc,
                             const char **argv)
{
    size_t lens[COMMAND_ARGS_MAX];

    check(argc <= COMMAND_ARGS_MAX);
    for (int i = 0; i < argc; i++)
        lens[i] = strlen(argv[i]);
    send_request(link, request, argc, argv, lens);
}

void redis_link_send(struct redis_link *link, struct redis_request *request, enum lease_verb verb,
                     bool by_text, const struct script_args *args)
{
    const char *argv[SCRIPT_ARGS_MAX + 2] = {by_text ? "EVAL" : "EVALSHA"};
    size_t lens[SCRIPT_ARGS_MAX + 2] = {strlen(argv[0])};

    argv[1] = by_text ? script_text(verb) : link->shas[verb];
    lens[1] = strlen(argv[1]);
    memcpy(argv + 2, args->at, (size_t)args->count * sizeof *argv);
    memcpy(lens + 2, args->lens, (size_t)args->count * sizeof *lens);
    send_request(link, request, args->count + 2, argv, lens);
}

/* Errors that only a replica gives: this one is not the master any more. */
static bool is_replicas(const char *error)
{
    return strncmp(error, "READONLY", 8) == 0 || strncmp(error, "MASTERDOWN", 10) == 0;
}

void redis_link_refused(struct redis_link *link, const char *why)
{
    if (link->refusal[0] == '\0') {
        log_warn(link->env.log, "lease service %s refuses: %s", link->name, why);
        link_lost_master(link); /* is it still the master? */
    }
    snprintf(link->refusal, sizeof link->refusal, "%s", why);
    if (link->sentinels != NULL && is_replicas(why))
        link_fail(link, why);
}

void redis_link_accepted(struct redis_link *link)
{
    if (link->refusal[0] == '\0')
        return;
    link->refusal[0] = '\0';
    log_info(link->env.log, "lease service %s accepts again", link->name);
    link->ready(link->context);
}

bool redis_link_refuses(const struct redis_link *link)
{
    return link->state == LINK_READY && link->refusal[0] != '\0';
}

struct redis_link_health redis_link_health(const struct redis_link *link)
{
    struct redis_link_health health = {0};
    double wait_s = (double)(link->due_ms - link_now_ms(link)) / 1000;
    size_t size = sizeof health.detail;

    health.reconnects = link->connections > 0 ? link->connections - 1 : 0;
    health.up = link->state == LINK_READY && link->refusal[0] == '\0';
    if (health.up)
        text_print(health.detail, size, "%s: ready", link->name);
    else if (link->state == LINK_READY)
        text_print(health.detail, size, "%s: refuses: %s", link->name, link->refusal);
    else if (link->reason[0] == '\0')
        text_print(health.detail, size, "%s: connecting", link->name);
    else if (link->state == LINK_WAITING && wait_s > 0)
        text_print(health.detail, size, "%s: %s, trying again in %.1f s", link->name, link->reason,
                   wait_s);
    else
        text_print(health.detail, size, "%s: %s, trying again", link->name, link->reason);
    return health;
}

void redis_link_on_first(struct redis_link *link, void (*ended)(void *context), void *context)
{
    check(link->first == NULL);
    if (link->first_ended) {
        ended(context);
        return;
    }
    link->first = ended;
    link->first_context = context;
    link->first_by_ms = link_now_ms(link) + PATIENCE_FIRST_MS;
    schedule(link);
}

void redis_link_close(struct redis_link *link, void (*closed)(void *context), void *context)
{
    check(link->state != LINK_CLOSING);
    link->state = LINK_CLOSING;
    snprintf(link->reason, sizeof link->reason, "the connection is being closed");
    link->first = NULL;
    link->closed = closed;
    link->closed_context = context;
    link_stop_resolving(link);
    schedule(link);
}
