/* SPDX-License-Identifier: Apache-2.0 */
/* The provider on a Redis Cluster at its edges: a map in many pieces, a master that is new to it,
 * the end in the middle of a redirect. (What a user sees of it: tests/system/test_cluster.py.) */
#include "fence/lease/redis/slots.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

static struct service *node_new(void)
{
    return redis_new((const char *[]){"--cluster-enabled", "yes", "--cluster-require-full-coverage",
                                      "no", NULL});
}

static struct service *whole_node_new(void)
{
    struct service *node = node_new();

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
    struct service *node = node_new();
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

RIG_TEST(a_master_that_a_redirect_names_is_given_time_to_connect)
{
    struct service *first = whole_node_new(), *second = node_new();
    redisReply *id = redis_ask(second, "CLUSTER MYID"), *moved = NULL;
    unsigned slot = slot_of_key(bytes_of("sku:1"));
    struct late late = {.service = second};

    redis_do(first, "CLUSTER MEET 127.0.0.1 %d", second->port);
    open_cluster(rig, first);
    rig_until(rig, rig_up(rig)); /* it knows the first one only */
    do {
        freeReplyObject(moved);
        rig_turn(rig); /* they meet */
        moved = redis_ask(first, "CLUSTER SETSLOT %u NODE %s", slot, id->str);
    } while (moved->type == REDIS_REPLY_ERROR);
    freeReplyObject(moved);
    redis_do(second, "CLUSTER SETSLOT %u NODE %s", slot, id->str);
    do {
        rig_turn(rig);
        moved = redis_ask(second, "GET {sku:1}");
    } while (moved->type == REDIS_REPLY_ERROR && (freeReplyObject(moved), true));
    freeReplyObject(moved);
    freeReplyObject(id);

    service_pause(second);
    uv_timer_init(&rig->loop, &late.timer);
    late.timer.data = &late;
    uv_timer_start(&late.timer, on_late, 300, 0);
    assert_answer(rig_grant(rig, ann, 0), LEASE_GRANTED, 1);
    rig_close(rig);
    service_free(first);
    service_free(second);
}

struct closer {
    struct asked asked;
    struct rig *rig;
    bool closed;
};

static void close_on_answer(struct lease_call *call)
{
    struct closer *closer = (struct closer *)(void *)call;

    lease_provider_close(closer->rig->provider, rig_on_closed, &closer->closed);
    closer->rig->provider = NULL;
}

RIG_TEST(a_call_that_is_redirected_while_it_closes_is_answered)
{
    struct service *node = whole_node_new();
    struct closer closer = {.asked = rig_question(LEASE_QUERY, "", 0), .rig = rig};
    struct asked behind = rig_question(LEASE_QUERY, "", 0);

    open_cluster(rig, node);
    rig_until(rig, rig_up(rig));
    assert_true(rig_is_free(rig)); /* the cluster's state is "ok" by now, too */
    redis_do(node, "CLUSTER DELSLOTS %u", slot_of_key(bytes_of("sku:2")));
    closer.asked.call.done = close_on_answer;
    behind.call.resource = BYTES_LITERAL("sku:2");
    lease_ask(rig->provider, &closer.asked.call);
    rig_ask(rig, &behind);
    rig_until(rig, closer.closed);
    assert_down(behind.call, "closed");
    assert_int_equal(behind.times, 1);
    service_free(node);
}
