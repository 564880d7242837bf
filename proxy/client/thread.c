/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and conditions. */
#include "proxy/client/thread.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "fence/base/check.h"

bool thread_start(pthread_t *thread, const char *name, void *(*main)(void *), void *context)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, main, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed == 0)
        pthread_setname_np(*thread, name);
    return failed == 0;
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
    struct timespec until = {.tv_sec = deadline_ms / 1000, .tv_nsec = deadline_ms % 1000 * 1000000};
    return pthread_cond_timedwait(cond, lock, &until) != ETIMEDOUT;
}
