/* SPDX-License-Identifier: Apache-2.0 */
/* A process that stands still, with many threads that wait: each of them would be granted in turn.
 * It delays others by one TTL, not by as many as it has threads. */
#include "tests/unit/engine/says.h"

enum { THREADS = 5, OTHER = 20 };

/* A connection of this program. */
static void name(struct world *world, int client, const char *program)
{
    char line[80];

    snprintf(line, sizeof line, "CLIENT SETNAME %s", program);
    assert_says(world, client, line, "+OK\r\n");
}

static void wait_in_line(struct world *world, int client)
{
    assert_says(world, client, "ACQUIRE k 4000 WAIT 60000", "");
}

/* Connections 1 to THREADS are a till's, of which the first one holds the lease. */
static void stand_still(struct world *world)
{
    for (int i = 1; i <= THREADS; i++)
        name(world, i, "till");
    assert_says(world, 1, "ACQUIRE k 4000", GRANT(1, 4000));
    for (int i = 2; i <= THREADS; i++)
        wait_in_line(world, i);
}

EITHER_TEST(a_process_that_stands_still_delays_others_by_one_ttl)
{
    stand_still(world);
    name(world, OTHER, "shop");
    wait_in_line(world, OTHER);
    world_pass(world, 4001);
    assert_heard(world, OTHER, GRANT(2, 4000));
    assert_says(world, OTHER, "RELEASE k 2", ":0\r\n");
    assert_heard(world, 2, GRANT(3, 4000)); /* in their own order */
    wait_in_line(world, OTHER);             /* one TTL more, and no other */
    world_pass(world, 4001);
    assert_heard(world, OTHER, GRANT(4, 4000));
    assert_says(world, OTHER, "RELEASE k 4", ":0\r\n");
    assert_heard(world, 3, GRANT(5, 4000));
}

/* Whoever finds out first that the lease is over: the line, or who watches the lease. */
WORLD_TEST(so_it_is_where_the_lease_service_takes_its_time)
{
    for (int late_ms = 1; late_ms < 400; late_ms *= 3) {
        world_renew(world, NULL);
        lease_service_set_late(world->service, late_ms);
        for (int i = 1; i <= THREADS; i++)
            name(world, i, "till");
        name(world, OTHER, "shop");
        for (int i = 1; i <= THREADS; i++) {
            world_send(world, i, "ACQUIRE k 4000 WAIT 60000");
            world_pass(world, late_ms);
        }
        wait_in_line(world, OTHER);
        world_pass(world, 6000);
        assert_string_not_equal(world_received(world, OTHER), "");
        assert_string_equal(world_received(world, 2), "");
    }
}

EITHER_TEST(who_speaks_meanwhile_keeps_its_place)
{
    stand_still(world);
    name(world, OTHER, "shop");
    wait_in_line(world, OTHER);
    world_pass(world, 3000);
    assert_says(world, 1, "GET k", "$-1\r\n"); /* it works, and is late */
    world_pass(world, 1001);
    assert_heard(world, 2, GRANT(2, 4000));
}

EITHER_TEST(who_came_late_is_not_taken_for_one_that_stands_still)
{
    stand_still(world);
    name(world, OTHER, "shop");
    name(world, OTHER + 1, "till");
    world_pass(world, 2500);
    wait_in_line(world, OTHER + 1);
    wait_in_line(world, OTHER);
    world_pass(world, 1501);
    assert_heard(world, OTHER + 1, GRANT(2, 4000));
}

EITHER_TEST(the_order_stays_where_all_are_alike)
{
    stand_still(world);
    for (int i = 2; i <= THREADS; i++) {
        world_pass(world, 4001);
        assert_heard_begins(world, i, "*2\r\n:");
    }
}

/* Its holder has gone, so its others will go, too, if they have not. */
EITHER_TEST(who_goes_is_no_reason_to_let_others_pass)
{
    stand_still(world);
    name(world, OTHER, "shop");
    wait_in_line(world, OTHER);
    world_disconnect(world, 1);
    world_pass(world, 4001);
    assert_heard(world, 2, GRANT(2, 4000));
}

/* Places and baskets stand in the same line. */
EITHER_TEST(a_basket_of_a_process_that_stands_still_lets_others_pass)
{
    stand_still(world);
    name(world, OTHER, "shop");
    name(world, 6, "till");
    assert_says(world, 6, "ACQUIREALL 4000 2 j k WAIT 60000", "");
    wait_in_line(world, OTHER);
    world_pass(world, 4001);
    assert_heard(world, OTHER, GRANT(2, 4000));
    for (int i = 2; i <= THREADS; i++)
        world_disconnect(world, i);
    assert_says(world, OTHER, "RELEASE k 2", ":0\r\n");
    assert_heard(world, 6, "*2\r\n:1\r\n:3\r\n");
}
