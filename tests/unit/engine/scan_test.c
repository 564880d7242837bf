/* SPDX-License-Identifier: Apache-2.0 */
/* HSCAN, and SCAN beside it: pages of the size that was asked for, whatever the names; cursors that
 * every client can hold; and what is there all the time is returned, whatever goes meanwhile. */
#include "proxy/engine/command/cursors.h"
#include "proxy/engine/command/exec.h"
#include "tests/unit/engine/says.h"

enum { FIELDS = 300, COUNT = 7 };
#define SAFE_INTEGER_MAX ((INT64_C(1) << 53) - 1)

/* An iteration, page by page. */
struct iteration {
    int64_t cursor;
    int page, pages;
    int seen[FIELDS]; /* how often */
};

/* Names that begin alike for longer than any number can tell, and others. */
static const char *const names[] = {
    "order:2026-11-27:%d",
    "%d",
    "%064d",
    "an-order-of-a-customer-who-has-a-very-long-name-indeed-and-of-a-department:%d",
    "f%d:7f3a9c",
};

static void fill(struct world *world, const char *name)
{
    char line[200], field[100];

    for (int i = 0; i < FIELDS; i++) {
        snprintf(field, sizeof field, name, i);
        snprintf(line, sizeof line, "HSET h %s <%d>", field, i);
        assert_says(world, 1, line, ":1\r\n");
    }
}

static void take_page(struct world *world, struct iteration *all)
{
    char line[80];
    int i;

    snprintf(line, sizeof line, "HSCAN h %lld COUNT %d", (long long)all->cursor, COUNT);
    const char *reply = world_call(world, 1, line);
    assert_int_equal(sscanf(reply, "*2\r\n$%*d\r\n%lld", (long long *)&all->cursor), 1);
    assert_in_range(all->cursor, 0, SAFE_INTEGER_MAX);
    all->page = 0;
    all->pages++;
    for (const char *at = reply; (at = strchr(at, '<')) != NULL; at++) {
        assert_int_equal(sscanf(at, "<%d>", &i), 1);
        all->seen[i]++;
        all->page++;
    }
    assert_in_range(all->page, 0, COUNT);
}

static void assert_seen(const struct iteration *all, int times_max)
{
    for (int i = 0; i < FIELDS; i++)
        assert_in_range(all->seen[i], 1, times_max);
}

UNFENCED_TEST(hscan_keeps_to_its_count_whatever_the_names)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct iteration all = {0};
        fill(world, names[i]);
        do
            take_page(world, &all);
        while (all.cursor != 0);
        assert_seen(&all, 1);
        assert_int_equal(all.pages, (FIELDS + COUNT - 1) / COUNT);
        assert_says(world, 1, "DEL h", ":1\r\n");
    }
}

/* The field at which the next page begins goes, and others before and behind it. */
UNFENCED_TEST(what_goes_during_an_iteration_costs_no_other_field)
{
    struct iteration all = {0};
    char line[80];

    fill(world, "%03d");
    do {
        take_page(world, &all);
        for (int i = 0; i < FIELDS; i++)
            if (all.seen[i] == 0) {
                snprintf(line, sizeof line, "HDEL h %03d %03d", i, i / 2);
                all.seen[i] = all.seen[i / 2] = 1; /* need not be, any more */
                assert_begins(world, 1, line, ":");
                break;
            }
    } while (all.cursor != 0);
    assert_seen(&all, 2);
}

UNFENCED_TEST(an_iteration_goes_on_after_a_restart)
{
    struct iteration all = {0};

    fill(world, names[0]);
    do {
        take_page(world, &all);
        if (all.pages % 10 == 0)
            world_restart_engine(world, 1);
    } while (all.cursor != 0);
    assert_seen(&all, 1);
}

/* Nobody knows any more where it was. */
UNFENCED_TEST(an_iteration_begins_anew_where_its_field_went_during_a_restart)
{
    struct iteration all = {0};

    fill(world, "%03d");
    take_page(world, &all);
    world_restart_engine(world, 1);
    assert_says(world, 1, "HDEL h 007", ":1\r\n");
    all.seen[COUNT] = 1;
    do
        take_page(world, &all);
    while (all.cursor != 0);
    assert_seen(&all, 2);
}

UNFENCED_TEST(a_page_is_bounded_in_bytes_and_never_empty)
{
    char line[80];
    int64_t cursor = 0;
    int pages = 0;

    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line, "HSET h order:2026-11-27:%d", i);
        assert_string_equal(call_large(world, 1, line, SCAN_PAGE_BYTES_MAX * (i + 1) / 2),
                            ":1\r\n");
    }
    do {
        snprintf(line, sizeof line, "HSCAN h %lld", (long long)cursor);
        assert_int_equal(
            sscanf(world_call(world, 1, line), "*2\r\n$%*d\r\n%lld", (long long *)&cursor), 1);
        pages++;
    } while (cursor != 0);
    assert_int_equal(pages, 3);
}

TEST(so_many_cursors_are_remembered_and_the_oldest_one_goes)
{
    enum { CURSORS_MAX = 1024 };
    struct cursors *cursors = cursors_new();
    struct buf field = {0};
    char name[20];

    for (int i = 0; i <= CURSORS_MAX; i++) {
        int len = snprintf(name, sizeof name, "f%d", i);
        struct bytes bytes = {name, (size_t)len};
        assert_false(cursors_find(cursors, cursor_of(bytes), &field));
        assert_int_equal(cursors_note(cursors, bytes), cursor_of(bytes));
        assert_in_range(cursor_of(bytes), 1, SAFE_INTEGER_MAX);
        if (i == CURSORS_MAX - 1)
            assert_true(cursors_find(cursors, cursor_of(bytes_of("f0")), &field));
    }
    assert_true(bytes_equal(buf_bytes(&field), bytes_of("f0")));
    buf_clear(&field);
    assert_false(cursors_find(cursors, cursor_of(bytes_of("f0")), &field));
    assert_true(cursors_find(cursors, cursor_of(bytes_of("f1")), &field));
    assert_true(bytes_equal(buf_bytes(&field), bytes_of("f1")));
    buf_free(&field);
    cursors_free(cursors);
}
