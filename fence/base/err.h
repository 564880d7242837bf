/* SPDX-License-Identifier: Apache-2.0 */
/* Every error that a client can be told, in one table. From it come the enum, the code that is the
 * first word of the reply, and the sentence for where the caller has nothing more precise to say.
 *
 * The codes are wire contract: clients compare the first word. Texts may change. */
#ifndef STOCKADE_BASE_ERR_H
#define STOCKADE_BASE_ERR_H

#define STK_ERROR_MAP(X)                                                                           \
    X(STALE, "STALE",                                                                              \
      "the token is older than the newest one granted, or was released or revoked")                \
    X(UNKNOWN, "UNKNOWN", "this token was never granted for this resource")                        \
    X(NOTOKEN, "NOTOKEN", "a write needs a token: FENCED token command key ...")                   \
    X(RANGE, "RANGE", "the result would leave MIN..MAX; nothing was changed")                      \
    X(EXPIRED, "EXPIRED", "this receipt may have been removed")                                    \
    X(DEADLOCK, "DEADLOCK",                                                                        \
      "a RELEASE or REVOKE that would end this wait stands behind it on its connection: where "    \
      "callers share a connection, wait with ACQUIRE ... QUEUE")                                   \
    X(LEASEDOWN, "LEASEDOWN", "the lease service cannot be reached")                               \
    X(BUSY, "BUSY", "a queue is full; try again")                                                  \
    X(STORE, "STORE", "the store failed; nothing of this command was applied")                     \
    X(GUARDED, "GUARDED", "a guarded row was touched whose token was not presented")               \
    X(WRONGTYPE, "WRONGTYPE", "Operation against a key holding the wrong kind of value")           \
    X(NOAUTH, "NOAUTH", "Authentication required.")                                                \
    X(WRONGPASS, "WRONGPASS", "invalid username-password pair or user is disabled.")               \
    X(NOPERM, "NOPERM", "this command is for administrators")                                      \
    X(NOPROTO, "NOPROTO", "unsupported protocol version")                                          \
    X(EXECABORT, "EXECABORT", "Transaction discarded because of previous errors.")                 \
    X(ERR, "ERR", "the command failed")                                                            \
    X(NOSCRIPT, "NOSCRIPT", "No matching script. Please use EVAL.")

/* What no reply says, but the library tells its caller. */
#define STK_CLIENT_ERROR_MAP(X)                                                                    \
    X(HELD, "HELD", "busy: another holds the lease")                                               \
    X(TIMEOUT, "TIMEOUT", "no answer in time; nothing was applied")                                \
    X(UNSURE, "UNSURE", "no answer in time; it may have been applied")                             \
    X(UNREACHABLE, "UNREACHABLE", "the daemon cannot be reached; nothing was applied")             \
    X(ABANDONED, "ABANDONED", "the thread that the lease belonged to has ended")                   \
    X(RELEASED, "RELEASED", "this lease was released already")                                     \
    X(FORKED, "FORKED", "this client belongs to the process that opened it")                       \
    X(PROTOCOL, "PROTOCOL", "the server's answer makes no sense")                                  \
    X(MISUSE, "MISUSE", "the call makes no sense")                                                 \
    X(CANCELLED, "CANCELLED", "the call was cancelled; nothing was applied")

/* The public header (proxy/client/stockade.h) defines the same enum, unless this one is there. */
#define STK_ERROR_DEFINED
enum stk_error {
    STK_OK = 0,
#define X(name, code, text) STK_##name,
    STK_ERROR_MAP(X)
#undef X
        STK_ERRORS,
    STK_CLIENT_ERRORS_AFTER = 99,
#define X(name, code, text) STK_##name,
    STK_CLIENT_ERROR_MAP(X)
#undef X
        STK_CLIENT_ERRORS
};

#ifdef STOCKADE_LIBRARY /* where both are part of the public interface */
#define STK_ERROR_EXPORT __attribute__((visibility("default")))
#else
#define STK_ERROR_EXPORT
#endif

/* Return the first word of the error reply, such as "STALE"; "OK" for STK_OK. Static storage. */
STK_ERROR_EXPORT const char *stk_error_code(enum stk_error error);
/* Return a sentence for people. Static storage. */
STK_ERROR_EXPORT const char *stk_error_text(enum stk_error error);

#endif
