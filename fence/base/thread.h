/* SPDX-License-Identifier: Apache-2.0 */
/* How each thread of ours begins: no signal is delivered to it, since signals are the program's,
 * and it does as in the C locale, whatever the program's is (fence/base/plain.h). */
#ifndef STOCKADE_BASE_THREAD_H
#define STOCKADE_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Start a thread named `name`, at most 15 bytes. The caller joins or detaches it. False: there are
 * no more threads. */
bool thread_start(pthread_t *thread, const char *name, void *(*main)(void *), void *context);

#endif
