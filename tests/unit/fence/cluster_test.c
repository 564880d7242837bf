/* SPDX-License-Identifier: Apache-2.0 */
/* The provider on a Redis Cluster at its edges: a map in many pieces, a master that is new to it,
 * the end in the middle of a redirect. (What a user sees of it: tests/system/test_cluster.py.) */
#include "fence/lease/redis/slots.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

static struct service *whole_node_new(void)
{
    struct service *node = redis_node_new();

    redis_do(node, "CLUSTER ADDSLOTSRANGE 0 %d", SLOTS - 1);
    return node;
}

static void open_cluster(struct rig *rig, const struct service *node)
{
    rig_open(rig, "redis+cluster://127.0.0.1:%d?timeout_ms=5000", node->port);
}

/* Every second slot is served: after many moves a cluster may look like that. */
RIG_TEST(a_map_may_have_a_range_for_each_slot)
{
    struct service *node = redis_node_new();
    unsigned own = slot_of_key(bytes_of("sku:1"));
    struct buf command = {0};

    buf_append_text(&command, "CLUSTER ADDSLOTS");
    for (unsigned slot = own % 2; slot < SLOTS; slot += 2)
        buf_printf(&command, " %u", slot);
    buf_append(&command, "", 1);
    redis_do(node, command.data);
    buf_free(&command);
    open_cluster(rig, node);
    rig_until(rig, rig_grant(rig, ann, 0).answer == LEASE_GRANTED);
    assert_true(rig_detail_has(rig, "cluster: 8192 slots are served by nobody"));
    rig_close(rig);
    service_free(node);
}

struct late {
    uv_timer_t timer;
    const struct service *service;
};

static void on_late(uv_timer_t *timer)
{
    service_resume(((struct late *)timer->data)->service);
    uv_close((uv_handle_t *)timer, NULL);
}

/* Repeat a command until it is no error any more. */
#define do_at_last(rig, ...)                                                                       \
    do {                                                                                           \
        redisReply *reply_ = redis_ask(__VA_ARGS__);                                               \
        bool done_ = reply_->type != REDIS_REPLY_ERROR;                                            \
        freeReplyObject(reply_);                                                                   \
        if (done_)                                                                                 \
            break;                                                                                 \
        rig_turn(rig);                                                                             \
    } while (true)

/* Have the second one serve the slot of sku:1. */
static void move_slot(struct rig *rig, const struct service *first, const struct service *second)
{
    redisReply *id = redis_ask(second, "CLUSTER MYID");
    unsigned slot = slot_of_key(bytes_of("sku:1"));

    redis_do(first, "CLUSTER MEET 127.0.0.1 %d %d", second->port, second->bus_port);
    do_at_last(rig, first, "CLUSTER SETSLOT %u NODE %s", slot, id->str); /* once they have met */
    redis_do(second, "CLUSTER SETSLOT %u NODE %s", slot, id->str);
    do_at_last(rig, second, "GET {sku:1}");
    freeReplyObject(id);
}

RIG_TEST(a_master_that_a_redirect_names_is_given_time_to_connect)
{
    struct service *first = whole_node_new(), *second = redis_node_new();
    struct late late = {.service = second};

    open_cluster(rig, first);
    rig_until(rig, rig_up(rig)); /* it knows the first one only */
    move_slot(rig, first, second);

    service_pause(second);
    uv_timer_init(&rig->loop, &late.timer);
    late.timer.data = &late;
    uv_timer_start(&late.timer, on_late, 300, 0);
    assert_answer(rig_grant(rig, ann, 0), LEASE_GRANTED, 1);
    rig_close(rig);
    service_free(first);
    service_free(second);
}

static bool is_locked(const struct service *node)
{
    redisReply *lock = redis_ask(node, "EXISTS stockade:{sku:1}:lock");
    bool locked = lock->integer == 1;

    freeReplyObject(lock);
    return locked;
}

/* Have the node hold sku:1 for ann, as its old master did before. */
static void lock(struct rig *rig, const struct service *node)
{
    char value[64];

    snprintf(value, sizeof value, "7 %s", ann);
    do_at_last(rig, node, "SET stockade:{sku:1}:lock %s PX 60000", value);
}

RIG_TEST(what_is_released_before_the_map_is_known_is_delivered)
{
    struct service *node = whole_node_new();
    struct asked release = rig_question(LEASE_RELEASE, ann, 7);

    lock(rig, node);
    open_cluster(rig, node);
    rig_answer(rig, &release);
    assert_down(release.call, "none of its masters answers yet");
    rig_until(rig, !is_locked(node));
    rig_close(rig);
    service_free(node);
}

/* A master dies before it is told of a release, and another one serves its slot from then on. */
RIG_TEST(what_a_dead_master_is_owed_goes_to_who_serves_the_slot)
{
    struct service *first = whole_node_new(), *second = redis_node_new();
    unsigned slot = slot_of_key(bytes_of("sku:1"));
    redisReply *id = redis_ask(second, "CLUSTER MYID");

    redis_do(first, "CLUSTER MEET 127.0.0.1 %d %d", second->port, second->bus_port);
    rig_open(rig, "redis+cluster://127.0.0.1:%d,127.0.0.1:%d?timeout_ms=5000", first->port,
             second->port);
    rig_until(rig, rig_up(rig));
    do_at_last(rig, first, "CLUSTER REPLICAS %s", id->str); /* they have met */
    service_kill(first);
    rig_until(rig, !rig_up(rig));
    assert_int_equal(rig_call(rig, LEASE_RELEASE, ann, 7).answer, LEASE_DOWN);
    redis_do(second, "CLUSTER SETSLOT %u NODE %s", slot, id->str);
    lock(rig, second);
    rig_until(rig, !is_locked(second));
    freeReplyObject(id);
    rig_close(rig);
    service_free(first);
    service_free(second);
}

/* The map is asked for again and again, also where nobody was there to be asked for a while. */
RIG_TEST(a_map_that_has_changed_while_all_masters_were_away_is_taken)
{
    enum { PAST_REFRESH_MS = 500 };
    struct service *first = whole_node_new(), *second = redis_node_new();

    rig_open(rig, "redis+cluster://127.0.0.1:%d,127.0.0.1:%d?timeout_ms=5000", first->port,
             second->port);
    rig_until(rig, rig_up(rig));
    service_kill(first);
    service_kill(second);
    rig_until(rig, rig_call(rig, LEASE_QUERY, "", 0).answer == LEASE_DOWN); /* asks for the map */
    struct deadline begun = deadline_in(0);
    while (deadline_spent_ms(&begun) < PAST_REFRESH_MS)
        rig_turn(rig);
    service_start(second);
    redis_do(second, "CLUSTER ADDSLOTSRANGE 0 %d", SLOTS - 1);
    rig_until(rig, rig_up(rig));
    assert_answer(rig_grant(rig, ann, 0), LEASE_GRANTED, 1);
    rig_close(rig);
    service_free(first);
    service_free(second);
}

RIG_TEST(a_call_that_is_redirected_while_it_closes_is_answered)
{
    struct service *node = whole_node_new();
    struct closer closer;
    struct asked behind = rig_question(LEASE_QUERY, "", 0);

    open_cluster(rig, node);
    rig_until(rig, rig_up(rig));
    assert_true(rig_is_free(rig)); /* the cluster's state is "ok" by now, too */
    redis_do(node, "CLUSTER DELSLOTS %u", slot_of_key(bytes_of("sku:2")));
    behind.call.resource = BYTES_LITERAL("sku:2");
    rig_ask_and_close(rig, &closer);
    rig_ask(rig, &behind);
    rig_until(rig, closer.closed);
    assert_down(behind.call, "closed");
    assert_int_equal(behind.times, 1);
    service_free(node);
}

/* All wait for a master; who is answered first closes the provider. The others' time is not over
 * then: between two looks at those who wait there are 20 ms. */
RIG_TEST(a_call_that_waits_for_a_master_while_it_closes_is_answered)
{
    enum { BEHIND = 10, APART_MS = 4 };
    struct service *first = whole_node_new(), *second = redis_node_new();
    struct closer closer;
    struct asked behind[BEHIND];

    rig_open(rig, "redis+cluster://127.0.0.1:%d?timeout_ms=500", first->port);
    rig_until(rig, rig_up(rig)); /* it knows the first one only */
    move_slot(rig, first, second);
    service_pause(second);
    rig_ask_and_close(rig, &closer);
    for (int i = 0; i < BEHIND; i++) {
        struct deadline begun = deadline_in(0);
        while (deadline_spent_ms(&begun) < APART_MS)
            continue;
        behind[i] = rig_question(LEASE_QUERY, "", 0);
        rig_ask(rig, &behind[i]);
    }
    rig_until(rig, closer.closed);
    for (int i = 0; i < BEHIND; i++)
        assert_int_equal(behind[i].times, 1);
    assert_down(behind[BEHIND - 1].call, "closed");
    service_free(first);
    service_free(second);
}
