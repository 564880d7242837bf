/* SPDX-License-Identifier: Apache-2.0 */
/* The password file, and the limit on open files. */
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proxy/server/process.h"
#include "tests/unit/test.h"

/* Return the password in a file with this content; NULL where the file is refused. */
static char *password_of(const char *content, size_t len)
{
    char path[] = "/tmp/stockade-password-XXXXXX", why[128] = "";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, len), len);
    close(fd);
    char *password = process_read_password(path, NULL, why, sizeof why);
    assert_true(password != NULL || strstr(why, "expected one line") != NULL);
    unlink(path);
    return password;
}

TEST(the_password_is_the_only_line)
{
    static const char *const right[] = {"correct horse", "correct horse\n", "correct horse\r\n"};
    static const char *const wrong[] = {"", "\n", "\r\n", "one\ntwo\n", "one\n\n"};
    char longest[514];

    for (size_t i = 0; i < 3; i++) {
        char *password = password_of(right[i], strlen(right[i]));
        assert_string_equal(password, "correct horse");
        free(password);
    }
    for (size_t i = 0; i < 5; i++)
        assert_null(password_of(wrong[i], strlen(wrong[i])));
    assert_null(password_of("a\0b\n", 4));
    memset(longest, 'x', sizeof longest);
    assert_null(password_of(longest, 513));
    char *password = password_of(longest, 512);
    assert_int_equal(strlen(password), 512);
    free(password);
}

TEST(a_missing_password_file_is_refused)
{
    char why[128];
    assert_null(process_read_password("/nonexistent/file", NULL, why, sizeof why));
    assert_string_equal(why, "No such file or directory");
}

/* The log goes through a pipe. */
TEST(a_password_that_others_can_read_is_warned_of)
{
    char path[] = "/tmp/stockade-password-XXXXXX", why[128], logged[512];
    int fd = mkstemp(path), pipe_fds[2];

    assert_int_equal(write(fd, "secret\n", 7), 7);
    assert_int_equal(pipe(pipe_fds), 0);
    struct log_file file = LOG_FILE(pipe_fds[1]);
    struct log log = {.level = LOG_INFO_LEVEL, .file = &file};
    for (int shared = 0; shared <= 1; shared++) {
        assert_int_equal(fchmod(fd, shared ? 0640 : 0600), 0);
        free(process_read_password(path, &log, why, sizeof why));
        log_info(&log, "end");
        ssize_t len = read(pipe_fds[0], logged, sizeof logged - 1);
        assert_true(len > 0);
        logged[len] = '\0';
        assert_int_equal(strstr(logged, path) != NULL, shared);
        assert_null(strstr(logged, "secret"));
    }
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    close(fd);
    unlink(path);
}

TEST(connections_are_cut_to_the_files_there_may_be)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(process_fit_connections(10, NULL), 10);
    size_t fit = process_fit_connections((size_t)1 << 40, NULL); /* more than any kernel allows */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(limit.rlim_cur, limit.rlim_max);
    assert_true(fit > 0 && fit < limit.rlim_cur);
}

/* The store, the lease service and admin HTTP need some files, too. */
TEST(a_limit_of_files_is_raised_by_more_than_the_connections)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    rlim_t most = limit.rlim_max, wanted = 512;
    if (most < 2048)
        skip();
    limit.rlim_cur = wanted;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(process_fit_connections(wanted, NULL), wanted);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(limit.rlim_cur, wanted + 768);
}

TEST(a_process_that_hides_its_memory_cannot_be_dumped_or_looked_into)
{
    pid_t child = fork();

    if (child == 0) {
        struct rlimit limit = {.rlim_cur = 1};
        getrlimit(RLIMIT_CORE, &limit);
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_CORE, &limit);
        process_hide_memory();
        getrlimit(RLIMIT_CORE, &limit);
        _exit(prctl(PR_GET_DUMPABLE) == 0 && limit.rlim_cur == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

TEST(passwords_of_uris_are_hidden_in_the_arguments_that_everybody_sees)
{
    char program[] = "stockaded", flag[] = "--lease", uri[] = "redis://ann:sesame@host:6379/0",
         joined[] = "--lease=redis://host?password=sesame", plain[] = "--store=sqlite:a@b.db";
    char *argv[] = {program, flag, uri, joined, plain, NULL};
    char **copy = process_take_arguments(5, argv);

    assert_string_equal(copy[2], "redis://ann:sesame@host:6379/0");
    assert_string_equal(copy[3], "--lease=redis://host?password=sesame");
    assert_null(copy[5]);
    assert_string_equal(uri, "redis://***@host:6379/0");
    assert_string_equal(joined, "--lease=redis://host?password=***");
    assert_string_equal(plain, "--store=sqlite:a@b.db");
    assert_string_equal(flag, "--lease");
    process_free_arguments(copy);
}
