/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines, read back through a pipe. */
#include <fcntl.h>
#include <unistd.h>

#include "fence/base/log.h"
#include "tests/unit/test.h"

struct fixture {
    int ends[2];
    struct log log;
    char line[4096];
};

static int setup(void **state)
{
    static struct fixture fixture;

    assert_int_equal(pipe2(fixture.ends, O_CLOEXEC | O_NONBLOCK), 0);
    fixture.log = (struct log){LOG_INFO_LEVEL, fixture.ends[1]};
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    close(f->ends[0]);
    close(f->ends[1]);
    return 0;
}

#define FIXTURE_TEST(name) TEST_WITH(setup, teardown, struct fixture *f, name)

static const char *logged(struct fixture *f)
{
    ssize_t len = read(f->ends[0], f->line, sizeof f->line - 1);
    f->line[len < 0 ? 0 : len] = '\0';
    return f->line;
}

FIXTURE_TEST(a_line_has_time_level_and_text)
{
    int end = 0, year, month, day, hour, minute, second, millisecond;

    log_warn(&f->log, "lease service is down: %s", "connection refused");
    assert_int_equal(sscanf(logged(f), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %n", &year, &month, &day,
                            &hour, &minute, &second, &millisecond, &end),
                     7);
    assert_int_equal(end, 25);
    assert_true(year >= 2024);
    assert_string_equal(f->line + end, "warn lease service is down: connection refused\n");
}

FIXTURE_TEST(what_is_below_the_level_is_dropped)
{
    log_debug(&f->log, "small talk");
    assert_string_equal(logged(f), "");
    log_info(&f->log, "news");
    assert_non_null(strstr(logged(f), " info news\n"));
    f->log.level = LOG_ERROR_LEVEL;
    log_warn(&f->log, "smoke");
    assert_string_equal(logged(f), "");
    log_error(&f->log, "fire");
    assert_non_null(strstr(logged(f), " error fire\n"));
}

FIXTURE_TEST(no_logger_is_silence)
{
    log_error(NULL, "nobody hears %s", "this");
}

FIXTURE_TEST(a_line_that_is_too_long_is_cut_and_still_a_line)
{
    char text[3000];

    for (size_t len = 900; len < 1100; len++) {
        memset(text, 'x', len);
        text[len] = '\0';
        log_info(&f->log, "%s", text);
        size_t got = strlen(logged(f));
        assert_true(got <= 1024);
        assert_int_equal(f->line[got - 1], '\n');
        assert_int_equal(strcspn(f->line, "\n"), got - 1);
        assert_true(got == 1024 || got == 25 + 5 + len + 1 || got == 1023);
    }
}

FIXTURE_TEST(levels_are_parsed_by_name)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    enum log_level level;

    for (size_t i = 0; i < 4; i++) {
        assert_true(log_level_parse(names[i], &level));
        assert_int_equal(level, i);
    }
    assert_false(log_level_parse("", &level));
    assert_false(log_level_parse("INFO", &level));
    assert_false(log_level_parse("warning", &level));
}

FIXTURE_TEST(names_from_outside_are_quoted)
{
    char out[64];

    assert_string_equal(log_quoted(bytes_of("sku:1"), out, sizeof out), "\"sku:1\"");
    assert_string_equal(log_quoted((struct bytes){NULL, 0}, out, sizeof out), "\"\"");
    assert_string_equal(log_quoted(BYTES_LITERAL("a\0\n\"\\\x7f\xff~ "), out, sizeof out),
                        "\"a\\x00\\x0a\\x22\\x5c\\x7f\\xff~ \"");
}

FIXTURE_TEST(quoted_names_are_cut_to_fit)
{
    char name[200], out[256];

    memset(name, '\n', sizeof name);
    for (size_t size = 0; size < sizeof out; size++) {
        memset(out, '#', sizeof out);
        log_quoted((struct bytes){name, sizeof name}, out, size);
        for (size_t i = size; i < sizeof out; i++)
            assert_int_equal(out[i], '#'); /* nothing behind the end */
        if (size > 0)
            assert_true(strlen(out) < size);
        if (size >= 8) {
            assert_int_equal(out[0], '"');
            assert_string_equal(out + strlen(out) - 4, "...\"");
        }
    }
}
