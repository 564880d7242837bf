/* SPDX-License-Identifier: Apache-2.0 */
/* Slow stores and slow lease services: what is told of a lease's time is never more than what is
 * left when it is told, what is over by then is not told as held, and that is nobody's error. */
#include "fence/lease/open.h"
#include "proxy/engine/lease/lease.h"
#include "tests/unit/engine/says.h"

/* The store takes so many steps of what the command needs, then it stands still for so long. */
static void send_into_a_slow_store(struct world *world, const char *line, int steps, int64_t ms)
{
    world_send_only(world, 1, line);
    for (; steps > 0; steps--)
        world_step_store(world);
    world->now_ms += ms;
}

static void taken_elsewhere(struct world *world, const char *resource)
{
    assert_int_equal(asked_elsewhere(world, LEASE_GRANT, resource, 0, 60000), LEASE_GRANTED);
}

/* RENEW. */

EITHER_TEST(a_renewal_that_the_store_held_up_tells_what_is_left)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    send_into_a_slow_store(world, "RENEW k 1 10000", 1, 1500);
    assert_heard(world, 1, ":8500\r\n");
    assert_int_equal(lease_says(world, "k", "ttl_ms"), 8500);
}

WORLD_TEST(a_renewal_whose_answer_was_late_tells_what_is_left)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    send_late(world, 1, "RENEW k 1 10000", 300, 300);
    assert_heard(world, 1, ":9700\r\n");
    assert_int_equal(lease_says(world, "k", "ttl_ms"), 9700);
}

EITHER_TEST(a_renewal_that_was_over_before_its_reply_is_made_again)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    send_into_a_slow_store(world, "RENEW k 1 1000", 1, 1500);
    assert_heard(world, 1, ":1000\r\n");
    assert_int_equal(lease_says(world, "k", "held"), 1);
    assert_int_equal(lease_says(world, "k", "ttl_ms"), 1000);
}

WORLD_TEST(a_renewal_that_was_over_before_its_reply_and_taken_by_another_is_no_lease)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    send_into_a_slow_store(world, "RENEW k 1 1000", 1, 1500);
    taken_elsewhere(world, "k");
    assert_heard_begins(world, 1, "-BUSY the lease has run out");
    assert_says(world, 1, "FENCED 1 SET k x", "+OK\r\n"); /* that grant is not recorded */
}

WORLD_TEST(a_renewal_that_is_over_each_time_is_not_told_as_held)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    world_send_only(world, 1, "RENEW k 1 1000");
    for (int i = 0; i < 10; i++) {
        world_step_store(world);
        world->now_ms += 1500;
    }
    assert_heard_begins(world, 1, "-BUSY the lease ran out");
    assert_int_equal(lease_says(world, "k", "held"), 0);
    assert_says(world, 1, "RENEW k 1 1000", ":1000\r\n"); /* nobody has taken it */
}

/* What a daemon that opens the same file sees there. */
struct look {
    struct store_op op;
    struct resource row;
    struct lease_record record;
    int64_t opening;
};

static enum stk_error look_run(struct store_op *op, struct store_txn *txn)
{
    struct look *look = (struct look *)(void *)op;
    return lease_read(txn, bytes_of("k"), look->opening, &look->row, &look->record, NULL);
}

static void ignore(struct lease_call *call)
{
    (void)call;
}

static void look_done(struct store_op *op)
{
    assert_int_equal(op->error, STK_OK);
}

static int64_t left_at_another_daemon_ms(struct world *world, struct lease_provider *local)
{
    struct look look = {.op = {.run = look_run, .done = look_done},
                        .opening = store_opening(world->store) + 1};
    struct lease_call call = {.verb = LEASE_QUERY,
                              .resource = BYTES_LITERAL("k"),
                              .asked_ms = world->now_ms,
                              .done = ignore};

    list_init(&look.op.link);
    assert_int_equal(store_submit(world->store, &look.op), STK_OK);
    world_settle(world);
    call.record = look.record;
    lease_ask(local, &call);
    assert_int_equal(call.answer, LEASE_HELD);
    return lease_left_ms(&call, world->now_ms);
}

LOCAL_TEST(a_renewal_that_is_told_is_seen_by_another_daemon_on_the_same_file)
{
    struct lease_provider *other = lease_local_new(world->clock);

    assert_says(world, 1, "ACQUIRE k 1000", GRANT(1, 1000));
    assert_int_equal(left_at_another_daemon_ms(world, other), 1000);
    world_pass(world, 200);
    assert_says(world, 1, "RENEW k 1 1000", ":1000\r\n");
    assert_int_equal(left_at_another_daemon_ms(world, other), 1000);
    lease_provider_close(other, free, NULL);
}

/* LEASE. */

WORLD_TEST(a_lease_that_is_shown_late_has_what_is_left)
{
    assert_says(world, 1, "ACQUIRE k 1000", GRANT(1, 1000));
    send_late(world, 2, "LEASE k", 300, 300);
    assert_non_null(strstr(world_received(world, 2), "ttl_ms\r\n:700\r\n"));
}

WORLD_TEST(a_lease_that_was_over_when_it_was_shown_is_free)
{
    assert_says(world, 1, "ACQUIRE k 200", GRANT(1, 200));
    send_late(world, 2, "LEASE k", 300, 1000);
    assert_non_null(strstr(world_received(world, 2), "free\r\n"));
}

WORLD_TEST(a_lease_that_was_renewed_while_it_was_looked_at_is_held)
{
    assert_says(world, 1, "ACQUIRE k 200", GRANT(1, 200));
    lease_service_set_late(world->service, -1);
    world_send(world, 2, "LEASE k");
    world_send(world, 1, "RENEW k 1 60000");
    world->now_ms += 300;
    lease_service_set_late(world->service, 0);
    world_settle(world);
    assert_non_null(strstr(world_received(world, 2), "held\r\n"));
    assert_int_equal(lease_says(world, "k", "ttl_ms"), 59700);
}

/* ACQUIRE. */

EITHER_TEST(a_grant_that_the_store_held_up_tells_what_is_left)
{
    send_into_a_slow_store(world, "ACQUIRE k 10000", 1, 1500);
    assert_heard(world, 1, GRANT(1, 8500));
    assert_int_equal(lease_says(world, "k", "ttl_ms"), 8500);
}

/* Where it counted from the end of its predecessor's return, a daemon on the same file that saw it
 * at once would take it before the time that was told. */
LOCAL_TEST(an_inherited_lease_counts_from_before_others_saw_it)
{
    assert_says(world, 2, "ACQUIRE k 60000", GRANT(1, 60000));
    assert_says(world, 1, "ACQUIRE k 10000 WAIT 60000", "");
    world_send_only(world, 2, "RELEASE k 1");
    (void)store_step(world->store);
    world->now_ms += 1500;
    assert_heard(world, 1, GRANT(2, 8500));
}

EITHER_TEST(a_grant_that_ran_out_on_its_way_is_null_and_its_id_is_free)
{
    send_into_a_slow_store(world, "ACQUIRE k 1000 ID x", 1, 1500);
    assert_heard(world, 1, NOBODY);
    assert_says(world, 1, "ACQUIRE k 1000 ID x", GRANT(2, 1000));
    assert_says(world, 2, "ACQUIRE k 1000 ID x", GRANT(2, 1000)); /* it is remembered */
    assert_begins(world, 1, "FENCED 1 SET k v", "-STALE ");
}

EITHER_TEST(a_grant_that_ran_out_on_its_way_is_tried_again_within_its_wait)
{
    send_into_a_slow_store(world, "ACQUIRE k 1000 WAIT 5000 ID x", 1, 1500);
    assert_heard(world, 1, GRANT(2, 1000));
    assert_says(world, 2, "ACQUIRE k 1000 ID x", GRANT(2, 1000));
    assert_says(world, 1, "RELEASE k 2", ":0\r\n");
    assert_begins(world, 2, "ACQUIRE k 1000 ID x", "-STALE "); /* this one was told, and is over */
}

/* The first try was counted, given back, and must not pass for one that is to be repeated. */
WORLD_TEST(an_entry_that_came_too_late_is_counted_when_it_is_tried_again)
{
    assert_says(world, 2, "ACQUIRE k 60000 OWNER me", GRANT(1, 60000));
    send_into_a_slow_store(world, "ACQUIRE k 1000 WAIT 5000 OWNER me ID x", 1, 1500);
    world_send_only(world, 2, "RENEW k 1 60000"); /* so the lease itself goes on */
    assert_heard(world, 1, GRANT(1, 1000));
    assert_int_equal(lease_says(world, "k", "holds"), 2);
}

WORLD_TEST(a_grant_that_another_overtook_on_its_way_is_tried_again)
{
    send_into_a_slow_store(world, "ACQUIRE k 1000 WAIT 60000 ID x", 1, 1500);
    (void)store_step(world->store); /* token 1 is recorded, and over */
    world_send_only(world, 2, "REVOKE k");
    assert_heard(world, 1, GRANT(2, 1000));
}

WORLD_TEST(a_client_that_left_before_its_grant_may_repeat_it)
{
    send_into_a_slow_store(world, "ACQUIRE k 60000 ID x", 1, 0);
    leave(world, 1);
    assert_says(world, 2, "ACQUIRE k 60000 ID x", GRANT(2, 60000));
}

/* ACQUIREALL. */

WORLD_TEST(a_basket_whose_first_lease_ran_out_while_it_was_taken_is_null)
{
    send_late(world, 1, "ACQUIREALL 1000 2 a b ID x", 600, 6000);
    assert_heard(world, 1, NOBODY);
    assert_int_equal(lease_says(world, "a", "held"), 0);
    assert_int_equal(lease_says(world, "b", "held"), 0);
    assert_says(world, 1, "ACQUIREALL 1000 2 a b ID x", "*2\r\n:2\r\n:2\r\n");
}

WORLD_TEST(a_basket_whose_first_lease_ran_out_while_it_was_taken_begins_anew)
{
    lease_service_set_late(world->service, 600);
    world_send(world, 1, "ACQUIREALL 1000 2 a b WAIT 60000 ID x");
    world_pass(world, 20000);
    assert_heard(world, 1, "");
    lease_service_set_late(world->service, 0);
    for (int i = 0; i < 5000 && world->clients[1].received.len == 0; i++)
        world_pass(world, 1);
    world_pass(world, 600); /* what is late still comes in */
    assert_heard_begins(world, 1, "*2\r\n:");
    assert_int_equal(lease_says(world, "a", "held"), 1);
    assert_int_equal(lease_says(world, "b", "held"), 1);
    assert_int_equal(lease_says(world, "a", "holds"), 1);
}

WORLD_TEST(a_basket_that_lost_a_lease_to_another_waits_for_it_again)
{
    assert_says(world, 2, "ACQUIRE b 60000", GRANT(1, 60000));
    assert_says(world, 1, "ACQUIREALL 1000 2 a b WAIT 120000", "");
    lease_service_lose_all(world->service);
    taken_elsewhere(world, "a");
    world_pass(world, 400);
    assert_heard(world, 1, "");
    world_pass(world, 59000);
    assert_heard(world, 1, "");
    assert_says(world, 2, "RELEASE b 1", ":0\r\n");
    lease_service_lose_all(world->service);
    world_pass(world, 1100);
    assert_heard_begins(world, 1, "*2\r\n:");
}

WORLD_TEST(a_basket_that_cannot_be_given_back_wholly_ends_all_the_same)
{
    lease_service_set_late(world->service, 600);
    world_send(world, 1, "ACQUIREALL 1000 2 a b WAIT 60000");
    world_pass(world, 2500);
    world_disconnect(world, 1);
    world_pass(world, 5000);
    lease_service_set_late(world->service, 0);
    assert_int_equal(lease_says(world, "a", "held"), 0);
    assert_int_equal(lease_says(world, "b", "held"), 0);
}

/* All is granted; the store stands still before it confirms that. */

WORLD_TEST(a_basket_that_ran_out_before_its_reply_is_null)
{
    send_into_a_slow_store(world, "ACQUIREALL 1000 1 a", 3, 1500);
    assert_heard(world, 1, NOBODY);
    assert_int_equal(lease_says(world, "a", "held"), 0);
    assert_says(world, 2, "ACQUIRE a 1000", GRANT(2, 1000));
}

WORLD_TEST(a_basket_with_an_id_that_ran_out_before_its_reply_is_made_fresh)
{
    send_into_a_slow_store(world, "ACQUIREALL 1000 1 a ID x", 3, 1500);
    assert_heard(world, 1, "*1\r\n:1\r\n");
    assert_int_equal(lease_says(world, "a", "ttl_ms"), 1000);
}

WORLD_TEST(a_basket_with_an_id_that_another_overtook_before_its_reply_is_stale)
{
    send_into_a_slow_store(world, "ACQUIREALL 1000 1 a ID x", 3, 1500);
    taken_elsewhere(world, "a");
    assert_heard_begins(world, 1, "-STALE ");
}

/* A repeat may have been told of it. */
WORLD_TEST(a_basket_with_an_id_that_lost_one_lease_before_its_reply_keeps_the_others)
{
    send_into_a_slow_store(world, "ACQUIREALL 1000 2 a b ID x", 5, 0);
    world_send_only(world, 2, "RENEW a 1 60000");
    world->now_ms += 1500;
    taken_elsewhere(world, "b");
    assert_heard_begins(world, 1, "-STALE ");
    assert_int_equal(lease_says(world, "a", "held"), 1);
}

WORLD_TEST(a_client_that_left_before_its_basket_ran_out_may_repeat_it)
{
    send_into_a_slow_store(world, "ACQUIREALL 1000 1 a ID x", 3, 0);
    world_disconnect(world, 1);
    world->now_ms += 1500;
    world_settle(world);
    assert_int_equal(lease_says(world, "a", "held"), 0);
    assert_says(world, 2, "ACQUIREALL 1000 1 a ID x", "*1\r\n:2\r\n");
}
