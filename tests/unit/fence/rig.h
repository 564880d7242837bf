/* SPDX-License-Identifier: Apache-2.0 */
/* A loop with a provider on it, calls that can be waited for, other daemons on the same loop, and a
 * server that is no Redis. */
#ifndef STOCKADE_TESTS_RIG_H
#define STOCKADE_TESTS_RIG_H

#include <uv.h>

#include "fence/lease/open.h"
#include "fence/lease/provider.h"
#include "tests/unit/deadline.h"
#include "tests/unit/fence/services.h"

/* Two owners. */
static const char ann[] = "a0000000000000000000000000000001";
static const char bob[] = "b0000000000000000000000000000002";

/* What a provider that is watched has told. */
struct watched {
    struct lease_provider *provider; /* NULL: the place is free */
    int news, revoked;
    int64_t token; /* of the last news */
    struct buf resource;
};

/* Says the same to everyone who connects, and counts who came. */
struct chatterbox {
    uv_tcp_t listener;
    struct buf says; /* empty: it closes at once */
    int port;        /* 0: not open */
    int visitors;
};

struct rig {
    uv_loop_t loop;
    uv_timer_t heartbeat; /* so that a wait can look at its deadline */
    int log_pipe[2];
    struct log_file log_file;
    struct log log; /* writes into the pipe */
    struct lease_surroundings surroundings;
    struct lease_provider *provider; /* NULL: none yet, or closed */
    struct watched watched[3];
    struct service *redis; /* RIG_TEST: the program's first one, empty */
    struct chatterbox chatterbox;
};

/* A call that notes its answer: begin with rig_question, or with zeros. */
struct asked {
    struct lease_call call;
    bool answered;
    int times; /* `done` was called */
};

void rig_init(struct rig *rig);
/* Open a provider by its URI. */
void rig_open(struct rig *rig, const char *uri_format, ...) __attribute__((format(printf, 2, 3)));
/* Open a provider on the rig's Redis, and wait until it is up. */
void rig_open_redis(struct rig *rig, int timeout_ms);
/* Open another daemon's provider and watch it. rig_free closes it. */
struct watched *rig_open_other(struct rig *rig, const char *uri_format, ...)
    __attribute__((format(printf, 2, 3)));
/* Watch the rig's own provider, until it is closed. */
struct watched *rig_watch(struct rig *rig);
void rig_close(struct rig *rig); /* the rig's own provider, and waits for the end */
void rig_free(struct rig *rig);  /* closes all; checks that the loop is empty */
void rig_turn(struct rig *rig);  /* once around the loop, at most some milliseconds */

/* The fixture of most tests: a rig with a Redis, and no provider yet. */
int rig_setup(void **state);
int rig_teardown(void **state);
#define RIG_TEST(name) TEST_WITH(rig_setup, rig_teardown, struct rig *rig, name)

/* Let the chatterbox say this from now on. Open it, at a free port, where it is not open yet; else
 * begin to count its visitors anew. */
void rig_say(struct rig *rig, const char *says, size_t len);

/* Turn until `cond` is true; fail the test if that hangs. */
#define rig_until(rig, cond)                                                                       \
    do {                                                                                           \
        struct deadline rig_deadline = deadline_in(HANG_MS);                                       \
        while (!(cond)) {                                                                          \
            deadline_keep(&rig_deadline);                                                          \
            rig_turn(rig);                                                                         \
        }                                                                                          \
    } while (0)

bool rig_up(const struct rig *rig);
bool rig_detail_has(const struct rig *rig, const char *text);
/* Copy to `out` what was logged since the last call. Return `out`. */
const char *rig_logged(struct rig *rig, char *out, size_t size);
/* Return how often the part occurs in the text. */
size_t rig_count(const char *text, const char *part);

/* Return a question about sku:1, for a minute. */
struct asked rig_question(enum lease_verb verb, const char *nonce, int64_t token);
/* Ask a provider; the answer may come later. */
void rig_ask_at(struct lease_provider *provider, struct asked *asked);
/* Ask the rig's own. */
void rig_ask(struct rig *rig, struct asked *asked);
/* Ask, and wait for the answer. */
void rig_answer(struct rig *rig, struct asked *asked);
struct lease_call rig_call(struct rig *rig, enum lease_verb verb, const char *nonce, int64_t token);
/* Ask for a grant above the floor. */
struct lease_call rig_grant(struct rig *rig, const char *nonce, int64_t floor);
/* Is sku:1 free? */
bool rig_is_free(struct rig *rig);

/* A question whose answer closes the provider; `closed` once it is. */
struct closer {
    struct asked asked;
    struct rig *rig;
    bool closed;
};
void rig_ask_and_close(struct rig *rig, struct closer *closer);

/* Callbacks that note that they were called: for lease_provider_close, and to be counted. */
void rig_on_closed(void *closed); /* a bool */
void rig_on_event(void *count);   /* an int */

#define assert_answer(call, answer_, token_)                                                       \
    do {                                                                                           \
        struct lease_call got_ = (call);                                                           \
        assert_int_equal(got_.answer, answer_);                                                    \
        assert_int_equal(got_.answer_token, token_);                                               \
    } while (0)

#define assert_down(call, reason_)                                                                 \
    do {                                                                                           \
        struct lease_call got_ = (call);                                                           \
        assert_int_equal(got_.answer, LEASE_DOWN);                                                 \
        if (strstr(got_.reason, reason_) == NULL)                                                  \
            fail_msg("the reason is \"%s\"", got_.reason);                                         \
    } while (0)

#endif
