/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/server/audit/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "fence/base/plain.h"

enum { PIECE_BYTES = 256 << 10, NUMBER_DIGITS = 12, ID_DIGITS = 8, TORN_START_MAX = 4096 };

struct audit_file {
    char *path;
    int fd;
    struct chain_hasher *hasher;
    struct chain_head head; /* with what is in `out` */
    uint64_t first;         /* the number of the first line in this file */
    int64_t size;           /* with what is in `out` */
    struct buf out;         /* made, and not synced yet */
    size_t out_written;     /* of it */
    bool synced, folder_synced;
    bool sync_failed; /* what was written since the last one that did not has to be written again */
};

/* Opening. */

/* What a file holds, from its beginning on. */
struct scan {
    struct chain_hasher *hasher, *torn_hasher;
    struct chain_head head;
    struct chain_hash torn; /* of what stands behind the last line */
    uint64_t first, torn_bytes;
    bool ended;                     /* the last byte is the end of a line */
    const struct chain_head *heads; /* that were seen before */
    size_t heads_count;
    const struct chain_head *known; /* that of this chain; NULL: there is none */
    bool is_another;                /* its line is another one */
    struct buf text;                /* the beginning of a line whose end has not come */
    bool overlong;                  /* that is too long to be one, and is not kept */
};

static void find_known(struct scan *scan)
{
    for (size_t i = 0; i < scan->heads_count; i++)
        if (strcmp(scan->heads[i].id, scan->head.id) == 0)
            scan->known = &scan->heads[i];
}

/* These bytes are no line. */
static void add_torn(struct scan *scan, struct bytes bytes)
{
    if (bytes.len == 0)
        return;
    if (scan->torn_bytes == 0)
        chain_hash_begin(scan->torn_hasher);
    chain_hash_add(scan->torn_hasher, bytes);
    scan->torn_bytes += bytes.len;
}

/* Take a line. False: the file does not begin as one of an audit. */
static bool add_line(struct scan *scan, struct bytes text, const struct chain_line *line)
{
    if (scan->first == 0) {
        if (!chain_line_begins(line, &scan->head, &scan->first))
            return false;
        find_known(scan);
    }
    scan->head.lines++;
    scan->head.hash = chain_hash_of(scan->hasher, text);
    if (scan->known != NULL && scan->known->lines == scan->head.lines)
        scan->is_another = strcmp(scan->known->hash.hex, scan->head.hash.hex) != 0;
    scan->torn_bytes = 0; /* it is told of already */
    return true;
}

/* Take the lines in `text`. False: the file does not begin as one of an audit. */
static bool scan_lines(struct scan *scan)
{
    struct chain_line line;
    size_t from = 0;
    const char *end;

    while ((end = memchr(scan->text.data + from, '\n', scan->text.len - from)) != NULL) {
        struct bytes text = {scan->text.data + from, (size_t)(end - scan->text.data) - from};
        from += text.len + 1;
        if (scan->overlong || !chain_line_read(text, &line)) {
            if (scan->first == 0)
                return false;
            add_torn(scan, (struct bytes){text.data, text.len + 1});
            scan->overlong = false;
            continue;
        }
        if (!add_line(scan, text, &line))
            return false;
    }
    buf_consume(&scan->text, from);
    if (scan->first == 0 && scan->text.len > TORN_START_MAX)
        return false;
    if (scan->overlong || scan->text.len > CHAIN_LINE_MAX) {
        add_torn(scan, buf_bytes(&scan->text));
        scan->overlong = true;
        buf_clear(&scan->text);
    }
    return true;
}

/* Take what has no end: it is a line if nothing but its end is missing. */
static bool scan_rest(struct scan *scan)
{
    const struct bytes rest = buf_bytes(&scan->text);
    struct chain_line line;

    if (!scan->overlong && chain_line_read(rest, &line))
        return add_line(scan, rest, &line);
    add_torn(scan, rest);
    return true;
}

static bool scan_file(struct scan *scan, int fd, const char *path, char *why, size_t why_size)
{
    ssize_t len;

    do {
        len = read(fd, buf_reserve(&scan->text, PIECE_BYTES), PIECE_BYTES);
        scan->text.len += len > 0 ? (size_t)len : 0;
        if (len < 0 && errno != EINTR) {
            snprintf(why, why_size, "%s: %s", path, plain_errno(errno));
            return false;
        }
        if (len > 0)
            scan->ended = scan->text.data[scan->text.len - 1] == '\n';
        if (!scan_lines(scan) || (len == 0 && !scan_rest(scan))) {
            snprintf(why, why_size, "%s is not an audit: its first line is not how one begins",
                     path);
            return false;
        }
    } while (len != 0);
    if (scan->torn_bytes == 0)
        return true;
    if (!scan->ended)
        add_torn(scan, BYTES_LITERAL("\n")); /* which is written then */
    scan->torn = chain_hash_take(scan->torn_hasher);
    return true;
}

/* Open the path for lines. -1: `why` says why not. */
static int open_path(const char *path, bool *is_new, char *why, size_t why_size)
{
    struct stat status;
    /* To open a pipe that nobody reads must fail, not wait. */
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);

    if (fd < 0 || fstat(fd, &status) != 0) {
        snprintf(why, why_size, "%s: %s", path, plain_errno(errno));
    } else if (!S_ISREG(status.st_mode)) {
        snprintf(why, why_size, "%s is not an ordinary file", path);
    } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        snprintf(why, why_size, "%s is another process's audit", path);
    } else {
        *is_new = status.st_size == 0;
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* A new name is on disk when its folder is. */
static bool sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? mem_strdup(".") : mem_strdup(path);

    if (slash != NULL)
        folder[slash == path ? 1 : slash - path] = '\0';
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    free(folder);
    return synced;
}

static int64_t wall_ms(void)
{
    return clock_wall_us(&clock_monotonic) / 1000;
}

/* Make the first line of an empty file. */
static void begin_file(struct audit_file *file)
{
    file->first = file->head.lines + 1;
    chain_append_begin(&file->head, file->hasher, wall_ms(), &file->out);
    file->size = (int64_t)file->out.len;
    file->synced = file->folder_synced = false;
}

static bool begin_chain(struct audit_file *file, char *why, size_t why_size)
{
    if (!chain_begin(&file->head)) {
        snprintf(why, why_size, "%s: the system gives no random bytes", file->path);
        return false;
    }
    begin_file(file);
    return true;
}

/* Return whether a crash may have left this of an audit's first line: its beginning, or zeros. */
static bool is_torn_start(struct bytes text)
{
    static const char start[] = CHAIN_LINE_START;
    size_t len = text.len < sizeof start - 1 ? text.len : sizeof start - 1, zeros = 0;

    while (zeros < text.len && text.data[zeros] == '\0')
        zeros++;
    return zeros == text.len || memcmp(text.data, start, len) == 0;
}

/* A line says for ever that the file was not what it had been. */
static void add_mismatch(struct audit_file *file, const struct scan *scan,
                         struct audit_opened *opened)
{
    const struct chain_head *known = scan->known;
    uint64_t lines = scan->head.lines;

    if (known == NULL || (known->lines <= lines && !scan->is_another))
        return;
    if (known->lines > lines)
        snprintf(opened->mismatch, sizeof opened->mismatch,
                 "lines %" PRIu64 " to %" PRIu64 " were here, and are missing", lines + 1,
                 known->lines);
    else
        snprintf(opened->mismatch, sizeof opened->mismatch,
                 "line %" PRIu64 " was another one, of hash %s", known->lines, known->hash.hex);
    audit_file_add(
        file, wall_ms(),
        &(struct audit_note){.event = AUDIT_MISMATCH, .reason = bytes_of(opened->mismatch)});
}

/* Go on behind the last line that is there. */
static bool resume(struct audit_file *file, struct scan *scan, struct audit_opened *opened,
                   char *why, size_t why_size)
{
    if (!scan_file(scan, file->fd, file->path, why, why_size))
        return false;
    if (scan->first == 0) { /* not even the first line was whole: there is nothing to go on from */
        opened->is_new = true;
        if (is_torn_start(buf_bytes(&scan->text)) && ftruncate(file->fd, 0) == 0)
            return begin_chain(file, why, why_size);
        snprintf(why, why_size, "%s is not an audit: it has no whole line; move it away",
                 file->path);
        return false;
    }
    file->head = scan->head;
    file->first = scan->first;
    file->size = lseek(file->fd, 0, SEEK_END);
    file->synced = false; /* who knows what the last process has synced */
    opened->torn_bytes = scan->torn_bytes;
    if (!scan->ended)
        buf_append_text(&file->out, "\n");
    if (scan->torn_bytes > 0)
        chain_append_torn(&file->head, file->hasher, wall_ms(), scan->torn_bytes, scan->torn,
                          &file->out);
    file->size += (int64_t)file->out.len;
    add_mismatch(file, scan, opened);
    return true;
}

struct audit_file *audit_file_open(const char *path, const struct chain_head *known,
                                   size_t known_count, struct audit_opened *opened, char *why,
                                   size_t why_size)
{
    struct audit_file *file = mem_zalloc(sizeof *file);

    *opened = (struct audit_opened){.is_new = false};
    file->path = mem_strdup(path);
    file->hasher = chain_hasher_new();
    file->fd = open_path(path, &opened->is_new, why, why_size);
    struct scan scan = {.hasher = file->hasher,
                        .torn_hasher = chain_hasher_new(),
                        .heads = known,
                        .heads_count = known_count};
    bool ready = file->fd >= 0 && (opened->is_new ? begin_chain(file, why, why_size)
                                                  : resume(file, &scan, opened, why, why_size));
    chain_hasher_free(scan.torn_hasher);
    buf_free(&scan.text);
    if (ready)
        return file;
    audit_file_close(file);
    return NULL;
}

void audit_file_close(struct audit_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    chain_hasher_free(file->hasher);
    buf_free(&file->out);
    free(file->path);
    free(file);
}

/* Writing. */

void audit_file_add(struct audit_file *file, int64_t time_ms, const struct audit_note *note)
{
    size_t before = file->out.len;

    chain_append(&file->head, file->hasher, time_ms, note, &file->out);
    file->size += (int64_t)(file->out.len - before);
    file->synced = false;
}

/* After a sync that failed the kernel may take lines for written that are not on the disk, and the
 * next sync succeeds without them. */
static bool write_again(struct audit_file *file)
{
    struct stat status;
    size_t done = 0;
    int flags = fcntl(file->fd, F_GETFL);

    if (flags < 0 || fstat(file->fd, &status) != 0)
        return false;
    off_t begin = status.st_size - (off_t)file->out_written;
    if (begin < 0) { /* somebody has cut the file */
        file->out_written = 0;
        return true;
    }
    if (fcntl(file->fd, F_SETFL, flags & ~O_APPEND) != 0) /* with it all goes to the end */
        return false;
    while (done < file->out_written) {
        ssize_t len =
            pwrite(file->fd, file->out.data + done, file->out_written - done, begin + (off_t)done);
        if (len < 0 && errno == EINTR)
            continue;
        if (len <= 0) {
            errno = len == 0 ? ENOSPC : errno;
            break;
        }
        done += (size_t)len;
    }
    int failed = done == file->out_written ? 0 : errno;
    check(fcntl(file->fd, F_SETFL, flags) == 0);
    errno = failed;
    return failed == 0;
}

bool audit_file_write(struct audit_file *file)
{
    if (file->sync_failed && !write_again(file))
        return false;
    file->sync_failed = false;
    while (file->out_written < file->out.len) {
        ssize_t len =
            write(file->fd, file->out.data + file->out_written, file->out.len - file->out_written);
        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0)
            return false;
        if (len == 0) {
            errno = ENOSPC;
            return false;
        }
        file->out_written += (size_t)len;
    }
    return true;
}

bool audit_file_sync(struct audit_file *file)
{
    if (file->synced)
        return true;
    file->folder_synced = file->folder_synced || sync_folder(file->path);
    if (!file->folder_synced || fdatasync(file->fd) != 0) {
        file->sync_failed = true;
        return false;
    }
    buf_consume(&file->out, file->out_written);
    file->out_written = 0;
    if (file->out.cap > PIECE_BYTES && file->out.len == 0)
        buf_free(&file->out);
    file->synced = file->out.len == 0;
    return true;
}

bool audit_file_is_written(const struct audit_file *file)
{
    return file->out_written == file->out.len && !file->sync_failed;
}

size_t audit_file_unsynced(const struct audit_file *file)
{
    return file->out.len;
}

bool audit_file_is_synced(const struct audit_file *file)
{
    return file->synced;
}

struct chain_head audit_file_head(const struct audit_file *file)
{
    return file->head;
}

int64_t audit_file_size(const struct audit_file *file)
{
    return file->size;
}

/* Going on elsewhere. */

/* Go on in an empty file under the path, which may be there already, and close the old one. */
static enum audit_rotation go_on(struct audit_file *file, char *why, size_t why_size)
{
    bool is_new = false;

    check(audit_file_is_written(file) && file->synced);
    int fd = open_path(file->path, &is_new, why, why_size);
    if (fd < 0)
        return AUDIT_UNCHANGED;
    if (!is_new) {
        snprintf(why, why_size, "%s has something in it already", file->path);
        close(fd);
        return AUDIT_UNCHANGED;
    }
    close(file->fd);
    file->fd = fd;
    begin_file(file);
    return AUDIT_ROTATED;
}

enum audit_rotation audit_file_rotate(struct audit_file *file, char *name, size_t name_size,
                                      char *why, size_t why_size)
{
    text_print(name, name_size, "%s.%0*" PRIu64, file->path, NUMBER_DIGITS, file->first);
    int failed = renameat2(AT_FDCWD, file->path, AT_FDCWD, name, RENAME_NOREPLACE);
    if (failed != 0 && errno == EEXIST) { /* of an older chain */
        text_print(name, name_size, "%s.%0*" PRIu64 "-%.*s", file->path, NUMBER_DIGITS, file->first,
                   ID_DIGITS, file->head.id);
        failed = renameat2(AT_FDCWD, file->path, AT_FDCWD, name, RENAME_NOREPLACE);
    }
    if (failed != 0) {
        snprintf(why, why_size, "%s cannot become %s: %s", file->path, name, plain_errno(errno));
        return AUDIT_UNCHANGED;
    }
    if (go_on(file, why, why_size) == AUDIT_ROTATED)
        return AUDIT_ROTATED;
    /* Give it its name back, under which everybody looks for it. */
    (void)renameat2(AT_FDCWD, name, AT_FDCWD, file->path, RENAME_NOREPLACE);
    return AUDIT_UNCHANGED;
}

enum audit_rotation audit_file_reopen(struct audit_file *file, char *name, size_t name_size,
                                      char *why, size_t why_size)
{
    struct stat ours, there;

    if (fstat(file->fd, &ours) == 0 && stat(file->path, &there) == 0 &&
        ours.st_ino == there.st_ino && ours.st_dev == there.st_dev)
        return audit_file_rotate(file, name, name_size, why, why_size);
    text_print(name, name_size, "%s", "where it was moved to");
    return go_on(file, why, why_size);
}
