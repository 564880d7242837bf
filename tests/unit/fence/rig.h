/* SPDX-License-Identifier: Apache-2.0 */
/* A loop with a provider on it, and calls that can be waited for. */
#ifndef STOCKADE_TESTS_RIG_H
#define STOCKADE_TESTS_RIG_H

#include <uv.h>

#include "fence/lease/open.h"
#include "fence/lease/provider.h"
#include "tests/unit/deadline.h"

struct rig {
    uv_loop_t loop;
    uv_timer_t heartbeat; /* so that a wait can look at its deadline */
    int log_pipe[2];
    struct log log; /* writes into the pipe */
    struct lease_surroundings surroundings;
    struct lease_provider *provider; /* NULL: none yet, or closed */
};

/* A call that notes its answer; zero it, fill the question in. */
struct asked {
    struct lease_call call;
    bool answered;
    int times; /* `done` was called */
};

void rig_init(struct rig *rig);
/* Opens a provider by its URI. */
void rig_open(struct rig *rig, const char *uri_format, ...) __attribute__((format(printf, 2, 3)));
void rig_close(struct rig *rig); /* the provider, and waits for the end */
void rig_free(struct rig *rig);  /* closes too; checks that the loop is empty */
void rig_turn(struct rig *rig);  /* once around the loop, at most some milliseconds */

/* Turns until `cond`; fails the test after 10 s. */
#define rig_until(rig, cond)                                                                       \
    do {                                                                                           \
        struct deadline rig_deadline = deadline_in(10000);                                         \
        while (!(cond)) {                                                                          \
            deadline_keep(&rig_deadline);                                                          \
            rig_turn(rig);                                                                         \
        }                                                                                          \
    } while (0)

bool rig_up(const struct rig *rig);
bool rig_detail_has(const struct rig *rig, const char *text);
/* What was logged since the last call, as one text, in `out`. */
const char *rig_logged(struct rig *rig, char *out, size_t size);
/* How often a part occurs in it. */
size_t rig_count(const char *text, const char *part);

/* A question about sku:1, for a minute. */
struct asked rig_question(enum lease_verb verb, const char *nonce, int64_t token);
/* Asks; the answer may come later. */
void rig_ask(struct rig *rig, struct asked *asked);
/* Asks, and waits for the answer. */
void rig_answer(struct rig *rig, struct asked *asked);
struct lease_call rig_call(struct rig *rig, enum lease_verb verb, const char *nonce, int64_t token);

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
