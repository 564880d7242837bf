/* SPDX-License-Identifier: Apache-2.0 */
/* The lease provider on a Redis Cluster: a provider for each master (node.h), and which of them a
 * resource is asked at.
 *
 *   lease_ask ──▶ slot ──▶ the master that serves it ──▶ answered
 *                  ▲             │
 *                  └── MOVED, ASK (another one), TRYAGAIN, CLUSTERDOWN (in a moment)
 *
 * - The map of slots comes from CLUSTER SLOTS, asked of any master: at first, after MOVED, where a
 *   master is away, and every few seconds. One question is under way at a time.
 * - While a slot moves, Redis does nothing on a resource whose keys are not all on one side: those
 *   calls are asked again until the time that a request has is over, then they are answered DOWN.
 * - All else is as with one Redis: a grant whose fate is not known leaves a debt, which goes where
 *   the slot is by then: each new map is followed by what a master owes that cannot be reached, and
 *   by what nobody could be asked; a token that a failover has forgotten is minted anew above the
 *   store's floor; and the wake-ups of all nodes are heard at any one of them. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/provider_impl.h"
#include "fence/lease/redis/node.h"
#include "fence/lease/redis/slots.h"

enum {
    NODES_MAX = 255,   /* masters, present and past */
    REDIRECTS_MAX = 8, /* of one call */
    LATER_MS = 20,     /* until what is on its way is asked again */
    REFRESH_MS = 5000, /* the map's age, where all is well */
    REFRESH_SOON_MS = 200,
    ABSENT_MAX = 12, /* so many maps without a master, and it is forgotten */
    FIRST_MS = 1000, /* a daemon that starts waits no longer for the masters */
};

struct node {
    struct cluster *cluster;
    struct uri_host host;
    struct lease_provider *provider;
    unsigned absent; /* it was not in so many maps */
    bool closing;
};

struct cluster {
    struct lease_provider base;
    struct lease_uri uri;
    struct lease_surroundings surroundings;
    char channel[REDIS_CHANNEL_MAX + 1], origin[SCRIPT_ORIGIN_LEN + 1];
    struct script_self self;
    struct node *nodes[NODES_MAX + 1]; /* by number, from 1 */
    uint8_t owners[SLOTS];             /* the number of the master; 0: nobody's */
    unsigned unowned;                  /* slots */
    bool has_map;

    struct redis_request question; /* CLUSTER SLOTS */
    struct node *asked;            /* it is under way there; or NULL */
    unsigned asked_last;           /* a node's number */
    uint8_t fresh[SLOTS];          /* the map that is being read */

    struct list later;  /* struct routed */
    struct debts debts; /* releases that no master was there for */
    int64_t paid_ms;    /* when they were last tried */
    struct redis_conn *listener;
    unsigned listens_at; /* a node's number */
    uv_timer_t refresh_timer, later_timer, first_timer;
    void (*on_first)(void *context); /* NULL: nobody waits */
    void *first_context;
    uint64_t reconnects; /* of nodes that are gone */
    bool closing;
    unsigned open; /* nodes, the listener, timers */
};

/* A call on its way. */
struct routed {
    struct lease_call call; /* what a node is asked */
    struct lease_call *outer;
    struct cluster *cluster;
    bool owed; /* a debt, which can wait for the next map */
    unsigned slot, redirects;
    int64_t until_ms;
    struct list link; /* cluster->later */
};

static struct cluster *of_base(struct lease_provider *base)
{
    return (struct cluster *)(void *)base;
}

static int64_t now_ms(const struct cluster *cluster)
{
    return clock_now_ms(cluster->surroundings.clock);
}

/* Nodes. */

static const struct node_events node_events;

/* The number of the node at a host, which is made where there is none. 0: there are too many. */
static unsigned node_at(struct cluster *cluster, const struct uri_host *host)
{
    unsigned free_number = 0;

    for (unsigned i = NODES_MAX; i >= 1; i--) {
        struct node *node = cluster->nodes[i];
        if (node == NULL)
            free_number = i;
        else if (!node->closing && uri_host_equal(&node->host, host))
            return i;
    }
    if (free_number == 0)
        return 0;
    struct lease_uri uri = lease_uri_member(&cluster->uri, 0);
    struct node *node = cluster->nodes[free_number] = mem_zalloc(sizeof *node);
    node->cluster = cluster;
    node->host = uri.hosts[0] = *host;
    node->provider =
        lease_redis_node_new(&uri, &cluster->surroundings, &cluster->self, &node_events, node);
    cluster->open++;
    return free_number;
}

static bool is_ready(const struct node *node)
{
    return node != NULL && !node->closing && node_is_ready(node->provider);
}

static void closed_one(struct cluster *cluster);

static void on_node_closed(void *context)
{
    struct node *node = context;
    struct cluster *cluster = node->cluster;

    for (unsigned i = 1; i <= NODES_MAX; i++)
        if (cluster->nodes[i] == node)
            cluster->nodes[i] = NULL;
    free(node);
    closed_one(cluster);
}

static void close_node(struct node *node)
{
    if (node->closing)
        return;
    node->closing = true;
    node->cluster->reconnects += lease_provider_health(node->provider).reconnects;
    if (node->cluster->asked == node)
        node->cluster->asked = NULL; /* on_slots ignores what it still answers */
    lease_provider_close(node->provider, on_node_closed, node);
}

/* The map. */

static void on_refresh_due(uv_timer_t *timer);

static void refresh_in(struct cluster *cluster, int64_t time_ms)
{
    if (!cluster->closing)
        uv_timer_start(&cluster->refresh_timer, on_refresh_due, (uint64_t)time_ms, 0);
}

/* Ask for the map in REFRESH_SOON_MS, unless that is under way or due sooner. */
static void refresh_soon(struct cluster *cluster)
{
    if (cluster->asked == NULL && uv_timer_get_due_in(&cluster->refresh_timer) > REFRESH_SOON_MS)
        refresh_in(cluster, REFRESH_SOON_MS);
}

/* Return the number of the next ready node behind `after`, in a circle; 0: none is ready. */
static unsigned next_ready(const struct cluster *cluster, unsigned after)
{
    for (unsigned i = 1; i <= NODES_MAX; i++) {
        unsigned number = (after + i - 1) % NODES_MAX + 1;
        if (is_ready(cluster->nodes[number]))
            return number;
    }
    return 0;
}

static void take_range(void *context, const struct slot_range *range)
{
    struct cluster *cluster = context;
    unsigned number = node_at(cluster, &range->master);

    for (unsigned slot = range->first; slot <= range->last; slot++)
        cluster->fresh[slot] = (uint8_t)number;
}

static bool owns(const struct cluster *cluster, unsigned number)
{
    return memchr(cluster->owners, (int)number, SLOTS) != NULL;
}

/* Is every slot served by a master that can be asked? */
static bool is_whole(const struct cluster *cluster)
{
    if (!cluster->has_map || cluster->unowned > 0)
        return false;
    for (unsigned i = 1; i <= NODES_MAX; i++)
        if (cluster->nodes[i] != NULL && !is_ready(cluster->nodes[i]) && owns(cluster, i))
            return false;
    return true;
}

static void end_first(struct cluster *cluster)
{
    void (*on_first)(void *context) = cluster->on_first;

    cluster->on_first = NULL;
    if (on_first != NULL)
        on_first(cluster->first_context);
}

/* Close masters that no longer serve a slot, but only after some more maps without them: an answer
 * or a debt may still be on its way there. */
static void forget_absent(struct cluster *cluster)
{
    for (unsigned i = 1; i <= NODES_MAX; i++) {
        struct node *node = cluster->nodes[i];
        if (node == NULL || node->closing)
            continue;
        node->absent = owns(cluster, i) ? 0 : node->absent + 1;
        if (node->absent > ABSENT_MAX)
            close_node(node);
    }
}

static void pay_debts(struct cluster *cluster);

static void take_map(struct cluster *cluster)
{
    bool changed = memcmp(cluster->owners, cluster->fresh, sizeof cluster->owners) != 0;

    memcpy(cluster->owners, cluster->fresh, sizeof cluster->owners);
    cluster->unowned = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++)
        cluster->unowned += cluster->owners[slot] == 0;
    if (!cluster->has_map)
        log_info(cluster->surroundings.log, "lease service cluster: its slots are known");
    cluster->has_map = true;
    for (unsigned i = 1; i <= NODES_MAX; i++) /* what it owes may be another's business now */
        if (cluster->nodes[i] != NULL && !is_ready(cluster->nodes[i]) &&
            (changed || !owns(cluster, i)))
            node_take_debts(cluster->nodes[i]->provider, &cluster->debts);
    forget_absent(cluster);
    if (changed || now_ms(cluster) - cluster->paid_ms >= REFRESH_MS)
        pay_debts(cluster);
}

static void on_slots(struct redis_request *request, const struct redisReply *reply, const char *why)
{
    struct cluster *cluster = list_entry(request, struct cluster, question);
    struct node *asked = cluster->asked;

    (void)why;
    cluster->asked = NULL;
    if (asked == NULL) /* it was closed meanwhile */
        refresh_in(cluster, REFRESH_SOON_MS);
    if (cluster->closing || asked == NULL)
        return;
    memset(cluster->fresh, 0, sizeof cluster->fresh);
    if (reply != NULL && slots_read(reply, &asked->host, take_range, cluster))
        take_map(cluster);
    if (cluster->listener != NULL)
        redis_conn_relocate(cluster->listener);
    refresh_in(cluster, is_whole(cluster) ? REFRESH_MS : REFRESH_SOON_MS);
    if (is_whole(cluster))
        end_first(cluster);
}

static void on_refresh_due(uv_timer_t *timer)
{
    struct cluster *cluster = timer->data;
    unsigned number = next_ready(cluster, cluster->asked_last);

    if (cluster->asked != NULL)
        return;
    if (number == 0) { /* one that becomes ready is asked */
        refresh_in(cluster, REFRESH_SOON_MS);
        return;
    }
    cluster->asked_last = number;
    cluster->asked = cluster->nodes[number];
    node_send(cluster->asked->provider, &cluster->question, 2,
              (const char *[]){"CLUSTER", "SLOTS"});
}

static void on_ready(void *context)
{
    struct node *node = context;
    struct cluster *cluster = node->cluster;

    if (cluster->closing || node->closing)
        return;
    if (!cluster->has_map)
        refresh_in(cluster, 0);
    else if (is_whole(cluster))
        end_first(cluster);
    if (cluster->listener != NULL)
        redis_conn_relocate(cluster->listener);
}

/* Calls. */

static void route(struct routed *routed, unsigned number, bool asking);

static void answer(struct routed *routed)
{
    struct lease_call *call = &routed->call, *outer = routed->outer;
    struct cluster *cluster = routed->cluster;

    outer->answer = call->answer;
    outer->answer_token = call->answer_token;
    outer->answer_ttl_ms = call->answer_ttl_ms;
    outer->answer_until_ms = call->answer_until_ms;
    outer->attempt = call->attempt;
    memcpy(outer->reason, call->reason, sizeof outer->reason);
    free(routed);
    lease_answered(&cluster->base, outer);
}

/* A call's done. */
static void on_answered(struct lease_call *call)
{
    struct routed *routed = list_entry(call, struct routed, call);

    if (call->answer == LEASE_DOWN) /* perhaps another serves the slot by now */
        refresh_soon(routed->cluster);
    answer(routed);
}

/* Nobody has done anything. A release that was to be delivered is owed. */
static void give_up(struct routed *routed, const char *why)
{
    struct cluster *cluster = routed->cluster;

    if (routed->call.verb == LEASE_RELEASE) {
        routed->call.deadline_ms = now_ms(cluster) + routed->call.ttl_ms;
        debts_note(&cluster->debts, &routed->call, now_ms(cluster));
    }
    routed->call.answer = LEASE_UNANSWERED;
    lease_answer_down(&routed->call, "%s", why);
    answer(routed);
}

static void route(struct routed *routed, unsigned number, bool asking)
{
    struct cluster *cluster = routed->cluster;
    struct node *node = cluster->nodes[number];
    char why[REDIS_WHY_MAX];

    if (number == 0 || node == NULL || node->closing) {
        snprintf(why, sizeof why,
                 cluster->has_map ? "cluster: nobody serves slot %u"
                                  : "cluster: none of its masters answers yet (slot %u)",
                 routed->slot);
        refresh_soon(cluster);
        give_up(routed, why);
    } else if (asking) {
        node_ask_once(node->provider, &routed->call);
    } else {
        lease_ask(node->provider, &routed->call);
    }
}

/* A master that a redirect has named may still be connecting. It is waited for as long as the call
 * has time; then the call is answered with the reason why the master cannot be reached. */
static void on_later(uv_timer_t *timer)
{
    struct cluster *cluster = timer->data;
    struct list due, *link;

    list_init(&due);
    list_splice(&due, &cluster->later);
    while ((link = list_pop(&due)) != NULL) {
        struct routed *routed = list_entry(link, struct routed, link);
        unsigned number = cluster->owners[routed->slot];
        bool over = now_ms(cluster) >= routed->until_ms;
        bool connecting = number != 0 && !is_ready(cluster->nodes[number]);
        if (cluster->closing) /* by who was answered just now */
            give_up(routed, "the connection is being closed");
        else if (connecting && !over)
            list_append(&cluster->later, &routed->link);
        else if (over && !connecting)
            give_up(routed, "cluster: the slot is being moved, or nobody serves it");
        else
            route(routed, number, false);
    }
    if (list_empty(&cluster->later))
        uv_timer_stop(timer);
}

static void ask_later(struct routed *routed)
{
    struct cluster *cluster = routed->cluster;

    routed->redirects = 0; /* its time is its limit now */
    list_append(&cluster->later, &routed->link);
    if (!uv_is_active((uv_handle_t *)&cluster->later_timer))
        uv_timer_start(&cluster->later_timer, on_later, LATER_MS, LATER_MS);
}

/* The call is new to the cluster, or is a debt of a node's, which comes back here. */
static struct routed *routed_of(struct cluster *cluster, struct lease_call *outer)
{
    struct routed *routed = mem_zalloc(sizeof *routed);

    routed->cluster = cluster;
    routed->outer = outer;
    routed->call = *outer;
    routed->call.done = on_answered;
    routed->slot = slot_of_key(script_slot_tag(outer->resource));
    routed->until_ms = now_ms(cluster) + cluster->uri.timeout_ms;
    list_init(&routed->link);
    return routed;
}

/* Debts. One that cannot be paid now becomes the master's, or is noted here again. */

static void on_paid(struct lease_call *call)
{
    free(list_entry(call, struct debt, call));
}

static void pay_debts(struct cluster *cluster)
{
    struct debts due = {0};
    struct debt *debt;

    if (heap_first(&cluster->debts.heap) != NULL)
        cluster->paid_ms = now_ms(cluster);
    debts_splice(&due, &cluster->debts);
    while ((debt = debts_take(&due, now_ms(cluster))) != NULL) {
        debt->call.done = on_paid;
        struct routed *routed = routed_of(cluster, &debt->call);
        routed->owed = true;
        route(routed, cluster->owners[routed->slot], false);
    }
    debts_free(&due);
}

static void on_redirect(void *context, struct lease_call *call, struct bytes error)
{
    struct node *node = context;
    struct cluster *cluster = node->cluster;
    struct routed *routed = call->done == on_answered ? list_entry(call, struct routed, call)
                                                      : routed_of(cluster, call);
    struct redirect redirect = redirect_read(error, &node->host);

    routed->owed |= call->done != on_answered;
    routed->call.answer = LEASE_UNANSWERED;
    if (cluster->closing) { /* neither a timer nor a new master can be waited for now */
        give_up(routed, "the connection is being closed");
        return;
    }
    if (++routed->redirects > REDIRECTS_MAX) {
        give_up(routed, "cluster: its masters send us from one to the other");
        return;
    }
    refresh_soon(cluster);
    if (redirect.kind == REDIRECT_LATER && routed->owed) { /* there may be thousands of them */
        give_up(routed, "cluster: the slot is being moved, or nobody serves it");
        return;
    }
    if (redirect.kind == REDIRECT_LATER) {
        ask_later(routed);
        return;
    }
    unsigned number = node_at(cluster, &redirect.to);
    if (redirect.kind == REDIRECT_MOVED) {
        cluster->unowned -= cluster->owners[routed->slot] == 0 && number != 0;
        cluster->owners[routed->slot] = (uint8_t)number;
    }
    if (number != 0 && !is_ready(cluster->nodes[number])) /* it was not known: it connects */
        ask_later(routed);
    else
        route(routed, number, redirect.kind == REDIRECT_ASK);
}

static const struct node_events node_events = {.on_ready = on_ready, .on_redirect = on_redirect};

static bool cluster_ask(struct lease_provider *base, struct lease_call *call)
{
    struct cluster *cluster = of_base(base);
    struct routed *routed = routed_of(cluster, call);

    route(routed, cluster->owners[routed->slot], false);
    return false;
}

/* The rest of the interface. */

static void cluster_health(const struct lease_provider *base, struct lease_health *health)
{
    const struct cluster *cluster = (const struct cluster *)(const void *)base;
    unsigned masters = 0, ready = 0;

    health->reconnects = cluster->reconnects;
    for (unsigned i = 1; i <= NODES_MAX; i++) {
        const struct node *node = cluster->nodes[i];
        if (node == NULL || node->closing)
            continue;
        struct lease_health of_node = lease_provider_health(node->provider);
        health->reconnects += of_node.reconnects;
        if (cluster->has_map && !owns(cluster, i))
            continue;
        masters++;
        ready += of_node.up;
        if (!of_node.up)
            snprintf(health->detail, sizeof health->detail, "%s", of_node.detail);
    }
    health->up = is_whole(cluster) && ready == masters;
    health->watching = cluster->listener != NULL && redis_conn_is_ready(cluster->listener);
    if (health->up)
        snprintf(health->detail, sizeof health->detail, "cluster of %u masters: ready", masters);
    else if (ready == masters)
        snprintf(health->detail, sizeof health->detail, "cluster: %u slots are served by nobody",
                 cluster->has_map ? cluster->unowned : (unsigned)SLOTS);
}

/* Choose the master to listen at: any, since each passes on the messages of all. */
static enum redis_located locate(void *context, bool last, struct uri_host *master,
                                 char why[REDIS_WHY_MAX])
{
    struct cluster *cluster = context;
    unsigned number = cluster->listens_at;

    if (number == 0 || !is_ready(cluster->nodes[number]) || !owns(cluster, number)) {
        unsigned first = number = next_ready(cluster, number);
        while (number != 0 && !owns(cluster, number)) {
            number = next_ready(cluster, number);
            number = number == first ? 0 : number;
        }
    }
    cluster->listens_at = number;
    if (number == 0) {
        snprintf(why, REDIS_WHY_MAX, "no master of the cluster answers");
        return last ? REDIS_NOWHERE : REDIS_LOCATING;
    }
    *master = cluster->nodes[number]->host;
    return REDIS_LOCATED;
}

static void on_message(void *context, struct bytes message)
{
    struct cluster *cluster = context;
    struct lease_news news;

    if (script_news(message, &cluster->self, &news))
        lease_tell(&cluster->base, &news);
}

static const struct redis_events listener_events = {.on_message = on_message, .locate = locate};

static void cluster_watch(struct lease_provider *base)
{
    struct cluster *cluster = of_base(base);

    check(cluster->listener == NULL);
    cluster->listener = redis_conn_new(REDIS_MASTER_LISTENER, &cluster->uri, &cluster->surroundings,
                                       cluster->channel, &listener_events, cluster);
    cluster->open++;
}

static void on_first_due(uv_timer_t *timer)
{
    end_first(timer->data);
}

static void cluster_on_first_attempt(struct lease_provider *base, void (*ended)(void *context),
                                     void *context)
{
    struct cluster *cluster = of_base(base);

    cluster->on_first = ended;
    cluster->first_context = context;
    if (is_whole(cluster))
        end_first(cluster);
    else
        uv_timer_start(&cluster->first_timer, on_first_due, FIRST_MS, 0);
}

static void closed_one(struct cluster *cluster)
{
    if (--cluster->open > 0)
        return;
    debts_free(&cluster->debts);
    lease_provider_closed(&cluster->base);
}

static void on_timer_closed(uv_handle_t *timer)
{
    closed_one(timer->data);
}

static void on_listener_closed(void *context)
{
    closed_one(context);
}

static void cluster_close(struct lease_provider *base)
{
    struct cluster *cluster = of_base(base);
    struct list *link;

    cluster->closing = true;
    cluster->on_first = NULL;
    while ((link = list_pop(&cluster->later)) != NULL)
        give_up(list_entry(link, struct routed, link), "the connection is being closed");
    uv_close((uv_handle_t *)&cluster->refresh_timer, on_timer_closed);
    uv_close((uv_handle_t *)&cluster->later_timer, on_timer_closed);
    uv_close((uv_handle_t *)&cluster->first_timer, on_timer_closed);
    if (cluster->listener != NULL)
        redis_conn_close(cluster->listener, on_listener_closed, cluster);
    for (unsigned i = 1; i <= NODES_MAX; i++)
        if (cluster->nodes[i] != NULL)
            close_node(cluster->nodes[i]);
}

static const struct lease_provider_impl cluster_impl = {
    .name = "cluster",
    .ask = cluster_ask,
    .watch = cluster_watch,
    .health = cluster_health,
    .close = cluster_close,
    .on_first_attempt = cluster_on_first_attempt,
};

static void init_timer(struct cluster *cluster, uv_timer_t *timer)
{
    check(uv_timer_init(cluster->surroundings.loop, timer) == 0);
    timer->data = cluster;
    cluster->open++;
}

struct lease_provider *lease_cluster_new(const struct lease_uri *uri,
                                         const struct lease_surroundings *surroundings)
{
    struct cluster *cluster = mem_zalloc(sizeof *cluster);

    cluster->base.impl = &cluster_impl;
    cluster->uri = *uri;
    cluster->surroundings = *surroundings;
    cluster->question.done = on_slots;
    list_init(&cluster->later);
    chance_hex(surroundings->chance, cluster->origin, SCRIPT_ORIGIN_LEN);
    snprintf(cluster->channel, sizeof cluster->channel, "%s:wake", uri->prefix);
    cluster->self =
        (struct script_self){cluster->uri.prefix, cluster->channel, cluster->origin, true};
    init_timer(cluster, &cluster->refresh_timer);
    init_timer(cluster, &cluster->later_timer);
    init_timer(cluster, &cluster->first_timer);
    refresh_in(cluster, REFRESH_SOON_MS);
    for (int i = 0; i < uri->hosts_count; i++)
        (void)node_at(cluster, &uri->hosts[i]);
    return &cluster->base;
}
