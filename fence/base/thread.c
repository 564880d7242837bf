/* SPDX-License-Identifier: Apache-2.0 */
/* See thread.h. */
#include "fence/base/thread.h"

#include <signal.h>
#include <stdlib.h>

#include "fence/base/mem.h"
#include "fence/base/plain.h"

struct start {
    void *(*main)(void *);
    void *context;
};

static void *begin(void *context)
{
    struct start start = *(struct start *)context;

    free(context);
    (void)plain_thread();
    return start.main(start.context);
}

bool thread_start(pthread_t *thread, const char *name, void *(*main)(void *), void *context)
{
    struct start *start = mem_alloc(sizeof *start);
    sigset_t all, before;

    *start = (struct start){main, context};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(thread, NULL, begin, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed == 0)
        pthread_setname_np(*thread, name);
    else
        free(start);
    return failed == 0;
}
