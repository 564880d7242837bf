/* SPDX-License-Identifier: Apache-2.0 */
/* check(): an invariant of ours, tested in release builds too. A failure is a bug in Stockade,
 * never a condition of the outside world: the process says where, and aborts; what was
 * acknowledged is on disk. Conditions (input, disk, network) are returned as errors instead. */
#ifndef STOCKADE_BASE_CHECK_H
#define STOCKADE_BASE_CHECK_H

#define check(cond) ((cond) ? (void)0 : check_failed(__FILE__, __LINE__, __func__, #cond))

/* A count of what has all been given back by now: what is left has leaked. */
#define check_nought(name, count)                                                                  \
    ((count) == 0 ? (void)0 : check_left(__FILE__, __LINE__, __func__, name, (long long)(count)))

/* Say which invariant is broken, and abort. */
_Noreturn void check_failed(const char *file, int line, const char *func, const char *what);
_Noreturn void check_left(const char *file, int line, const char *func, const char *name,
                          long long count);

#endif
