/* SPDX-License-Identifier: Apache-2.0 */
/* For the library's unit tests: a client with an engine of its own over a temporary store, and a
 * server that answers as the test says. */
#ifndef STOCKADE_TESTS_CLIENT_RIG_H
#define STOCKADE_TESTS_CLIENT_RIG_H

#include <pthread.h>
#include <stdatomic.h>

#include "proxy/client/stockade.h"
#include "tests/unit/deadline.h"
#include "tests/unit/test.h"

enum { RIG_TIMEOUT_MS = 20000 };

struct rig {
    char folder[64], uri[128];
    stk_client *client;
};

/* The fixture. */
int rig_new(void **state);
int rig_free(void **state);
#define RIG_TEST(name) TEST_WITH(rig_new, rig_free, struct rig *rig, name)
/* Open one more client of the rig's store, with an engine of its own. */
stk_client *rig_client(const struct rig *rig);

/* Fail the test where the call failed, in the library's words. */
#define ok(call) rig_ok((call), #call, __FILE__, __LINE__)
void rig_ok(enum stk_error error, const char *what, const char *file, int line);

/* A command's number of words, and the words. */
#define WORDS(...)                                                                                 \
    sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), (const char *const[])             \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

stk_lease *rig_acquire(stk_client *client, const char *resource, int64_t ttl_ms);

/* What a `lost` was told, and what it does then. */
struct loss {
    atomic_int calls;
    _Atomic enum stk_error why;
    atomic_bool valid; /* the lease, then */
    bool frees, releases;
    atomic_bool hold; /* stays in the callback while it is true */
};

void rig_on_lost(stk_lease *lease, enum stk_error why, void *loss);
/* Acquire "r"; its loss is noted. */
stk_lease *rig_acquire_watched(stk_client *client, int64_t ttl_ms, struct loss *loss);

/* Wait until the condition is true; fail the test where that takes too long. */
#define await(condition)                                                                           \
    do {                                                                                           \
        struct deadline rig_deadline = deadline_in(HANG_MS);                                       \
        while (!(condition)) {                                                                     \
            deadline_keep(&rig_deadline);                                                          \
            rig_nap();                                                                             \
        }                                                                                          \
    } while (0)
int64_t rig_now_ms(void);
/* When the lease is over, by rig_now_ms, or a moment before. */
int64_t rig_until_ms(const stk_lease *lease);
void rig_nap(void); /* a millisecond */
void rig_pause(int64_t ms);

/* A server on a TCP port, and a client of it. Each request, on whichever connection, takes the next
 * answer: bytes to send, NULL to close the connection instead, "" to stay silent. One that begins
 * with LATE is sent LATE_MS after the request came. After the last answer the server is silent. A
 * greeting without a password is refused, and counts as no request. */
enum { SCRIPT_MAX = 16, LATE_MS = 300 };
#define LATE "\1"

struct script {
    stk_client *client; /* NULL: none yet */
    char uri[64];
    int port, listener;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    const char *answers[SCRIPT_MAX];
    size_t count, used, connections;
    char seen[SCRIPT_MAX][256];  /* the requests, words with blanks between */
    int64_t came_ms[SCRIPT_MAX]; /* rig_now_ms */
};

int script_new(void **state);
int script_free(void **state);
#define SCRIPT_TEST(name) TEST_WITH(script_new, script_free, struct script *script, name)

#define GRANTED "*2\r\n:7\r\n:60000\r\n" /* token 7, for a minute */

/* Open the client. Its first request, a PING, is answered; these are the answers to the next. */
#define script_open(script, timeout_ms, ...)                                                       \
    script_open_with(script, timeout_ms, (const char *const[]){__VA_ARGS__},                       \
                     sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))
stk_client *script_open_with(struct script *script, int64_t timeout_ms, const char *const *answers,
                             size_t count);
/* Return how many requests, or connections, there were so far; the PING counts. */
size_t script_used(struct script *script);
size_t script_connections(struct script *script);
/* Copy the i-th request; "" where there was none yet. The PING is number 0. */
void script_request(struct script *script, size_t i, char out[256]);
int64_t script_came_ms(struct script *script, size_t i);

#endif
