/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LD_PRELOAD library that makes the disk fail on demand.
 *
 * The environment variable FAULT_SHIM names a control file, read at every call that might be
 * hit. Each of its lines is one order, "<operation> <fault> [<part of the file's name>]":
 *
 *   sync EIO            fsync and fdatasync fail with EIO
 *   sync stall          they wait until the order is gone, then run
 *   write ENOSPC -wal   writes to files whose path contains "-wal" fail with ENOSPC
 *   write kill:7        the 7th write from now on does not happen: the process is killed (SIGKILL)
 *
 * Only files whose path contains FAULT_SHIM_MATCH (default ".db") are touched. Each fault
 * that was dealt out adds a line to "<control file>.hits", so that a test can wait for it. An
 * unreadable control file means no faults; a malformed line is ignored.
 *
 * FAULT_SHIM_BOOT names a file that is read where the kernel says which boot of the machine this
 * is.
 */
#undef _FILE_OFFSET_BITS
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CONTROL_BYTES_MAX = 512, WORD_BYTES_MAX = 64, STALL_LOOK_NS = 1000000 };

typedef int (*open_fn)(const char *, int, ...);
typedef int (*sync_fn)(int);
typedef ssize_t (*write_fn)(int, const void *, size_t);
typedef ssize_t (*pwrite_fn)(int, const void *, size_t, off_t);

int open(const char *path, int flags, ...);
int open64(const char *path, int flags, ...);
int fsync(int fd);
int fdatasync(int fd);
ssize_t write(int fd, const void *data, size_t size);
ssize_t pwrite(int fd, const void *data, size_t size, off_t offset);
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset);

/* The next definition of a function: libc's, or a sanitizer's wrapper of it. */
static void *next_of(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL)
        abort();
    return found;
}

static ssize_t plain_write(int fd, const void *data, size_t size)
{
    write_fn real;
    *(void **)&real = next_of("write");
    return real(fd, data, size);
}

/* Puts fd's path into path; 0 where it is no file that faults are meant for. */
static int path_of(int fd, char *path, size_t size)
{
    char link[64];
    const char *match = getenv("FAULT_SHIM_MATCH");
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, path, size - 1);
    if (got <= 0)
        return 0;
    path[got] = '\0';
    return path[0] == '/' && strstr(path, match != NULL ? match : ".db") != NULL;
}

/* The fault ordered for this operation on this path, in fault; 0 where there is none. */
static int order_for(const char *operation, const char *path, char fault[WORD_BYTES_MAX])
{
    const char *control = getenv("FAULT_SHIM");
    char text[CONTROL_BYTES_MAX];
    int fd = control != NULL ? open(control, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char what[WORD_BYTES_MAX];
        char part[WORD_BYTES_MAX] = "";
        if (sscanf(line, "%63s %63s %63s", what, fault, part) >= 2 &&
            strcmp(what, operation) == 0 && strstr(path, part) != NULL)
            return 1;
    }
    return 0;
}

static void record_hit(const char *operation, const char *fault)
{
    char name[PATH_MAX];
    char line[2 * WORD_BYTES_MAX + 2];
    (void)snprintf(name, sizeof name, "%s.hits", getenv("FAULT_SHIM"));
    int size = snprintf(line, sizeof line, "%s %s\n", operation, fault);
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)!plain_write(fd, line, (size_t)size);
        (void)close(fd);
    }
}

/* Deals out the fault that is ordered, if any: the errno to fail with, or 0 to go on. */
static int fault_for(const char *operation, int fd)
{
    char path[PATH_MAX];
    char fault[WORD_BYTES_MAX];
    int saved = errno;
    int failure = 0;
    if (path_of(fd, path, sizeof path) && order_for(operation, path, fault)) {
        record_hit(operation, fault);
        if (strcmp(fault, "EIO") == 0)
            failure = EIO;
        else if (strcmp(fault, "ENOSPC") == 0)
            failure = ENOSPC;
        static atomic_int seen; /* by a "kill" order: there is one in a process's life */
        if (strncmp(fault, "kill:", 5) == 0 && atomic_fetch_add(&seen, 1) + 1 == atoi(fault + 5))
            (void)kill(getpid(), SIGKILL);
        while (failure == 0 && strcmp(fault, "stall") == 0) {
            struct timespec look = {.tv_sec = 0, .tv_nsec = STALL_LOOK_NS};
            (void)nanosleep(&look, NULL);
            if (!order_for(operation, path, fault))
                break;
        }
    }
    errno = saved;
    return failure;
}

static int sync_or_fail(const char *name, int fd)
{
    int failure = fault_for("sync", fd);
    if (failure != 0) {
        errno = failure;
        return -1;
    }
    sync_fn real;
    *(void **)&real = next_of(name);
    return real(fd);
}

int fsync(int fd)
{
    return sync_or_fail("fsync", fd);
}

int fdatasync(int fd)
{
    return sync_or_fail("fdatasync", fd);
}

ssize_t write(int fd, const void *data, size_t size)
{
    int failure = fault_for("write", fd);
    if (failure != 0) {
        errno = failure;
        return -1;
    }
    return plain_write(fd, data, size);
}

static ssize_t pwrite_or_fail(const char *name, int fd, const void *data, size_t size, off_t offset)
{
    int failure = fault_for("write", fd);
    if (failure != 0) {
        errno = failure;
        return -1;
    }
    pwrite_fn real;
    *(void **)&real = next_of(name);
    return real(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return pwrite_or_fail("pwrite", fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset)
{
    return pwrite_or_fail("pwrite64", fd, data, size, offset);
}

/* Is a mode passed, since a file may be made? */
#define TAKES_MODE(flags) (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE)

static int open_or_redirect(const char *name, const char *path, int flags, mode_t mode)
{
    const char *boot = getenv("FAULT_SHIM_BOOT");
    if (boot != NULL && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0)
        path = boot;
    open_fn real;
    *(void **)&real = next_of(name);
    return real(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = TAKES_MODE(flags) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_or_redirect("open", path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    mode_t mode = TAKES_MODE(flags) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return open_or_redirect("open64", path, flags, mode);
}
