/* SPDX-License-Identifier: Apache-2.0 */
/* The library's own threads, and waits on conditions by the monotonic clock. */
#ifndef STOCKADE_CLIENT_THREAD_H
#define STOCKADE_CLIENT_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Signals are never delivered to it: they are the program's. False: there are no more threads. */
bool thread_start(pthread_t *thread, const char *name, void *(*main)(void *), void *context);

/* A condition for thread_wait; ends with pthread_cond_destroy. */
void thread_cond_init(pthread_cond_t *cond);
/* False: the deadline has passed. True may also mean nothing: look again. */
bool thread_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t deadline_ms);

#endif
