/* SPDX-License-Identifier: Apache-2.0 */
/* What the store and the lease service confirm of a lease, the daemon's memory knows: whichever way
 * the lease has come, and however it was forgotten in between. */
#include "tests/unit/engine/says.h"

#include <string.h>

#include "proxy/engine/history/history.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/lease/lease.h"

#define LOST(resource, token, reason) "*4\r\n$13\r\nstockade:lost\r\n" resource ":" token reason

/* The lease on k, as this daemon knows it. */
static bool is_watched(struct world *world, int64_t token)
{
    struct held_shown shown;

    return held_find(world->engine, BYTES_LITERAL("k"), &shown) && shown.token == token &&
           world_counter(world, "leases_held") == 1;
}

static void let_expire(struct world *world)
{
    assert_says(world, 1, "ACQUIRE k 100", GRANT(1, 100));
    world_pass(world, 200);
    assert_int_equal(world_counter(world, "leases_expired"), 1);
    assert_int_equal(world_counter(world, "leases_held"), 0);
}

EITHER_TEST(a_lease_that_a_renewal_takes_back_is_watched_again)
{
    let_expire(world);
    assert_says(world, 2, "RENEW k 1 1000 NOTIFY", ":1000\r\n");
    assert_true(is_watched(world, 1));
    assert_says(world, 3, "REVOKE k", ":1\r\n");
    assert_heard(world, 2, LOST("$1\r\nk\r\n", "1\r\n", "$7\r\nrevoked\r\n"));
    assert_int_equal(world_counter(world, "leases_held"), 0);
}

EITHER_TEST(a_lease_that_was_taken_back_is_missed_when_it_expires_again)
{
    let_expire(world);
    assert_says(world, 1, "RENEW k 1 100 NOTIFY", ":100\r\n");
    world_pass(world, 200);
    assert_heard(world, 1, LOST("$1\r\nk\r\n", "1\r\n", "$7\r\nexpired\r\n"));
    assert_int_equal(world_counter(world, "leases_expired"), 2);
}

/* The end that history has told of was none. */
EITHER_TEST(the_history_of_a_lease_that_is_taken_back_goes_on)
{
    let_expire(world);
    assert_says(world, 1, "RENEW k 1 1000", ":1000\r\n");
    const struct history_grant *grant = history_grants(world->engine->history, BYTES_LITERAL("k"));
    assert_null(grant->older);
    assert_int_equal(grant->end, HISTORY_RUNS);
    assert_int_equal(grant->ended_ms, 0);
    world_pass(world, 100);
    assert_says(world, 2, "REVOKE k", ":1\r\n");
    world_pass(world, 30);
    assert_begins(world, 1, "FENCED 1 SET k v", "-STALE ");
    const struct history_refusal *refusal = history_refusals(world->engine->history);
    assert_int_equal(refusal->late_ms, 30);
    assert_int_equal(refusal->ended, HISTORY_REVOKED);
}

static void limit_leases(struct world *world, size_t max)
{
    world_renew(world,
                &(struct engine_options){.user_limits = {.things = {[ACCOUNT_LEASES] = max}}});
}

/* He had let the first one go, as far as anybody could tell. */
WORLD_TEST(who_may_have_no_more_leases_takes_none_back)
{
    limit_leases(world, 1);
    let_expire(world);
    assert_says(world, 1, "ACQUIRE other 1000", GRANT(1, 1000));
    assert_begins(world, 1, "RENEW k 1 1000", "-BUSY too many leases");
    assert_int_equal(world_counter(world, "leases_held"), 1);
    assert_int_equal(lease_says(world, "k", "held"), 0); /* anybody may have it */
    assert_says(world, 1, "RELEASE other 1", ":0\r\n");
    assert_says(world, 1, "RENEW k 1 1000", ":1000\r\n");
    assert_begins(world, 1, "ACQUIRE other 1000", "-BUSY too many leases");
}

/* All at once: none of them is counted when the next one asks. */
WORLD_TEST(leases_that_are_taken_back_at_once_are_counted_one_by_one)
{
    char line[64], heard[400];
    int taken = 0;

    limit_leases(world, 2);
    for (int i = 0; i < 5; i++) {
        snprintf(line, sizeof line, "ACQUIRE k%d 100", i);
        assert_says(world, 1, line, GRANT(1, 100));
        world_pass(world, 200);
    }
    for (int i = 0; i < 5; i++) {
        snprintf(line, sizeof line, "RENEW k%d 1 1000", i);
        world_send_only(world, 1, line);
    }
    world_settle(world);
    snprintf(heard, sizeof heard, "%s", world_received(world, 1));
    for (const char *at = heard; (at = strstr(at, ":1000\r\n")) != NULL; at++)
        taken++;
    assert_int_equal(taken, 2);
    assert_int_equal(world_counter(world, "leases_held"), 2);
}

/* The daemon knows nothing of it any more, and it is live: it takes nothing from anybody. */
WORLD_TEST(a_live_lease_is_renewed_whatever_its_user_may_have)
{
    limit_leases(world, 1);
    assert_says(world, 1, "ACQUIRE k 1000", GRANT(1, 1000));
    store_memory_set_opening(world->store, 2);
    world_restart_engine(world, 0);
    assert_says(world, 1, "ACQUIRE other 1000", GRANT(1, 1000));
    assert_says(world, 1, "RENEW k 1 1000", ":1000\r\n");
    assert_int_equal(world_counter(world, "leases_held"), 2);
    assert_begins(world, 1, "ACQUIRE third 1000", "-BUSY too many leases: user 'default' has 2");
}

EITHER_TEST(a_lease_of_an_earlier_run_is_watched_from_its_first_renewal_on)
{
    assert_says(world, 1, "ACQUIRE k 1000 OWNER me", GRANT(1, 1000));
    store_memory_set_opening(world->store, 2);
    world_restart_engine(world, 10);
    assert_says(world, 1, "RENEW k 1 500 NOTIFY", ":500\r\n");
    assert_true(is_watched(world, 1));
    struct held_shown shown;
    assert_true(held_find(world->engine, BYTES_LITERAL("k"), &shown));
    assert_true(bytes_equal(shown.owner, BYTES_LITERAL("me")));
    assert_int_equal(shown.granted_ms, 1000000);
    world_pass(world, 600);
    assert_heard(world, 1, LOST("$1\r\nk\r\n", "1\r\n", "$7\r\nexpired\r\n"));
}

/* The row tells whose it is, also where the client named no owner. */
WORLD_TEST(a_lease_of_an_earlier_run_counts_for_the_user_that_it_was_granted_to)
{
    char why[ACL_WHY_SIZE];
    struct acl *acl =
        acl_parse(BYTES_LITERAL("user default on nopass +@all ~*\nuser ann on nopass +@all ~*\n"),
                  commands, commands_count, why);

    world_renew(world, &(struct engine_options){.acl = acl,
                                                .user_limits = {.things = {[ACCOUNT_LEASES] = 1}}});
    assert_says(world, 1, "AUTH ann x", "+OK\r\n");
    assert_says(world, 1, "ACQUIRE k 1000", GRANT(1, 1000));
    store_memory_set_opening(world->store, 2);
    world_restart_engine(world, 10);
    assert_says(world, 2, "RENEW k 1 1000", ":1000\r\n"); /* by whom does not matter */
    assert_says(world, 2, "ACQUIRE mine 1000", GRANT(1, 1000));
    assert_says(world, 1, "AUTH ann x", "+OK\r\n");
    assert_begins(world, 1, "ACQUIRE other 1000", "-BUSY too many leases: user 'ann' has 1");
    struct held_shown shown;
    assert_true(held_find(world->engine, BYTES_LITERAL("k"), &shown));
    assert_int_equal(shown.owner.len, LEASE_NONCE_LEN);
}

/* A connection has gone, and so has what it held for as long as it lived. */
EITHER_TEST(an_ephemeral_lease_that_is_taken_back_stays_tied_to_its_connection)
{
    assert_says(world, 1, "ACQUIRE k 100 EPHEMERAL", GRANT(1, 100));
    world_pass(world, 200);
    assert_says(world, 2, "RENEW k 1 10000 NOTIFY", ":10000\r\n");
    leave(world, 2);
    assert_says(world, 3, "FENCED 1 SET k v", "+OK\r\n");
    leave(world, 1);
    assert_says(world, 3, "ACQUIRE k 1000", GRANT(2, 1000));
}

EITHER_TEST(an_ephemeral_lease_is_not_taken_back_once_its_connection_has_closed)
{
    assert_says(world, 1, "ACQUIRE k 100 EPHEMERAL", GRANT(1, 100));
    world_pass(world, 200);
    leave(world, 1);
    assert_begins(world, 2, "RENEW k 1 10000", "-STALE ");
    assert_begins(world, 2, "FENCED 1 SET k v", "-STALE ");
    assert_int_equal(world_counter(world, "leases_held"), 0);
}

/* EPHEMERAL, where the store takes nothing as the connection closes. */

static void set_full(struct world *world, bool trouble)
{
    store_memory_set_full(world->store, trouble);
}

static void set_failing(struct world *world, bool trouble)
{
    store_memory_fail(world->store, trouble ? MEMORY_COMMIT_FAILS : MEMORY_FINE);
}

EITHER_TEST(an_ephemeral_lease_ends_as_soon_as_the_store_takes_its_release)
{
    static void (*const troubles[])(struct world *, bool) = {set_full, set_failing};
    char reply[40];

    for (int i = 0; i < 2; i++) {
        snprintf(reply, sizeof reply, "*2\r\n:%d\r\n:10000\r\n", i + 1);
        assert_says(world, 1, "ACQUIRE k 10000 EPHEMERAL", reply);
        troubles[i](world, true);
        leave(world, 1);
        assert_int_equal(world_counter(world, "leases_held"), 1);
        troubles[i](world, false);
        world_pass(world, 30);
        assert_int_equal(world_counter(world, "leases_held"), 0);
        assert_int_equal(world_counter(world, "leases_released"), i + 1);
        assert_true(list_empty(&world->engine->owed));
    }
    assert_int_equal(lease_says(world, "k", "held"), 0);
}

EITHER_TEST(a_release_that_is_owed_is_tried_for_seconds)
{
    assert_says(world, 1, "ACQUIRE k 10000 EPHEMERAL", GRANT(1, 10000));
    set_full(world, true);
    leave(world, 1);
    world_pass(world, 5000);
    set_full(world, false);
    world_pass(world, 1000);
    assert_begins(world, 2, "FENCED 1 SET k v", "-STALE ");
}

EITHER_TEST(what_is_owed_ends_with_the_lease)
{
    assert_says(world, 1, "ACQUIRE k 500 EPHEMERAL", GRANT(1, 500));
    set_full(world, true);
    leave(world, 1);
    assert_false(list_empty(&world->engine->owed));
    world_pass(world, 3000);
    assert_true(list_empty(&world->engine->owed));
    set_full(world, false);
    world_pass(world, 100);
    assert_int_equal(world_counter(world, "leases_held"), 0);
}

/* Its owner has come back over another connection before the release got through. */
EITHER_TEST(what_is_owed_does_not_end_a_lease_that_has_moved)
{
    assert_says(world, 1, "ACQUIRE k 10000 OWNER me EPHEMERAL", GRANT(1, 10000));
    set_full(world, true);
    leave(world, 1);
    set_full(world, false);
    assert_says(world, 2, "ACQUIRE k 10000 OWNER me EPHEMERAL", GRANT(1, 10000));
    world_pass(world, 2000);
    assert_says(world, 2, "FENCED 1 SET k v", "+OK\r\n");
    leave(world, 2);
    assert_begins(world, 3, "FENCED 1 SET k v", "-STALE ");
}

EITHER_TEST(a_daemon_may_end_while_a_release_is_owed)
{
    assert_says(world, 1, "ACQUIRE k 10000 EPHEMERAL", GRANT(1, 10000));
    set_full(world, true);
    leave(world, 1);
    assert_true(engine_idle(world->engine));
    set_full(world, false);
}

/* With local: the store alone tells what other daemons on it do. */

struct elsewhere {
    struct store_op op;
    int64_t ttl_ms;
    enum fence_state state;
};

static enum stk_error change_run(struct store_op *op, struct store_txn *txn)
{
    const struct elsewhere *elsewhere = list_entry(op, struct elsewhere, op);
    struct resource row;
    struct lease lease;
    enum stk_error error = txn_resource(txn, BYTES_LITERAL("k"), &row);

    if (error == STK_OK)
        error = txn_lease(txn, &row, &lease);
    lease.opening = 7;
    lease.connection = 0;
    lease.ttl_ms = elsewhere->ttl_ms;
    lease.holds = elsewhere->state == FENCE_LIVE;
    row.fence.state = elsewhere->state;
    return error == STK_OK ? lease_rewrite(txn, &row, &lease) : error;
}

static void ignore_op(struct store_op *op)
{
    assert_int_equal(op->error, STK_OK);
}

/* Another daemon renews k, or ends it. */
static void change_elsewhere(struct world *world, int64_t ttl_ms, enum fence_state state)
{
    struct elsewhere elsewhere = {.op = {.writes = true, .run = change_run, .done = ignore_op},
                                  .ttl_ms = ttl_ms,
                                  .state = state};

    list_init(&elsewhere.op.link);
    assert_int_equal(store_submit(world->store, &elsewhere.op), STK_OK);
    world_settle(world);
}

LOCAL_TEST(a_lease_that_another_daemon_renews_in_the_store_has_not_expired)
{
    assert_says(world, 1, "ACQUIRE k 100", GRANT(1, 100));
    world_pass(world, 50);
    change_elsewhere(world, 500, FENCE_LIVE);
    world_pass(world, 300);
    assert_int_equal(world_counter(world, "leases_expired"), 0);
    assert_true(is_watched(world, 1));
    world_pass(world, 400);
    assert_int_equal(world_counter(world, "leases_expired"), 1);
}

/* Nobody has told: it is found out when the lease should be over. */
EITHER_TEST(a_lease_that_was_revoked_in_the_store_is_told_as_revoked)
{
    assert_says(world, 1, "ACQUIRE k 100", GRANT(1, 100));
    assert_says(world, 1, "RENEW k 1 100 NOTIFY", ":100\r\n");
    change_elsewhere(world, 100, FENCE_REVOKED);
    world_pass(world, 200);
    assert_heard(world, 1, LOST("$1\r\nk\r\n", "1\r\n", "$7\r\nrevoked\r\n"));
    assert_int_equal(world_counter(world, "leases_expired"), 0);
}

/* Its end was not seen, and is not made up while the store says nothing. */
EITHER_TEST(a_lease_is_asked_about_again_where_the_store_has_too_much_to_do)
{
    assert_says(world, 1, "ACQUIRE k 100", GRANT(1, 100));
    set_full(world, true);
    world_pass(world, 200);
    assert_int_equal(world_counter(world, "leases_expired"), 0);
    set_full(world, false);
    world_pass(world, 200);
    assert_int_equal(world_counter(world, "leases_expired"), 1);
}

/* From the start on, without a word from anybody. */

static const struct engine_options from_the_start = {.watch_earlier = true};

static void restart(struct world *world, int64_t opening)
{
    store_memory_set_opening(world->store, opening);
    world_restart_engine(world, 10);
    world_settle(world);
}

static void assert_found(struct world *world)
{
    struct held_shown shown;

    assert_says(world, 1, "ACQUIRE k 1000 OWNER me", GRANT(1, 1000));
    assert_says(world, 1, "ACQUIRE gone 1000", GRANT(1, 1000));
    assert_says(world, 1, "RELEASE gone 1", ":0\r\n");
    restart(world, 2);
    assert_true(is_watched(world, 1));
    assert_true(held_find(world->engine, BYTES_LITERAL("k"), &shown));
    assert_true(bytes_equal(shown.owner, BYTES_LITERAL("me")));
    assert_null(shown.holder);
    assert_says(world, 2, "REVOKE k", ":1\r\n");
    assert_int_equal(world_counter(world, "leases_held"), 0);
    assert_int_equal(world_counter(world, "leases_revoked"), 1);
    assert_says(world, 1, "ACQUIRE j 100", GRANT(1, 100));
    restart(world, 3);
    assert_int_equal(world_counter(world, "leases_held"), 1);
    world_pass(world, 200);
    assert_int_equal(world_counter(world, "leases_held"), 0);
    assert_int_equal(world_counter(world, "leases_expired"), 1);
}

WORLD_TEST(leases_from_before_the_start_are_found)
{
    world_renew(world, &from_the_start);
    assert_found(world);
}

TEST(leases_from_before_the_start_are_found_with_local)
{
    struct world *world = world_new_local(&from_the_start);

    assert_found(world);
    world_free(world);
}

/* More than are looked at together; and whoever comes first is served. */
WORLD_TEST(all_leases_from_before_the_start_are_found)
{
    char line[64];

    world_renew(world, &from_the_start);
    for (int i = 0; i < 500; i++) {
        snprintf(line, sizeof line, "ACQUIRE k%d 60000", i);
        assert_says(world, 1, line, GRANT(1, 60000));
    }
    store_memory_set_opening(world->store, 2);
    world_restart_engine(world, 10);
    assert_says(world, 1, "RENEW k400 1 50000 NOTIFY", ":50000\r\n");
    world_settle(world);
    assert_int_equal(world_counter(world, "leases_held"), 500);
    for (int i = 0; i < 500; i++) {
        snprintf(line, sizeof line, "RELEASE k%d 1", i);
        assert_says(world, 2, line, ":0\r\n");
    }
    assert_int_equal(world_counter(world, "leases_held"), 0);
    assert_heard_begins(world, 1, "*4\r\n$13\r\nstockade:lost\r\n$4\r\nk400\r\n");
}

WORLD_TEST(leases_are_found_once_the_lease_service_is_back)
{
    world_renew(world, &from_the_start);
    assert_says(world, 1, "ACQUIRE k 10000", GRANT(1, 10000));
    lease_service_set_down(world->service, "test");
    restart(world, 2);
    world_pass(world, 2500);
    assert_int_equal(world_counter(world, "leases_held"), 0);
    lease_service_set_down(world->service, NULL);
    world_pass(world, 1100);
    assert_true(is_watched(world, 1));
}

/* While the lease service thinks about it. */
WORLD_TEST(a_lease_that_ends_while_it_is_looked_for_is_not_found)
{
    world_renew(world, &from_the_start);
    assert_says(world, 1, "ACQUIRE k 10000", GRANT(1, 10000));
    store_memory_set_opening(world->store, 2);
    lease_service_set_late(world->service, 20);
    world_restart_engine(world, 10);
    lease_service_set_late(world->service, 20);
    world_settle(world); /* the question is asked */
    world_send(world, 1, "RELEASE k 1");
    world_pass(world, 200);
    lease_service_set_late(world->service, 0);
    assert_heard(world, 1, ":0\r\n");
    assert_int_equal(world_counter(world, "leases_held"), 0);
}

/* What nobody was told of. */

WORLD_TEST(a_grant_that_nobody_can_receive_ends_as_soon_as_the_store_takes_that)
{
    lease_service_set_late(world->service, 0);
    world_send_only(world, 1, "ACQUIRE k 10000");
    world_step_store(world); /* the floor is read; the grant is asked for and recorded next */
    world_disconnect(world, 1);
    (void)store_step(world->store);
    set_full(world, true);
    store_collect(world->store);
    assert_false(list_empty(&world->engine->owed));
    set_full(world, false);
    world_pass(world, 30);
    assert_begins(world, 2, "FENCED 1 SET k v", "-STALE ");
    assert_says(world, 2, "ACQUIRE k 1000", GRANT(2, 1000));
}

/* The row names the connection already that has gone before it was told. */
EITHER_TEST(an_ephemeral_lease_that_moves_to_a_connection_that_has_gone_ends_with_it)
{
    assert_says(world, 1, "ACQUIRE k 10000 EPHEMERAL ID x", GRANT(1, 10000));
    world_send_only(world, 2, "ACQUIRE k 10000 EPHEMERAL ID x");
    world_step_store(world);
    world_disconnect(world, 2);
    world_settle(world);
    leave(world, 1);
    assert_begins(world, 3, "FENCED 1 SET k v", "-STALE ");
    assert_int_equal(world_counter(world, "leases_held"), 0);
}
