/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are cancelled or run out of time, and handles whose keep-alive paused or whose token
 * came from elsewhere. */
#include "tests/unit/client/rig.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct waiter {
    stk_client *client;
    int cancel_fd;
    enum stk_error error;
    pthread_t thread;
};

static void *wait_in_line(void *context)
{
    struct waiter *waiter = context;
    const stk_lease_options options = {.wait_ms = 600000};
    stk_lease *lease;

    stk_cancel_on(waiter->cancel_fd);
    waiter->error = stk_acquire(waiter->client, "r", &options, &lease);
    return NULL;
}

static int64_t waiters_of(stk_client *client)
{
    stk_lease_info info;

    ok(stk_query(client, "r", &info));
    return info.waiters;
}

RIG_TEST(a_cancelled_acquire_leaves_the_line_and_no_other_thread_is_cancelled)
{
    stk_lease *lease = rig_acquire(rig->client, "r", 600000);
    struct waiter waiter = {.client = rig->client, .cancel_fd = eventfd(0, EFD_CLOEXEC)};

    assert_int_equal(pthread_create(&waiter.thread, NULL, wait_in_line, &waiter), 0);
    await(waiters_of(rig->client) == 1);
    assert_int_equal(eventfd_write(waiter.cancel_fd, 1), 0);
    pthread_join(waiter.thread, NULL);
    assert_int_equal(waiter.error, STK_CANCELLED);
    await(waiters_of(rig->client) == 0);
    ok(stk_set(lease, "r", "x", 1));
    ok(stk_release(lease));
    stk_lease_free(lease);
    close(waiter.cancel_fd);
}

SCRIPT_TEST(a_server_that_is_silent_holds_up_no_cancelled_call)
{
    static const char *const set[] = {"SET", "r", "x"};
    stk_client *client = script_open(script, RIG_TIMEOUT_MS, ""), *second;
    stk_lease *lease, *none;
    char *value;
    int cancel_fd = eventfd(1, EFD_CLOEXEC);

    ok(stk_lease_use(client, "r", 7, &lease));
    stk_cancel_on(cancel_fd);
    /* It was sent, on the connection that was open. */
    assert_int_equal(stk_fenced(lease, 3, set, NULL, NULL), STK_UNSURE);
    assert_int_equal(stk_client_open(script->uri, RIG_TIMEOUT_MS, &second), STK_CANCELLED);
    assert_null(second);
    assert_int_equal(stk_get(client, "r", &value, NULL), STK_CANCELLED);
    assert_int_equal(stk_acquire(client, "r", NULL, &none), STK_CANCELLED);
    assert_null(none);
    stk_cancel_on(-1);
    stk_lease_free(lease);

    close(cancel_fd);
}

SCRIPT_TEST(a_call_that_tries_again_and_again_is_cancelled)
{
    const struct itimerspec soon = {.it_value = {.tv_nsec = 60 * 1000 * 1000}};
    stk_client *client = script_open(script, RIG_TIMEOUT_MS, NULL, NULL, NULL, NULL, NULL, NULL);
    char *value;
    int cancel_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);

    assert_int_equal(timerfd_settime(cancel_fd, 0, &soon, NULL), 0);
    stk_cancel_on(cancel_fd);
    assert_int_equal(stk_get(client, "r", &value, NULL), STK_CANCELLED);
    stk_cancel_on(-1);

    close(cancel_fd);
}

SCRIPT_TEST(a_time_limit_can_be_changed)
{
    stk_client *client = script_open(script, RIG_TIMEOUT_MS, "");
    char *value;

    assert_int_equal(stk_client_set_timeout(client, 0), STK_MISUSE);
    ok(stk_client_set_timeout(client, 20));
    int64_t begun_ms = rig_now_ms();
    assert_int_equal(stk_get(client, "r", &value, NULL), STK_TIMEOUT);
    assert_true(rig_now_ms() - begun_ms < RIG_TIMEOUT_MS / 2);
}

RIG_TEST(a_lease_whose_keep_alive_paused_is_not_lost_and_can_be_taken_back)
{
    struct loss loss = {0};
    stk_lease *lease = rig_acquire_watched(rig->client, 200, &loss);

    ok(stk_keep_alive(lease, false));
    ok(stk_keep_alive(lease, false)); /* again is fine */
    await(!stk_lease_valid(lease));
    rig_pause(100);
    assert_int_equal(atomic_load(&loss.calls), 0);
    ok(stk_renew(lease, 2000));
    ok(stk_keep_alive(lease, true));
    assert_int_equal(stk_lease_why(lease), STK_OK);
    rig_pause(2100);
    assert_true(stk_lease_valid(lease));
    assert_int_equal(atomic_load(&loss.calls), 0);
    ok(stk_release(lease));
    assert_int_equal(stk_keep_alive(lease, true), STK_RELEASED);
    stk_lease_free(lease);
}

SCRIPT_TEST(it_tells_why_the_last_renewal_failed)
{
    stk_client *client =
        script_open(script, RIG_TIMEOUT_MS, "*2\r\n:7\r\n:3000\r\n", "-LEASEDOWN away\r\n");
    stk_lease *lease = rig_acquire(client, "r", 3000);

    assert_int_equal(stk_lease_why(lease), STK_OK);
    await(stk_lease_why(lease) == STK_LEASEDOWN);
    stk_lease_free(lease);
}

RIG_TEST(a_token_from_elsewhere_writes_and_has_time_once_it_is_renewed)
{
    stk_lease *lease = rig_acquire(rig->client, "r", 600000), *used_here;

    assert_int_equal(stk_lease_use(rig->client, "r", 0, &used_here), STK_MISUSE);
    assert_int_equal(stk_lease_use(rig->client, "", 1, &used_here), STK_MISUSE);
    ok(stk_lease_use(rig->client, "r", stk_lease_token(lease, NULL), &used_here));
    assert_false(stk_lease_valid(used_here));
    ok(stk_set(used_here, "r", "x", 1));
    ok(stk_renew(used_here, 0));
    assert_true(stk_lease_valid(used_here));
    stk_lease_free(used_here);
    ok(stk_lease_use(rig->client, "r", stk_lease_token(lease, NULL) + 1, &used_here));
    assert_int_equal(stk_set(used_here, "r", "y", 1), STK_UNKNOWN);
    stk_lease_free(used_here);
    ok(stk_release(lease));
    stk_lease_free(lease);
}

RIG_TEST(many_commands_go_in_one_exchange_and_fail_as_the_first_that_fails)
{
    static const char *const get[] = {"GET", "r"}, *const lease_of_r[] = {"LEASE", "r"};
    static const char *const wrong[] = {"GET"}, *const multi[] = {"MULTI"};
    static const size_t lens[] = {3, 1};
    const stk_words good[] = {{2, get, lens}, {2, lease_of_r, NULL}, {2, get, NULL}};
    const stk_words refused[] = {{2, get, NULL}, {1, wrong, NULL}};
    const stk_words misused[] = {{2, get, NULL}, {1, multi, NULL}};
    stk_lease *lease = rig_acquire(rig->client, "r", 600000);
    stk_reply *reply;

    ok(stk_set(lease, "r", "x", 1));
    ok(stk_command_all(rig->client, good, 3, &reply));
    assert_int_equal(stk_reply_count(reply), 3);
    assert_string_equal(stk_reply_string(stk_reply_at(reply, 0), NULL), "x");
    assert_int_equal(stk_reply_type(stk_reply_at(reply, 1)), STK_ARRAY);
    assert_string_equal(stk_reply_string(stk_reply_at(reply, 2), NULL), "x");
    stk_reply_free(reply);
    assert_int_equal(stk_command_all(rig->client, refused, 2, &reply), STK_ERR);
    assert_null(reply);
    assert_int_equal(stk_command_all(rig->client, misused, 2, &reply), STK_MISUSE);
    assert_int_equal(stk_command_all(rig->client, good, 0, &reply), STK_MISUSE);
    ok(stk_release(lease));
    stk_lease_free(lease);
}
