/* SPDX-License-Identifier: Apache-2.0 */
/* libpq, as the store finds it, but for one call that goes wrong: the n-th of those that this kind
 * of fault is about. Programs are linked with --wrap=libpq_load, and then every connection of the
 * store's is of this kind; those of its watch, which works beside all operations, are left alone
 * unless a fault lasts.
 *
 *   send     what sends a statement, or the end of a trip, and COPY's data
 *   read     the wait for a result, or for COPY's data
 *   connect  a new connection
 */
#ifndef STOCKADE_TESTS_FAULT_LIBPQ_H
#define STOCKADE_TESTS_FAULT_LIBPQ_H

#include <stdbool.h>

/* X(name, where it strikes, words) */
#define LIBPQ_FAULTS(X)                                                                            \
    X(FAILS, AT_ALL, "the call fails, as without memory")                                          \
    X(REFUSED, AT_STATEMENT, "the server refuses the statement, as after a cancel")                \
    X(PASSING, AT_STATEMENT, "the server refuses it, and would not the next time")                 \
    X(CUT, AT_ALL, "the connection breaks before the call")                                        \
    X(CUT_BEHIND, AT_SEND, "what was sent arrives, and then the connection breaks")                \
    X(HELD, AT_SYNC, "the end of a trip leaves at the third try, as by TLS on a full line")        \
    X(UNSENT, AT_READ, "nothing can be sent any more")                                             \
    X(UNREAD, AT_READ, "nothing can be read any more")                                             \
    X(WARNED, AT_RESULT, "a warning comes")                                                        \
    X(UNCONFIRMED, AT_RESULT, "a warning comes: a commit waits for no standby any more")           \
    X(SILENT, AT_READ, "the server does not answer in time")

enum libpq_fault {
#define X(name, where, words) LIBPQ_##name,
    LIBPQ_FAULTS(X)
#undef X
        LIBPQ_FAULTS_COUNT
};

const char *libpq_fault_words(enum libpq_fault fault);
/* From now on the `n`-th call that the fault is about goes wrong, from 1 on; `lasts`: and all such
 * calls behind it, of all connections, until fault_libpq_clear. */
void fault_libpq_set(enum libpq_fault fault, int n, bool lasts);
/* Nothing goes wrong any more. Return whether anything has. */
bool fault_libpq_clear(void);
/* How many trips have ended their statements since it went wrong; before fault_libpq_clear. */
int fault_libpq_trips(void);
/* What libpq has given out and was not given back, in pieces: results, connections, memory. */
int fault_libpq_held(void);
/* The same, of results alone. */
int fault_libpq_results(void);

#endif
