/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps one lease: renews it at a third of its TTL and knows until when it is certainly ours.
 *
 *   renewal sent ──┬──────────────────────── TTL ───────────────────────┤
 *                  ├── sure until ──────────────────────────────┤drift│
 *
 * `sure_until_ms` counts from when the last successful ACQUIRE or RENEW was *sent*, on our own
 * clock, less a margin for clocks that differ in pace: a reply that comes late promises no more.
 * A second connection listens to the resource's events; they only make it look sooner, and what
 * RENEW replies is what counts. The owner polls both links, and calls keeper_turn whenever
 * something is ready or `keeper_next_ms` has come. */
#ifndef STOCKADE_TOOLS_LOCK_KEEPER_H
#define STOCKADE_TOOLS_LOCK_KEEPER_H

#include "tools/lock/link.h"

struct keeper {
    struct client_uri uri;
    const char *resource;
    int64_t ttl_ms;
    int64_t token;
    struct link link;   /* carries one command at a time */
    struct link events; /* SUBSCRIBEd */
    int64_t sent_ms;    /* when the RENEW that is on its way was sent; 0: none is */
    int64_t renew_at_ms;
    bool looks;           /* one at once, as soon as none is on its way */
    int64_t listen_at_ms; /* when to subscribe again */
    int64_t sure_until_ms;
    bool lost;              /* the server says that the lease is another's, or nobody's */
    struct failure failure; /* why it is lost, or why the last renewal failed */
};

/* Milliseconds that never go back and that count while the machine sleeps: the servers' clocks do.
 */
int64_t keeper_now_ms(void);

/* Begins to keep a lease that was granted on `link` (which it takes over) by a command that was
 * sent at `sent_ms`, with `ttl_ms` left when the reply left. */
void keeper_start(struct keeper *keeper, const struct link *link, int64_t token, int64_t sent_ms,
                  int64_t left_ms);
void keeper_turn(struct keeper *keeper);
/* Looks at once instead of at a third of the TTL. */
void keeper_look(struct keeper *keeper);
int64_t keeper_next_ms(const struct keeper *keeper);
/* Ends without releasing; the main link stays with the caller. */
void keeper_stop(struct keeper *keeper);

#endif
