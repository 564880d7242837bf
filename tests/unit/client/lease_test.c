/* SPDX-License-Identifier: Apache-2.0 */
/* Leases and their renewals, on an engine in this process. */
#include "tests/unit/client/rig.h"

#include <sys/wait.h>
#include <unistd.h>

RIG_TEST(a_lease_is_valid_for_less_than_its_ttl)
{
    const stk_lease_options options = {.ttl_ms = 10000, .no_keep_alive = true};
    stk_lease *lease;

    ok(stk_acquire(rig->client, "r", &options, &lease));
    assert_true(stk_lease_valid(lease));
    /* Less one per cent and 2 ms. */
    assert_in_range(stk_lease_left_ms(lease), 5000, 10000 - 102);
    ok(stk_renew(lease, 60000));
    assert_in_range(stk_lease_left_ms(lease), 55000, 60000 - 602);
    ok(stk_release(lease));
    assert_false(stk_lease_valid(lease));
    assert_int_equal(stk_renew(lease, 0), STK_RELEASED);
    stk_lease_free(lease);
}

RIG_TEST(without_keep_alive_it_runs_out_by_itself)
{
    const stk_lease_options options = {.ttl_ms = 300, .no_keep_alive = true};
    stk_lease *lease, *next;

    ok(stk_acquire(rig->client, "r", &options, &lease));
    assert_int_equal(stk_acquire(rig->client, "r",
                                 &(stk_lease_options){.owner = "next", .wait_ms = 10000}, &next),
                     STK_DEADLOCK); /* this thread would wait for itself */
    await(!stk_lease_valid(lease));
    ok(stk_acquire(rig->client, "r", &(stk_lease_options){.wait_ms = 10000}, &next));
    assert_true(stk_lease_token(next, NULL) > stk_lease_token(lease, NULL));
    assert_int_equal(stk_renew(lease, 0), STK_STALE);
    stk_lease_free(lease);
    stk_lease_free(next);
}

/* Kept leases outlive a machine that stands still for a second. */
enum { KEPT_TTL_MS = 2000, BEYOND_MS = 2500 };

RIG_TEST(it_is_kept_alive_beyond_its_ttl)
{
    struct loss loss = {0};
    stk_lease_info info;

    stk_lease *lease = rig_acquire_watched(rig->client, KEPT_TTL_MS, &loss);
    for (int64_t until_ms = rig_now_ms() + BEYOND_MS; rig_now_ms() < until_ms;) {
        assert_true(stk_lease_valid(lease));
        rig_nap();
    }
    ok(stk_query(rig->client, "r", &info));
    assert_true(info.held && info.token == 1);
    assert_int_equal(atomic_load(&loss.calls), 0);
    ok(stk_release(lease));
    stk_lease_free(lease);
}

RIG_TEST(one_renewer_keeps_many_leases)
{
    stk_lease *leases[200];
    char name[16];

    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "r%d", i);
        leases[i] = rig_acquire(rig->client, name, KEPT_TTL_MS + i);
    }
    rig_pause(2 * BEYOND_MS);
    for (int i = 0; i < 200; i++) {
        assert_true(stk_lease_valid(leases[i]));
        stk_lease_free(leases[i]);
    }
}

RIG_TEST(the_loss_of_a_revoked_lease_is_told_once)
{
    struct loss loss = {0};
    int64_t token;

    stk_lease *lease = rig_acquire_watched(rig->client, KEPT_TTL_MS, &loss);
    ok(stk_revoke(rig->client, "r", &token));
    assert_int_equal(token, 1);
    await(atomic_load(&loss.calls) > 0);
    assert_int_equal(atomic_load(&loss.why), STK_STALE);
    assert_false(atomic_load(&loss.valid));
    rig_pause(KEPT_TTL_MS);
    assert_int_equal(atomic_load(&loss.calls), 1);
    assert_int_equal(stk_release(lease), STK_STALE);
    stk_lease_free(lease);
}

RIG_TEST(a_callback_may_release_and_free_its_lease)
{
    struct loss loss = {.frees = true, .releases = true};

    (void)rig_acquire_watched(rig->client, 300, &loss);
    ok(stk_revoke(rig->client, "r", NULL));
    await(atomic_load(&loss.calls) > 0);
}

static void *free_lease(void *lease)
{
    stk_lease_free(lease);
    return NULL;
}

RIG_TEST(a_lease_is_freed_only_after_its_callback_has_returned)
{
    struct loss loss = {.hold = true};
    pthread_t thread;
    void *result;

    stk_lease *lease = rig_acquire_watched(rig->client, 300, &loss);
    ok(stk_revoke(rig->client, "r", NULL));
    await(atomic_load(&loss.calls) > 0);
    assert_int_equal(pthread_create(&thread, NULL, free_lease, lease), 0);
    rig_pause(100);
    assert_int_not_equal(pthread_tryjoin_np(thread, &result), 0);
    atomic_store(&loss.hold, false);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

struct taken {
    stk_client *client;
    struct loss *loss;
    stk_lease *lease;
};

static void *take_and_end(void *context)
{
    struct taken *taken = context;
    taken->lease = rig_acquire_watched(taken->client, KEPT_TTL_MS, taken->loss);
    return NULL;
}

RIG_TEST(a_lease_of_a_thread_that_ended_is_renewed_no_more)
{
    struct loss loss = {0};
    struct taken taken = {.client = rig->client, .loss = &loss};
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, take_and_end, &taken), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    await(atomic_load(&loss.calls) > 0);
    assert_int_equal(atomic_load(&loss.why), STK_ABANDONED);
    assert_false(stk_lease_valid(taken.lease));
    stk_lease_free(taken.lease);
    stk_lease *next;
    ok(stk_acquire(rig->client, "r", &(stk_lease_options){.wait_ms = 10000}, &next));
    stk_lease_free(next);
}

RIG_TEST(an_owner_enters_again_under_the_same_token)
{
    const stk_lease_options options = {.owner = "me", .wait_ms = 1000};
    stk_lease *outer, *inner;
    stk_lease_info info;

    ok(stk_acquire(rig->client, "r", &options, &outer));
    ok(stk_acquire(rig->client, "r", &options, &inner));
    assert_int_equal(stk_lease_token(outer, NULL), stk_lease_token(inner, NULL));
    ok(stk_release(inner));
    ok(stk_set(outer, "r", "x", 1));
    ok(stk_query(rig->client, "r", &info));
    assert_int_equal(info.holds, 1);
    assert_string_equal(info.owner, "me");
    ok(stk_release(outer));
    stk_lease_free(inner);
    stk_lease_free(outer);
}

RIG_TEST(two_engines_on_one_file_share_leases)
{
    stk_client *other = rig_client(rig);
    stk_lease *lease, *denied;

    for (int i = 0; i < 2; i++) { /* the one that opened the store first, then the other */
        stk_client *holder = i == 0 ? rig->client : other;
        stk_client *seeker = i == 0 ? other : rig->client;
        ok(stk_acquire(holder, "r", &(stk_lease_options){.ttl_ms = KEPT_TTL_MS, .wait_ms = 10000},
                       &lease));
        for (int64_t until_ms = rig_now_ms() + BEYOND_MS; rig_now_ms() < until_ms;) {
            assert_int_equal(stk_acquire(seeker, "r", NULL, &denied), STK_HELD);
            rig_nap();
        }
        assert_true(stk_lease_valid(lease));
        ok(stk_release(lease));
        stk_lease_free(lease);
    }
    stk_client_close(other);
}

RIG_TEST(a_basket_is_kept_and_lost_as_one)
{
    const char *const names[] = {"b", "a", "c"};
    struct loss loss = {0};
    const stk_lease_options options = {
        .ttl_ms = KEPT_TTL_MS, .lost = rig_on_lost, .context = &loss};
    stk_lease *basket, *denied;

    ok(stk_acquire_all(rig->client, names, 3, &options, &basket));
    assert_int_equal(stk_acquire_all(rig->client, names + 2, 1, NULL, &denied), STK_HELD);
    rig_pause(BEYOND_MS);
    assert_true(stk_lease_valid(basket));
    ok(stk_revoke(rig->client, "a", NULL));
    await(atomic_load(&loss.calls) > 0);
    assert_int_equal(atomic_load(&loss.why), STK_STALE);
    assert_int_equal(stk_release(basket), STK_STALE); /* the others are free all the same */
    stk_lease_free(basket);
    ok(stk_acquire_all(rig->client, names, 3, NULL, &basket));
    stk_lease_free(basket);
}

RIG_TEST(handles_outlive_their_client_and_say_so)
{
    stk_client *client = rig_client(rig);
    stk_lease *kept = rig_acquire(client, "r", 60000), *ephemeral;

    ok(stk_acquire(client, "e", &(stk_lease_options){.ephemeral = true}, &ephemeral));
    assert_true(stk_lease_valid(ephemeral));
    stk_client_close(client);
    assert_false(stk_lease_valid(kept) || stk_lease_valid(ephemeral));
    assert_int_equal(stk_set(kept, "r", "x", 1), STK_MISUSE);
    assert_int_equal(stk_release(kept), STK_MISUSE);
    stk_lease_free(kept);
    stk_lease_free(ephemeral);
}

RIG_TEST(a_forked_child_can_do_nothing_with_them)
{
    stk_lease *lease = rig_acquire(rig->client, "r", 60000);
    int status;

    pid_t child = fork();
    if (child == 0) {
        bool good = stk_set(lease, "r", "x", 1) == STK_FORKED && !stk_lease_valid(lease) &&
                    stk_release(lease) == STK_FORKED;
        stk_lease_free(lease);
        stk_client_close(rig->client);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ok(stk_set(lease, "r", "x", 1));
    stk_lease_free(lease);
}
