/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines, read back through a pipe. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fence/base/log.h"
#include "tests/unit/test.h"

struct fixture {
    int ends[2];
    struct log_file file;
    struct log log;
    char line[4096];
};

static int setup(void **state)
{
    static struct fixture fixture;

    assert_int_equal(pipe2(fixture.ends, O_CLOEXEC | O_NONBLOCK), 0);
    fixture.file = LOG_FILE(fixture.ends[1]);
    fixture.log = (struct log){.level = LOG_INFO_LEVEL, .file = &fixture.file};
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

FIXTURE_TEST(whatever_a_message_holds_it_is_one_line)
{
    log_warn(&f->log, "refuses: %s", "ERR no\r\n\x1b[2Jerror forged \xc3\xa9\x7f");
    assert_non_null(strstr(logged(f), " warn refuses: ERR no   [2Jerror forged \xc3\xa9 \n"));
    assert_int_equal(strcspn(f->line, "\n"), strlen(f->line) - 1);
    log_warn(&f->log, "refuses: %s", "\xc2\x9b\xe2\x80\xae\xe2\x80\xac\x9b\xc3");
    assert_non_null(strstr(logged(f), " warn refuses: ??????????\n"));
}

FIXTURE_TEST(a_json_line_is_an_object_with_time_level_message_and_fields)
{
    int end = 0, second;

    log_set_format(&f->log, LOG_JSON);
    log_fields(&f->log, LOG_WARN_LEVEL, BYTES_LITERAL("\"token\":7,\"late_ms\":20"), "%s",
               "\"a\" is \\ \n late");
    assert_int_equal(
        sscanf(logged(f), "{\"time\":\"%*d-%*d-%*dT%*d:%*d:%2d.%*dZ\",%n", &second, &end), 1);
    assert_string_equal(f->line + end,
                        "\"level\":\"warn\",\"message\":\"\\\"a\\\" is \\\\ \\u000a late\","
                        "\"token\":7,\"late_ms\":20}\n");
    log_info(&f->log, "no fields");
    assert_non_null(strstr(logged(f), ",\"message\":\"no fields\"}\n"));
    log_fields(&f->log, LOG_DEBUG_LEVEL, BYTES_LITERAL("\"x\":1"), "below the level");
    assert_string_equal(logged(f), "");
    log_set_format(&f->log, LOG_TEXT);
    log_fields(&f->log, LOG_INFO_LEVEL, BYTES_LITERAL("\"x\":1"), "as text");
    assert_non_null(strstr(logged(f), " info as text\n"));
}

FIXTURE_TEST(a_json_line_is_whole_however_long_it_is)
{
    char text[3000], fields[8000];

    log_set_format(&f->log, LOG_JSON);
    memset(text, '\n', sizeof text);
    text[sizeof text - 1] = '\0';
    memset(fields, '7', sizeof fields);
    memcpy(fields, "\"n\":", 4);
    log_fields(&f->log, LOG_ERROR_LEVEL, (struct bytes){fields, sizeof fields}, "%s", text);
    size_t len = 0;
    for (ssize_t got; (got = read(f->ends[0], f->line, sizeof f->line)) > 0; len += (size_t)got)
        if (len == 0)
            assert_int_equal(f->line[0], '{');
        else if (got < (ssize_t)sizeof f->line)
            assert_memory_equal(f->line + got - 3, "7}\n", 3);
    assert_in_range(len, sizeof fields + (size_t)6 * 1000, sizeof fields + (size_t)6 * 1024 + 100);
}

/* A pipe that nobody reads; it blocks, as the daemon's stderr does. */
FIXTURE_TEST(nobody_waits_for_a_log_that_is_not_read_and_it_says_what_was_lost)
{
    char all[1 << 17], text[1000];
    size_t lines = 0, lost;

    assert_int_equal(fcntl(f->ends[1], F_SETFL, 0), 0);
    memset(text, 'x', sizeof text);
    for (int format = LOG_TEXT; format <= LOG_JSON; format++) {
        uint64_t before = log_lines_lost(&f->log);
        size_t read_lines = 0;
        log_set_format(&f->log, (enum log_format)format);
        for (int i = 0; i < 200; i++)
            log_info(&f->log, "line %d %.*s", i, (int)sizeof text - 100, text);
        lost = (size_t)(log_lines_lost(&f->log) - before);
        assert_in_range(lost, 1, 199);
        for (ssize_t got; (got = read(f->ends[0], all, sizeof all)) > 0;)
            for (ssize_t i = 0; i < got; i++)
                read_lines += all[i] == '\n';
        assert_in_range(read_lines, 200 - lost, 200 - lost + 1);
        log_info(&f->log, "again");
        lines = sscanf(strstr(logged(f), "that could not be written before: "),
                       "that could not be written before: %zu", &lines) == 1
                    ? lines
                    : 0;
        assert_int_equal(lines, lost);
        log_info(&f->log, "and again");
        assert_null(strstr(logged(f), "could not be written"));
    }
}

/* A disk that is full takes a part of a line. */
FIXTURE_TEST(a_line_that_broke_off_is_ended_before_the_next_one)
{
    char path[] = "/tmp/stockade-log-XXXXXX", text[4096];
    struct rlimit before, tight;

    close(mkstemp(path));
    struct log_file file = LOG_FILE(log_file_open(path));
    struct log log = {.level = LOG_INFO_LEVEL, .file = &file};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = (struct rlimit){60, before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    log_info(&log, "first");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    log_info(&log, "a line that has no room in a file of so few bytes");
    log_info(&log, "nor has this one");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(log_lines_lost(&log), 2);
    log_info(&log, "last");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = read(fd, text, sizeof text - 1);
    assert_true(len > 60);
    text[len] = '\0';
    assert_int_equal(text[60], '\n');
    assert_non_null(strstr(text, " could not be written before: 2\n"));
    assert_non_null(strstr(text, " info last\n"));
    close(fd);
    close(file.fd);
    unlink(path);
}

FIXTURE_TEST(a_file_that_was_moved_away_is_opened_again)
{
    char path[] = "/tmp/stockade-log-XXXXXX", moved[64], text[256];

    close(mkstemp(path));
    struct log_file file = LOG_FILE(log_file_open(path));
    struct log log = {.level = LOG_INFO_LEVEL, .file = &file};
    snprintf(moved, sizeof moved, "%s.1", path);
    log_info(&log, "before");
    assert_int_equal(rename(path, moved), 0);
    assert_false(log_file_reopen(&file, "/nonexistent/log"));
    log_info(&log, "still there");
    assert_true(log_file_reopen(&file, path));
    log_info(&log, "after");
    for (int new = 0; new <= 1; new ++) {
        int fd = open(new ? path : moved, O_RDONLY | O_CLOEXEC);
        ssize_t len = read(fd, text, sizeof text - 1);
        text[len < 0 ? 0 : len] = '\0';
        assert_int_equal(strstr(text, " before\n") != NULL, !new);
        assert_int_equal(strstr(text, " still there\n") != NULL, !new);
        assert_int_equal(strstr(text, " after\n") != NULL, new);
        close(fd);
    }
    close(file.fd);
    unlink(path);
    unlink(moved);
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
