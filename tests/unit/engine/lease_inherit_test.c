/* SPDX-License-Identifier: Apache-2.0 */
/* With leases in the store, the head of the line is granted the lease in the very transaction in
 * which its predecessor's token is retired. */
#include "tests/unit/engine/says.h"

/* Client 1 holds r, by token 1; 2 and 3 wait for it. */
static void with_a_line(struct world *world)
{
    assert_says(world, 1, "ACQUIRE r 1000", GRANT(1, 1000));
    assert_says(world, 2, "ACQUIRE r 2000 WAIT 60000", "");
    assert_says(world, 3, "ACQUIRE r 3000 WAIT 60000", "");
}

/* What was sent is worked off in one transaction, and no other. */
static void settle_in_one_commit(struct world *world)
{
    uint64_t before = store_stats(world->store).commits;
    world_settle(world);
    assert_int_equal(store_stats(world->store).commits, before + 1);
}

LOCAL_TEST(a_write_its_release_and_the_next_grant_are_one_commit)
{
    with_a_line(world);
    world_send_only(world, 1, "FENCED 1 SET r 9");
    world_send_only(world, 1, "RELEASE r 1");
    settle_in_one_commit(world);
    assert_heard(world, 1, "+OK\r\n:0\r\n");
    assert_heard(world, 2, GRANT(2, 2000));
    assert_heard(world, 3, "");
    assert_begins(world, 1, "FENCED 1 SET r 8", "-STALE ");
    assert_says(world, 2, "FENCED 2 INCR r", ":10\r\n");
    assert_says(world, 2, "RELEASE r 2", ":0\r\n");
    assert_heard(world, 3, GRANT(3, 3000));
}

LOCAL_TEST(a_revoked_lease_is_inherited_too)
{
    with_a_line(world);
    world_send_only(world, 4, "REVOKE r");
    settle_in_one_commit(world);
    assert_heard(world, 4, ":1\r\n");
    assert_heard(world, 2, GRANT(2, 2000));
    assert_begins(world, 1, "RENEW r 1 1000", "-STALE ");
}

LOCAL_TEST(an_heir_holds_the_lease_for_its_own_ttl)
{
    with_a_line(world);
    assert_says(world, 1, "RELEASE r 1", ":0\r\n");
    assert_heard(world, 2, GRANT(2, 2000));
    world_pass(world, 1999);
    assert_heard(world, 3, "");
    world_pass(world, 2);
    assert_heard(world, 3, GRANT(3, 3000));
}

LOCAL_TEST(a_release_that_leaves_holds_leaves_the_line_waiting)
{
    assert_says(world, 1, "ACQUIRE r 1000 OWNER me", GRANT(1, 1000));
    assert_says(world, 1, "ACQUIRE r 1000 OWNER me", GRANT(1, 1000));
    assert_says(world, 2, "ACQUIRE r 2000 WAIT 60000", "");
    assert_says(world, 1, "RELEASE r 1", ":1\r\n");
    assert_heard(world, 2, "");
    assert_says(world, 1, "RELEASE r 1", ":0\r\n");
    assert_heard(world, 2, GRANT(2, 2000));
}

LOCAL_TEST(a_token_that_never_was_releases_nothing_for_the_line)
{
    with_a_line(world);
    assert_begins(world, 4, "RELEASE r 7", "-UNKNOWN ");
    assert_heard(world, 2, "");
    world_pass(world, 1001); /* and the end of the lease is still looked for */
    assert_heard(world, 2, GRANT(2, 2000));
}

LOCAL_TEST(where_the_commit_fails_the_holder_still_holds_and_the_line_waits)
{
    with_a_line(world);
    store_memory_fail(world->store, MEMORY_COMMIT_FAILS);
    assert_begins(world, 1, "RELEASE r 1", "-STORE ");
    assert_heard(world, 2, "");
    assert_says(world, 1, "FENCED 1 SET r 9", "+OK\r\n");
    assert_says(world, 1, "RELEASE r 1", ":0\r\n");
    assert_heard(world, 2, GRANT(2, 2000));
}

LOCAL_TEST(an_heir_whose_client_has_gone_passes_the_lease_on)
{
    with_a_line(world);
    world_send_only(world, 1, "RELEASE r 1");
    leave(world, 2);
    assert_heard(world, 1, ":0\r\n");
    assert_heard(world, 3, GRANT(3, 3000));
    assert_begins(world, 4, "FENCED 2 SET r 8", "-STALE ");
}

LOCAL_TEST(an_heir_meets_a_daemon_that_stops_meanwhile)
{
    with_a_line(world);
    world_send_only(world, 1, "RELEASE r 1");
    engine_drain(world->engine);
    assert_heard_begins(world, 2, "-BUSY ");
    assert_heard_begins(world, 3, "-BUSY ");
}

LOCAL_TEST(an_heir_with_an_id_is_remembered)
{
    assert_says(world, 1, "ACQUIRE r 1000", GRANT(1, 1000));
    assert_says(world, 2, "ACQUIRE r 2000 WAIT 60000 ID x", "");
    assert_says(world, 1, "RELEASE r 1", ":0\r\n");
    assert_heard(world, 2, GRANT(2, 2000));
    assert_says(world, 3, "ACQUIRE r 2000 WAIT 60000 ID x", GRANT(2, 2000));
}

LOCAL_TEST(a_twin_of_a_request_that_was_granted_inherits_nothing)
{
    assert_says(world, 1, "ACQUIRE r 1000", GRANT(1, 1000));
    assert_says(world, 2, "ACQUIRE r 2000 WAIT 60000 ID x", "");
    assert_says(world, 3, "ACQUIRE r 2000 WAIT 60000 ID x", "");
    assert_says(world, 1, "RELEASE r 1", ":0\r\n");
    assert_heard(world, 2, GRANT(2, 2000));
    assert_says(world, 2, "RELEASE r 2", ":0\r\n");
    assert_heard_begins(world, 3, "-STALE ");
    assert_says(world, 4, "ACQUIRE r 2000", GRANT(3, 2000));
}
