/* SPDX-License-Identifier: Apache-2.0 */
/* A story as sentences and as a picture. */
#include <time.h>

#include "tests/unit/test.h"
#include "tools/why/lane.h"
#include "tools/why/tell.h"

/* 2026-01-31 12:00:00 UTC */
#define NOON_MS INT64_C(1769860800000)

static void set_text(struct buf *buf, const char *text)
{
    buf_append_text(buf, text);
}

static void add_hold(struct story *story, int64_t token, const char *client, int64_t from_ms,
                     int64_t to_ms, const char *end)
{
    struct hold *hold = story_add_hold(story);

    hold->token = token;
    hold->granted_ms = NOON_MS + from_ms;
    hold->ttl_ms = 200;
    hold->ended_ms = to_ms < 0 ? STORY_NONE : NOON_MS + to_ms;
    hold->writes = 1;
    set_text(&hold->owner, "o");
    set_text(&hold->client, client);
    set_text(&hold->address, client);
    set_text(&hold->end, end);
}

static struct refusal *add_refusal(struct story *story, int64_t token, const char *client,
                                   int64_t time_ms, int64_t late_ms)
{
    struct refusal *refusal = story_add_refusal(story);

    refusal->token = token;
    refusal->time_ms = NOON_MS + time_ms;
    refusal->late_ms = late_ms;
    refusal->newest = token + 1;
    set_text(&refusal->resource, "sku:42");
    set_text(&refusal->code, "STALE");
    set_text(&refusal->command, "SET");
    set_text(&refusal->client, client);
    set_text(&refusal->address, client);
    set_text(&refusal->ended, "expired");
    set_text(&refusal->newest_owner, "o");
    set_text(&refusal->newest_address, "10.0.0.2:1");
    return refusal;
}

/* Ann is paused past her TTL, Ben sells meanwhile, and holds it now again. */
static struct story ann_and_ben(void)
{
    struct story story = {.resource = "sku:42",
                          .now_ms = NOON_MS + 1000,
                          .is_leased = true,
                          .is_held = true,
                          .token = 3,
                          .left_ms = 100,
                          .waiters = 1};

    set_text(&story.owner, "o");
    add_hold(&story, 1, "ann", 0, 200, "expired");
    add_hold(&story, 2, "ben", 200, 300, "released");
    add_hold(&story, 3, "ben", 900, -1, "");
    (void)add_refusal(&story, 1, "ann", 500, 300);
    return story;
}

static char *text_of(struct buf *out)
{
    buf_append(out, "", 1);
    return out->data;
}

static int at_utc(void **state)
{
    (void)state;
    (void)setenv("TZ", "UTC", 1);
    tzset();
    return 0;
}
AROUND_ALL_TESTS(at_utc, NULL);

TEST(the_summary_tells_the_state_and_how_late_a_refusal_was)
{
    struct story story = ann_and_ben();
    struct buf out = {0};

    tell_summary(&out, &story);
    assert_string_equal(
        text_of(&out), "\"sku:42\": held by \"o\" (client \"ben\", ben) under token 3 for 100 ms, "
                       "100 ms left, 1 is waiting; "
                       "3 leases and 1 refused command (300 ms late) since 2026-01-31 12:00:00.\n");
    buf_free(&out);
    story_free(&story);
}

TEST(holds_and_refusals_are_told_in_order_of_time)
{
    struct story story = ann_and_ben();
    struct buf out = {0};

    tell_events(&out, &story);
    assert_string_equal(
        text_of(&out),
        "2026-01-31 (UTC+0000)\n"
        "  12:00:00.000  \"o\" (client \"ann\", ann) got token 1 for 200 ms, it expired after 200 "
        "ms;"
        " 1 write.\n"
        "  12:00:00.200  \"o\" (client \"ben\", ben) got token 2 for 200 ms, released it after"
        " 100 ms; 1 write.\n"
        "  12:00:00.500  Refused: SET by \"ann\" (ann) with token 1 (STALE), 300 ms after its lease"
        " had expired. Token 2 of \"o\" (10.0.0.2:1) had overtaken it.\n"
        "  12:00:00.900  \"o\" (client \"ben\", ben) got token 3 for 200 ms, holds it still, for"
        " 100 ms now; 1 write.\n");
    buf_free(&out);
    story_free(&story);
}

TEST(what_is_not_known_is_not_told)
{
    struct story story = {.resource = NULL, .log = "night.log", .now_ms = STORY_NONE};
    struct refusal *refusal = add_refusal(&story, 7, "", 86400000, STORY_NONE);
    struct buf out = {0};

    refusal->newest = STORY_NONE;
    refusal->granted_ms = STORY_NONE;
    tell_events(&out, &story);
    assert_string_equal(text_of(&out), "2026-02-01 (UTC+0000)\n  12:00:00.000  Refused: SET of "
                                       "\"sku:42\" by somebody with token 7 (STALE).\n");
    buf_free(&out);
    story_free(&story);
}

TEST(a_newest_token_that_is_its_own_was_overtaken_by_nobody)
{
    struct story story = {.resource = "sku:42"};
    struct buf out = {0};

    add_refusal(&story, 7, "ann", 0, 5)->newest = 7;
    tell_events(&out, &story);
    assert_non_null(strstr(text_of(&out), "Nobody had overtaken it."));
    buf_free(&out);
    story_free(&story);
}

TEST(an_owner_that_the_daemon_made_up_is_not_told)
{
    struct story story = {.resource = "sku:42"};
    struct buf out = {0};

    for (int i = 0; i < 2; i++) {
        add_hold(&story, i + 1, i == 0 ? "ann" : "", 0, 200, "released");
        buf_clear(&story.holds[i].owner);
        set_text(&story.holds[i].owner, "00ce8cd0ea711b5130542d051feb44b7");
    }
    set_text(&story.holds[1].address, "10.0.0.1:1");
    tell_events(&out, &story);
    lane_draw(&out, &story, 80, false);
    assert_non_null(strstr(text_of(&out), "  \"ann\" (ann) got token 1"));
    assert_non_null(strstr(out.data, "  10.0.0.1:1 got token 2"));
    assert_null(strstr(out.data, "00ce"));
    buf_free(&out);
    story_free(&story);
}

TEST(no_byte_of_a_name_reaches_the_terminal_as_it_is)
{
    struct story story = {.resource = "\033[2J"};
    struct buf out = {0};

    add_hold(&story, 1, "\033]0;x\007\n", 0, 200, "expired\033");
    const char turned[] = {'\xe2', '\x80', '\xae', '\x9b', '\0'}; /* U+202E turns what follows */
    struct refusal *refusal = add_refusal(&story, 1, turned, 500, 300);
    set_text(&refusal->command, "\033");
    set_text(&refusal->code, "\033");
    set_text(&refusal->newest_owner, "\r");
    set_text(&refusal->newest_address, "\r");
    tell_summary(&out, &story);
    tell_events(&out, &story);
    lane_draw(&out, &story, 80, false);
    for (size_t i = 0; i < out.len; i++)
        assert_true(out.data[i] == '\n' || (out.data[i] >= ' ' && out.data[i] < 127));
    buf_free(&out);
    story_free(&story);
}

TEST(the_lane_has_bars_for_holds_and_crosses_for_refusals)
{
    struct story story = ann_and_ben();
    struct buf out = {0};

    lane_draw(&out, &story, 25, false);
    assert_string_equal(text_of(&out), "ann  ####      x\n"
                                       "ben      ##            ##\n"
                                       "     +------------------+\n"
                                       "     12:00:00.000\n");
    buf_clear(&out);
    lane_draw(&out, &story, 25, true);
    assert_non_null(strstr(text_of(&out), "ann  \u2588\u2588\u2588\u2588 "));
    assert_non_null(strstr(out.data, "\u00d7"));
    buf_free(&out);
    story_free(&story);
}

TEST(the_lane_is_never_wider_than_the_terminal)
{
    struct story story = ann_and_ben();

    add_hold(&story, 4, "a name that is much longer than the terminal is wide", 950, 960, "taken");
    for (size_t width = 1; width < 250; width++) {
        struct buf out = {0};
        size_t column = 0;
        lane_draw(&out, &story, width, false);
        for (size_t i = 0; i < out.len; i++) {
            column = out.data[i] == '\n' ? 0 : column + 1;
            assert_true(column <= width);
        }
        assert_true(width < 40 || out.len > 0);
        buf_free(&out);
    }
    story_free(&story);
}

TEST(of_many_rows_those_that_were_refused_are_shown)
{
    struct story story = {.resource = "sku:42", .now_ms = NOON_MS + 100000};
    struct buf out = {0};
    char client[16];

    for (int i = 0; i < 50; i++) {
        (void)snprintf(client, sizeof client, "client%02d", i);
        add_hold(&story, i + 1, client, 1000 * i, 1000 * i + 200, "released");
    }
    (void)add_refusal(&story, 4, "client03", 60000, 300);
    lane_draw(&out, &story, 80, false);
    assert_non_null(strstr(text_of(&out), "client03"));
    assert_null(strstr(out.data, "client04"));
    assert_non_null(strstr(out.data, "client49"));
    assert_non_null(strstr(out.data, "39 others"));
    assert_non_null(strchr(strstr(out.data, "client03"), 'x'));
    buf_free(&out);
    story_free(&story);
}

TEST(a_clock_that_was_set_back_breaks_nothing)
{
    struct story story = {.resource = "sku:42"};
    struct buf out = {0};

    add_hold(&story, 1, "ann", 1000, 200, "released");
    add_hold(&story, 2, "ben", -NOON_MS, 100, "released");
    lane_draw(&out, &story, 80, false);
    tell_events(&out, &story);
    assert_non_null(strstr(text_of(&out), "ann"));
    buf_free(&out);
    story_free(&story);
}

TEST(a_time_that_nobody_can_mean_is_missing)
{
    struct refusal refusal = {.token = 0};

    for (size_t i = 0; i < REFUSAL_FIELDS; i++)
        if (!refusal_fields[i].is_text)
            story_set_number(&refusal, &refusal_fields[i], INT64_MAX);
    assert_true(refusal.time_ms == 0 && refusal.late_ms == STORY_NONE);
    assert_true(refusal.token == INT64_MAX && refusal.newest == INT64_MAX);
}

TEST(only_the_newest_refusals_are_kept)
{
    struct story story = {.resource = NULL};

    for (int i = 0; i < 10; i++)
        (void)add_refusal(&story, i, "ann", i, 1);
    story_keep_refusals(&story, 3);
    assert_int_equal(story.refusals_count, 3);
    assert_int_equal(story.refusals[0].token, 7);
    assert_int_equal(story.left_out, 7);
    (void)add_refusal(&story, 10, "ann", 10, 1);
    assert_int_equal(story.refusals[3].token, 10);
    story_free(&story);
}
