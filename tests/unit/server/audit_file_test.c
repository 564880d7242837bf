/* SPDX-License-Identifier: Apache-2.0 */
/* The audit's file on a disk that fails. What a failed sync may do (take lines away, while the next
 * one succeeds) is done here by a sync of the test's own. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proxy/server/audit/file.h"
#include "proxy/server/audit/judge.h"
#include "tests/unit/folder.h"

static bool sync_fails, folder_fails;
static off_t synced;
static int folders_synced;

/* In place of the system's: only folders are synced by it. */
int fsync(int fd)
{
    struct stat status;

    assert_int_equal(fstat(fd, &status), 0);
    assert_true(S_ISDIR(status.st_mode));
    folders_synced += !folder_fails;
    errno = EIO;
    return folder_fails ? -1 : 0;
}

/* In place of the system's. */
int fdatasync(int fd)
{
    struct stat status;
    static const char lost[1] = "";
    char path[64];

    assert_int_equal(fstat(fd, &status), 0);
    if (!sync_fails) {
        synced = status.st_size;
        return 0;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(own >= 0);
    for (off_t at = synced; at < status.st_size; at++)
        assert_int_equal(pwrite(own, lost, 1, at), 1);
    close(own);
    errno = EIO;
    return -1;
}

static void add(struct audit_file *file, const char *reason)
{
    audit_file_add(file, 1700000000000,
                   &(struct audit_note){.event = AUDIT_GRANT, .reason = bytes_of(reason)});
}

/* A file in a folder of its own, with a line that is synced. */
static struct audit_file *begin_file(char folder[256], char path[300])
{
    char why[256];
    struct audit_opened opened;

    folder_make(folder, 256);
    snprintf(path, 300, "%s/audit.log", folder);
    struct audit_file *file = audit_file_open(path, NULL, 0, &opened, why, sizeof why);
    assert_non_null(file);
    add(file, "synced");
    assert_true(audit_file_write(file) && audit_file_sync(file));
    return file;
}

static struct judgement judge(const char *path)
{
    struct judge *judge = judge_new(NULL);
    char text[64 << 10];
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    judge_begin_file(judge, path);
    for (ssize_t len; (len = read(fd, text, sizeof text)) != 0;) {
        assert_true(len > 0);
        judge_read(judge, (struct bytes){text, (size_t)len});
    }
    close(fd);
    judge_end_file(judge, true);
    struct judgement result = *judge_end(judge);
    judge_free(judge);
    return result;
}

static long peak_kib(void)
{
    struct rusage used;

    assert_int_equal(getrusage(RUSAGE_SELF, &used), 0);
    return used.ru_maxrss;
}

/* As where a crash has left zeros. */
TEST(bytes_without_the_end_of_a_line_take_no_memory)
{
    enum { TORN_BYTES = 256 << 20, LIMIT_KIB = 32 << 10 };
    char folder[256], path[300], why[256];
    struct audit_opened opened;
    struct audit_file *file = begin_file(folder, path);

    const int64_t whole = audit_file_size(file);
    audit_file_close(file);
    assert_int_equal(truncate(path, whole + TORN_BYTES), 0);
    const long before = peak_kib();
    file = audit_file_open(path, NULL, 0, &opened, why, sizeof why);
    assert_non_null(file);
    assert_int_equal(opened.torn_bytes, TORN_BYTES + 1);
    add(file, "behind it");
    assert_true(audit_file_write(file) && audit_file_sync(file));
    const struct judgement found = judge(path);
    assert_false(found.broken);
    assert_int_equal(found.torn, 1);
    assert_int_equal(found.head.lines, 4);
    assert_string_equal(found.head.hash.hex, audit_file_head(file).hash.hex);
    assert_in_range(peak_kib() - before, 0, LIMIT_KIB);
    audit_file_close(file);
    folder_remove(folder);
}

TEST(lines_that_a_failed_sync_has_lost_are_written_again)
{
    char folder[256], path[300];
    struct audit_file *file = begin_file(folder, path);

    for (int round = 0; round < 3; round++) {
        add(file, "lost");
        assert_true(audit_file_write(file));
        sync_fails = true;
        assert_false(audit_file_sync(file));
        assert_false(audit_file_is_written(file) || audit_file_is_synced(file));
        add(file, "behind it");
        assert_true(audit_file_write(file)); /* it is there, and lost once more */
        assert_false(audit_file_sync(file));
        sync_fails = false;
        assert_true(audit_file_write(file) && audit_file_sync(file));
        assert_true(audit_file_is_written(file) && audit_file_is_synced(file));
        assert_int_equal(audit_file_unsynced(file), 0);
        const struct judgement found = judge(path);
        assert_false(found.broken);
        assert_int_equal(found.head.lines, 4 + 2 * round);
        assert_string_equal(found.head.hash.hex, audit_file_head(file).hash.hex);
    }
    audit_file_close(file);
    folder_remove(folder);
}

/* Writing and reading have to agree on where a line ends. */

static enum audit_rotation rotate(struct audit_file *file, const char *path)
{
    char name[320], why[256];

    (void)path;
    return audit_file_rotate(file, name, sizeof name, why, sizeof why);
}

static enum audit_rotation reopen(struct audit_file *file, const char *path)
{
    char name[320], why[256];

    (void)path;
    return audit_file_reopen(file, name, sizeof name, why, sizeof why);
}

static enum audit_rotation reopen_elsewhere(struct audit_file *file, const char *path)
{
    char moved[320];

    snprintf(moved, sizeof moved, "%s.moved", path);
    assert_int_equal(rename(path, moved), 0);
    return reopen(file, path);
}

/* Whatever the way to a new file: until its name is on disk, none of its lines is. */
TEST(each_new_file_is_synced_with_its_name)
{
    enum audit_rotation (*const ways[])(struct audit_file *, const char *) = {rotate, reopen,
                                                                              reopen_elsewhere};
    char folder[256], path[300];
    int before = folders_synced;
    struct audit_file *file = begin_file(folder, path);

    assert_int_equal(folders_synced, ++before);
    for (size_t i = 0; i < 2 * sizeof ways / sizeof *ways; i++) {
        assert_int_equal(ways[i / 2](file, path), AUDIT_ROTATED);
        folder_fails = true;
        assert_true(audit_file_write(file));
        assert_false(audit_file_sync(file) || audit_file_is_synced(file));
        folder_fails = false;
        assert_true(audit_file_write(file) && audit_file_sync(file));
        assert_int_equal(folders_synced, ++before);
        add(file, "in a file that has its name");
        assert_true(audit_file_write(file) && audit_file_sync(file));
        assert_int_equal(folders_synced, before);
    }
    audit_file_close(file);
    folder_remove(folder);
}

static void put(const char *path, struct bytes text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text.data, text.len), text.len);
    close(fd);
}

static struct buf get(const char *path)
{
    struct buf text = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    for (ssize_t len; (len = read(fd, buf_reserve(&text, 4096), 4096)) > 0;)
        text.len += (size_t)len;
    close(fd);
    return text;
}

/* Start on what is there, and write a line. */
static struct audit_opened go_on(const char *path, const struct chain_head *known)
{
    char why[256];
    struct audit_opened opened;
    struct audit_file *file = audit_file_open(path, known, known != NULL, &opened, why, sizeof why);

    assert_non_null(file);
    add(file, "behind it");
    assert_true(audit_file_write(file) && audit_file_sync(file));
    const struct judgement found = judge(path);
    if (found.broken)
        fail_msg("%s", found.why);
    assert_string_equal(found.head.hash.hex, audit_file_head(file).hash.hex);
    assert_int_equal(found.head.lines, audit_file_head(file).lines);
    audit_file_close(file);
    return opened;
}

static size_t count_lines(struct bytes text)
{
    size_t lines = 0;

    for (size_t i = 0; i < text.len; i++)
        lines += text.data[i] == '\n';
    return lines;
}

/* Cut the file at each byte of its last two lines, and behind them. A crash may have left any of
 * these: who looks before the next start and who looks after it must find the same. But for one:
 * until then, torn bytes with the end of a line, where `but` says, may be a line of somebody's. */
static void cut_everywhere(const char *path, size_t but)
{
    struct buf whole = get(path);
    size_t from = whole.len, lines = 0;

    while (from > 0 && (lines += whole.data[from - 1] == '\n') <= 2)
        from--;
    for (size_t to = from; to <= whole.len; to++) {
        const bool ends = to == whole.len || whole.data[to] == '\n';
        const struct bytes text = {whole.data, to};
        put(path, text);
        const struct judgement before = judge(path);
        const size_t left = count_lines(text);
        const bool has_first = left > 0 || ends; /* a file without one begins anew */
        if (has_first && to != but && before.broken)
            fail_msg("cut at byte %zu of %zu: %s", to, whole.len, before.why);
        struct audit_opened opened = go_on(path, has_first ? &before.head : NULL);
        assert_int_equal(opened.is_new, !has_first);
        assert_string_equal(opened.mismatch, "");
        if (ends)
            assert_int_equal(opened.torn_bytes > 0, before.ends_torn);
    }
    put(path, buf_bytes(&whole));
    buf_free(&whole);
}

TEST(a_file_cut_at_any_byte_is_gone_on_with_and_is_whole)
{
    char folder[256], path[300];
    struct audit_file *file = begin_file(folder, path);

    audit_file_close(file);
    cut_everywhere(path, 0); /* its first line is one of the two */
    go_on(path, NULL);
    cut_everywhere(path, 0);
    folder_remove(folder);
}

/* A second crash, while the line is written that tells of the first one. */
TEST(a_line_that_tells_of_torn_bytes_may_be_torn_itself)
{
    char folder[256], path[300];
    struct audit_file *file = begin_file(folder, path);

    const int64_t size = audit_file_size(file);
    audit_file_close(file);
    assert_int_equal(truncate(path, size - 9), 0);
    go_on(path, NULL);
    struct buf text = get(path);
    const size_t behind = 1 + (size_t)((char *)memrchr(text.data, '\n', text.len - 1) - text.data);
    put(path, (struct bytes){text.data, behind}); /* the last line is the one that tells */
    buf_free(&text);
    assert_int_equal(judge(path).torn, 1);
    cut_everywhere(path, (size_t)size - 8);
    folder_remove(folder);
}

/* What is no torn line: somebody has changed it. A start does not make it good. */
TEST(a_changed_last_line_is_no_torn_one)
{
    char folder[256], path[300], why[256];
    struct audit_opened opened;
    struct audit_file *file = begin_file(folder, path);

    audit_file_close(file);
    struct buf text = get(path);
    char *prev = memmem(text.data + text.len - 80, 80, "\"prev\":\"", 8);
    assert_non_null(prev);
    prev[8] = prev[8] == 'a' ? 'b' : 'a';
    for (size_t cut = 0; cut < 2; cut++) { /* with its end and without */
        put(path, (struct bytes){text.data, text.len - cut});
        assert_true(judge(path).broken);
        file = audit_file_open(path, NULL, 0, &opened, why, sizeof why);
        assert_non_null(file);
        add(file, "behind it");
        assert_true(audit_file_write(file) && audit_file_sync(file));
        assert_true(judge(path).broken);
        audit_file_close(file);
    }
    buf_free(&text);
    folder_remove(folder);
}
