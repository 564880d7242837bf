/* SPDX-License-Identifier: Apache-2.0 */
/* What is remembered of leases and refusals, in virtual time: how each ended, how late a refused
 * command was, who had overtaken it, and what makes room. */
#include "tests/unit/engine/says.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/json.h"
#include "proxy/engine/history/history.h"
#include "proxy/engine/internal.h"

TESTS_HAVE_ONE_THREAD

#define WALL_MS 1000000 /* of the world's clock at its beginning */

/* The i-th newest grant of the resource. */
static const struct history_grant *grant_at(struct world *world, const char *resource, size_t i)
{
    const struct history_grant *grant = history_grants(world->engine->history, bytes_of(resource));

    for (; i > 0 && grant != NULL; i--)
        grant = grant->older;
    assert_non_null(grant);
    return grant;
}

static void assert_ended(struct world *world, size_t i, enum history_end end, int64_t ended_ms)
{
    const struct history_grant *grant = grant_at(world, "k", i);

    assert_int_equal(grant->end, end);
    assert_int_equal(grant->ended_ms, end == HISTORY_RUNS ? 0 : WALL_MS + ended_ms);
}

static const struct history_refusal *last_refusal(struct world *world)
{
    const struct history_refusal *refusal = history_refusals(world->engine->history);
    assert_non_null(refusal);
    return refusal;
}

static void assert_text(struct bytes text, const char *expected)
{
    assert_true(bytes_equal(text, bytes_of(expected)));
}

EITHER_TEST(each_end_is_told_with_its_time)
{
    world_call(world, 1, "ACQUIRE k 1000 OWNER ann");
    assert_ended(world, 0, HISTORY_RUNS, 0);
    world_pass(world, 10);
    world_call(world, 1, "RELEASE k 1");
    assert_ended(world, 0, HISTORY_RELEASED, 10);
    world_call(world, 1, "ACQUIRE k 1000 OWNER bob");
    world_pass(world, 20);
    world_call(world, 2, "REVOKE k");
    assert_ended(world, 0, HISTORY_REVOKED, 30);
    world_call(world, 1, "ACQUIRE k 1000");
    world_pass(world, 5000); /* its end is noticed later than it was */
    assert_ended(world, 0, HISTORY_EXPIRED, 1030);
    world_call(world, 1, "ACQUIRE k 500 EPHEMERAL");
    leave(world, 1);
    assert_ended(world, 0, HISTORY_RELEASED, 5030);
    assert_int_equal(grant_at(world, "k", 3)->ttl_ms, 1000);
    assert_text(grant_at(world, "k", 3)->owner, "ann");
    assert_text(grant_at(world, "k", 3)->address, "test:1");
    assert_int_equal(grant_at(world, "k", 2)->granted_ms, WALL_MS + 10);
    assert_null(grant_at(world, "k", 3)->older);
}

EITHER_TEST(a_renewal_moves_the_end)
{
    world_call(world, 1, "ACQUIRE k 1000");
    world_pass(world, 900);
    world_call(world, 1, "RENEW k 1 1000");
    world_pass(world, 2000);
    assert_ended(world, 0, HISTORY_EXPIRED, 1900);
    assert_int_equal(grant_at(world, "k", 0)->ttl_ms, 1000);
}

WORLD_TEST(a_lease_that_the_service_gave_to_another_was_taken)
{
    world_call(world, 1, "ACQUIRE k 1000");
    world_pass(world, 100);
    lease_service_lose_all(world->service);
    world_call(world, 2, "ACQUIRE k 1000");
    assert_ended(world, 0, HISTORY_RUNS, 0);
    assert_ended(world, 1, HISTORY_TAKEN, 100);
}

WORLD_TEST(a_grant_that_nobody_could_receive_was_given_back)
{
    lease_service_set_late(world->service, 1200);
    world_send(world, 1, "ACQUIRE k 1000 OWNER ann");
    world_pass(world, 3000);
    lease_service_set_late(world->service, 0);
    assert_int_equal(grant_at(world, "k", 0)->end, HISTORY_GIVEN_BACK);
    assert_text(grant_at(world, "k", 0)->owner, "ann");
}

/* Its client leaves while the store writes it down. */
EITHER_TEST(a_grant_whose_client_is_gone_was_given_back)
{
    world_send_only(world, 1, "ACQUIRE k 60000 OWNER ann");
    world_step_store(world);
    world_pass(world, 30);
    world_call(world, 2, "PING");
    assert_null(grant_at(world, "k", 0)->older);
    world_call(world, 1, "RELEASE k 1");
    world_send_only(world, 1, "ACQUIRE k 60000 OWNER ann");
    world_step_store(world);
    leave(world, 1);
    assert_ended(world, 0, HISTORY_GIVEN_BACK, 30);
    assert_int_equal(grant_at(world, "k", 0)->token, 2);
    assert_ended(world, 1, HISTORY_RELEASED, 30);
}

/* The lease was somebody's before, and goes on. */
EITHER_TEST(entering_again_in_vain_is_no_end)
{
    world_call(world, 1, "ACQUIRE k 60000 OWNER ann");
    world_send_only(world, 2, "ACQUIRE k 60000 OWNER ann");
    world_step_store(world);
    leave(world, 2);
    assert_int_equal(world_counter(world, "leases_given_back"), 1);
    assert_null(grant_at(world, "k", 0)->older);
    assert_ended(world, 0, HISTORY_RUNS, 0);
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    assert_ended(world, 0, HISTORY_RELEASED, 0);
}

EITHER_TEST(entering_again_is_no_other_grant)
{
    world_call(world, 1, "ACQUIRE k 1000 OWNER ann");
    world_call(world, 2, "ACQUIRE k 1000 OWNER ann");
    assert_null(grant_at(world, "k", 0)->older);
    world_call(world, 2, "RELEASE k 1");
    assert_ended(world, 0, HISTORY_RUNS, 0);
}

EITHER_TEST(writes_that_were_applied_are_counted)
{
    world_call(world, 1, "ACQUIRE k 1000");
    world_call(world, 1, "ACQUIRE other 1000");
    world_call(world, 1, "FENCED 1 SET k 1");
    world_call(world, 2, "FENCED 1 ID x INCRBY k 1");
    world_call(world, 2, "FENCED 1 ID x INCRBY k 1");  /* a repeat */
    world_call(world, 1, "FENCED 1 DECRBY k 9 MIN 0"); /* RANGE */
    world_call(world, 1, "FENCED 1 GET k");
    world_call(world, 1, "FENCEDALL 2 k 1 other 1 MSET k 5 other 6");
    world_call(world, 1, "MULTI"), world_call(world, 1, "FENCED 1 SET other 1");
    world_call(world, 1, "FENCED 1 SET k 1"), world_call(world, 1, "FENCED 1 SET k 2");
    world_call(world, 1, "EXEC");
    world_call(world, 1, "SET other 1");
    assert_int_equal(grant_at(world, "k", 0)->writes, 5);
    assert_int_equal(grant_at(world, "other", 0)->writes, 2);
    assert_int_equal(grant_at(world, "k", 0)->refused, 0);
}

/* A session remembers by which grant it wrote last. */
EITHER_TEST(a_connection_that_changes_its_token_writes_under_the_new_one)
{
    for (int64_t token = 1; token <= 3; token++) {
        char line[64];
        world_call(world, 1, "ACQUIRE k 1000");
        for (int64_t i = 0; i < token; i++) {
            snprintf(line, sizeof line, "FENCED %d SET k 1", (int)token);
            assert_says(world, 2, line, "+OK\r\n");
        }
        world_call(world, 1, "REVOKE k");
    }
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(grant_at(world, "k", i)->writes, 3 - i);
}

EITHER_TEST(a_refusal_says_how_late_it_was_and_who_had_overtaken_it)
{
    world_call(world, 1, "CLIENT SETNAME till-3");
    world_call(world, 1, "ACQUIRE k 1000 OWNER ann");
    world_pass(world, 1250);
    world_call(world, 2, "ACQUIRE k 9000 OWNER bob");
    world_pass(world, 10);
    assert_begins(world, 1, "FENCED 1 SET k 1", "-STALE ");
    const struct history_refusal *refusal = last_refusal(world);
    assert_text(history_refusal_name(refusal), "k");
    assert_int_equal(refusal->token, 1);
    assert_int_equal(refusal->late_ms, 260);
    assert_int_equal(refusal->ended, HISTORY_EXPIRED);
    assert_int_equal(refusal->granted_ms, WALL_MS);
    assert_int_equal(refusal->time_ms, WALL_MS + 1260);
    assert_int_equal(refusal->newest, 2);
    assert_string_equal(refusal->command, "SET");
    assert_int_equal(refusal->code, STK_STALE);
    assert_text(refusal->client, "till-3");
    assert_text(refusal->address, "test:1");
    assert_text(refusal->newest_owner, "bob");
    assert_text(refusal->newest_address, "test:2");
    assert_int_equal(grant_at(world, "k", 1)->refused, 1);
    assert_int_equal(grant_at(world, "k", 0)->refused, 0);
    assert_int_equal(history_refused_hour(world->engine->history), 1);
}

EITHER_TEST(a_revoked_holder_has_no_successor)
{
    world_call(world, 1, "ACQUIRE k 1000 OWNER ann");
    world_call(world, 2, "REVOKE k");
    world_pass(world, 40);
    assert_begins(world, 1, "FENCED 1 SET k 1", "-STALE ");
    assert_int_equal(last_refusal(world)->late_ms, 40);
    assert_int_equal(last_refusal(world)->ended, HISTORY_REVOKED);
    assert_int_equal(last_refusal(world)->newest, 1);
    assert_text(last_refusal(world)->newest_owner, "");
}

/* Its successor was granted at another daemon, and the lease service has not told this one yet. */
WORLD_TEST(how_late_a_command_was_is_known_before_the_end_is_noticed)
{
    struct world *other = world_add_twin(world);

    world_call(world, 1, "ACQUIRE k 1000 OWNER ann");
    world->now_ms += 1300;
    world_send_only(other, 1, "ACQUIRE k 9000 OWNER bob");
    world_step_store(other);
    world_step_store(other);
    lease_service_set_late(world->service, 500);
    assert_begins(world, 1, "FENCED 1 SET k 1", "-STALE ");
    assert_ended(world, 0, HISTORY_RUNS, 0);
    assert_int_equal(last_refusal(world)->newest, 2);
    assert_int_equal(last_refusal(world)->late_ms, 300);
    assert_int_equal(last_refusal(world)->ended, HISTORY_EXPIRED);
    assert_text(last_refusal(world)->newest_owner, ""); /* the other daemon knows */
    lease_service_set_late(world->service, 0);
    world_pass(world, 1000);
}

EITHER_TEST(a_token_of_before_a_restart_is_refused_with_what_is_known)
{
    world_call(world, 1, "ACQUIRE k 1000 OWNER ann");
    world_restart_engine(world, 2000);
    world_call(world, 1, "ACQUIRE k 9000 OWNER bob");
    assert_begins(world, 2, "FENCED 1 SET k 1", "-STALE ");
    assert_int_equal(last_refusal(world)->late_ms, -1);
    assert_int_equal(last_refusal(world)->granted_ms, 0);
    assert_text(last_refusal(world)->newest_owner, "bob");
    assert_null(grant_at(world, "k", 0)->older);
}

EITHER_TEST(both_commands_reply_maps_in_resp3)
{
    world_call(world, 1, "ACQUIRE k 1000 OWNER ann");
    assert_begins(world, 1, "FENCED 9 SET k v", "-UNKNOWN ");
    assert_begins(world, 1, "SET k v", "-NOTOKEN ");
    world_call(world, 1, "HELLO 3");
    assert_begins(world, 1, "HISTORY k", "*1\r\n%12\r\n$5\r\ntoken\r\n:1\r\n$5\r\nowner\r\n");
    assert_non_null(strstr(world_call(world, 1, "HISTORY k"), "$8\r\nended_ms\r\n_\r\n"));
    assert_begins(world, 1, "REFUSALS MATCH ? COUNT 1", "*1\r\n%14\r\n$7\r\ntime_ms\r\n:");
    assert_begins(world, 1, "REFUSALS", "*2\r\n%14\r\n");
}

EITHER_TEST(what_is_not_known_of_a_refused_token_is_left_open)
{
    world_call(world, 1, "ACQUIRE k 1000");
    assert_begins(world, 1, "FENCED 7 SET k 1", "-UNKNOWN ");
    assert_int_equal(last_refusal(world)->late_ms, -1);
    assert_int_equal(last_refusal(world)->granted_ms, 0);
    assert_begins(world, 1, "SET k 1", "-NOTOKEN ");
    assert_int_equal(last_refusal(world)->token, 0);
    assert_text(history_refusal_name(last_refusal(world)), "k");
    assert_says(world, 1, "REFUSALS MATCH nothing*", "*0\r\n");
    assert_begins(world, 1, "REFUSALS COUNT 1",
                  "*1\r\n*28\r\n$7\r\ntime_ms\r\n:1000000\r\n$8\r\nresource\r\n$1\r\nk\r\n"
                  "$5\r\ntoken\r\n$-1\r\n$4\r\ncode\r\n$7\r\nNOTOKEN\r\n");
    assert_begins(world, 1, "HISTORY k", "*1\r\n*24\r\n$5\r\ntoken\r\n:1\r\n$5\r\nowner\r\n");
    assert_says(world, 1, "HISTORY none", "*0\r\n");
    assert_begins(world, 1, "HISTORY k COUNT 0", "-ERR COUNT");
    assert_begins(world, 1, "HISTORY k LAST 1", "-ERR syntax error");
    assert_begins(world, 1, "REFUSALS COUNT", "-ERR syntax error");
}

EITHER_TEST(refusals_leave_the_hour)
{
    struct history *history = world->engine->history;

    world_call(world, 1, "ACQUIRE k 1000");
    for (int i = 0; i < 3; i++) {
        world_call(world, 1, "SET k 1");
        world_pass(world, 20 * 60000);
    }
    assert_int_equal(history_refused_hour(history), 2);
    world_pass(world, 200 * 60000);
    assert_int_equal(history_refused_hour(history), 0);
}

/* By itself. */

struct fixture {
    struct clock clock;
    int64_t now_ms;
    struct history *history;
};

static int64_t now_of(const struct clock *clock)
{
    return *(const int64_t *)clock->context;
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);

    fixture->clock = (struct clock){.now_ms = now_of, .context = &fixture->now_ms};
    fixture->history = history_new(3, &fixture->clock);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    history_free(fixture->history);
    free(fixture);
    return 0;
}

/* What refers to a grant is static: it outlives the test, until the history is freed. */
#define HISTORY_TEST(name) TEST_WITH(setup, teardown, struct fixture *fixture, name)

static const struct history_client client = {BYTES_LITERAL("default"), BYTES_LITERAL("till"),
                                             BYTES_LITERAL("1.2.3.4:5")};

static void granted(struct fixture *fixture, struct bytes name, int64_t token,
                    struct history_grant **reference)
{
    history_granted(fixture->history, name, token, 1000, 1000, BYTES_LITERAL("ann"), client,
                    reference);
}

HISTORY_TEST(the_oldest_grant_makes_room_and_who_minds_it_learns)
{
    static struct history_grant *minded[5];

    for (int64_t i = 0; i < 5; i++) {
        struct bytes name = i % 2 == 0 ? bytes_of("even") : bytes_of("odd");
        granted(fixture, name, i + 1, &minded[i]);
        assert_ptr_equal(history_find(fixture->history, name, i + 1), minded[i]);
    }
    assert_int_equal(history_grants_count(fixture->history), 3);
    assert_true(minded[0] == NULL && minded[1] == NULL && minded[2] != NULL);
    assert_null(history_find(fixture->history, BYTES_LITERAL("odd"), 2));
    assert_non_null(history_find(fixture->history, BYTES_LITERAL("odd"), 4));
    assert_null(history_grants(fixture->history, BYTES_LITERAL("odd"))->older);
    history_ended(fixture->history, minded[0], HISTORY_RELEASED,
                  bytes_of("")); /* nothing happens */
    history_ended(fixture->history, minded[4], HISTORY_RELEASED, bytes_of(""));
    assert_null(minded[4]);
}

HISTORY_TEST(refusals_drive_out_no_grant)
{
    static struct history_grant *minded;

    granted(fixture, bytes_of("k"), 1, &minded);
    for (int i = 0; i < 50; i++)
        history_refused(fixture->history, bytes_of("k"), 1, 2, STK_STALE, "SET", client);
    assert_int_equal(history_refusals_count(fixture->history), 3);
    assert_non_null(minded);
    assert_int_equal(minded->refused, 50);
    assert_int_equal(history_refused_hour(fixture->history), 50);
}

HISTORY_TEST(long_names_make_room_earlier)
{
    char name[512];
    static struct history_grant *minded[3];

    memset(name, 'n', sizeof name);
    for (int64_t i = 0; i < 3; i++)
        granted(fixture, (struct bytes){name, sizeof name}, i + 1, &minded[i]);
    assert_int_equal(history_grants_count(fixture->history), 1);
    for (int i = 0; i < 3; i++)
        history_refused(fixture->history, (struct bytes){name, sizeof name}, 1, 2, STK_STALE, "SET",
                        client);
    assert_int_equal(history_refusals_count(fixture->history), 1);
}

/* Also of one that was taken back, whose reason is forgotten. */
HISTORY_TEST(a_reason_takes_room_for_as_long_as_its_entry_is_there)
{
    static char why[200];
    static struct history_grant *minded[50];
    struct bytes reason = {why, sizeof why};

    for (int64_t i = 0; i < 50; i++) {
        granted(fixture, bytes_of("k"), i + 1, &minded[i]);
        history_ended(fixture->history, minded[i], HISTORY_REVOKED, reason);
        if (i % 2 == 0)
            continue;
        assert_true(history_resumed(fixture->history, bytes_of("k"), i + 1, 1000, &minded[i]));
        history_ended(fixture->history, minded[i], HISTORY_RELEASED, bytes_of(""));
        assert_int_equal(history_grants_count(fixture->history), i == 1 ? 2 : 3);
    }
}

/* Even where it alone is more than there is room for. */
HISTORY_TEST(the_newest_entry_stays)
{
    static char owner[5000];
    static struct history_grant *first, *second;

    granted(fixture, bytes_of("k"), 1, &first);
    history_granted(fixture->history, bytes_of("k"), 2, 1000, 1000,
                    (struct bytes){owner, sizeof owner}, client, &second);
    assert_null(first);
    assert_int_equal(history_grants_count(fixture->history), 1);
    assert_int_equal(second->owner.len, sizeof owner);
    granted(fixture, bytes_of("k"), 3, &first);
    assert_null(second);
}

/* With `older` and with history_refusal_before, from the newest to the oldest that is left. */
HISTORY_TEST(refusals_are_told_from_the_newest)
{
    const struct history_refusal *refusal;

    for (int64_t i = 0; i < 7; i++)
        history_refused(fixture->history, i % 2 == 0 ? bytes_of("even") : bytes_of("odd"), i + 1, 9,
                        STK_STALE, "SET", client);
    refusal = history_refusals(fixture->history);
    for (int64_t token = 7; token >= 5; token--) {
        assert_int_equal(refusal->token, token);
        refusal = history_refusal_before(fixture->history, refusal);
    }
    assert_null(refusal);
    refusal = history_refusals_of(fixture->history, BYTES_LITERAL("even"));
    assert_int_equal(refusal->older->token, 5);
    assert_null(refusal->older->older);
    assert_null(history_refusals_of(fixture->history, BYTES_LITERAL("odd"))->older);
}

HISTORY_TEST(as_json_it_has_the_fields_of_the_commands)
{
    static struct history_grant *minded;
    struct buf json = {0};

    granted(fixture, bytes_of("k"), 1, &minded);
    history_wrote(minded, 2);
    assert_int_equal(history_taken(fixture->history, minded), HISTORY_TAKEN);
    fixture->now_ms = 1500;
    assert_int_equal(history_taken(fixture->history, minded), HISTORY_EXPIRED);
    history_ended(fixture->history, minded, HISTORY_EXPIRED, bytes_of(""));
    history_grant_json(&json, history_grants(fixture->history, bytes_of("k")));
    buf_append_text(&json, "");
    assert_string_equal(
        json.data,
        "\"token\":1,\"owner\":\"ann\",\"user\":\"default\",\"client\":\"till\","
        "\"address\":\"1.2.3.4:5\",\"granted_ms\":0,\"ttl_ms\":1000,"
        "\"ended_ms\":1000,\"end\":\"expired\",\"reason\":null,\"writes\":2,\"refused\":0");
    buf_free(&json);
    history_refused(fixture->history, bytes_of("k\""), 1, 2, STK_STALE, "SET", client);
    history_refusal_json(&json, history_refusals(fixture->history));
    buf_append_text(&json, "");
    assert_string_equal(json.data,
                        "\"time_ms\":1500,\"resource\":\"k\\\"\",\"token\":1,\"code\":\"STALE\","
                        "\"command\":\"SET\",\"user\":\"default\",\"client\":\"till\","
                        "\"address\":\"1.2.3.4:5\",\"granted_ms\":null,\"late_ms\":null,"
                        "\"ended\":null,\"newest\":2,\"newest_owner\":null,"
                        "\"newest_address\":null");
    buf_free(&json);
}
