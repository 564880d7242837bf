/* SPDX-License-Identifier: Apache-2.0 */
/* What is a thread's own: the text of its last failure, the ID of its last write, and a mark by
 * which others can tell whether it still runs. */
#ifndef STOCKADE_CLIENT_OWN_H
#define STOCKADE_CLIENT_OWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fence/base/err.h"

/* Keeps the text, and returns the error. Without a format: the error's usual text. */
enum stk_error fail(enum stk_error error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define ID_LEN 32                  /* hexadecimal digits: 128 random bits */
void id_make(char id[ID_LEN + 1]); /* a fresh one */
/* What stk_last_id says from here on; "": none. */
void own_id_keep(const char *id);

/* A thread, told from a later one that got the same number by when it began. */
struct thread_mark {
    pid_t tid;
    uint64_t begun;
};

struct thread_mark thread_mark_own(void);
bool thread_mark_equal(struct thread_mark a, struct thread_mark b);
/* Of a thread of this process. Where /proc is missing: true. */
bool thread_mark_lives(struct thread_mark mark);

#endif
