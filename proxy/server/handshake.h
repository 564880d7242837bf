/* SPDX-License-Identifier: Apache-2.0 */
/* TLS handshakes of clients, from the connection's arrival until it is secured: whose turn it is,
 * how long each may take, whom its certificate names, and what the log hears of those that fail.
 *
 *   handshake_wait ──▶ to come ──▶ begin() ──▶ under way ──▶ handshake_end
 *                         └──── late() ──────────┘
 *
 * A handshake costs the loop much more than a command does, and whoever can connect may begin one:
 * HANDSHAKES_MAX are under way at a time, the others wait unread, and each has HANDSHAKE_MS from
 * its arrival on. While others wait, one that has had its turn for TURN_MS is late, so that silent
 * ones do not keep them out. */
#ifndef STOCKADE_SERVER_HANDSHAKE_H
#define STOCKADE_SERVER_HANDSHAKE_H

#include <uv.h>

#include "fence/base/list.h"
#include "fence/base/log.h"
#include "fence/base/tls.h"
#include "proxy/server/socket.h"

enum { USER_NAME_MAX = 255 };

/* A connection's. */
struct handshake {
    struct list link;  /* in handshakes->to_come or ->under_way; else in none */
    uint64_t until_ms; /* it is late then */
    uint64_t turn_ms;  /* under way: late then, if others wait; 0: its turn has not come */
};

/* All of one door: the connections of clients, or those of the page. */
struct handshakes {
    uv_loop_t *loop;
    const struct log *log;
    const char *door;                                   /* stands in front of what is logged */
    void (*begin)(struct handshake *, struct tls *tls); /* its turn has come; takes tls over */
    void (*late)(struct handshake *);                   /* its owner drops it, which ends it */
    struct tls_context *context;                        /* of new ones; owned; NULL: no TLS */
    enum tls_user user;                                 /* likewise */
    struct list to_come, under_way;                     /* the oldest first */
    size_t count;                                       /* of those under way */
    uint64_t logged_ms;                                 /* when one that failed was logged last */
};

void handshakes_init(struct handshakes *handshakes);
/* New ones begin with this context, which is taken over; the others go on as they are. */
void handshakes_set_tls(struct handshakes *handshakes, struct tls_context *context,
                        enum tls_user user);
/* Tell those that are late; to be called each 250 ms or so while there are any. */
void handshakes_tick(struct handshakes *handshakes);
bool handshakes_are_over(const struct handshakes *handshakes);
/* All have ended. */
void handshakes_free(struct handshakes *handshakes);

void handshake_init(struct handshake *handshake);
/* Begin, now or when there is room. */
void handshake_wait(struct handshakes *handshakes, struct handshake *handshake);
/* Is it to come, or under way? */
bool handshake_goes_on(const struct handshake *handshake);
/* It has succeeded or failed, or its turn never came: others may begin. */
void handshake_end(struct handshakes *handshakes, struct handshake *handshake);
/* The user whom the client's certificate names, in `name`. NULL: nobody, and a certificate that
 * names nobody is as good as none. */
const char *handshake_user(const struct handshakes *handshakes, const struct tls *tls,
                           char name[USER_NAME_MAX + 1]);
/* Log why it came to nothing: not for each, since whoever can connect may let many fail. */
void handshake_log_failed(struct handshakes *handshakes, const union socket *socket,
                          const char *why);
/* What a client says first: is it the beginning of TLS, or text, as of a client that has none? */
bool handshake_is_tls(struct bytes first);
bool handshake_is_text(struct bytes first);

#endif
