/* SPDX-License-Identifier: Apache-2.0 */
/* What every lease provider must do: one list of cases, run over each provider that there is. A
 * case keeps what a store would remember of its resources. */
#include "fence/base/mem.h"
#include "fence/lease/open.h"
#include "fence/token.h"
#include "tests/twins/memory_lease.h"
#include "tests/unit/fence/masters.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

#define LONG_MS         60000
#define SHORT_MS        100 /* to be granted and to run out */
#define MANY            10000
#define ABOVE_ALL_ZXIDS (INT64_C(1) << 40)

/* A provider under test, and the world that it lives in: a rig, masters, or a clock that the case
 * turns. */
struct subject {
    struct lease_provider *provider;
    int many; /* resources at once */
    /* For a provider whose tokens leap instead of counting up from the floor: added to every token,
     * so high that there is nothing to leap to. */
    int64_t base;
    /* Let so much time pass; NULL: real time does. */
    void (*pass)(struct subject *subject, int64_t ms);
    struct rig rig;
    struct masters *masters;
    struct clock clock;
    int64_t now_ms;
    struct lease_service *service; /* the memory twin's */
};

/* Let answers arrive. */
static void turn(struct subject *subject)
{
    if (subject->pass != NULL)
        subject->pass(subject, 1);
    else
        rig_turn(&subject->rig);
}

static struct subject *subject_new(void **state)
{
    struct subject *subject = mem_zalloc(sizeof *subject);

    subject->many = MANY;
    *state = subject;
    return subject;
}

/* On real services. */

/* Wait until the rig's provider is up: it is the one under test. */
static int use_rig(struct subject *subject)
{
    rig_until(&subject->rig, rig_up(&subject->rig));
    subject->provider = subject->rig.provider;
    return 0;
}

static int redis_setup(void **state)
{
    struct subject *subject = subject_new(state);

    rig_init(&subject->rig);
    rig_open(&subject->rig, "redis://127.0.0.1:%d?timeout_ms=5000", redis_shared(0)->port);
    return use_rig(subject);
}

static int redlock_setup(void **state)
{
    struct subject *subject = subject_new(state);

    rig_init(&subject->rig);
    rig_open(&subject->rig, "redlock://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d?timeout_ms=5000",
             redis_shared(0)->port, redis_shared(1)->port, redis_shared(2)->port);
    rig_until(&subject->rig, rig_detail_has(&subject->rig, "3 masters, 3 ready"));
    return use_rig(subject);
}

/* The sentinel is a chatterbox. */
static int sentinel_setup(void **state)
{
    struct subject *subject = subject_new(state);
    char says[128];
    int len = snprintf(says, sizeof says,
                       "*2\r\n$9\r\n127.0.0.1\r\n$5\r\n%d\r\n"
                       "+OK\r\n*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n",
                       redis_shared(0)->port);

    rig_init(&subject->rig);
    rig_say(&subject->rig, says, (size_t)len);
    rig_open(&subject->rig, "redis+sentinel://127.0.0.1:%d/shop?timeout_ms=5000",
             subject->rig.chatterbox.port);
    return use_rig(subject);
}

/* Each case has a folder of its own, whose nodes go with the session. */
static int zookeeper_setup(void **state)
{
    static int folders;
    struct service *zookeeper = zookeeper_shared();

    *state = NULL;
    if (zookeeper == NULL)
        return 0;
    struct subject *subject = subject_new(state);
    subject->base = ABOVE_ALL_ZXIDS;
    subject->many = 2000;
    rig_init(&subject->rig);
    rig_open(&subject->rig, "zookeeper://127.0.0.1:%d/t%d?timeout_ms=10000&session_ms=30000",
             zookeeper->port, folders++);
    return use_rig(subject);
}

/* Redlock on masters in memory. */

static void pass_masters(struct subject *subject, int64_t ms)
{
    masters_pass(subject->masters, ms);
}

static struct subject *masters_subject(void **state, int count)
{
    struct subject *subject = subject_new(state);

    subject->masters = masters_new(count);
    subject->provider = subject->masters->clients[0].provider;
    subject->pass = pass_masters;
    return subject;
}

static int one_master_setup(void **state)
{
    masters_subject(state, 1);
    return 0;
}

static int four_masters_setup(void **state)
{
    masters_subject(state, 4);
    return 0;
}

static int late_masters_setup(void **state)
{
    struct subject *subject = masters_subject(state, 5);

    for (int i = 0; i < 5; i++)
        lease_service_set_late(subject->masters->services[i], 5 - i);
    return 0;
}

static int minority_setup(void **state)
{
    struct subject *subject = masters_subject(state, 5);

    lease_service_set_down(subject->masters->services[0], "gone");
    lease_service_set_late(subject->masters->services[2], -1); /* never answers */
    return 0;
}

/* Under a clock that the case turns. */

static int64_t subject_now_ms(const struct clock *clock)
{
    return ((const struct subject *)clock->context)->now_ms;
}

static void pass_clock(struct subject *subject, int64_t ms)
{
    subject->now_ms += ms;
    if (subject->service != NULL)
        lease_service_step(subject->service);
}

static struct subject *clock_subject(void **state)
{
    struct subject *subject = subject_new(state);

    subject->now_ms = 1000000;
    subject->clock = (struct clock){.now_ms = subject_now_ms, .context = subject};
    subject->pass = pass_clock;
    return subject;
}

static int memory_setup(void **state)
{
    struct subject *subject = clock_subject(state);

    subject->service = lease_service_new(&subject->clock);
    subject->provider = lease_memory_new(subject->service);
    return 0;
}

static int late_memory_setup(void **state)
{
    memory_setup(state);
    lease_service_set_late(((struct subject *)*state)->service, 2);
    return 0;
}

static int local_setup(void **state)
{
    struct subject *subject = clock_subject(state);

    subject->provider = lease_local_new(&subject->clock);
    return 0;
}

static int teardown(void **state)
{
    struct subject *subject = *state;
    bool closed = false;

    if (subject == NULL)
        return 0;
    if (subject->masters != NULL) {
        masters_free(subject->masters);
    } else if (subject->pass == NULL) {
        rig_free(&subject->rig);
    } else {
        lease_provider_close(subject->provider, rig_on_closed, &closed);
        assert_true(closed);
    }
    if (subject->service != NULL)
        lease_service_free(subject->service);
    free(subject);
    return 0;
}

static const struct {
    const char *name;
    CMFixtureFunction setup;
} providers[] = {
    {"redis", redis_setup},
    {"redlock of 3 Redises", redlock_setup},
    {"sentinel", sentinel_setup},
    {"zookeeper", zookeeper_setup},
    {"redlock of 1", one_master_setup},
    {"redlock of 4", four_masters_setup},
    {"redlock of 5, answering late", late_masters_setup},
    {"redlock of 5, one down, one silent", minority_setup},
    {"memory", memory_setup},
    {"memory, answering late", late_memory_setup},
    {"local", local_setup},
};

/* What cases do with a subject. */

/* What a store would know of a resource. */
struct known {
    struct bytes name;
    int64_t floor;
    struct lease_record record;
};

static struct asked question(const struct known *known, enum lease_verb verb, const char *nonce,
                             int64_t token, int64_t ttl_ms)
{
    struct asked asked = rig_question(verb, nonce, token);

    asked.call.resource = known->name;
    asked.call.ttl_ms = ttl_ms;
    asked.call.floor = known->floor;
    asked.call.believed_max = token_believed_max(known->floor, 0);
    asked.call.record = known->record;
    return asked;
}

/* The cases count tokens from 1. */
#define CASE_TOKEN_MAX (INT64_C(1) << 50)

static void shift(int64_t *token, int64_t by)
{
    if (*token > 0 && *token < CASE_TOKEN_MAX)
        *token += by;
}

static void ask(struct subject *subject, struct asked *asked)
{
    struct lease_call *call = &asked->call;

    shift(&call->token, subject->base);
    shift(&call->void_token, subject->base);
    if (call->floor < CASE_TOKEN_MAX)
        call->floor += subject->base;
    rig_ask_at(subject->provider, asked);
}

static void await(struct subject *subject, struct asked *asked)
{
    struct deadline deadline = deadline_in(HANG_MS);

    while (!asked->answered) {
        deadline_keep(&deadline);
        turn(subject);
    }
    shift(&asked->call.answer_token, -subject->base);
}

/* Ask, wait, and let the store learn what was granted. */
static struct lease_call put(struct subject *subject, struct known *known, struct asked asked)
{
    struct lease_call *call = &asked.call;

    ask(subject, &asked);
    await(subject, &asked);
    if (call->verb == LEASE_GRANT && call->answer == LEASE_GRANTED) {
        assert_true(call->answer_token > known->floor && call->answer_token <= TOKEN_MAX);
        known->floor = known->record.token = call->answer_token;
        known->record.live = known->record.this_opening = true;
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

/* Grant a lease that is to run out, and return its token. A slow quorum may mint twice for it. */
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

/* Release as the engine does: the store retires the token first. */
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

/* Wait until the lease there is over. */
static void await_end(struct subject *subject, struct known *known)
{
    struct deadline deadline = deadline_in(HANG_MS);

    if (subject->pass != NULL)
        subject->pass(subject, SHORT_MS);
    while (query(subject, known).answer != LEASE_FREE)
        deadline_keep(&deadline);
}

#define KNOWN(name_)                                                                               \
    {                                                                                              \
        .name = BYTES_LITERAL(name_)                                                               \
    }

/* A case is given its subject and a resource that nobody has used. */
#define CASE(name)                                                                                 \
    static void name(struct subject *subject, struct known *sku);                                  \
    static void name##_run(void **state)                                                           \
    {                                                                                              \
        struct known sku = KNOWN("sku:1");                                                         \
        if (*state == NULL)                                                                        \
            skip();                                                                                \
        name(*state, &sku);                                                                        \
    }                                                                                              \
    __attribute__((constructor)) static void name##_add(void)                                      \
    {                                                                                              \
        add_case(#name, name##_run);                                                               \
    }                                                                                              \
    static void name(struct subject *subject, struct known *sku __attribute__((unused)))

/* Run the case over each provider. */
static void add_case(const char *name, CMUnitTestFunction run)
{
    for (size_t i = 0; i < sizeof providers / sizeof *providers; i++) {
        char full[160];
        snprintf(full, sizeof full, "%s: %s", providers[i].name, name);
        unit_test_add(mem_strdup(full), run, providers[i].setup, NULL, teardown);
    }
}

CASE(a_free_resource_is_granted_above_the_floor)
{
    struct lease_call call = grant(subject, sku, ann, LONG_MS);
    assert_answer(call, LEASE_GRANTED, 1);
    assert_int_equal(call.answer_ttl_ms, LONG_MS);

    struct known raised = {.name = BYTES_LITERAL("sku:2"), .floor = 41};
    assert_answer(grant(subject, &raised, ann, LONG_MS), LEASE_GRANTED, 42);
}

CASE(a_held_resource_is_denied_with_its_token_and_what_is_left)
{
    grant(subject, sku, ann, LONG_MS);
    struct lease_call call = grant(subject, sku, bob, 1000);
    assert_answer(call, LEASE_HELD, 1);
    assert_in_range(call.answer_ttl_ms, LONG_MS - 5000, LONG_MS);
}

CASE(the_owner_enters_again_under_the_same_token_and_a_new_ttl)
{
    grant(subject, sku, ann, 1000);
    struct lease_call call = grant(subject, sku, ann, LONG_MS);
    assert_answer(call, LEASE_OWN, 1);
    assert_int_equal(call.answer_ttl_ms, LONG_MS);
    assert_in_range(query(subject, sku).answer_ttl_ms, 1001, LONG_MS);
}

/* The attempt may be an old one that was held up on its way. */
CASE(entering_again_does_not_shorten_what_was_told)
{
    struct lease_call first = grant(subject, sku, ann, LONG_MS), again;

    if (first.attempt == 0)
        return; /* nothing is held up */
    again = grant(subject, sku, ann, 1000);
    assert_answer(again, LEASE_OWN, 1);
    assert_int_equal(again.answer_ttl_ms, 1000);
    assert_in_range(query(subject, sku).answer_ttl_ms, 1001, LONG_MS);
}

CASE(an_expired_lease_goes_to_the_next_with_a_larger_token)
{
    int64_t token = short_grant(subject, sku, ann);
    await_end(subject, sku);
    assert_answer(grant(subject, sku, bob, LONG_MS), LEASE_GRANTED, token + 1);
    assert_answer(query(subject, sku), LEASE_HELD, token + 1);
}

CASE(the_same_owner_gets_a_larger_token_after_expiry)
{
    int64_t token = short_grant(subject, sku, ann);
    await_end(subject, sku);
    assert_answer(grant(subject, sku, ann, LONG_MS), LEASE_GRANTED, token + 1);
}

CASE(renewal_makes_the_lease_live_longer)
{
    grant(subject, sku, ann, 1000);
    struct lease_call call = renew(subject, sku, ann, 1, LONG_MS);
    assert_answer(call, LEASE_GRANTED, 1);
    assert_int_equal(call.answer_ttl_ms, LONG_MS);
    assert_in_range(query(subject, sku).answer_ttl_ms, 1001, LONG_MS);
}

CASE(renewal_takes_back_an_expired_lease_that_nobody_took)
{
    int64_t token = short_grant(subject, sku, ann);
    await_end(subject, sku);
    assert_answer(renew(subject, sku, ann, token, LONG_MS), LEASE_GRANTED, token);
    assert_answer(grant(subject, sku, bob, LONG_MS), LEASE_HELD, token);
}

CASE(an_expired_lease_that_was_taken_back_ends_again)
{
    int64_t token = short_grant(subject, sku, ann);
    await_end(subject, sku);
    assert_answer(renew(subject, sku, ann, token, SHORT_MS), LEASE_GRANTED, token);
    await_end(subject, sku);
    assert_answer(grant(subject, sku, bob, LONG_MS), LEASE_GRANTED, token + 1);
}

CASE(renewal_is_denied_when_another_took_the_lease)
{
    int64_t old = short_grant(subject, sku, ann), token = old + 1;
    await_end(subject, sku);
    grant(subject, sku, bob, LONG_MS);
    struct lease_call call = renew(subject, sku, ann, old, LONG_MS);
    assert_answer(call, LEASE_HELD, token);
    assert_in_range(call.answer_ttl_ms, 1, LONG_MS);
    /* Nor with the successor's token. */
    assert_answer(renew(subject, sku, ann, token, LONG_MS), LEASE_HELD, token);
    assert_answer(renew(subject, sku, bob, old, LONG_MS), LEASE_HELD, token);
}

CASE(release_frees_and_may_be_repeated)
{
    grant(subject, sku, ann, LONG_MS);
    assert_answer(release(subject, sku, ann, 1), LEASE_FREE, 0);
    assert_answer(query(subject, sku), LEASE_FREE, 0);
    assert_answer(release(subject, sku, ann, 1), LEASE_FREE, 0);
    assert_answer(grant(subject, sku, bob, LONG_MS), LEASE_GRANTED, 2);
}

CASE(release_by_another_or_of_another_token_changes_nothing)
{
    sku->floor = 6;
    grant(subject, sku, ann, LONG_MS);
    assert_answer(release(subject, sku, bob, 7), LEASE_HELD, 7);
    assert_answer(release(subject, sku, ann, 6), LEASE_HELD, 7);
    assert_answer(query(subject, sku), LEASE_HELD, 7);
}

/* Give up an attempt whose answer nobody got. */
static struct lease_call give_up(struct subject *subject, struct known *known,
                                 const struct lease_call *granted)
{
    struct asked asked = question(known, LEASE_RELEASE, granted->nonce, 0, LONG_MS);

    asked.call.attempt = granted->attempt;
    return put(subject, known, asked);
}

CASE(an_attempt_gives_up_its_own_part_of_a_lease_only)
{
    sku->floor = 6;
    struct lease_call first = grant(subject, sku, ann, LONG_MS), again;

    if (first.attempt == 0)
        return; /* it has no need of that */
    again = grant(subject, sku, ann, LONG_MS);
    assert_answer(again, LEASE_OWN, 7);
    assert_answer(give_up(subject, sku, &first), LEASE_HELD, 7);
    assert_answer(give_up(subject, sku, &first), LEASE_HELD, 7);
    assert_answer(query(subject, sku), LEASE_HELD, 7);
    assert_answer(give_up(subject, sku, &again), LEASE_FREE, 0);
    assert_answer(query(subject, sku), LEASE_FREE, 0);
    assert_answer(give_up(subject, sku, &again), LEASE_FREE, 0);
}

CASE(a_lock_under_the_void_token_counts_as_free)
{
    grant(subject, sku, ann, LONG_MS);
    struct asked again = question(sku, LEASE_GRANT, ann, 0, LONG_MS);
    again.call.void_token = 1;
    assert_answer(put(subject, sku, again), LEASE_GRANTED, 2);
    assert_answer(query(subject, sku), LEASE_HELD, 2);
    /* Only this one token of the owner's is void, and nobody else's. */
    again = question(sku, LEASE_GRANT, ann, 0, LONG_MS);
    again.call.void_token = 1;
    assert_answer(put(subject, sku, again), LEASE_OWN, 2);
    again = question(sku, LEASE_GRANT, bob, 0, LONG_MS);
    again.call.void_token = 2;
    assert_answer(put(subject, sku, again), LEASE_HELD, 2);
}

static struct lease_call reenter(struct subject *subject, struct known *known, const char *nonce,
                                 int64_t void_token)
{
    struct asked asked = question(known, LEASE_GRANT, nonce, 0, LONG_MS);

    asked.call.reentry_only = true;
    asked.call.void_token = void_token;
    return put(subject, known, asked);
}

CASE(who_may_only_enter_again_takes_nothing_else)
{
    assert_answer(reenter(subject, sku, ann, 0), LEASE_FREE, 0);
    assert_answer(query(subject, sku), LEASE_FREE, 0);
    grant(subject, sku, ann, 1000);
    assert_answer(reenter(subject, sku, bob, 0), LEASE_HELD, 1);
    assert_answer(reenter(subject, sku, ann, 1), LEASE_FREE, 0);
    assert_in_range(query(subject, sku).answer_ttl_ms, 1, 1000);
    assert_answer(reenter(subject, sku, ann, 0), LEASE_OWN, 1);
    assert_in_range(query(subject, sku).answer_ttl_ms, 1001, LONG_MS);
}

CASE(tokens_rise_over_many_cycles)
{
    for (int64_t i = 1; i <= 100; i++) {
        const char *nonce = i % 2 == 0 ? ann : bob;
        assert_answer(grant(subject, sku, nonce, LONG_MS), LEASE_GRANTED, i);
        assert_answer(release(subject, sku, nonce, i), LEASE_FREE, 0);
    }
}

CASE(large_tokens_are_exact_and_run_out_with_an_error)
{
    sku->floor = INT64_C(100000000000000);
    assert_answer(grant(subject, sku, ann, LONG_MS), LEASE_GRANTED, INT64_C(100000000000001));
    assert_answer(grant(subject, sku, ann, LONG_MS), LEASE_OWN, INT64_C(100000000000001));
    assert_answer(renew(subject, sku, ann, sku->floor, LONG_MS), LEASE_GRANTED, sku->floor);
    assert_answer(query(subject, sku), LEASE_HELD, INT64_C(100000000000001));

    struct known last = {.name = BYTES_LITERAL("sku:2"), .floor = TOKEN_MAX - 1};
    assert_answer(grant(subject, &last, ann, LONG_MS), LEASE_GRANTED, TOKEN_MAX);
    assert_answer(query(subject, &last), LEASE_HELD, TOKEN_MAX);
    release(subject, &last, ann, TOKEN_MAX);
    struct lease_call call = grant(subject, &last, ann, LONG_MS);
    assert_int_equal(call.answer, LEASE_DOWN);
    assert_string_not_equal(call.reason, "");
    assert_answer(query(subject, &last), LEASE_FREE, 0);
}

CASE(names_are_binary_and_apart)
{
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

CASE(of_two_at_once_one_is_granted)
{
    struct asked a = question(sku, LEASE_GRANT, ann, 0, LONG_MS);
    struct asked b = question(sku, LEASE_GRANT, bob, 0, LONG_MS);

    ask(subject, &a);
    ask(subject, &b);
    await(subject, &a);
    await(subject, &b);
    assert_answer(a.call, LEASE_GRANTED, 1);
    assert_answer(b.call, LEASE_HELD, 1);
}

CASE(thousands_of_resources_at_once)
{
    const int many = subject->many != 0 ? subject->many : MANY;
    struct asked *asked = mem_zalloc((size_t)many * sizeof *asked);
    char(*names)[16] = mem_alloc((size_t)many * sizeof *names);
    uint64_t before = lease_provider_health(subject->provider).calls;

    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < many; i++) {
            snprintf(names[i], sizeof names[i], "sku:%d", i);
            struct known one = {.name = bytes_of(names[i])};
            asked[i] = question(&one, LEASE_GRANT, round == 0 ? ann : bob, 0, LONG_MS);
            ask(subject, &asked[i]);
        }
        for (int i = 0; i < many; i++) {
            await(subject, &asked[i]);
            assert_answer(asked[i].call, round == 0 ? LEASE_GRANTED : LEASE_HELD, 1);
        }
    }
    assert_int_equal(lease_provider_health(subject->provider).calls - before, 2 * many);
    free(asked);
    free(names);
}
