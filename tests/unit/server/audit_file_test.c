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

static bool sync_fails;
static off_t synced;

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
