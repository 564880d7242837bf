/* SPDX-License-Identifier: Apache-2.0 */
/* The time left that a provider's answer tells is never too long, whatever the phases of the
 * clocks. */
#include "fence/lease/provider_impl.h"
#include "tests/unit/test.h"

#define TTL_MS 20

static bool ask(struct lease_provider *provider, struct lease_call *call)
{
    (void)provider;
    return lease_answer(call, LEASE_GRANTED, call->token, call->ttl_ms);
}

static const struct lease_provider_impl elsewhere = {.name = "elsewhere", .ask = ask},
                                        here = {.name = "here", .own_clock = true, .ask = ask};

static void on_answer(struct lease_call *call)
{
    assert_int_equal(call->answer, LEASE_GRANTED);
}

static struct lease_call asked(const struct lease_provider_impl *impl, int64_t now_ms)
{
    struct lease_provider provider = {.impl = impl};
    struct lease_call call = {.verb = LEASE_RENEW,
                              .resource = BYTES_LITERAL("r"),
                              .token = 1,
                              .ttl_ms = TTL_MS,
                              .asked_ms = now_ms,
                              .done = on_answer};

    lease_ask(&provider, &call);
    assert_int_equal(call.answer, LEASE_GRANTED);
    return call;
}

/* Read a clock that counts milliseconds and is `phase` tenths of one ahead. The true time is in
 * tenths. */
static int64_t reads_ms(int64_t time, int64_t phase)
{
    return (time + phase) / 10;
}

TEST(what_is_told_is_never_more_than_what_the_services_clock_leaves)
{
    for (int64_t phase = 0; phase < 10; phase++)
        for (int64_t granted = 1000; granted < 1040; granted++) {
            struct lease_call call = asked(&elsewhere, reads_ms(1000, 0));
            int64_t end_ms = reads_ms(granted, phase) + TTL_MS;
            for (int64_t now = granted; now < granted + TTL_MS * 10; now++) {
                int64_t told_ms = lease_left_ms(&call, reads_ms(now, 0));
                assert_true(told_ms == 0 || told_ms <= end_ms - reads_ms(now, phase));
            }
        }
}

TEST(the_callers_own_clock_leaves_all)
{
    struct lease_call call = asked(&here, 1000);

    assert_int_equal(lease_left_ms(&call, 1000), TTL_MS);
    assert_int_equal(lease_left_ms(&call, 1000 + TTL_MS), 0);
    assert_int_equal(lease_left_ms(&call, 5000), 0);
}
