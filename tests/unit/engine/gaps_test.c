/* SPDX-License-Identifier: Apache-2.0 */
/* What no other test noticed when it was broken on purpose: tests/mutants/engine.toml. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fence/provider.h"
#include "proxy/engine/lease.h"
#include "tests/unit/engine/says.h"

/* The store knows this owner, by an older token that lives still. */
static void an_owner_does_not_enter_again_by_a_token_that_the_store_never_saw(void **state)
{
    struct world *world = *state;
    assert_says(world, 1, "ACQUIRE k 100 OWNER me", "*2\r\n:1\r\n:100\r\n");
    world_pass(world, 101);
    lease_service_set_late(world->service, -1); /* it grants 2, and the daemon dies */
    world_send(world, 1, "ACQUIRE k 60000 OWNER me");
    lease_service_mark(world->service);
    lease_service_set_down(world->service, "gone");
    world_settle(world);
    lease_service_set_down(world->service, NULL);
    lease_service_set_late(world->service, 0);
    lease_service_lose_tail(world->service); /* the lock of token 2 stands */
    world_restart_engine(world);
    assert_says(world, 1, "ACQUIRE k 60000 OWNER me", "*2\r\n:3\r\n:60000\r\n");
    assert_begins(world, 1, "FENCED 1 SET k v", "-STALE ");
    assert_says(world, 1, "FENCED 3 SET k v", "+OK\r\n");
}

static void min_and_max_themselves_are_in_range_and_sums_do_not_overflow(void **state)
{
    struct world *world = *state;
    assert_says(world, 1, "ACQUIRE k 60000", "*2\r\n:1\r\n:60000\r\n");
    assert_says(world, 1, "FENCED 1 INCRBY k 3 MAX 3", ":3\r\n");
    assert_begins(world, 1, "FENCED 1 INCRBY k 1 MAX 3", "-RANGE ");
    assert_says(world, 1, "FENCED 1 DECRBY k 3 MIN 0", ":0\r\n");
    assert_begins(world, 1, "FENCED 1 DECRBY k 1 MIN 0", "-RANGE ");
    assert_says(world, 1, "FENCED 1 SET k 9223372036854775807", "+OK\r\n");
    assert_begins(world, 1, "FENCED 1 INCRBY k 1", "-ERR increment or decrement would overflow");
    assert_says(world, 1, "GET k", "$19\r\n9223372036854775807\r\n");
}

/* After a failure the engine marks where transactions begin: they are undone in another way. */
static void a_second_transaction_that_fails_is_undone_too(void **state)
{
    struct world *world = *state;
    assert_says(world, 1, "ACQUIRE k 60000", "*2\r\n:1\r\n:60000\r\n");
    for (int round = 0; round < 3; round++) {
        assert_says(world, 1, "MULTI", "+OK\r\n");
        assert_says(world, 1, "FENCED 1 SET k v", "+QUEUED\r\n");
        assert_says(world, 1, "FENCED 1 HSET k field v", "+QUEUED\r\n");
        assert_begins(world, 1, "EXEC", "-WRONGTYPE ");
        assert_says(world, 1, "GET k", "$-1\r\n");
    }
}

static void never_late(struct lease_call *call)
{
    (void)call;
    fail();
}

/* Another daemon renews it: that is found out when it should be over here. */
static void a_lease_renewed_elsewhere_ends_when_that_is_over(void **state)
{
    struct world *world = *state;
    struct lease_provider *other = lease_memory_new(world->service);
    struct lease_call renew = {.verb = LEASE_RENEW,
                               .resource = bytes_of("k"),
                               .token = 1,
                               .ttl_ms = 500,
                               .done = never_late};

    assert_says(world, 1, "ACQUIRE k 100 OWNER me", "*2\r\n:1\r\n:100\r\n");
    lease_nonce(bytes_of("me"), false, renew.nonce);
    assert_true(lease_ask(other, &renew));
    assert_int_equal(renew.answer, LEASE_GRANTED);
    world_pass(world, 400);
    assert_int_equal(world_counter(world, "leases_expired"), 0);
    world_pass(world, 200);
    assert_int_equal(world_counter(world, "leases_expired"), 1);
    lease_provider_close(other, free, NULL);
}

/* What was not applied under a token that is over is told for as long as receipts are kept. */
static void a_receipt_that_never_was_is_not_called_expired_too_early(void **state)
{
    (void)state;
    struct world *world = world_new(&(struct engine_options){.receipts_keep_ms = 60000});
    assert_says(world, 1, "ACQUIRE k 60000", "*2\r\n:1\r\n:60000\r\n");
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    world_pass(world, 59000);
    assert_says(world, 1, "RECEIPT k 1 x", "*2\r\n:0\r\n$-1\r\n");
    world_pass(world, 2000);
    assert_begins(world, 1, "RECEIPT k 1 x", "-EXPIRED ");
    world_free(world);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)
    const struct CMUnitTest tests[] = {
        TEST(an_owner_does_not_enter_again_by_a_token_that_the_store_never_saw),
        TEST(min_and_max_themselves_are_in_range_and_sums_do_not_overflow),
        TEST(a_second_transaction_that_fails_is_undone_too),
        TEST(a_lease_renewed_elsewhere_ends_when_that_is_over),
        cmocka_unit_test(a_receipt_that_never_was_is_not_called_expired_too_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
