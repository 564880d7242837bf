/* SPDX-License-Identifier: Apache-2.0 */
/* One thread-local struct, as errno is one: the one thing here that no caller hands in. */
#include "proxy/client/own.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/clock.h"
#include "proxy/client/export.h"
#include "proxy/client/stockade.h"

static _Thread_local struct {
    char message[512];
    char id[ID_LEN + 1];
    struct thread_mark mark; /* tid 0: not read yet */
} own;

enum stk_error fail(enum stk_error error, const char *format, ...)
{
    if (format == NULL) {
        snprintf(own.message, sizeof own.message, "%s", stk_error_text(error));
        return error;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(own.message, sizeof own.message, format, args);
    va_end(args);
    return error;
}

EXPORT const char *stk_message(void)
{
    return own.message;
}

void id_make(char id[ID_LEN + 1])
{
    unsigned char random[ID_LEN / 2];

    chance_system.fill(&chance_system, random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(id + 2 * i, 3, "%02x", random[i]);
}

void own_id_keep(const char *id)
{
    snprintf(own.id, sizeof own.id, "%s", id);
}

EXPORT const char *stk_last_id(void)
{
    return own.id;
}

/* The 22nd field of its stat: when it began, in clock ticks since boot. False: it is gone. Numbers
 * come round only after thousands of others, so a tick is fine enough. */
static bool read_begun(pid_t tid, uint64_t *begun)
{
    char path[64], text[1024];

    *begun = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) /* it is gone, or /proc is not there at all */
        return access("/proc/self/stat", F_OK) != 0;
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    text[len > 0 ? len : 0] = '\0';
    const char *at = strrchr(text, ')'); /* behind the name, which may hold anything */
    if (at == NULL)
        return false;
    at += 1;
    if (at[0] == ' ' && (at[1] == 'Z' || at[1] == 'X')) /* the first thread, ended before others */
        return false;
    for (int field = 3; field < 22 && at != NULL; field++)
        at = strchr(at + 1, ' ');
    if (at == NULL || text[0] == '\0')
        return false;
    *begun = strtoull(at + 1, NULL, 10);
    return true;
}

struct thread_mark thread_mark_own(void)
{
    pid_t tid = gettid();

    if (own.mark.tid != tid) { /* the first time, or the first time after fork */
        own.mark.tid = tid;
        (void)read_begun(tid, &own.mark.begun);
    }
    return own.mark;
}

bool thread_mark_equal(struct thread_mark a, struct thread_mark b)
{
    return a.tid == b.tid && a.begun == b.begun;
}

bool thread_mark_lives(struct thread_mark mark)
{
    uint64_t begun;
    return read_begun(mark.tid, &begun) && (begun == mark.begun || begun == 0 || mark.begun == 0);
}
