/* SPDX-License-Identifier: Apache-2.0 */
/* One client's side of a conversation with an engine: what it has sent is taken apart by a parser
 * of its own, so that it knows how many replies to expect, which of them it can foretell, and which
 * tokens it has presented. */
#ifndef STOCKADE_TESTS_FUZZ_DISPATCH_H
#define STOCKADE_TESTS_FUZZ_DISPATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "proxy/resp/resp.h"

enum { TALK_ECHO_MAX = 32, TALK_PRESENTED_MAX = 256 };

struct talk {
    struct resp_parser *parser;
    /* Replies expected and not seen yet, in order: where ECHO was asked, its argument. */
    struct expected {
        bool echo;
        size_t len;
        char text[TALK_ECHO_MAX];
    } * expected;
    size_t from, count, room;
    /* Tokens presented by what may still take effect. */
    struct presented {
        struct bytes resource; /* owned */
        int64_t token;
    } presented[TALK_PRESENTED_MAX];
    size_t presented_count;
    bool in_multi;
    bool uncounted; /* it subscribed, quit, or broke the protocol: replies are not counted any more
                     */
    bool silent;    /* what follows is not answered any more */
    bool resp3;     /* it has asked for RESP3 at least once */
    bool notified;  /* it has said RENEW ... NOTIFY */
};

/* Note what the client sends. */
void talk_sent(struct talk *talk, struct bytes data);
/* Check what it got: each reply has to be valid, and the one that is due. */
void talk_received(struct talk *talk, struct bytes data);
/* Every request has its reply. */
bool talk_all_answered(const struct talk *talk);
/* Has it presented a token from..to for the resource, with something that may only just have taken
 * effect? */
bool talk_presented(const struct talk *talk, const char *name, size_t len, int64_t from,
                    int64_t to);
/* Forget the tokens of requests that are answered, which can take no effect any more. */
void talk_settled(struct talk *talk);
/* Note that the connection is gone. No reply is due any more, but tokens may still take effect. */
void talk_disconnected(struct talk *talk);
/* Free what it holds. All zero is a new one. */
void talk_end(struct talk *talk);

#endif
