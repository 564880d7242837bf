/* SPDX-License-Identifier: Apache-2.0 */
/* For the library's unit tests: a client with an engine of its own over a temporary store, and a
 * server that answers requests as the test has written down. */
#ifndef STOCKADE_TESTS_CLIENT_RIG_H
#define STOCKADE_TESTS_CLIENT_RIG_H

#include <pthread.h>

#include "proxy/client/stockade.h"
#include "tests/unit/deadline.h"
#include "tests/unit/test.h"

enum { RIG_TIMEOUT_MS = 20000 };

struct rig {
    char folder[64], uri[128];
    stk_client *client;
};

/* cmocka's set-up and tear-down; *state is the rig. */
int rig_new(void **state);
int rig_free(void **state);
#define RIG_TEST(name) TEST_WITH(rig_new, rig_free, struct rig *rig, name)
/* One more client of the rig's store, with an engine of its own. */
stk_client *rig_client(const struct rig *rig);

/* Fails the test, with the library's words. */
#define ok(call) rig_ok((call), #call, __FILE__, __LINE__)
void rig_ok(enum stk_error error, const char *what, const char *file, int line);

stk_lease *rig_acquire(stk_client *client, const char *resource, int64_t ttl_ms);
/* Until the condition is true; fails the test where that takes too long. */
#define await(condition)                                                                           \
    do {                                                                                           \
        struct deadline rig_deadline = deadline_in(RIG_TIMEOUT_MS);                                \
        while (!(condition)) {                                                                     \
            deadline_keep(&rig_deadline);                                                          \
            rig_nap();                                                                             \
        }                                                                                          \
    } while (0)
int64_t rig_now_ms(void);
void rig_nap(void); /* a millisecond */

/* A server on a TCP port. Each request takes the next answer, on whichever connection: bytes to
 * send, NULL to close the connection instead, "" to stay silent. Behind the last it is silent. */
struct script {
    const char *const *answers;
    size_t count;
    char uri[64];
    int listener;
    pthread_t thread;
    pthread_mutex_t lock;
    size_t used, connections;
    char seen[16][256]; /* the requests, words with blanks between */
};

void script_start(struct script *script, const char *const *answers, size_t count);
/* The i-th request; "" where there was none yet. */
void script_request(struct script *script, size_t i, char out[256]);
void script_end(struct script *script);

#endif
