/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between clients and daemons: two ordered pipes of bytes, each message with its own
 * time on the way. A cut connection loses what is on its way; both ends learn of it later, each at
 * its own time, and until then the daemon goes on with what it has received. */
#ifndef STOCKADE_TESTS_SIM_LINK_H
#define STOCKADE_TESTS_SIM_LINK_H

#include "tests/sim/calls.h"
#include "tests/twins/memory_conn.h"

struct link {
    struct link *next;
    struct world *world;
    int number, daemon, client;
    struct memory_conn conn; /* at the daemon */
    bool opened, cut, client_closed;
    uint64_t client_life;
    struct rng rng;
    int64_t to_us, from_us; /* when the latest message of each direction arrives */
    struct call *call;      /* the one under way */
};

struct link *link_open(struct world *world, int client, int daemon);
void link_send(struct link *link, struct call *call);
/* The client closes it, once what it has sent has arrived. */
void link_close(struct link *link);
/* The daemon died: its end is gone. */
void link_daemon_gone(struct link *link);
void links_free(struct world *world);

#endif
