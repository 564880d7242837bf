/* SPDX-License-Identifier: Apache-2.0 */
/* What each thread has of its own (the words of its last failure, the ID of its last write, what
 * cancels its calls, and a mark by which others can tell whether it still runs), and how the
 * library waits in threads. */
#ifndef STOCKADE_CLIENT_THREAD_H
#define STOCKADE_CLIENT_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fence/base/err.h"

/* Milliseconds that never go back. They go on while the machine sleeps (CLOCK_BOOTTIME), as leases
 * do. */
int64_t now_ms(void);

/* Keep the text for stk_message, and return the error. Without a format: the error's usual text. */
enum stk_error fail(enum stk_error error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define ID_LEN 32 /* hexadecimal digits: 128 random bits */
void id_make(char id[ID_LEN + 1]);
#define ID_MAX 512 /* bytes, of any ID */
/* The ID of a write: what stk_use_id was given, once; else a new one; "" where none is `needed`. */
void thread_take_id(bool needed, char id[ID_MAX + 1]);
/* Set what stk_last_id returns from here on; "": none. */
void thread_set_last_id(const char *id);
/* What stk_cancel_on was given; -1: nothing. */
int thread_cancel_fd(void);

/* Tells a thread from a later one that got the same number, by when it began. */
struct thread_mark {
    pid_t tid;
    uint64_t begun;
};

struct thread_mark thread_mark_own(void);
bool thread_mark_equal(struct thread_mark a, struct thread_mark b);
/* Whether that thread of this process still runs. Where /proc is missing: true. */
bool thread_mark_lives(struct thread_mark mark);

/* Make a condition for thread_wait; pthread_cond_destroy ends it. */
void thread_cond_init(pthread_cond_t *cond);
/* Wait until the condition is signalled, or, as false, until the deadline. True may mean nothing:
 * check again. */
bool thread_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline_ms);

#endif
