/* SPDX-License-Identifier: Apache-2.0 */
/* MULTI and EXEC, FENCEDALL, IDs and receipts, in virtual time. */
#include "proxy/engine/session/session.h"
#include "proxy/engine/write/plan.h"
#include "tests/unit/engine/says.h"

#define QUEUED "+QUEUED\r\n"

static int setup(void **state)
{
    struct world *world = world_new(&(struct engine_options){.receipts_keep_ms = 60000});

    *state = world;
    assert_says(world, 1, "ACQUIRE a 10000", GRANT(1, 10000));
    assert_says(world, 1, "ACQUIRE b 10000", GRANT(1, 10000));
    return 0;
}

#define TRANSACTION_TEST(name) TEST_WITH(setup, world_teardown, struct world *world, name)

TRANSACTION_TEST(a_transaction_applies_whole)
{
    assert_says(world, 1, "MULTI\r\nFENCED 1 SET a x\r\nFENCED 1 INCRBY b 5\r\nGET a\r\nEXEC",
                "+OK\r\n" QUEUED QUEUED QUEUED "*3\r\n+OK\r\n:5\r\n$1\r\nx\r\n");
    assert_says(world, 1, "MGET a b", "*2\r\n$1\r\nx\r\n$1\r\n5\r\n");
}

TRANSACTION_TEST(one_failing_command_undoes_all_and_is_the_reply)
{
    assert_says(world, 1, "FENCED 1 SET b 2", "+OK\r\n");
    assert_begins(world, 1,
                  "MULTI\r\nFENCED 1 SET a x\r\nFENCED 1 DECRBY b 3 MIN 0\r\nFENCED 1 SET a y\r\n"
                  "EXEC",
                  "+OK\r\n" QUEUED QUEUED QUEUED "-RANGE ");
    assert_says(world, 1, "MGET a b", "*2\r\n" NIL "$1\r\n2\r\n");
}

/* After a failure transactions begin with a savepoint: they are undone in another way. */
TRANSACTION_TEST(a_second_transaction_that_fails_is_undone_too)
{
    for (int round = 0; round < 3; round++) {
        assert_says(world, 1, "MULTI", "+OK\r\n");
        assert_says(world, 1, "FENCED 1 SET a v", QUEUED);
        assert_says(world, 1, "FENCED 1 HSET a field v", QUEUED);
        assert_begins(world, 1, "EXEC", "-WRONGTYPE ");
        assert_says(world, 1, "GET a", NIL);
    }
}

TRANSACTION_TEST(one_stale_token_changes_nothing)
{
    assert_says(world, 1, "RELEASE b 1", ":0\r\n");
    assert_begins(world, 1, "MULTI\r\nFENCED 1 SET a x\r\nFENCED 1 SET b x\r\nEXEC",
                  "+OK\r\n" QUEUED QUEUED "-STALE token 1 of \"b\"");
    assert_says(world, 1, "GET a", NIL);
    assert_int_equal(world_counter(world, "refused_stale"), 1);
}

TRANSACTION_TEST(tokens_are_judged_at_exec)
{
    assert_says(world, 1, "MULTI\r\nFENCED 1 SET a x", "+OK\r\n" QUEUED);
    assert_says(world, 2, "REVOKE a", ":1\r\n");
    assert_begins(world, 1, "EXEC", "-STALE ");
    assert_says(world, 1, "MULTI\r\nFENCED 2 SET a x", "+OK\r\n" QUEUED); /* unknown as yet */
    assert_says(world, 2, "ACQUIRE a 1000", GRANT(2, 1000));
    assert_says(world, 1, "EXEC", "*1\r\n+OK\r\n");
}

TRANSACTION_TEST(what_cannot_be_queued_spoils_the_transaction)
{
    static const char *const wrong[] = {
        "NOSUCH",  "GET",           "FENCED 1 SET a",    "FENCED 0 SET a x",
        "SET a x", "FENCED 1 PING", "ACQUIRE c 100",     "FENCED 1 MSET a b c d",
        "INFO",    "HELLO 3",       "FENCEDALL 0 GET a",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_says(world, 1, "MULTI\r\nFENCED 1 SET a x", "+OK\r\n" QUEUED);
        assert_begins(world, 1, wrong[i], strcmp(wrong[i], "SET a x") == 0 ? "-NOTOKEN" : "-ERR");
        assert_begins(world, 1, "EXEC", "-EXECABORT ");
        assert_says(world, 1, "GET a", NIL);
    }
}

TRANSACTION_TEST(transactions_do_not_nest_and_discard_drops)
{
    assert_begins(world, 1, "EXEC", "-ERR EXEC without MULTI");
    assert_begins(world, 1, "DISCARD", "-ERR DISCARD without MULTI");
    assert_begins(world, 1, "MULTI\r\nFENCED 1 SET a x\r\nMULTI",
                  "+OK\r\n" QUEUED "-ERR MULTI calls can not be nested");
    assert_says(world, 1, "DISCARD\r\nGET a", "+OK\r\n" NIL);
    assert_says(world, 1, "MULTI\r\nFENCED 1 SET a x\r\nRESET\r\nGET a",
                "+OK\r\n" QUEUED "+RESET\r\n" NIL);
    assert_says(world, 1, "MULTI\r\nEXEC", "+OK\r\n*0\r\n");
    assert_says(world, 1, "MULTI\r\nFENCED 1 SET a x", "+OK\r\n" QUEUED);
    world_disconnect(world, 1);
    assert_says(world, 1, "GET a", NIL);
}

/* What is sent behind it belongs to a transaction of its own. */
TRANSACTION_TEST(a_nested_multi_spoils_the_transaction)
{
    assert_begins(world, 1, "MULTI\r\nFENCED 1 SET a x\r\nMULTI\r\nFENCED 1 SET b x\r\nEXEC",
                  "+OK\r\n" QUEUED "-ERR MULTI calls can not be nested\r\n" QUEUED "-EXECABORT ");
    assert_says(world, 1, "MGET a b", "*2\r\n" NIL NIL);
}

#define REFUSED "-EXECABORT MULTI was refused, and so is what follows it up to EXEC or DISCARD\r\n"

TRANSACTION_TEST(what_follows_a_refused_multi_is_refused_up_to_exec)
{
    assert_says(world, 1, "MULTI x\r\nFENCED 1 SET a x\r\nINFO\r\nEXEC\r\nFENCED 1 SET b x",
                "-ERR wrong number of arguments for 'multi' command\r\n" REFUSED REFUSED
                "-EXECABORT MULTI was refused; nothing was applied\r\n+OK\r\n");
    assert_says(world, 1, "GET a\r\nEXEC", NIL "-ERR EXEC without MULTI\r\n");
}

TRANSACTION_TEST(a_refused_multi_ends_with_discard_reset_or_its_repeat)
{
    static const char *const ends[] = {"DISCARD", "RESET", "MULTI\r\nEXEC"};
    static const char *const said[] = {"+OK\r\n", "+RESET\r\n", "+OK\r\n*0\r\n"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        assert_begins(world, 1, "MULTI x", "-ERR ");
        assert_says(world, 1, "GET a", REFUSED);
        assert_says(world, 1, ends[i], said[i]);
        assert_says(world, 1, "GET a", NIL);
    }
}

/* However it is refused: before the login, or while the connection only listens. */
TRANSACTION_TEST(a_refused_multi_is_not_forgotten_by_what_comes_in_between)
{
    assert_begins(world, 1, "SUBSCRIBE c", "*3\r\n");
    assert_begins(world, 1, "MULTI", "-ERR Can't execute 'multi'");
    assert_begins(world, 1, "UNSUBSCRIBE", "*3\r\n");
    assert_says(world, 1, "FENCED 1 SET a x", REFUSED);
    assert_begins(world, 1, "EXEC", "-EXECABORT ");
    world_renew(world, &(struct engine_options){
                           .acl = acl_without_file("secret", commands, commands_count)});
    assert_says(world, 1, "MULTI\r\nAUTH secret\r\nGET a",
                "-NOAUTH Authentication required.\r\n+OK\r\n" REFUSED);
    assert_begins(world, 1, "EXEC", "-EXECABORT ");
    assert_says(world, 1, "GET a", NIL);
}

/* A wrong DISCARD, EXEC or RESET must not leave a transaction that EXEC then applies. */
TRANSACTION_TEST(a_refused_end_spoils_the_transaction)
{
    static const char *const ends[] = {"DISCARD x", "RESET x"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        assert_says(world, 1, "MULTI\r\nFENCED 1 SET a x", "+OK\r\n" QUEUED);
        assert_begins(world, 1, ends[i], "-ERR wrong number of arguments");
        assert_begins(world, 1, "EXEC", "-EXECABORT ");
        assert_says(world, 1, "GET a", NIL);
    }
    assert_says(world, 1, "MULTI\r\nFENCED 1 SET a x", "+OK\r\n" QUEUED);
    assert_begins(world, 1, "EXEC x", "-EXECABORT "); /* and ends it, as in Redis */
    assert_begins(world, 1, "EXEC", "-ERR EXEC without MULTI");
    assert_says(world, 1, "GET a", NIL);
}

static void use_up_the_rate(struct world *world)
{
    world_pass(world, 2000);
    for (int i = 0; i < 10; i++)
        assert_says(world, 1, "PING", "+PONG\r\n");
    assert_begins(world, 1, "PING", "-BUSY ");
}

TRANSACTION_TEST(a_transaction_over_the_rate_is_refused_whole)
{
    engine_reconfigure(world->engine, &(struct engine_options){.user_limits.rate = 10});
    use_up_the_rate(world);
    world_send_only(world, 1, "MULTI");
    world_send_only(world, 1, "FENCED 1 SET a x");
    world_settle(world);
    assert_string_equal(world_received(world, 1),
                        "+OK\r\n-BUSY too many commands: user 'default' may send 10 in a second "
                        "(max-rate-per-user)\r\n");
    world_pass(world, 1000);
    assert_says(world, 1, "FENCED 1 SET b x", QUEUED);
    assert_begins(world, 1, "EXEC", "-EXECABORT ");
    assert_says(world, 1, "MGET a b", "*2\r\n" NIL NIL);
}

/* Unknown commands and errors are commands, too. */
TRANSACTION_TEST(what_is_wrong_counts_for_the_rate)
{
    engine_reconfigure(world->engine, &(struct engine_options){.user_limits.rate = 10});
    world_pass(world, 2000);
    for (int i = 0; i < 5; i++) {
        assert_begins(world, 1, "nosuch", "-ERR unknown command");
        assert_begins(world, 1, "GET", "-ERR wrong number");
    }
    assert_begins(world, 1, "PING", "-BUSY ");
    assert_begins(world, 1, "nosuch", "-BUSY ");
    assert_begins(world, 1, "GET", "-BUSY ");
}

/* What a connection is, as far as its next commands depend on it. */
static uint64_t state_of(const struct session *session)
{
    uint64_t hash = session->resp3 | (uint64_t)(session->subscriber != NULL) << 1 |
                    (uint64_t)(session->life != SESSION_OPEN) << 2 |
                    (uint64_t)(session->multi != NULL) << 3;

    return hash ^ ((uint64_t)(uintptr_t)session->rights << 8) ^
           ((uint64_t)(uintptr_t)session->account << 16);
}

/* Send a command with as many of these words as it takes. Return whether the state has changed. */
static bool changes_state(struct world *world, const struct command *command, const char *before,
                          const char *word)
{
    size_t words = (size_t)(command->arity < 0 ? -command->arity : command->arity);
    struct buf line = {0};

    world_connect(world, 1);
    for (const char *end; before[0] != '\0'; before = end + 1) {
        end = strchr(before, ';');
        buf_clear(&line);
        buf_printf(&line, "%.*s", (int)(end - before), before);
        buf_append(&line, "", 1);
        world_call(world, 1, line.data);
    }
    buf_clear(&line);
    buf_append_text(&line, command->name);
    for (size_t i = 1; i < words || (i == 1 && word[0] != '\0' && command->arity < 0); i++)
        buf_printf(&line, " %s", word[0] == '\0' ? "x" : word);
    buf_append(&line, "", 1);
    uint64_t was = state_of(world->clients[1].session);
    world_call(world, 1, line.data);
    bool changed = world->clients[1].closed || state_of(world->clients[1].session) != was;
    world_disconnect(world, 1);
    buf_free(&line);
    return changed;
}

/* Each of the table is tried with some words, in some states. */
TRANSACTION_TEST(all_that_changes_a_connections_state_is_never_refused_for_its_users_limits)
{
    static const char *const befores[] = {
        "", "MULTI;", "SUBSCRIBE x;", "HELLO 3;", "PSUBSCRIBE x;", "AUTH root pw;", "AUTH a pw;"};
    static const char *const words[] = {"", "3", "pw", "a pw"};
    char why[ACL_WHY_SIZE];

    for (size_t i = 0; i < commands_count; i++) {
        bool changed = false;
        for (size_t b = 0; b < sizeof befores / sizeof *befores; b++)
            for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
                if (strcmp(commands[i].name, "SHUTDOWN") == 0)
                    continue; /* it is for the daemon */
                world_renew(world,
                            &(struct engine_options){
                                .acl = acl_parse(bytes_of("user default on nopass ~* &* +@all\n"
                                                          "user root on >pw ~* &* +@all\n"
                                                          "user a on >pw ~* &* +@all\n"),
                                                 commands, commands_count, why)});
                changed |= changes_state(world, &commands[i], befores[b], words[w]);
            }
        bool flagged = commands[i].flags & COMMAND_STATE;
        if (changed != flagged && strcmp(commands[i].name, "SELECT") != 0)
            fail_msg("%s: it changes the state: %d; COMMAND_STATE: %d", commands[i].name, changed,
                     flagged);
    }
}

TRANSACTION_TEST(a_transaction_is_bounded)
{
    assert_says(world, 1, "MULTI", "+OK\r\n");
    for (int i = 0; i < 4096; i++)
        assert_says(world, 1, "GET a", QUEUED);
    assert_begins(world, 1, "GET a", "-ERR a transaction has at most 4096 commands");
    assert_begins(world, 1, "EXEC", "-EXECABORT");
}

TRANSACTION_TEST(a_transaction_is_bounded_in_bytes)
{
    enum { VALUE = 1 << 20 };

    assert_says(world, 1, "MULTI", "+OK\r\n");
    for (int i = 1; i < TRANSACTION_BYTES_MAX / VALUE; i++)
        assert_string_equal(call_large(world, 1, "FENCED 1 SET a", VALUE), QUEUED);
    assert_memory_equal(call_large(world, 1, "FENCED 1 SET a", VALUE),
                        "-ERR a transaction has at most 4096 commands and 17 MiB", 55);
    assert_begins(world, 1, "EXEC", "-EXECABORT");
    assert_says(world, 1, "GET a", NIL);
}

/* Five of these fit into the megabyte that a user may have. */
enum { FIFTH = 200000 };

static void begin_a_queue_near_the_limit(struct world *world)
{
    engine_reconfigure(world->engine, &(struct engine_options){.user_limits.bytes = 1 << 20});
    assert_says(world, 1, "MULTI", "+OK\r\n");
    for (int i = 0; i < 5; i++)
        assert_string_equal(call_large(world, 1, "FENCED 1 SET a", FIFTH), QUEUED);
}

TRANSACTION_TEST(what_is_queued_counts_among_its_users_bytes)
{
    begin_a_queue_near_the_limit(world);
    assert_memory_equal(call_large(world, 2, "FENCED 1 SET b", FIFTH),
                        "-BUSY too many bytes: user 'default' has 1", 42);
    assert_says(world, 2, "PING", "+PONG\r\n"); /* what was refused is not there */
    assert_says(world, 1, "EXEC",
                "*5\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n"); /* and what was done neither */
    assert_string_equal(call_large(world, 2, "FENCED 1 SET b", FIFTH), "+OK\r\n");
}

TRANSACTION_TEST(a_command_that_its_user_has_no_room_for_is_not_queued)
{
    begin_a_queue_near_the_limit(world);
    assert_memory_equal(call_large(world, 1, "FENCED 1 SET a", FIFTH), "-BUSY too many bytes", 20);
    assert_says(world, 2, "PING", "+PONG\r\n");
    assert_begins(world, 1, "EXEC", "-EXECABORT");
    assert_string_equal(call_large(world, 2, "FENCED 1 SET b", FIFTH), "+OK\r\n");
    assert_says(world, 1, "GET a", NIL);
}

TRANSACTION_TEST(a_queue_counts_until_its_exec_is_done)
{
    begin_a_queue_near_the_limit(world);
    engine_reconfigure(world->engine, &(struct engine_options){.user_limits.bytes = 1000});
    world_send_only(world, 1, "EXEC");
    world_send_only(world, 1, "PING");
    world_send_only(world, 2, "PING");
    assert_heard_begins(world, 2, "-BUSY too many bytes");
    assert_heard_begins(world, 1, "*5\r\n");
    assert_says(world, 2, "PING", "+PONG\r\n");
}

TRANSACTION_TEST(who_has_too_much_can_give_it_up)
{
    for (int way = 0; way < 4; way++) {
        static const char *const ways[] = {"DISCARD", "EXEC", "RESET"};
        begin_a_queue_near_the_limit(world);
        engine_reconfigure(world->engine, &(struct engine_options){.user_limits.bytes = 1000});
        assert_begins(world, 2, "PING", "-BUSY too many bytes");
        if (way < 3)
            assert_true(world_call(world, 1, ways[way])[0] != '-');
        else
            leave(world, 1);
        assert_says(world, 2, "PING", "+PONG\r\n");
    }
}

TRANSACTION_TEST(a_transaction_that_meets_the_daemons_end_is_not_queued_on)
{
    assert_says(world, 1, "MULTI\r\nFENCED 1 SET a x", "+OK\r\n" QUEUED);
    engine_drain(world->engine);
    assert_begins(world, 1, "FENCED 1 SET b x", "-BUSY the daemon is stopping");
}

TRANSACTION_TEST(min_and_max_themselves_are_in_range_and_sums_do_not_overflow)
{
    assert_says(world, 1, "FENCED 1 INCRBY a 3 MAX 3", ":3\r\n");
    assert_begins(world, 1, "FENCED 1 INCRBY a 1 MAX 3", "-RANGE ");
    assert_says(world, 1, "FENCED 1 DECRBY a 3 MIN 0", ":0\r\n");
    assert_begins(world, 1, "FENCED 1 DECRBY a 1 MIN 0", "-RANGE ");
    assert_says(world, 1, "FENCED 1 SET a 9223372036854775807", "+OK\r\n");
    assert_begins(world, 1, "FENCED 1 INCRBY a 1", "-ERR increment or decrement would overflow");
    assert_says(world, 1, "GET a", "$19\r\n9223372036854775807\r\n");
}

TRANSACTION_TEST(fencedall_presents_several_tokens)
{
    assert_says(world, 1, "FENCEDALL 2 a 1 b 1 MSET a x b y", "+OK\r\n");
    assert_says(world, 1, "MGET a b", "*2\r\n$1\r\nx\r\n$1\r\ny\r\n");
    assert_begins(world, 1, "FENCEDALL 1 a 1 MSET a 1 b 2", "-NOTOKEN ");
    assert_begins(world, 1, "FENCEDALL 2 a 1 b 2 SET a 1",
                  "-UNKNOWN "); /* not needed, yet judged */
    assert_says(world, 1, "FENCEDALL 2 a 1 b 1 DEL a b", ":2\r\n");
    assert_begins(world, 1, "FENCED 1 DEL a b", "-ERR ");
    assert_begins(world, 1, "FENCEDALL 2 a 1 b DEL a", "-ERR ");
    assert_begins(world, 1, "FENCEDALL 1 a 1", "-ERR ");
    assert_begins(world, 1, "FENCEDALL 1 a 1 SQL x", "-ERR "); /* the twin has none */
}

TRANSACTION_TEST(tokens_of_a_transaction_hold_for_all_its_commands)
{
    assert_says(world, 1, "MULTI\r\nFENCED 1 SET a x\r\nFENCEDALL 1 b 1 MSET a 1 b 2\r\nEXEC",
                "+OK\r\n" QUEUED QUEUED "*2\r\n+OK\r\n+OK\r\n");
    assert_begins(world, 1, "MULTI\r\nFENCEDALL 1 b 1 MSET a 3 b 4\r\nEXEC",
                  "+OK\r\n" QUEUED "-NOTOKEN ");
    assert_says(world, 1, "GET b", "$1\r\n2\r\n");
}

TRANSACTION_TEST(a_repeat_gets_the_first_reply)
{
    assert_says(world, 1, "FENCED 1 ID one INCRBY a 5", ":5\r\n");
    assert_says(world, 1, "FENCED 1 ID one INCRBY a 5", ":5\r\n");
    assert_begins(world, 1, "FENCED 1 ID one INCRBY a 6", "-ERR this ID was used");
    assert_says(world, 1, "FENCED 1 ID two INCRBY a 5", ":10\r\n");
    assert_says(world, 1, "RELEASE a 1", ":0\r\n");
    assert_says(world, 1, "FENCED 1 ID one INCRBY a 5", ":5\r\n"); /* stale by now */
    assert_says(world, 1, "ACQUIRE a 1000", GRANT(2, 1000));
    assert_says(world, 1, "FENCED 2 ID one INCRBY a 5", ":5\r\n"); /* another token */
    assert_begins(world, 1, "FENCED 1 ID three INCRBY a 5", "-STALE ");
    assert_says(world, 1, "FENCED 2 ID three INCRBY a 5",
                ":15\r\n"); /* a refusal leaves no trace */
    assert_says(world, 1, "GET a", "$2\r\n15\r\n");
    assert_int_equal(world_counter(world, "receipts_replayed"), 4);
}

TRANSACTION_TEST(a_refused_write_may_be_tried_again)
{
    assert_begins(world, 1, "FENCED 1 ID x DECRBY a 1 MIN 0", "-RANGE ");
    assert_says(world, 1, "RECEIPT a 1 x", NIL);
    assert_says(world, 1, "FENCED 1 SET a 3", "+OK\r\n");
    assert_says(world, 1, "FENCED 1 ID x DECRBY a 1 MIN 0", ":2\r\n");
    assert_says(world, 1, "RECEIPT a 1 x", "*2\r\n:1\r\n:2\r\n");
}

TRANSACTION_TEST(a_transactions_id_belongs_to_all_its_resources)
{
    const char *sale = "MULTI\r\nFENCED 1 ID s INCR a\r\nFENCED 1 INCR b\r\nEXEC";
    const char *again = "MULTI\r\nFENCED 2 ID s INCR a\r\nFENCED 1 INCR b\r\nEXEC";
    const char *reply = "+OK\r\n" QUEUED QUEUED "*2\r\n:1\r\n:1\r\n";

    assert_says(world, 1, sale, reply);
    assert_says(world, 1, sale, reply);
    assert_says(world, 1, "RELEASE a 1", ":0\r\n");
    assert_says(world, 1, "ACQUIRE a 1000", GRANT(2, 1000));
    assert_says(world, 1, again, reply);
    assert_says(world, 1, "RECEIPT b 1 s", "*2\r\n:1\r\n*2\r\n:1\r\n:1\r\n");
    assert_begins(world, 1, "FENCED 1 ID s INCR b", "-ERR this ID was used");
    assert_says(world, 1, "MGET a b", "*2\r\n$1\r\n1\r\n$1\r\n1\r\n");
    assert_begins(world, 1, "MULTI\r\nFENCED 2 ID s INCR a\r\nFENCED 1 ID t INCR b",
                  "+OK\r\n" QUEUED "-ERR a transaction has one ID");
}

/* Each resource's goes with that resource's own token. */
TRANSACTION_TEST(receipts_of_a_transaction_under_unequal_tokens_last_as_long_as_each_token)
{
    assert_says(world, 1, "RELEASE b 1", ":0\r\n");
    assert_says(world, 1, "ACQUIRE b 1000", GRANT(2, 1000));
    assert_says(world, 1, "MULTI\r\nFENCED 1 ID s INCR a\r\nFENCED 2 INCR b\r\nEXEC",
                "+OK\r\n" QUEUED QUEUED "*2\r\n:1\r\n:1\r\n");
    assert_says(world, 1, "RELEASE a 1", ":0\r\n");
    world_pass(world, 65000);
    assert_begins(world, 1, "RECEIPT a 1 s", "-EXPIRED ");
    assert_says(world, 1, "RECEIPT b 2 s", "*2\r\n:1\r\n*2\r\n:1\r\n:1\r\n"); /* 2 is live */
    assert_says(world, 1, "RELEASE b 2", ":0\r\n");
    world_pass(world, 65000);
    assert_begins(world, 1, "RECEIPT b 2 s", "-EXPIRED ");
    assert_int_equal(world_counter(world, "receipts_removed"), 2);
}

/* The key is among the command's words; what else was presented is not. */
TRANSACTION_TEST(an_id_belongs_to_the_resources_that_were_presented)
{
    assert_says(world, 1, "ACQUIRE c 1000", GRANT(1, 1000));
    assert_says(world, 1, "FENCEDALL 2 a 1 b 1 ID x INCR a", ":1\r\n");
    assert_begins(world, 1, "FENCEDALL 2 a 1 c 1 ID x INCR a", "-ERR this ID was used");
    assert_begins(world, 1, "FENCED 1 ID x INCR a", "-ERR this ID was used");
    assert_says(world, 1, "FENCEDALL 2 a 1 b 1 ID x INCR a", ":1\r\n");
}

TRANSACTION_TEST(receipts_tell_what_became_of_a_request)
{
    assert_says(world, 1, "RECEIPT a 1 x", NIL); /* it still could be */
    assert_begins(world, 1, "RECEIPT a 2 x", "-UNKNOWN ");
    assert_begins(world, 1, "RECEIPT c 1 x", "-UNKNOWN ");
    assert_says(world, 1, "RELEASE a 1", ":0\r\n");
    assert_says(world, 1, "RECEIPT a 1 x", "*2\r\n:0\r\n" NIL);
    world_pass(world, 59000); /* receipts are kept for 60 s */
    assert_says(world, 1, "RECEIPT a 1 x", "*2\r\n:0\r\n" NIL);
    world_pass(world, 2000);
    assert_begins(world, 1, "RECEIPT a 1 x", "-EXPIRED ");
}

TRANSACTION_TEST(receipts_go_when_their_token_is_long_gone)
{
    assert_says(world, 1, "FENCED 1 ID x SET a 1", "+OK\r\n");
    assert_says(world, 1, "FENCED 1 ID y SET b 1", "+OK\r\n");
    assert_says(world, 1, "RELEASE a 1", ":0\r\n");
    world_pass(world, 59000);
    assert_says(world, 1, "RECEIPT a 1 x", "*2\r\n:1\r\n+OK\r\n");
    world_pass(world, 5000);
    assert_begins(world, 1, "RECEIPT a 1 x", "-EXPIRED ");
    assert_says(world, 1, "RECEIPT b 1 y", "*2\r\n:1\r\n+OK\r\n"); /* its token is not retired */
    assert_int_equal(world_counter(world, "receipts_removed"), 1);
}

/* Of a row that was cleaned up only the floor is left: its token is not one that never was. */
TEST(a_receipt_of_a_forgotten_resource_may_have_been_removed)
{
    struct world *world =
        world_new(&(struct engine_options){.receipts_keep_ms = 1000, .forget_ms = 1000});

    assert_says(world, 1, "ACQUIRE r 1000", GRANT(1, 1000));
    assert_says(world, 1, "RELEASE r 1", ":0\r\n");
    assert_begins(world, 1, "ACQUIRE last 1000", "*2\r\n");
    for (int i = 0; i < 2; i++) { /* rows are looked at every ten minutes */
        world->now_ms += 11 * 60 * 1000;
        world_settle(world);
    }
    assert_says(world, 1, "LEASE r", NIL);
    assert_begins(world, 1, "RECEIPT r 1 x", "-EXPIRED ");
    assert_begins(world, 1, "RECEIPT r 2 x", "-UNKNOWN ");
    world_free(world);
}

TRANSACTION_TEST(a_reply_too_large_for_a_receipt_is_refused_before_it_counts)
{
    assert_string_equal(call_large(world, 1, "FENCED 1 SET a", 70000), "+OK\r\n");
    assert_begins(world, 1, "FENCED 1 ID x GETDEL a", "-ERR the reply is too large");
    assert_says(world, 1, "STRLEN a", ":70000\r\n");
    assert_says(world, 1, "RECEIPT a 1 x", NIL);
}

TRANSACTION_TEST(a_receipt_is_read_in_the_readers_protocol)
{
    world_call(world, 1, "HELLO 3");
    assert_says(world, 1, "FENCED 1 ID x SET a 1 GET", "_\r\n");
    assert_says(world, 2, "FENCED 1 ID x SET a 1 GET", NIL);
    assert_says(world, 2, "RECEIPT a 1 x", "*2\r\n:1\r\n" NIL);
    assert_says(world, 1, "RECEIPT a 1 x", "*2\r\n:1\r\n_\r\n");
}
