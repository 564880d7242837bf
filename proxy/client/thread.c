/* SPDX-License-Identifier: Apache-2.0 */
/* One thread-local struct, as errno is one: the only thing here that no caller hands in. */
#include "proxy/client/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "proxy/client/stockade.h"
#include "store/store.h"

static _Thread_local struct {
    char message[STORE_OPEN_WHY_MAX];
    char id[ID_MAX + 1], next_id[ID_MAX + 1];
    int cancel_fd;           /* one more than the descriptor: at first there is none */
    struct thread_mark mark; /* tid 0: not read yet */
} own;

static int64_t clock_ms(clockid_t clock)
{
    struct timespec now;

    check(clock_gettime(clock, &now) == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t now_ms(void)
{
    return clock_ms(CLOCK_BOOTTIME);
}

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

const char *stk_message(void)
{
    return own.message;
}

void id_make(char id[ID_LEN + 1])
{
    chance_hex(&chance_system, id, ID_LEN);
}

enum stk_error stk_use_id(const char *id)
{
    size_t len = id == NULL ? 0 : strlen(id);

    if (len > ID_MAX || (id != NULL && len == 0))
        return fail(STK_MISUSE, "an ID has 1 to %d bytes", ID_MAX);
    snprintf(own.next_id, sizeof own.next_id, "%s", id == NULL ? "" : id);
    return STK_OK;
}

void thread_take_id(bool needed, char id[ID_MAX + 1])
{
    memcpy(id, own.next_id, sizeof own.next_id);
    own.next_id[0] = '\0';
    if (id[0] == '\0' && needed)
        id_make(id);
}

void thread_set_last_id(const char *id)
{
    snprintf(own.id, sizeof own.id, "%s", id);
}

const char *stk_last_id(void)
{
    return own.id;
}

void stk_cancel_on(int fd)
{
    own.cancel_fd = fd + 1;
}

int thread_cancel_fd(void)
{
    return own.cancel_fd - 1;
}

/* Read the 22nd field of the thread's stat: when it began, in clock ticks since boot. False: it is
 * gone. A number is used again only after thousands of others, so a tick is precise enough. */
static bool read_begun(pid_t tid, uint64_t *begun)
{
    char path[64], text[1024];

    *begun = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) /* it is gone; or no descriptors are left, or /proc is not there at all */
        return errno != ENOENT || access("/proc/self/stat", F_OK) != 0;
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

void thread_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;

    check(pthread_condattr_init(&attributes) == 0);
    check(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    check(pthread_cond_init(cond, &attributes) == 0);
    pthread_condattr_destroy(&attributes);
}

bool thread_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline_ms)
{
    /* A condition knows no clock that counts on while the machine sleeps. */
    int64_t until_ms = clock_ms(CLOCK_MONOTONIC) + deadline_ms - now_ms();
    struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};

    return pthread_cond_timedwait(cond, lock, &until) != ETIMEDOUT;
}
