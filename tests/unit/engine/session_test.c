/* SPDX-License-Identifier: Apache-2.0 */
/* A connection's order, its bounds, and who may do what. */
#include "proxy/engine/internal.h"
#include "proxy/engine/session/login.h"
#include "proxy/engine/session/session.h"
#include "tests/unit/engine/says.h"

TESTS_HAVE_ONE_THREAD

UNFENCED_TEST(commands_of_one_connection_take_effect_in_order)
{
    assert_says(world, 1, "GET k\r\nSET k 1\r\nGET k\r\nPING\r\nSET k 2\r\nSET k 3\r\nGET k",
                "$-1\r\n+OK\r\n$1\r\n1\r\n+PONG\r\n+OK\r\n+OK\r\n$1\r\n3\r\n");
}

UNFENCED_TEST(a_command_that_waits_holds_back_its_own_connection_only)
{
    assert_says(world, 1, "ACQUIRE k 1000", GRANT(1, 1000));
    assert_says(world, 2, "ACQUIRE k 1000 WAIT 500\r\nGET a\r\nPING", "");
    assert_says(world, 3, "GET a", "$-1\r\n");
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    assert_heard(world, 2, "*2\r\n:2\r\n:1000\r\n$-1\r\n+PONG\r\n");
}

/* Up to the turn in which the grant is ready to be sent. */
static void grant(struct world *world, const char *pipeline)
{
    world_send_only(world, 1, pipeline);
    for (int turns = 0; !engine_wants_turn(world->engine); turns++) {
        assert_true(turns < 100 && world->clients[1].received.len == 0);
        world_step_store(world);
        lease_service_step(world->service);
        engine_turn(world->engine);
    }
    assert_int_equal(world->clients[1].received.len, 0);
}

UNFENCED_TEST(a_grant_and_the_read_behind_it_leave_together)
{
    grant(world, "ACQUIRE k 1000\r\nGET k\r\nSET k 1");
    world_step_store(world);
    engine_turn(world->engine);
    assert_string_equal(world_received(world, 1), "*2\r\n:1\r\n:1000\r\n$-1\r\n");
}

UNFENCED_TEST(a_grant_does_not_wait_for_a_read_that_takes_longer)
{
    grant(world, "ACQUIRE k 1000\r\nGET k\r\nPING\r\nACQUIRE l 1000\r\nGET l");
    engine_turn(world->engine);
    assert_string_equal(world_received(world, 1), GRANT(1, 1000));
    assert_false(engine_wants_turn(world->engine));
    assert_heard(world, 1, "$-1\r\n+PONG\r\n*2\r\n:1\r\n:1000\r\n$-1\r\n");
}

UNFENCED_TEST(many_reads_behind_a_grant_do_not_hold_it_up)
{
    enum { MANY = 600 };
    struct buf lines = {0};

    buf_append_text(&lines, "ACQUIRE k 1000");
    for (int i = 0; i < MANY; i++)
        buf_append_text(&lines, "\r\nGET k");
    buf_append(&lines, "", 1);
    grant(world, lines.data);
    world_step_store(world);
    engine_turn(world->engine);
    assert_true(world->clients[1].received.len > strlen(GRANT(1, 1000)));
    world_settle(world);
    assert_int_equal(world->clients[1].received.len,
                     strlen(GRANT(1, 1000)) + MANY * strlen("$-1\r\n"));
    buf_free(&lines);
}

UNFENCED_TEST(who_is_waiting_for_a_read_may_be_killed)
{
    grant(world, "ACQUIRE k 1000\r\nGET k");
    world_disconnect(world, 1);
    assert_false(engine_wants_turn(world->engine));
    world_settle(world);
    assert_says(world, 2, "ACQUIRE k 1000", "*-1\r\n");
}

UNFENCED_TEST(leases_taken_in_one_pipeline_keep_their_order)
{
    assert_says(world, 1,
                "ACQUIRE k 1000 OWNER me\r\nACQUIRE k 1000\r\n"
                "ACQUIRE k 1000 OWNER me\r\nACQUIRE j 1000\r\n"
                "RELEASE k 1\r\nRELEASE k 1\r\nACQUIRE k 1000",
                "*2\r\n:1\r\n:1000\r\n*-1\r\n*2\r\n:1\r\n:1000\r\n"
                "*2\r\n:1\r\n:1000\r\n:1\r\n:0\r\n*2\r\n:2\r\n:1000\r\n");
}

UNFENCED_TEST(an_unknown_command_or_a_wrong_count_is_answered_in_its_place)
{
    assert_says(world, 1, "SET k 1\r\nnope a b\r\nGET\r\nGET k",
                "+OK\r\n-ERR unknown command 'nope', with args beginning with: 'a' 'b' \r\n"
                "-ERR wrong number of arguments for 'get' command\r\n$1\r\n1\r\n");
}

UNFENCED_TEST(a_broken_protocol_is_answered_then_closed)
{
    assert_says(world, 1, "PING\r\n*1\r\n!x",
                "+PONG\r\n-ERR Protocol error: expected '$', got '!'\r\n");
    assert_true(world->clients[1].closed);
}

UNFENCED_TEST(a_half_closed_client_gets_its_replies_but_no_lease)
{
    world_send_only(world, 1, "SET k 1\r\nGET k\r\nSET k 2\r\nGET k");
    assert_true(session_input_ended(world->clients[1].session));
    assert_false(session_wants_input(world->clients[1].session));
    assert_heard(world, 1, "+OK\r\n$1\r\n1\r\n+OK\r\n$1\r\n2\r\n");
    assert_true(world->clients[1].closed);

    world_send_only(world, 2, "ACQUIRE k 60000");
    assert_false(session_input_ended(world->clients[2].session));
    world_disconnect(world, 2);
    world_send_only(world, 3, "GET k\r\nACQUIRE k 60000"); /* held back behind the read */
    assert_true(session_input_ended(world->clients[3].session));
    world_settle(world);
    assert_true(world->clients[3].closed);
    assert_begins(world, 4, "ACQUIRE k 60000", "*2\r\n");
}

UNFENCED_TEST(a_browser_is_hung_up_on_before_its_body_is_read)
{
    assert_says(world, 1, "POST / HTTP/1.1\r\nSET k 1\r\nSHUTDOWN", "");
    assert_true(world->clients[1].closed);
    assert_false(world->shutdown);
    assert_says(world, 2, "GET k", "$-1\r\n");
}

UNFENCED_TEST(quit_answers_and_closes_and_takes_nothing_more)
{
    assert_says(world, 1, "SET k 1\r\nQUIT\r\nSET k 2", "+OK\r\n+OK\r\n");
    assert_true(world->clients[1].closed);
    assert_says(world, 2, "GET k", "$1\r\n1\r\n");
}

UNFENCED_TEST(a_slow_reader_holds_its_own_commands_back)
{
    assert_string_equal(call_large(world, 1, "SET k", 100000), "+OK\r\n");
    struct session *session = world->clients[1].session;
    session_set_unsent(session, 1 << 20); /* the client does not read */
    for (int i = 0; i < 1000; i++)
        world_send_only(world, 1, "GET k");
    for (int i = 0; i < 100; i++)
        world_step_store(world);
    assert_int_equal(world_counter(world, "store_reads"), 0);
    /* It reads again: everything is answered. */
    session_set_unsent(session, 0);
    world_settle(world);
    assert_int_equal(world->clients[1].received.len, 1000 * (size_t)(100000 + 11));
}

/* Replies keep their order, so what is answered already waits with its arguments. */
UNFENCED_TEST(what_is_pipelined_behind_a_wait_is_bounded_in_bytes)
{
    enum { ECHO = 1 << 20, MANY = 100 };
    int sent = 0;

    assert_says(world, 1, "ACQUIRE k 1000", GRANT(1, 1000));
    assert_says(world, 2, "ACQUIRE k 1000 WAIT 500", "");
    for (; sent < MANY && session_wants_input(world->clients[2].session); sent++)
        assert_string_equal(call_large(world, 2, "ECHO", ECHO), "");
    /* One is begun below the bound, the next one waits in its bytes. */
    assert_in_range(sent, SESSION_REQUEST_BYTES_MAX / ECHO, SESSION_REQUEST_BYTES_MAX / ECHO + 2);
    world_pass(world, 600);
    assert_int_equal(world->clients[2].received.len,
                     strlen("*-1\r\n") + (size_t)sent * (ECHO + strlen("$1048576\r\n\r\n")));
    assert_true(session_wants_input(world->clients[2].session));
}

UNFENCED_TEST(errors_behind_a_wait_are_bounded_in_number)
{
    struct buf nonsense = {0};
    int sent = 0;

    for (int i = 0; i < 100; i++)
        buf_append_text(&nonsense, i == 99 ? "nope" : "nope\r\n");
    buf_append(&nonsense, "", 1);
    assert_says(world, 1, "ACQUIRE k 1000", GRANT(1, 1000));
    assert_says(world, 2, "ACQUIRE k 1000 WAIT 500", "");
    for (; sent < 1000 && session_wants_input(world->clients[2].session); sent++) {
        world_send(world, 2, nonsense.data);
        assert_in_range(world->clients[2].session->pending_count, 1, SESSION_REQUESTS_MAX);
    }
    assert_in_range(sent, 1, 999);
    world_pass(world, 600);
    assert_true(session_wants_input(world->clients[2].session));
    assert_int_equal(world_counter(world, "commands_processed"), 2 + 100 * sent);
    buf_free(&nonsense);
}

UNFENCED_TEST(what_waits_keeps_the_leases_behind_it_back)
{
    assert_says(world, 1, "ACQUIRE k 1000", GRANT(1, 1000));
    assert_says(world, 2, "ACQUIRE k 1000 WAIT 500\r\nACQUIRE j 1000", "");
    assert_says(world, 3, "LEASES", "*1\r\n$1\r\nk\r\n");
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    assert_heard(world, 2, "*2\r\n:2\r\n:1000\r\n*2\r\n:1\r\n:1000\r\n");
}

/* Only what waits is alone: side by side, two questions take the time of one. */
WORLD_TEST(an_owner_or_id_by_the_name_of_wait_does_not_wait)
{
    send_late(world, 1, "ACQUIRE k 60000 OWNER WAIT ID wait\r\nACQUIRE j 60000", 200, 300);
    assert_heard(world, 1, "*2\r\n:1\r\n:59800\r\n*2\r\n:1\r\n:59800\r\n");
}

/* Reads run side by side, but not so many that their replies fill the memory. */
UNFENCED_TEST(large_reads_of_one_connection_are_few_at_a_time)
{
    enum { VALUE = 1 << 20, MANY = 100 };

    assert_string_equal(call_large(world, 1, "SET k", VALUE), "+OK\r\n");
    world_call(world, 1, "GET k"); /* so much one weighs */
    for (int i = 0; i < MANY; i++)
        world_send_only(world, 1, "GET k");
    assert_in_range(store_stats(world->store).reads_queued, 1, 8);
    world_settle(world);
    assert_int_equal(world->clients[1].received.len, MANY * (VALUE + strlen("$1048576\r\n\r\n")));
}

UNFENCED_TEST(without_a_password_only_auth_is_understood)
{
    world_renew(world, &(struct engine_options){
                           .acl = acl_without_file("secret", commands, commands_count)});
    assert_says(world, 1, "GET k", "-NOAUTH Authentication required.\r\n");
    assert_says(world, 1, "AUTH wrong",
                "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    assert_says(world, 1, "AUTH secretsecret",
                "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    assert_says(world, 1, "AUTH default secret", "+OK\r\n");
    assert_says(world, 1, "GET k", "$-1\r\n");
    assert_says(world, 1, "RESET\r\nGET k", "+RESET\r\n-NOAUTH Authentication required.\r\n");
    assert_says(world, 1, "*1\r\n$20000\r\nx",
                "-ERR Protocol error: unauthenticated bulk length\r\n");
}

/* Strangers: connections that have to log in. */

static struct acl *with_password(void)
{
    return acl_without_file("secret", commands, commands_count);
}

static void send_many(struct world *world, int number, const char *text, int times)
{
    struct buf lines = {0};

    for (int i = 0; i < times; i++)
        buf_append_text(&lines, text);
    session_input(world->clients[number].session, lines.data, lines.len);
    world_settle(world);
    buf_free(&lines);
}

/* What it sent was answered, or waits; and it is not read from any more. */
static void assert_stranger_is_held_back(struct world *world, int number)
{
    const struct session *session = world->clients[number].session;

    assert_in_range(session->out.len + session->unsent, 1, STRANGER_OUTPUT_MAX + 512);
    assert_in_range(session->pending_count, 0, STRANGER_REQUESTS_MAX);
    assert_false(session_wants_input(session));
}

UNFENCED_TEST(a_stranger_that_reads_nothing_is_held_back_whatever_it_sends)
{
    static const char *const words[] = {"q\r\n",      "GET\r\n",           "GET k\r\n",
                                        "AUTH x\r\n", "HELLO 3\r\n",       "MULTI\r\nEXEC x\r\n",
                                        "RESET\r\n",  "*1\r\n$1\r\nq\r\n", "SUBSCRIBE c\r\n"};

    world_renew(world, &(struct engine_options){.acl = with_password()});
    for (int i = 0; i < (int)(sizeof words / sizeof *words); i++) {
        world_connect(world, 1);
        world->clients[1].stalls = true;
        send_many(world, 1, words[i], 10000);
        assert_stranger_is_held_back(world, 1);
        assert_int_equal(world->engine->replies.bytes, 0);
        assert_int_equal(world->clients[1].session->bytes, 0);
        world_disconnect(world, 1);
    }
    assert_int_equal(world->engine->strangers.bytes, 0);
}

UNFENCED_TEST(a_stranger_that_reads_gets_all_its_answers)
{
    enum { MANY = 20000 };
    static const char answer[] = "-NOAUTH Authentication required.\r\n";

    world_renew(world, &(struct engine_options){.acl = with_password()});
    world_connect(world, 1);
    send_many(world, 1, "GET k\r\n", MANY);
    assert_int_equal(world->clients[1].received.len, MANY * (sizeof answer - 1));
    assert_true(session_wants_input(world->clients[1].session));
}

/* What the open ones hold, as far as it is plain to see. */
static size_t held_by_clients(const struct world *world, int from, int to)
{
    size_t bytes = 0;

    for (int i = from; i < to; i++) {
        const struct session *session = world->clients[i].session;
        if (session != NULL)
            bytes += session->in.cap + session->out.cap + session->unsent;
    }
    return bytes;
}

UNFENCED_TEST(strangers_share_a_bound_and_the_oldest_make_room)
{
    enum { BOUND = 300 << 10, FILL = 5000 };

    world_renew(world, &(struct engine_options){.acl = with_password(),
                                                .strangers_bytes_max = BOUND,
                                                .user_limits.bytes = 1 << 20});
    assert_says(world, 0, "AUTH secret", "+OK\r\n");
    for (int i = 1; i < WORLD_CLIENTS_MAX - 1; i++) {
        world_connect(world, i);
        world->clients[i].stalls = true;
        send_many(world, i, "q\r\n", FILL);
        assert_in_range(world->engine->strangers.bytes, 1, BOUND);
        assert_in_range(held_by_clients(world, 1, i + 1), 1, BOUND);
    }
    assert_true(world->clients[1].closed);
    assert_false(world->clients[WORLD_CLIENTS_MAX - 2].closed);
    assert_in_range(world_counter(world, "strangers_closed"), 1, WORLD_CLIENTS_MAX - 3);
    /* Others are served: who has logged in, and who does. */
    assert_says(world, 0, "GET k", NIL);
    assert_says(world, WORLD_CLIENTS_MAX - 1, "AUTH secret\r\nGET k", "+OK\r\n" NIL);
}

UNFENCED_TEST(a_stranger_that_makes_room_is_told_why)
{
    world_renew(world,
                &(struct engine_options){.acl = with_password(), .strangers_bytes_max = 20 << 10});
    world_connect(world, 1);
    for (int i = 2; !world->clients[1].closed; i++) {
        assert_true(i < WORLD_CLIENTS_MAX);
        world_send(world, i, "GET k");
    }
    assert_string_equal(world_received(world, 1),
                        "-BUSY connections that have not logged in hold too much memory: log in as "
                        "soon as you have connected\r\n");
}

/* Whatever it has sent by then. */
UNFENCED_TEST(a_connection_that_forgets_its_login_is_a_stranger_again)
{
    world_renew(world,
                &(struct engine_options){.acl = with_password(), .strangers_bytes_max = 20 << 10});
    assert_says(world, 1, "AUTH secret", "+OK\r\n");
    assert_int_equal(world->engine->strangers.bytes, 0);
    world->clients[1].stalls = true;
    send_many(world, 1, "RESET\r\nAUTH secret\r\nPING\r\n", 100);
    assert_false(world->clients[1].closed);
    assert_int_equal(world->engine->strangers.bytes, 0);
    world->clients[1].stalls = false;
    send_many(world, 1, "RESET\r\nq\r\n", 3000);
    assert_in_range(world->engine->strangers.bytes, 0, 20 << 10);
}

UNFENCED_TEST(what_strangers_have_counts_for_no_user)
{
    enum { MANY = 40 };

    world_renew(world, &(struct engine_options){.acl = with_password(),
                                                .user_limits.bytes = 1000,
                                                .user_limits.rate = 5});
    for (int i = 1; i < MANY; i++) {
        world_connect(world, i);
        world->clients[i].stalls = true;
        send_many(world, i, "GET kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\r\n", 500);
    }
    assert_says(world, 0, "AUTH secret\r\nGET k", "+OK\r\n" NIL);
}

/* Errors take their turn as commands do. */
UNFENCED_TEST(a_slow_reader_gets_no_more_errors_than_replies)
{
    world_connect(world, 1);
    world->clients[1].stalls = true;
    send_many(world, 1, "q\r\n", 40000);
    const struct session *session = world->clients[1].session;
    assert_in_range(session->out.len + session->unsent, 1, SESSION_OUTPUT_MAX + 512);
    assert_false(session_wants_input(session));
}

UNFENCED_TEST(a_bare_write_needs_a_token_unless_nobody_has_one)
{
    assert_says(world, 1, "SET k 1", "+OK\r\n");
    assert_says(world, 1, "ACQUIRE k 100", GRANT(1, 100));
    assert_begins(world, 1, "SET k 2", "-NOTOKEN ");
    assert_says(world, 1, "RELEASE k 1\r\nSET k 3", ":0\r\n+OK\r\n");
    world_renew(world, NULL);
    assert_begins(world, 1, "SET k 1", "-NOTOKEN ");
    assert_begins(world, 1, "FLUSHALL", "-NOPERM ");
}

UNFENCED_TEST(a_failed_commit_fails_its_commands_and_leaves_no_trace)
{
    assert_says(world, 1, "SET k 1", "+OK\r\n");
    store_memory_fail(world->store, MEMORY_COMMIT_FAILS);
    assert_begins(world, 1, "SET k 2", "-STORE ");
    assert_says(world, 1, "GET k\r\nINCR k\r\nTYPE k", "$1\r\n1\r\n:2\r\n+string\r\n");
}

static enum stk_error write_nothing(struct store_op *op, struct store_txn *txn)
{
    (void)op, (void)txn;
    return STK_OK;
}

static void never_done(struct store_op *op)
{
    (void)op;
    fail();
}

UNFENCED_TEST(a_daemon_whose_store_is_lost_or_that_stops_is_not_healthy)
{
    struct store_op write = {.writes = true, .run = write_nothing, .done = never_done};
    struct buf json = {0};

    assert_true(engine_health(world->engine, &json));
    store_memory_fail(world->store, MEMORY_COMMIT_LOST);
    list_init(&write.link);
    assert_int_equal(store_submit(world->store, &write), STK_OK);
    world_settle(world);
    buf_clear(&json);
    assert_false(engine_health(world->engine, &json));
    buf_append(&json, "", 1);
    assert_non_null(strstr(json.data, "\"status\":\"store lost\""));
    engine_drain(world->engine);
    buf_clear(&json);
    assert_false(engine_health(world->engine, &json));
    buf_append(&json, "", 1);
    assert_non_null(strstr(json.data, "\"status\":\"draining\""));
    buf_free(&json);
}

/* Whose password takes long to check: that of crypt(3). */
static struct acl *with_slow_password(void)
{
    static const char file[] = "user till on crypt:$6$rounds=1000$salt$"
                               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n";
    char why[ACL_WHY_SIZE] = "";
    struct acl *acl = acl_parse(bytes_of(file), commands, commands_count, why);

    if (acl == NULL)
        fail_msg("%s", why);
    return acl;
}

UNFENCED_TEST(so_many_passwords_are_checked_at_once_and_one_more_is_busy)
{
    world_renew(world, &(struct engine_options){.acl = with_slow_password()});
    world_hold_asides(world, true);
    for (int i = 1; i <= LOGINS_MAX + 2; i++) {
        world_send(world, i, "AUTH till pw");
        if (i <= LOGINS_MAX)
            assert_heard(world, i, "");
        else
            assert_heard_begins(world, i, "-BUSY 64 passwords are being checked already");
    }
    world_disconnect(world, 2); /* a check goes on, and counts, when nobody waits for it */
    assert_begins(world, LOGINS_MAX + 1, "AUTH till pw", "-BUSY ");
    world_hold_asides(world, false);
    for (int i = 1; i <= LOGINS_MAX; i++)
        if (i != 2)
            assert_heard_begins(world, i, "-WRONGPASS ");
    world_hold_asides(world, true);
    world_send(world, LOGINS_MAX + 1, "AUTH till pw");
    assert_heard(world, LOGINS_MAX + 1, "");
    world_hold_asides(world, false);
    assert_heard_begins(world, LOGINS_MAX + 1, "-WRONGPASS ");
}

UNFENCED_TEST(shutdown_is_passed_on_to_the_host)
{
    assert_says(world, 1, "SHUTDOWN", "");
    assert_true(world->shutdown);
    assert_true(world->clients[1].closed);
}
