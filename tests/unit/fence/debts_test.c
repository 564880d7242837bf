/* SPDX-License-Identifier: Apache-2.0 */
/* The list of releases that are owed to a Redis that is away: it is bounded, and forgets a debt
 * when its lease is over. */
#include "fence/lease/redis/debts.h"
#include "tests/unit/test.h"

static void owe(struct debts *debts, const char *resource, int64_t token, int64_t until_ms,
                int64_t now_ms)
{
    struct lease_call call = {.verb = LEASE_GRANT, .resource = bytes_of(resource)};

    snprintf(call.nonce, sizeof call.nonce, "nonce of %s", resource);
    debts_add(debts, &call, token, until_ms, now_ms);
}

TEST(a_debt_is_a_release_with_memory_of_its_own)
{
    struct debts debts = {0};
    char resource[] = "sku:1";

    assert_null(debts_take(&debts, 0));
    owe(&debts, resource, 34, 1000, 400);
    memset(resource, 'x', 5);
    struct debt *debt = debts_take(&debts, 600);
    assert_non_null(debt);
    assert_int_equal(debt->call.verb, LEASE_RELEASE);
    assert_true(bytes_equal(debt->call.resource, bytes_of("sku:1")));
    assert_string_equal(debt->call.nonce, "nonce of sku:1");
    assert_int_equal(debt->call.token, 34);
    assert_int_equal(debt->call.ttl_ms, 400);
    free(debt);
    assert_null(debts_take(&debts, 600));
    debts_free(&debts);
}

/* So that its holder is told at another daemon. */
TEST(a_revocation_that_is_owed_stays_one)
{
    struct debts debts = {0};

    for (int revoked = 0; revoked < 2; revoked++) {
        struct lease_call call = {
            .verb = LEASE_RELEASE, .resource = BYTES_LITERAL("sku:1"), .revoked = revoked};
        debts_add(&debts, &call, 34, 1000, 400);
        struct debt *debt = debts_take(&debts, 400);
        assert_int_equal(debt->call.revoked, revoked);
        free(debt);
    }
    debts_free(&debts);
}

TEST(debts_whose_time_is_over_are_forgotten)
{
    struct debts debts = {0};

    owe(&debts, "over already", 1, 500, 500);
    assert_int_equal(debts.heap.count, 0);
    owe(&debts, "soon over", 1, 1000, 500);
    owe(&debts, "lasting", 1, 2000, 500);
    struct debt *debt = debts_take(&debts, 1000);
    assert_string_equal(debt->call.nonce, "nonce of lasting");
    free(debt);
    assert_null(debts_take(&debts, 1000));
    debts_free(&debts);
}

TEST(of_too_many_those_that_end_soonest_are_forgotten)
{
    struct debts debts = {0};

    for (int64_t i = 0; i < DEBTS_MAX + 10; i++)
        owe(&debts, "sku", i, 1000 + i, 0);
    assert_int_equal(debts.heap.count, DEBTS_MAX);
    struct debt *debt = debts_take(&debts, 0);
    assert_int_equal(debt->call.token, 10);
    free(debt);
    debts_free(&debts);
}

TEST(debts_that_another_is_to_pay_are_moved_up_to_the_limit)
{
    struct debts debts = {0}, others = {0};

    for (int64_t i = 0; i < DEBTS_MAX; i++)
        owe(&debts, "sku", i, 1000 + i, 0);
    owe(&others, "sku", DEBTS_MAX, 1000 + DEBTS_MAX, 0);
    debts_splice(&debts, &others);
    assert_int_equal(others.heap.count, 0);
    assert_int_equal(debts.heap.count, DEBTS_MAX);
    struct debt *debt = debts_take(&debts, 0);
    assert_int_equal(debt->call.token, 1);
    assert_int_equal(debt->call.ttl_ms, 1001);
    free(debt);
    debts_free(&debts);
    debts_free(&others);
}
