/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a server that breaks connections or stays silent on purpose. No signal is ignored
 * here: a SIGPIPE would end the test. */
#include "tests/unit/client/rig.h"

static const char *const incr[] = {"INCR", "r"};

/* Acquire without keep-alive: renewals would take the answers to the test's own requests. */
static stk_lease *acquire(stk_client *client)
{
    const stk_lease_options options = {.ttl_ms = 60000, .no_keep_alive = true};
    stk_lease *lease;

    ok(stk_acquire(client, "r", &options, &lease));
    return lease;
}

static void assert_same_request(struct script *script, size_t a, size_t b)
{
    char one[256], other[256];

    script_request(script, a, one);
    script_request(script, b, other);
    assert_string_equal(one, other);
    assert_true(strlen(one) > 0);
}

SCRIPT_TEST(a_write_is_sent_again_with_its_id_until_there_is_an_answer)
{
    stk_reply *reply;
    char seen[256];

    stk_client *client = script_open(script, 10000, GRANTED, NULL, NULL, ":1\r\n");
    stk_lease *lease = acquire(client);
    ok(stk_fenced(lease, 2, incr, NULL, &reply));
    assert_int_equal(stk_reply_integer(reply), 1);
    stk_reply_free(reply);
    script_request(script, 2, seen);
    assert_memory_equal(seen, "FENCEDALL 1 r 7 ID ", 19);
    assert_memory_equal(seen + 19, stk_last_id(), 32);
    assert_string_equal(seen + 19 + 32, " INCR r");
    assert_same_request(script, 2, 3);
    assert_same_request(script, 2, 4);
    stk_lease_free(lease);
}

SCRIPT_TEST(an_acquire_is_asked_again_with_its_id_and_the_time_that_is_left)
{
    const stk_lease_options options = {
        .ttl_ms = 60000, .wait_ms = 5000, .owner = "me", .no_keep_alive = true};
    stk_lease *lease;
    char one[256], other[256];
    long long wait_ms, wait_again_ms;
    char id[64], id_again[64];

    stk_client *client = script_open(script, 10000, NULL, NULL, GRANTED);
    ok(stk_acquire(client, "r", &options, &lease));
    script_request(script, 1, one);
    script_request(script, 3, other);
    assert_int_equal(sscanf(one, "ACQUIRE r 60000 WAIT %lld OWNER me ID %63s", &wait_ms, id), 2);
    assert_int_equal(
        sscanf(other, "ACQUIRE r 60000 WAIT %lld OWNER me ID %63s", &wait_again_ms, id_again), 2);
    assert_string_equal(id, id_again);
    assert_true(wait_again_ms < wait_ms && wait_ms <= 5000 && wait_again_ms > 0);
    stk_lease_free(lease);
}

SCRIPT_TEST(an_acquire_whose_first_grant_is_over_asks_with_another_id)
{
    char one[256], other[256];

    stk_client *client =
        script_open(script, 10000, NULL, "-STALE the lease of this ID is over\r\n", GRANTED);
    stk_lease *lease = acquire(client);
    assert_int_equal(stk_lease_token(lease, "r"), 7);
    script_request(script, 2, one);
    script_request(script, 3, other);
    assert_string_not_equal(one, other);
    stk_lease_free(lease);
}

SCRIPT_TEST(a_grant_that_was_long_on_its_way_lasts_as_long_as_the_daemon_says)
{
    stk_client *client = script_open(script, 10000, "*2\r\n:7\r\n:900\r\n");
    stk_lease *lease = acquire(client); /* for a minute */
    assert_in_range(stk_lease_left_ms(lease), 0, 900);
    stk_lease_free(lease);
}

/* The daemon counts from when it got the request. */
SCRIPT_TEST(a_grant_counts_from_when_it_was_asked_for)
{
    enum { ACQUIRE = 1 };

    stk_client *client = script_open(script, 10000, LATE GRANTED);
    stk_lease *lease = acquire(client);
    int64_t until_ms = rig_until_ms(lease);
    /* Less one per cent and 2 ms. */
    assert_true(until_ms <= script_came_ms(script, ACQUIRE) + 60000 - 602 + 1);
    stk_lease_free(lease);
}

SCRIPT_TEST(a_lease_under_which_a_write_was_stale_is_over)
{
    stk_client *client = script_open(script, 10000, GRANTED, "-STALE token 7 of \"r\"\r\n");
    stk_lease *lease = acquire(client);
    assert_true(stk_lease_valid(lease));
    assert_int_equal(stk_fenced(lease, 2, incr, NULL, NULL), STK_STALE);
    assert_false(stk_lease_valid(lease));
    stk_lease_free(lease);
}

SCRIPT_TEST(what_carries_no_id_is_not_sent_again)
{
    stk_client *client = script_open(script, 10000, NULL, NULL);
    assert_int_equal(stk_revoke(client, "r", NULL), STK_UNSURE);
    assert_int_equal(stk_sql(client, NULL, 0, "CREATE TABLE t (a)", NULL, 0, NULL), STK_UNSURE);
    assert_int_equal(script_used(script), 3);
}

/* The same SHUTDOWN would stop a daemon that has just been started again. */
SCRIPT_TEST(a_command_that_only_reads_is_sent_again_and_no_other_is)
{
    static const char *const reads[] = {"GET", "LEASE", "HISTORY", "WAITERS", "INFO"};
    static const char *const acts[] = {"SHUTDOWN", "CLIENT", "SCRIPT", "ACL"};

    stk_client *client = script_open(script, 10000, NULL, ":1\r\n", NULL, ":1\r\n", NULL, ":1\r\n",
                                     NULL, ":1\r\n", NULL, ":1\r\n", NULL, NULL, NULL, NULL);
    for (size_t i = 0; i < 5; i++)
        ok(stk_command(client, 2, (const char *const[]){reads[i], "r"}, NULL, NULL));
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(stk_command(client, 2, (const char *const[]){acts[i], "r"}, NULL, NULL),
                         STK_UNSURE);
    assert_int_equal(script_used(script), 1 + 2 * 5 + 4);
}

/* A daemon with --unfenced-writes allow applies them. */
SCRIPT_TEST(a_transaction_with_a_write_without_a_lease_is_not_sent_again)
{
    stk_txn *txn;

    stk_client *client = script_open(script, 10000, "+OK\r\n", "+QUEUED\r\n", NULL);
    ok(stk_txn_begin(client, &txn));
    ok(stk_txn_add(txn, NULL, 2, incr, NULL));
    assert_int_equal(stk_txn_exec(txn, NULL), STK_UNSURE);
    assert_string_equal(stk_last_id(), "");
    assert_int_equal(script_used(script), 1 + 3);
    stk_txn_free(txn);
}

SCRIPT_TEST(the_last_id_is_of_the_last_write_however_it_was_sent)
{
    const stk_words bare = {2, incr, NULL};
    stk_reply *reply;

    stk_client *client = script_open(script, 10000, GRANTED, ":1\r\n", ":2\r\n", ":3\r\n", NULL);
    stk_lease *lease = acquire(client);
    ok(stk_fenced(lease, 2, incr, NULL, NULL));
    assert_int_equal(strlen(stk_last_id()), 32);
    ok(stk_command(client, 2, incr, NULL, NULL));
    assert_string_equal(stk_last_id(), "");
    ok(stk_fenced(lease, 2, incr, NULL, NULL));
    assert_int_equal(stk_command_all(client, &bare, 1, &reply), STK_UNSURE);
    assert_string_equal(stk_last_id(), "");
    stk_lease_free(lease);
}

SCRIPT_TEST(a_silent_server_ends_a_call_in_time_and_costs_its_connection)
{
    char *value;

    stk_client *client = script_open(script, 500, GRANTED, "", "", "$1\r\nx\r\n");
    stk_lease *lease = acquire(client);
    struct deadline deadline = deadline_in(10000);
    assert_int_equal(stk_fenced(lease, 2, incr, NULL, NULL), STK_UNSURE);
    assert_int_equal(strlen(stk_last_id()), 32);
    assert_int_equal(stk_get(client, "r", &value, NULL), STK_TIMEOUT);
    assert_null(value);
    assert_true(deadline_spent_ms(&deadline) >= 2 * 500 - 2); /* floored clocks */
    deadline_keep(&deadline);
    ok(stk_get(client, "r", &value, NULL)); /* on a third connection */
    assert_string_equal(value, "x");
    free(value);
    assert_int_equal(script_connections(script), 3);
    stk_lease_free(lease);
}

SCRIPT_TEST(what_broke_a_connection_is_told_where_the_next_one_stays_silent)
{
    char *value;

    stk_client *client = script_open(script, 500, NULL, "");
    assert_int_equal(stk_get(client, "r", &value, NULL), STK_TIMEOUT);
    assert_non_null(strstr(stk_message(), "the connection broke ("));
}

SCRIPT_TEST(what_broke_a_connection_is_told_where_the_next_one_is_not_made_in_time)
{
    char *value;

    snprintf(script->uri, sizeof script->uri, "stockade://:secret@127.0.0.1:%d", script->port);
    /* AUTH and PING, GET, AUTH. */
    stk_client *client = script_open(script, 500, "+PONG\r\n", NULL, "");
    assert_int_equal(stk_get(client, "r", &value, NULL), STK_TIMEOUT);
    assert_non_null(strstr(stk_message(), "the connection broke ("));
}

SCRIPT_TEST(a_server_that_talks_nonsense_is_an_error)
{
    enum stk_outcome outcome;
    stk_lease *lease;
    stk_rows *rows;

    stk_client *client = script_open(script, 5000, "+what?\r\n", "*1\r\n:1\r\n",
                                     "*2\r\n:1\r\n$1\r\nx\r\n", ":1\r\n", ":1\r\n");
    for (int i = 0; i < 3; i++)
        assert_int_equal(stk_acquire(client, "r", NULL, &lease), STK_PROTOCOL);
    assert_int_equal(stk_receipt(client, "r", 1, "id", &outcome, NULL), STK_PROTOCOL);
    assert_int_equal(stk_sql(client, NULL, 0, "SELECT 1", NULL, 0, &rows), STK_PROTOCOL);
}

SCRIPT_TEST(bytes_that_are_no_protocol_break_the_connection)
{
    char *value;

    stk_client *client = script_open(script, 5000, "HTTP/1.1 400 Bad Request\r\n", "$1\r\nx\r\n");
    ok(stk_get(client, "r", &value, NULL));
    free(value);
    assert_int_equal(script_connections(script), 2);
}

SCRIPT_TEST(error_replies_are_codes_and_their_texts)
{
    static const struct {
        const char *reply;
        enum stk_error error;
        const char *message;
    } rows[] = {
        {"-STALE too old\r\n", STK_STALE, "too old"},
        {"-LEASEDOWN no redis\r\n", STK_LEASEDOWN, "no redis"},
        {"-BUSY\r\n", STK_BUSY, "BUSY"},
        {"-ERR what\r\n", STK_ERR, "what"},
        {"-MOVED 1 there\r\n", STK_ERR, "MOVED 1 there"},
        {"-HELD not a word of the wire\r\n", STK_ERR, "HELD not a word of the wire"},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    const char *answers[ROWS];
    char *value;

    for (size_t i = 0; i < ROWS; i++)
        answers[i] = rows[i].reply;
    stk_client *client = script_open_with(script, 5000, answers, ROWS);
    for (size_t i = 0; i < ROWS; i++) {
        assert_int_equal(stk_get(client, "r", &value, NULL), rows[i].error);
        assert_string_equal(stk_message(), rows[i].message);
    }
}

SCRIPT_TEST(a_name_is_looked_up_and_a_wrong_one_is_said_so)
{
    stk_client *client;

    snprintf(script->uri, sizeof script->uri, "stockade://localhost:%d", script->port);
    script_open(script, 5000, "");
    assert_int_equal(stk_client_open("stockade://no-such-host.invalid", 5000, &client),
                     STK_UNREACHABLE);
    assert_non_null(strstr(stk_message(), "no-such-host.invalid"));
    assert_null(client);
}

TEST(a_server_that_is_not_there_is_said_so)
{
    stk_client *client;

    assert_int_equal(stk_client_open("stockade://127.0.0.1:1", 5000, &client), STK_UNREACHABLE);
    assert_non_null(strstr(stk_message(), "refused"));
    assert_null(client);
}

SCRIPT_TEST(a_daemon_that_is_busy_after_a_lost_reply_is_asked_until_it_tells)
{
    stk_client *client = script_open(script, RIG_TIMEOUT_MS, GRANTED, NULL, "-BUSY stopping\r\n",
                                     "+OK\r\n", "-BUSY stopping\r\n");
    stk_lease *lease;

    ok(stk_acquire(client, "r", &(stk_lease_options){.no_keep_alive = true}, &lease));
    ok(stk_set(lease, "r", "1", 1));
    assert_int_equal(stk_set(lease, "r", "1", 1), STK_BUSY);
    stk_lease_free(lease);
}
