/* SPDX-License-Identifier: Apache-2.0 */
/* The list of releases owed to a Redis that is away: bounded, and in time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fence/lease/redis/debts.h"

static void owe(struct debts *debts, const char *resource, int64_t token, int64_t until_ms,
                int64_t now_ms)
{
    struct lease_call call = {.verb = LEASE_GRANT, .resource = bytes_of(resource)};

    snprintf(call.nonce, sizeof call.nonce, "nonce of %s", resource);
    debts_add(debts, &call, token, until_ms, now_ms);
}

static void test_a_debt_is_a_release_with_memory_of_its_own(void **state)
{
    struct debts debts = {0};
    char resource[] = "sku:1";

    (void)state;
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

/* So that its holder, at another daemon, is told. */
static void test_a_revocation_that_is_owed_stays_one(void **state)
{
    struct debts debts = {0};

    (void)state;
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

static void test_debts_whose_time_is_over_are_forgotten(void **state)
{
    struct debts debts = {0};

    (void)state;
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

static void test_of_too_many_those_that_end_soonest_are_forgotten(void **state)
{
    struct debts debts = {0};

    (void)state;
    for (int64_t i = 0; i < DEBTS_MAX + 10; i++)
        owe(&debts, "sku", i, 1000 + i, 0);
    assert_int_equal(debts.heap.count, DEBTS_MAX);
    struct debt *debt = debts_take(&debts, 0);
    assert_int_equal(debt->call.token, 10);
    free(debt);
    debts_free(&debts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_debt_is_a_release_with_memory_of_its_own),
        cmocka_unit_test(test_a_revocation_that_is_owed_stays_one),
        cmocka_unit_test(test_debts_whose_time_is_over_are_forgotten),
        cmocka_unit_test(test_of_too_many_those_that_end_soonest_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
