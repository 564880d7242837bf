/* SPDX-License-Identifier: Apache-2.0 */
/* SUBSCRIBE, UNSUBSCRIBE, PSUBSCRIBE, PUNSUBSCRIBE, PUBLISH, PUBSUB, and the sending of messages.
 *
 *   engine ── topic (a channel or a pattern) ──┐
 *                                              ├── subscription
 *   session ── subscriber ─────────────────────┘
 *
 * A topic lives as long as its subscriptions. These commands wait for what their connection has
 * under way (ORDER_ALONE), and a RESP2 connection that has subscribed starts nothing else. So a
 * message, which goes straight to the output, never stands among the replies to earlier commands.
 * In RESP3 it may, since a push has a type of its own.
 *
 * Messages to a slow reader pile up in its session's output, where PUBSUB_UNSENT_MAX bounds them,
 * and PUBSUB_UNSENT_TIGHT where there is no room for replies. */
#include "proxy/engine/session/pubsub.h"

#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "fence/base/glob.h"
#include "fence/base/mem.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/session.h"

struct topic {
    UT_hash_handle hh;
    struct list subscriptions;
    size_t count;         /* of them */
    struct glob *pattern; /* NULL: it is a channel */
    size_t weight;
    size_t len;
    char name[];
};

struct subscription {
    UT_hash_handle hh; /* by topic */
    struct list in_topic;
    struct topic *topic;
    struct session *session;
};

struct subscriber {
    struct subscription *all; /* a uthash, in order of subscription */
    size_t count, weight;
};

static struct bytes name_of(const struct topic *topic)
{
    return (struct bytes){topic->name, topic->len};
}

static bool is_pattern(const struct topic *topic)
{
    return topic->pattern != NULL;
}

/* As how many subscriptions it counts: a long pattern takes memory for several. */
static size_t weight_of(bool pattern, size_t len)
{
    return pattern ? 1 + glob_size_max(len) / PUBSUB_WEIGHT : 1;
}

static struct topic **topics(struct engine *engine, bool pattern)
{
    return pattern ? &engine->pubsub.patterns : &engine->pubsub.channels;
}

static struct topic *find_topic(struct engine *engine, bool pattern, struct bytes name)
{
    struct topic *topic;
    HASH_FIND(hh, *topics(engine, pattern), name.data, name.len, topic);
    return topic;
}

static struct subscription *find(const struct session *session, const struct topic *topic)
{
    struct subscription *found = NULL;

    if (session->subscriber != NULL && topic != NULL)
        HASH_FIND_PTR(session->subscriber->all, &topic, found);
    return found;
}

static void subscribe(struct session *session, bool pattern, struct bytes name)
{
    struct engine *engine = session->engine;
    struct topic *topic = find_topic(engine, pattern, name);

    if (find(session, topic) != NULL)
        return;
    if (topic == NULL) {
        topic = mem_zalloc(sizeof *topic + name.len);
        list_init(&topic->subscriptions);
        topic->pattern = pattern ? glob_new(name) : NULL;
        topic->weight = weight_of(pattern, name.len);
        topic->len = name.len;
        if (name.len > 0)
            memcpy(topic->name, name.data, name.len);
        HASH_ADD_KEYPTR(hh, *topics(engine, pattern), topic->name, topic->len, topic);
    }
    if (session->subscriber == NULL) {
        session->subscriber = mem_zalloc(sizeof *session->subscriber);
        engine->pubsub.subscribers++;
    }
    struct subscription *subscription = mem_zalloc(sizeof *subscription);
    subscription->topic = topic;
    subscription->session = session;
    list_append(&topic->subscriptions, &subscription->in_topic);
    topic->count++;
    HASH_ADD_PTR(session->subscriber->all, topic, subscription);
    session->subscriber->count++;
    session->subscriber->weight += topic->weight;
    engine->pubsub.subscriptions++;
    engine->pubsub.weight += topic->weight;
}

/* End a subscription, and with the last one the subscriber. */
static void unsubscribe(struct subscription *subscription)
{
    struct session *session = subscription->session;
    struct subscriber *subscriber = session->subscriber;
    struct topic *topic = subscription->topic;

    HASH_DEL(subscriber->all, subscription);
    list_remove(&subscription->in_topic);
    free(subscription);
    subscriber->weight -= topic->weight;
    session->engine->pubsub.weight -= topic->weight;
    if (--topic->count == 0) {
        HASH_DEL(*topics(session->engine, is_pattern(topic)), topic);
        glob_free(topic->pattern);
        free(topic);
    }
    session->engine->pubsub.subscriptions--;
    if (--subscriber->count > 0)
        return;
    free(subscriber);
    session->subscriber = NULL;
    session->engine->pubsub.subscribers--;
}

/* It has come by SUBSCRIBE, which had to be allowed, too. */
static bool may_listen(const struct session *session, const struct topic *topic)
{
    const struct acl_user *user = session->rights;

    return user != NULL && (user->all || acl_may_hear(user, name_of(topic), is_pattern(topic)));
}

bool pubsub_may_listen(const struct session *session)
{
    const struct subscription *at = session->subscriber == NULL ? NULL : session->subscriber->all;

    for (; at != NULL; at = at->hh.next)
        if (!may_listen(session, at->topic))
            return false;
    return true;
}

void pubsub_drop_unheard(struct session *session)
{
    struct subscription *at, *next;

    if (session->subscriber == NULL)
        return;
    HASH_ITER(hh, session->subscriber->all, at, next)
    {
        if (may_listen(session, at->topic))
            continue;
        resp_push(&session->out, 3, session->resp3);
        resp_bulk_text(&session->out, is_pattern(at->topic) ? "punsubscribe" : "unsubscribe");
        resp_bulk(&session->out, name_of(at->topic));
        unsubscribe(at);
        resp_int(&session->out,
                 session->subscriber == NULL ? 0 : (int64_t)session->subscriber->count);
        session_pushed(session);
        if (session->subscriber == NULL)
            break;
    }
}

void pubsub_clear(struct session *session)
{
    while (session->subscriber != NULL)
        unsubscribe(session->subscriber->all);
}

/* SUBSCRIBE and UNSUBSCRIBE. */

static void reply_kind(struct request *request, const char *kind)
{
    resp_push(&request->reply, 3, request->resp3);
    resp_bulk_text(&request->reply, kind);
}

/* Every confirmation ends with the number of subscriptions that there are now. */
static void reply_count(struct request *request)
{
    const struct subscriber *subscriber = request->session->subscriber;
    resp_int(&request->reply, subscriber == NULL ? 0 : (int64_t)subscriber->count);
}

/* Do the limits allow these subscriptions? False: the request has failed. */
static bool has_room(struct request *request, bool pattern)
{
    struct session *session = request->session;
    size_t more = 0, held = session->subscriber == NULL ? 0 : session->subscriber->weight;

    for (size_t i = 1; i < request->argc; i++) {
        if (request->argv[i].len > PUBSUB_NAME_MAX) {
            request_fail(request, STK_ERR, "a channel or pattern has at most %d bytes",
                         PUBSUB_NAME_MAX);
            return false;
        }
        if (find(session, find_topic(session->engine, pattern, request->argv[i])) == NULL)
            more += weight_of(pattern, request->argv[i].len);
    }
    if (held + more > PUBSUB_CONNECTION_MAX)
        request_fail(request, STK_ERR, "at most %d subscriptions on one connection%s",
                     PUBSUB_CONNECTION_MAX, pattern ? "; a long pattern counts as several" : "");
    else if (session->engine->pubsub.weight + more > PUBSUB_TOTAL_MAX)
        request_fail(request, STK_BUSY, "there are too many subscriptions in all; try again");
    else
        return true;
    return false;
}

/* Take room for the reply. Each channel named is confirmed, be it the same a thousand times. */
static bool has_reply_room(struct request *request)
{
    enum { CONFIRMATION_MAX = 64 };

    return request_room(request, request->size + request->argc * CONFIRMATION_MAX);
}

static void subscribe_all(struct request *request, bool pattern)
{
    if (!has_room(request, pattern) || !has_reply_room(request))
        return;
    for (size_t i = 1; i < request->argc; i++) {
        subscribe(request->session, pattern, request->argv[i]);
        reply_kind(request, pattern ? "psubscribe" : "subscribe");
        resp_bulk(&request->reply, request->argv[i]);
        reply_count(request);
    }
    request_finish(request);
}

/* End all subscriptions to channels, or all to patterns. */
static void unsubscribe_from_all(struct request *request, bool pattern, const char *kind)
{
    struct session *session = request->session;
    struct subscription *at, *next;

    if (session->subscriber == NULL)
        return;
    HASH_ITER(hh, session->subscriber->all, at, next)
    {
        if (is_pattern(at->topic) != pattern)
            continue;
        reply_kind(request, kind);
        resp_bulk(&request->reply, name_of(at->topic));
        unsubscribe(at);
        reply_count(request);
    }
}

static void unsubscribe_all(struct request *request, bool pattern)
{
    struct session *session = request->session;
    const char *kind = pattern ? "punsubscribe" : "unsubscribe";

    if (!has_reply_room(request))
        return;
    for (size_t i = 1; i < request->argc; i++) {
        struct subscription *subscription =
            find(session, find_topic(session->engine, pattern, request->argv[i]));
        if (subscription != NULL)
            unsubscribe(subscription);
        reply_kind(request, kind);
        resp_bulk(&request->reply, request->argv[i]);
        reply_count(request);
    }
    if (request->argc == 1)
        unsubscribe_from_all(request, pattern, kind);
    if (request->reply.len == 0) { /* all, and there were none */
        reply_kind(request, kind);
        resp_null(&request->reply, request->resp3);
        reply_count(request);
    }
    request_finish(request);
}

void pubsub_subscribe(struct request *request)
{
    subscribe_all(request, false);
}

void pubsub_psubscribe(struct request *request)
{
    subscribe_all(request, true);
}

void pubsub_unsubscribe(struct request *request)
{
    unsubscribe_all(request, false);
}

void pubsub_punsubscribe(struct request *request)
{
    unsubscribe_all(request, true);
}

/* Messages. */

static void drop_slow(struct session *session)
{
    session->engine->counters.subscribers_dropped++;
    log_warn(session->engine->options.log,
             "closed %s: it does not read what it has subscribed to, %zu KiB wait for it",
             session->peer, (session->out.len + session->unsent) >> 10);
    session_kill(session);
}

/* Send a message, which begins with the header for RESP2. False: the session cannot take it. */
static bool send_to(struct session *session, const struct buf *message)
{
    size_t at = session->out.len;

    if (session->life != SESSION_OPEN)
        return false;
    bool full = replies_full(&session->engine->replies, 0);
    if (at + session->unsent + message->len > (full ? PUBSUB_UNSENT_TIGHT : PUBSUB_UNSENT_MAX)) {
        drop_slow(session);
        return false;
    }
    session->engine->counters.events_delivered++;
    if (!session->resp3 && !list_empty(&session->pending)) {
        session_answer(session, buf_bytes(message)); /* it was RESP3 until now, and still replies */
        return true;
    }
    buf_append_bytes(&session->out, buf_bytes(message));
    if (session->resp3)
        session->out.data[at] = '>';
    session_pushed(session);
    return true;
}

static bool may_read(const struct session *session, struct bytes name)
{
    return session->rights != NULL &&
           (session->rights->all || acl_may_touch(session->rights, name, ACL_READS));
}

static size_t send_to_topic(const struct topic *topic, struct bytes channel, struct bytes text,
                            struct bytes about)
{
    struct buf message = {0};
    size_t sent = 0;

    resp_push(&message, is_pattern(topic) ? 4 : 3, false);
    resp_bulk_text(&message, is_pattern(topic) ? "pmessage" : "message");
    if (is_pattern(topic))
        resp_bulk(&message, name_of(topic));
    resp_bulk(&message, channel);
    resp_bulk(&message, text);
    for (struct list *at = topic->subscriptions.next; at != &topic->subscriptions; at = at->next) {
        struct session *session = list_entry(at, struct subscription, in_topic)->session;
        if (about.len == 0 || may_read(session, about))
            sent += send_to(session, &message);
    }
    buf_free(&message);
    return sent;
}

size_t pubsub_send(struct engine *engine, struct bytes channel, struct bytes text,
                   struct bytes about)
{
    struct topic *topic = find_topic(engine, false, channel);
    size_t sent = topic == NULL ? 0 : send_to_topic(topic, channel, text, about);

    for (topic = engine->pubsub.patterns; topic != NULL; topic = topic->hh.next)
        if (glob_matches(topic->pattern, channel))
            sent += send_to_topic(topic, channel, text, about);
    return sent;
}

/* PUBLISH and PUBSUB. */

bool pubsub_admits(struct request *request, struct bytes channel, struct bytes text)
{
    static const struct bytes own = BYTES_LITERAL("stockade:");

    if (channel.len > PUBSUB_NAME_MAX)
        request_fail(request, STK_ERR, "a channel or pattern has at most %d bytes",
                     PUBSUB_NAME_MAX);
    else if (text.len > PUBSUB_MESSAGE_MAX)
        request_fail(request, STK_ERR, "a message has at most %d MiB", PUBSUB_MESSAGE_MAX >> 20);
    else if (channel.len >= own.len && memcmp(channel.data, own.data, own.len) == 0)
        request_fail(request, STK_NOPERM,
                     "channels that begin with stockade: are the daemon's own; publish on another");
    else
        return true;
    return false;
}

void pubsub_publish(struct request *request)
{
    struct bytes channel = request->argv[1], text = request->argv[2];

    if (!pubsub_admits(request, channel, text))
        return;
    request->engine->counters.messages_published++;
    resp_int(&request->reply,
             (int64_t)pubsub_send(request->engine, channel, text, (struct bytes){"", 0}));
    request_finish(request);
}

/* Append those that match (NULL: all). False: there is no room, and the request has failed. */
static bool put_channels(struct request *request, const struct glob *match, struct buf *names,
                         size_t *count)
{
    for (struct topic *topic = request->engine->pubsub.channels; topic != NULL;
         topic = topic->hh.next) {
        if ((match != NULL && !glob_matches(match, name_of(topic))) ||
            !may_listen(request->session, topic))
            continue;
        if (!request_room(request, names->len + topic->len))
            return false;
        resp_bulk(names, name_of(topic));
        ++*count;
    }
    return true;
}

static void reply_channels(struct request *request)
{
    struct glob *match = NULL;
    struct buf names = {0};
    size_t count = 0;

    if (request->argc > 3) {
        request_fail(request, STK_ERR,
                     "unknown subcommand or wrong number of arguments for '%.*s'. Try PUBSUB HELP.",
                     (int)request->argv[1].len, request->argv[1].data);
        return;
    }
    if (request->argc == 3 && !request_glob(request, 2, &match))
        return;
    if (put_channels(request, match, &names, &count)) {
        resp_array(&request->reply, count);
        buf_append_bytes(&request->reply, buf_bytes(&names));
        request_show(request);
    }
    glob_free(match);
    buf_free(&names);
}

static void reply_listeners(struct request *request)
{
    if (!has_reply_room(request))
        return;
    resp_array(&request->reply, (request->argc - 2) * 2);
    for (size_t i = 2; i < request->argc; i++) {
        const struct topic *topic = find_topic(request->engine, false, request->argv[i]);
        resp_bulk(&request->reply, request->argv[i]);
        bool shown = topic != NULL && may_listen(request->session, topic);
        resp_int(&request->reply, shown ? (int64_t)topic->count : 0);
    }
    request_show(request);
}

static void reply_patterns(struct request *request)
{
    resp_int(&request->reply, (int64_t)HASH_COUNT(request->engine->pubsub.patterns));
    request_finish(request);
}

const struct subcommand pubsub_subcommands[] = {
    {"pubsub|channels", -2, reply_channels, DEED_EVENTS},
    {"pubsub|numsub", -2, reply_listeners, DEED_EVENTS},
    {"pubsub|numpat", 2, reply_patterns, DEED_EVENTS},
    {"pubsub|help", 2, request_help, DEED_EVENTS},
    {.name = NULL},
};
