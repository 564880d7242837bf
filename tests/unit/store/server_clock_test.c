/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a store in PostgreSQL: jumps of the server's clock are seen, and no age is told too
 * large. Both clocks are the test's. */
#include "store/server_clock.h"

#include "tests/unit/test.h"

static const int64_t HOUR_MS = 3600000;

struct server {
    struct server_clock clock;
    int64_t here_ms;  /* clock_monotonic's */
    int64_t ahead_ms; /* the server's, before it */
    int64_t number;
    int64_t since_ms;
};

static int setup(void **state)
{
    static struct server server;

    server = (struct server){.here_ms = 1000, .ahead_ms = 1700000000000, .number = 3};
    server_clock_init(&server.clock);
    *state = &server;
    return 0;
}

static int teardown(void **state)
{
    server_clock_destroy(&((struct server *)*state)->clock);
    return 0;
}

#define CLOCK_TEST(name) TEST_WITH(setup, teardown, struct server *server, name)

static int64_t now(const struct server *server)
{
    return server->here_ms + server->ahead_ms;
}

/* A trip of so long, in the middle of which the server reads its clock. */
static struct server_clock_look look(struct server *server, int64_t trip_ms)
{
    struct server_clock_look look = {.number = server->number, .sent_ms = server->here_ms};

    look.now_ms = now(server) + trip_ms / 2;
    server->here_ms += trip_ms;
    look.got_ms = server->here_ms;
    return look;
}

static bool agrees(struct server *server, int64_t trip_ms)
{
    const struct server_clock_look at = look(server, trip_ms);
    return server_clock_look(&server->clock, &at, &server->since_ms);
}

static int64_t error_ms(struct server *server, bool known)
{
    const struct server_clock_look at = look(server, 2);
    int64_t error;

    assert_int_equal(server_clock_error_ms(&server->clock, &at, &error), known);
    return error;
}

static int64_t age_ms(const struct server *server, int64_t dated_ms)
{
    return server_clock_age_ms(now(server), server->since_ms, dated_ms);
}

CLOCK_TEST(time_that_passes_is_no_jump)
{
    for (int i = 0; i < 1000; i++) {
        assert_true(agrees(server, i % 7));
        server->here_ms += HOUR_MS;
    }
    assert_true(agrees(server, 5000)); /* a trip that took its time */
    assert_true(agrees(server, 2));
}

CLOCK_TEST(a_jump_is_seen_either_way_and_its_size_told)
{
    assert_true(agrees(server, 2));
    for (int way = -1; way <= 1; way += 2) {
        server->ahead_ms += way * HOUR_MS;
        assert_false(agrees(server, 2));
        assert_false(agrees(server, 2)); /* what was seen is forgotten */
        assert_in_range(error_ms(server, true) - way * HOUR_MS + 10, 0, 20);
        server->ahead_ms -= way * HOUR_MS;
        assert_true(agrees(server, 2));
    }
}

CLOCK_TEST(small_jumps_are_seen_when_together_they_are_large)
{
    assert_true(agrees(server, 2));
    server->ahead_ms += 400;
    assert_true(agrees(server, 2));
    server->ahead_ms += 400;
    assert_false(agrees(server, 2));
}

CLOCK_TEST(a_jump_in_a_long_trip_is_seen_by_the_next_short_one)
{
    assert_true(agrees(server, 2));
    server->ahead_ms += 1500;
    assert_true(agrees(server, 4000)); /* it might have been the network */
    assert_false(agrees(server, 2));
}

CLOCK_TEST(what_was_dated_before_the_first_look_counts_from_there)
{
    assert_true(agrees(server, 0));
    int64_t dated_ms = now(server) - HOUR_MS;

    assert_int_equal(age_ms(server, dated_ms), 0);
    server->here_ms += 10000;
    assert_int_equal(age_ms(server, dated_ms), 10000 - SERVER_CLOCK_JUMP_MS);
    assert_int_equal(age_ms(server, now(server) - 3000), 3000 - SERVER_CLOCK_JUMP_MS);
    assert_int_equal(age_ms(server, now(server) + HOUR_MS), 0); /* by a clock that was ahead */
}

CLOCK_TEST(what_was_dated_before_a_correction_counts_from_there)
{
    assert_true(agrees(server, 0));
    server->here_ms += HOUR_MS;
    int64_t dated_ms = now(server) - 10000;

    assert_true(agrees(server, 0));
    assert_int_equal(age_ms(server, dated_ms), 10000 - SERVER_CLOCK_JUMP_MS);
    server->number++; /* somebody has corrected it */
    server->ahead_ms += 700;
    assert_int_equal(error_ms(server, false), 0);
    assert_true(agrees(server, 0));
    assert_int_equal(age_ms(server, dated_ms), 0);
}

CLOCK_TEST(what_was_dated_by_another_server_counts_from_the_next_look)
{
    server_clock_of(&server->clock, BYTES_LITERAL("one"));
    assert_true(agrees(server, 0));
    server->here_ms += HOUR_MS;
    int64_t dated_ms = now(server) - 10000;

    server_clock_of(&server->clock, BYTES_LITERAL("one"));
    assert_true(agrees(server, 0));
    assert_int_equal(age_ms(server, dated_ms), 10000 - SERVER_CLOCK_JUMP_MS);
    server_clock_of(&server->clock, BYTES_LITERAL("another"));
    assert_true(agrees(server, 0));
    assert_int_equal(age_ms(server, dated_ms), 0);
}

CLOCK_TEST(a_correction_that_a_failover_has_lost_is_made_again)
{
    assert_true(agrees(server, 0));
    server->number--;
    server->ahead_ms += HOUR_MS;
    assert_false(agrees(server, 0));
    assert_in_range(error_ms(server, true) - HOUR_MS + 10, 0, 20);
}

CLOCK_TEST(an_old_correction_counts_once_it_is_said_so)
{
    assert_true(agrees(server, 0));
    server->number--; /* a backup was restored */
    assert_false(agrees(server, 0));
    const struct server_clock_look at = look(server, 0);
    server_clock_follow(&server->clock, &at);
    assert_true(agrees(server, 0));
}

/* The store's time and the wall clock here, since the note; by how much the first is wrong. */
static int64_t gap_error_ms(int64_t passed_ms, int64_t here_ms)
{
    const struct server_clock_note note = {.now_ms = HOUR_MS, .wall_ms = 5 * HOUR_MS};
    const struct server_clock_look look = {.now_ms = note.now_ms + passed_ms};

    return server_clock_gap_error_ms(&note, &look, note.wall_ms + here_ms);
}

TEST(where_nobody_was_at_work_the_shorter_time_is_believed)
{
    assert_int_equal(gap_error_ms(1000, 1000), 0);
    assert_int_equal(gap_error_ms(1000, HOUR_MS), 0); /* it may have been this clock */
    assert_int_equal(gap_error_ms(HOUR_MS, 1000), HOUR_MS - 1000);
    assert_int_equal(gap_error_ms(HOUR_MS, -HOUR_MS), HOUR_MS);
    assert_int_equal(gap_error_ms(-HOUR_MS, 1000), -HOUR_MS); /* time does not go back */
    assert_int_equal(gap_error_ms(1400, 1000), 0);
}

TEST(a_store_that_was_never_noted_has_the_servers_time)
{
    const struct server_clock_note none = {.now_ms = 0};
    const struct server_clock_look look = {.now_ms = HOUR_MS};

    assert_int_equal(server_clock_gap_error_ms(&none, &look, 7), 0);
}
