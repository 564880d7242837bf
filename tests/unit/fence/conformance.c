/* SPDX-License-Identifier: Apache-2.0 */
/* The body of conformance tests. A test keeps what a store would remember of its resources. */
#include "tests/unit/fence/conformance.h"

#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "fence/token.h"
#include "tests/unit/deadline.h"
#include "tests/unit/test.h"

#define LONG_MS  60000
#define SHORT_MS 100 /* to be granted and to run out */
#define MANY     10000

static const char ann[] = "a0000000000000000000000000000001";
static const char bob[] = "b0000000000000000000000000000002";

/* A resource as the store knows it. */
struct known {
    struct bytes name;
    int64_t floor;
    struct lease_record record;
};

struct pending {
    struct lease_call call;
    bool answered;
};

static void on_answer(struct lease_call *call)
{
    ((struct pending *)(void *)call)->answered = true;
}

static struct pending question(const struct known *known, enum lease_verb verb, const char *nonce,
                               int64_t token, int64_t ttl_ms)
{
    struct pending pending = {0};

    pending.call.verb = verb;
    pending.call.resource = known->name;
    snprintf(pending.call.nonce, sizeof pending.call.nonce, "%s", nonce);
    pending.call.token = token;
    pending.call.ttl_ms = ttl_ms;
    pending.call.floor = known->floor;
    pending.call.record = known->record;
    pending.call.done = on_answer;
    return pending;
}

static void await(struct subject *subject, struct pending *pending)
{
    struct deadline deadline = deadline_in(10000);

    while (!pending->answered) {
        deadline_keep(&deadline);
        subject->turn(subject);
    }
}

/* The tests count tokens from 1. */
#define BASE_TOKEN_MAX (INT64_C(1) << 50)

static void shift(int64_t *token, int64_t by)
{
    if (*token > 0 && *token < BASE_TOKEN_MAX)
        *token += by;
}

static void ask(struct subject *subject, struct pending *pending)
{
    struct lease_call *call = &pending->call;

    shift(&call->token, subject->base);
    shift(&call->void_token, subject->base);
    if (call->floor < BASE_TOKEN_MAX)
        call->floor += subject->base;
    pending->answered = false;
    lease_ask(subject->provider, call);
}

static void settle(struct subject *subject, struct pending *pending)
{
    await(subject, pending);
    shift(&pending->call.answer_token, -subject->base);
}

/* Asks, waits, and lets the store learn what was granted. */
static struct lease_call put(struct subject *subject, struct known *known, struct pending pending)
{
    struct lease_call *call = &pending.call;

    ask(subject, &pending);
    settle(subject, &pending);
    if (call->verb == LEASE_GRANT && call->answer == LEASE_GRANTED) {
        assert_true(call->answer_token > known->floor && call->answer_token <= TOKEN_MAX);
        known->floor = known->record.token = call->answer_token;
        known->record.live = known->record.this_run = true;
        snprintf(known->record.nonce, sizeof known->record.nonce, "%s", call->nonce);
    }
    if (call->answer == LEASE_GRANTED || call->answer == LEASE_OWN)
        known->record.ttl_ms = call->ttl_ms;
    return *call;
}

static struct lease_call grant(struct subject *subject, struct known *known, const char *nonce,
                               int64_t ttl_ms)
{
    return put(subject, known, question(known, LEASE_GRANT, nonce, 0, ttl_ms));
}

/* One that is to run out; its token. Who has to ask several (a slow quorum) may mint twice. */
static int64_t short_grant(struct subject *subject, struct known *known, const char *nonce)
{
    struct lease_call call = grant(subject, known, nonce, SHORT_MS);

    assert_int_equal(call.answer, LEASE_GRANTED);
    return call.answer_token;
}

static struct lease_call renew(struct subject *subject, struct known *known, const char *nonce,
                               int64_t token, int64_t ttl_ms)
{
    return put(subject, known, question(known, LEASE_RENEW, nonce, token, ttl_ms));
}

/* As the engine does: the store retires the token first. */
static struct lease_call release(struct subject *subject, struct known *known, const char *nonce,
                                 int64_t token)
{
    if (strcmp(known->record.nonce, nonce) == 0 && known->record.token == token)
        known->record.live = false;
    return put(subject, known, question(known, LEASE_RELEASE, nonce, token, LONG_MS));
}

static struct lease_call query(struct subject *subject, struct known *known)
{
    return put(subject, known, question(known, LEASE_QUERY, "", 0, 0));
}

/* Until the lease there is over. */
static void pass_over(struct subject *subject, struct known *known)
{
    struct deadline deadline = deadline_in(10000);

    if (subject->pass != NULL)
        subject->pass(subject, SHORT_MS);
    while (query(subject, known).answer != LEASE_FREE)
        deadline_keep(&deadline);
}

#define assert_answer(call, answer_, token_)                                                       \
    do {                                                                                           \
        struct lease_call got_ = (call);                                                           \
        assert_int_equal(got_.answer, answer_);                                                    \
        assert_int_equal(got_.answer_token, token_);                                               \
    } while (0)

#define KNOWN(name_)                                                                               \
    {                                                                                              \
        .name = BYTES_LITERAL(name_)                                                               \
    }

static void test_a_free_resource_is_granted_above_the_floor(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");

    struct lease_call call = grant(subject, &sku, ann, LONG_MS);
    assert_answer(call, LEASE_GRANTED, 1);
    assert_int_equal(call.answer_ttl_ms, LONG_MS);

    struct known raised = {.name = BYTES_LITERAL("sku:2"), .floor = 41};
    assert_answer(grant(subject, &raised, ann, LONG_MS), LEASE_GRANTED, 42);
}

static void test_a_held_resource_is_denied_with_its_token_and_what_is_left(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");

    grant(subject, &sku, ann, LONG_MS);
    struct lease_call call = grant(subject, &sku, bob, 1000);
    assert_answer(call, LEASE_HELD, 1);
    assert_in_range(call.answer_ttl_ms, LONG_MS - 5000, LONG_MS);
}

static void test_the_owner_enters_again_under_the_same_token_and_a_new_ttl(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");

    grant(subject, &sku, ann, 1000);
    struct lease_call call = grant(subject, &sku, ann, LONG_MS);
    assert_answer(call, LEASE_OWN, 1);
    assert_int_equal(call.answer_ttl_ms, LONG_MS);
    assert_in_range(query(subject, &sku).answer_ttl_ms, 1001, LONG_MS);
}

/* What asks may be an attempt of long ago, which was held up on its way. */
static void test_entering_again_does_not_shorten_what_was_told(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");
    struct lease_call first = grant(subject, &sku, ann, LONG_MS), again;

    if (first.attempt == 0)
        return; /* nothing is held up */
    again = grant(subject, &sku, ann, 1000);
    assert_answer(again, LEASE_OWN, 1);
    assert_int_equal(again.answer_ttl_ms, 1000);
    assert_in_range(query(subject, &sku).answer_ttl_ms, 1001, LONG_MS);
}

static void test_an_expired_lease_goes_to_the_next_with_a_larger_token(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");

    int64_t token = short_grant(subject, &sku, ann);
    pass_over(subject, &sku);
    assert_answer(grant(subject, &sku, bob, LONG_MS), LEASE_GRANTED, token + 1);
    assert_answer(query(subject, &sku), LEASE_HELD, token + 1);
}

static void test_the_same_owner_gets_a_larger_token_after_expiry(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");

    int64_t token = short_grant(subject, &sku, ann);
    pass_over(subject, &sku);
    assert_answer(grant(subject, &sku, ann, LONG_MS), LEASE_GRANTED, token + 1);
}

static void test_renewal_makes_the_lease_live_longer(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");

    grant(subject, &sku, ann, 1000);
    struct lease_call call = renew(subject, &sku, ann, 1, LONG_MS);
    assert_answer(call, LEASE_GRANTED, 1);
    assert_int_equal(call.answer_ttl_ms, LONG_MS);
    assert_in_range(query(subject, &sku).answer_ttl_ms, 1001, LONG_MS);
}

static void test_renewal_takes_back_an_expired_lease_that_nobody_took(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");

    int64_t token = short_grant(subject, &sku, ann);
    pass_over(subject, &sku);
    assert_answer(renew(subject, &sku, ann, token, LONG_MS), LEASE_GRANTED, token);
    assert_answer(grant(subject, &sku, bob, LONG_MS), LEASE_HELD, token);
}

static void test_an_expired_lease_that_was_taken_back_ends_again(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");

    int64_t token = short_grant(subject, &sku, ann);
    pass_over(subject, &sku);
    assert_answer(renew(subject, &sku, ann, token, SHORT_MS), LEASE_GRANTED, token);
    pass_over(subject, &sku);
    assert_answer(grant(subject, &sku, bob, LONG_MS), LEASE_GRANTED, token + 1);
}

static void test_renewal_is_denied_when_another_took_the_lease(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");

    int64_t old = short_grant(subject, &sku, ann), token = old + 1;
    pass_over(subject, &sku);
    grant(subject, &sku, bob, LONG_MS);
    struct lease_call call = renew(subject, &sku, ann, old, LONG_MS);
    assert_answer(call, LEASE_HELD, token);
    assert_in_range(call.answer_ttl_ms, 1, LONG_MS);
    /* Nor with the successor's token. */
    assert_answer(renew(subject, &sku, ann, token, LONG_MS), LEASE_HELD, token);
    assert_answer(renew(subject, &sku, bob, old, LONG_MS), LEASE_HELD, token);
}

static void test_release_frees_and_may_be_repeated(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");

    grant(subject, &sku, ann, LONG_MS);
    assert_answer(release(subject, &sku, ann, 1), LEASE_FREE, 0);
    assert_answer(query(subject, &sku), LEASE_FREE, 0);
    assert_answer(release(subject, &sku, ann, 1), LEASE_FREE, 0);
    assert_answer(grant(subject, &sku, bob, LONG_MS), LEASE_GRANTED, 2);
}

static void test_release_by_another_or_of_another_token_changes_nothing(void **state)
{
    struct subject *subject = *state;
    struct known sku = {.name = BYTES_LITERAL("sku:1"), .floor = 6};

    grant(subject, &sku, ann, LONG_MS);
    assert_answer(release(subject, &sku, bob, 7), LEASE_HELD, 7);
    assert_answer(release(subject, &sku, ann, 6), LEASE_HELD, 7);
    assert_answer(query(subject, &sku), LEASE_HELD, 7);
}

/* Nobody heard of what it was answered. */
static struct lease_call give_up(struct subject *subject, struct known *known,
                                 const struct lease_call *granted)
{
    struct pending pending = question(known, LEASE_RELEASE, granted->nonce, 0, LONG_MS);

    pending.call.attempt = granted->attempt;
    return put(subject, known, pending);
}

static void test_an_attempt_gives_up_its_own_part_of_a_lease_only(void **state)
{
    struct subject *subject = *state;
    struct known sku = {.name = BYTES_LITERAL("sku:1"), .floor = 6};
    struct lease_call first = grant(subject, &sku, ann, LONG_MS), again;

    if (first.attempt == 0)
        return; /* it has no need of that */
    again = grant(subject, &sku, ann, LONG_MS);
    assert_answer(again, LEASE_OWN, 7);
    assert_answer(give_up(subject, &sku, &first), LEASE_HELD, 7);
    assert_answer(give_up(subject, &sku, &first), LEASE_HELD, 7);
    assert_answer(query(subject, &sku), LEASE_HELD, 7);
    assert_answer(give_up(subject, &sku, &again), LEASE_FREE, 0);
    assert_answer(query(subject, &sku), LEASE_FREE, 0);
    assert_answer(give_up(subject, &sku, &again), LEASE_FREE, 0);
}

static void test_a_lock_under_the_void_token_counts_as_free(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");

    grant(subject, &sku, ann, LONG_MS);
    struct pending again = question(&sku, LEASE_GRANT, ann, 0, LONG_MS);
    again.call.void_token = 1;
    assert_answer(put(subject, &sku, again), LEASE_GRANTED, 2);
    assert_answer(query(subject, &sku), LEASE_HELD, 2);
    /* Only this one token of the owner's is void, and nobody else's. */
    again = question(&sku, LEASE_GRANT, ann, 0, LONG_MS);
    again.call.void_token = 1;
    assert_answer(put(subject, &sku, again), LEASE_OWN, 2);
    again = question(&sku, LEASE_GRANT, bob, 0, LONG_MS);
    again.call.void_token = 2;
    assert_answer(put(subject, &sku, again), LEASE_HELD, 2);
}

static struct lease_call reenter(struct subject *subject, struct known *sku, const char *nonce,
                                 int64_t void_token)
{
    struct pending pending = question(sku, LEASE_GRANT, nonce, 0, LONG_MS);

    pending.call.reentry_only = true;
    pending.call.void_token = void_token;
    return put(subject, sku, pending);
}

static void test_who_may_only_enter_again_takes_nothing_else(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");

    assert_answer(reenter(subject, &sku, ann, 0), LEASE_FREE, 0);
    assert_answer(query(subject, &sku), LEASE_FREE, 0);
    grant(subject, &sku, ann, 1000);
    assert_answer(reenter(subject, &sku, bob, 0), LEASE_HELD, 1);
    assert_answer(reenter(subject, &sku, ann, 1), LEASE_FREE, 0);
    assert_in_range(query(subject, &sku).answer_ttl_ms, 1, 1000);
    assert_answer(reenter(subject, &sku, ann, 0), LEASE_OWN, 1);
    assert_in_range(query(subject, &sku).answer_ttl_ms, 1001, LONG_MS);
}

static void test_tokens_rise_over_many_cycles(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");

    for (int64_t i = 1; i <= 100; i++) {
        const char *nonce = i % 2 == 0 ? ann : bob;
        assert_answer(grant(subject, &sku, nonce, LONG_MS), LEASE_GRANTED, i);
        assert_answer(release(subject, &sku, nonce, i), LEASE_FREE, 0);
    }
}

static void test_large_tokens_are_exact_and_run_out_with_an_error(void **state)
{
    struct subject *subject = *state;
    struct known sku = {.name = BYTES_LITERAL("sku:1"), .floor = INT64_C(100000000000000)};

    assert_answer(grant(subject, &sku, ann, LONG_MS), LEASE_GRANTED, INT64_C(100000000000001));
    assert_answer(grant(subject, &sku, ann, LONG_MS), LEASE_OWN, INT64_C(100000000000001));
    assert_answer(renew(subject, &sku, ann, sku.floor, LONG_MS), LEASE_GRANTED, sku.floor);
    assert_answer(query(subject, &sku), LEASE_HELD, INT64_C(100000000000001));

    struct known last = {.name = BYTES_LITERAL("sku:2"), .floor = TOKEN_MAX - 1};
    assert_answer(grant(subject, &last, ann, LONG_MS), LEASE_GRANTED, TOKEN_MAX);
    assert_answer(query(subject, &last), LEASE_HELD, TOKEN_MAX);
    release(subject, &last, ann, TOKEN_MAX);
    struct lease_call call = grant(subject, &last, ann, LONG_MS);
    assert_int_equal(call.answer, LEASE_DOWN);
    assert_string_not_equal(call.reason, "");
    assert_answer(query(subject, &last), LEASE_FREE, 0);
}

static void test_names_are_binary_and_apart(void **state)
{
    struct subject *subject = *state;
    char long_name[512];
    memset(long_name, 'x', sizeof long_name);
    struct known names[] = {KNOWN("a"),
                            KNOWN("a\0b"),
                            KNOWN("a\r\nb"),
                            KNOWN("}"),
                            KNOWN("{a}:lock"),
                            KNOWN("\xff "),
                            KNOWN("a}"),
                            {.name = {long_name, 512}},
                            {.name = {long_name, 511}}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        names[i].floor = (int64_t)i * 100;
        assert_answer(grant(subject, &names[i], ann, LONG_MS), LEASE_GRANTED, names[i].floor);
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_answer(grant(subject, &names[i], bob, LONG_MS), LEASE_HELD, (int64_t)i * 100 + 1);
}

static void test_of_two_at_once_one_is_granted(void **state)
{
    struct subject *subject = *state;
    struct known sku = KNOWN("sku:1");
    struct pending a = question(&sku, LEASE_GRANT, ann, 0, LONG_MS);
    struct pending b = question(&sku, LEASE_GRANT, bob, 0, LONG_MS);

    ask(subject, &a);
    ask(subject, &b);
    settle(subject, &a);
    settle(subject, &b);
    assert_answer(a.call, LEASE_GRANTED, 1);
    assert_answer(b.call, LEASE_HELD, 1);
}

static void test_thousands_of_resources_at_once(void **state)
{
    struct subject *subject = *state;
    const int many = subject->many != 0 ? subject->many : MANY;
    struct pending *pending = mem_zalloc((size_t)many * sizeof *pending);
    char(*names)[16] = mem_alloc((size_t)many * sizeof *names);
    uint64_t before = lease_provider_health(subject->provider).calls;

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < many; i++) {
            snprintf(names[i], sizeof names[i], "sku:%d", i);
            struct known sku = {.name = bytes_of(names[i])};
            pending[i] = question(&sku, LEASE_GRANT, round == 0 ? ann : bob, 0, LONG_MS);
            ask(subject, &pending[i]);
        }
        for (int i = 0; i < many; i++) {
            settle(subject, &pending[i]);
            assert_answer(pending[i].call, round == 0 ? LEASE_GRANTED : LEASE_HELD, 1);
        }
    }
    assert_int_equal(lease_provider_health(subject->provider).calls - before, 2 * many);
    free(pending);
    free(names);
}

int conformance_run(const char *name, int (*setup)(void **state), int (*teardown)(void **state))
{
#define CASE(name_)                                                                                \
    {                                                                                              \
#name_, test_##name_, setup, teardown, NULL                                                \
    }
    const struct CMUnitTest tests[] = {
        CASE(a_free_resource_is_granted_above_the_floor),
        CASE(a_held_resource_is_denied_with_its_token_and_what_is_left),
        CASE(the_owner_enters_again_under_the_same_token_and_a_new_ttl),
        CASE(entering_again_does_not_shorten_what_was_told),
        CASE(an_expired_lease_goes_to_the_next_with_a_larger_token),
        CASE(the_same_owner_gets_a_larger_token_after_expiry),
        CASE(renewal_makes_the_lease_live_longer),
        CASE(renewal_takes_back_an_expired_lease_that_nobody_took),
        CASE(an_expired_lease_that_was_taken_back_ends_again),
        CASE(renewal_is_denied_when_another_took_the_lease),
        CASE(release_frees_and_may_be_repeated),
        CASE(release_by_another_or_of_another_token_changes_nothing),
        CASE(an_attempt_gives_up_its_own_part_of_a_lease_only),
        CASE(a_lock_under_the_void_token_counts_as_free),
        CASE(who_may_only_enter_again_takes_nothing_else),
        CASE(tokens_rise_over_many_cycles),
        CASE(large_tokens_are_exact_and_run_out_with_an_error),
        CASE(names_are_binary_and_apart),
        CASE(of_two_at_once_one_is_granted),
        CASE(thousands_of_resources_at_once),
    };
#undef CASE
    enum { COUNT = sizeof tests / sizeof *tests };
    struct CMUnitTest named[COUNT];
    char names[COUNT][128];

    memcpy(named, tests, sizeof named);
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "%s: %s", name, tests[i].name);
        named[i].name = names[i];
    }
    return _cmocka_run_group_tests(name, named, COUNT, NULL, NULL);
}
