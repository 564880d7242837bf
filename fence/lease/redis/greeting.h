/* SPDX-License-Identifier: Apache-2.0 */
/* The first commands on a new connection: who we are, and what has to be there before it can be
 * used. They are sent in one go, and the answers come in the same order. An error among them ends
 * the attempt, with Redis's own words as the reason.
 *
 * What a greeting consists of depends on the connection's role (conn.c). */
#ifndef STOCKADE_FENCE_LEASE_REDIS_GREETING_H
#define STOCKADE_FENCE_LEASE_REDIS_GREETING_H

#include <stdbool.h>

#include "fence/lease/redis/scripts.h"
#include "fence/lease/uri.h"

struct redisReply;
struct wire;

#define GREETING_WHY_MAX SCRIPT_ERROR_MAX
#define SHA_LEN          40

/* Beside AUTH and CLIENT SETNAME, which every greeting has. */
enum greeting_part {
    GREETING_ROLE = 1,      /* is it a master? */
    GREETING_MASTER = 2,    /* where is the master? asked of a sentinel */
    GREETING_SCRIPTS = 4,   /* SELECT the database, and load the scripts */
    GREETING_SUBSCRIBE = 8, /* from then on messages arrive, and nothing else can be sent */
};

struct greeting {
    const struct lease_uri *uri; /* login, database, the master's name */
    unsigned parts;              /* enum greeting_part */
    const char *client_name;
    const char *channel; /* GREETING_SUBSCRIBE: stays where it is for the connection's life */

    unsigned unanswered;             /* commands */
    char shas[SCRIPTS][SHA_LEN + 1]; /* GREETING_SCRIPTS: their names, for EVALSHA */
    struct uri_host master;          /* GREETING_MASTER: the answer */
};

/* Send the greeting. Each answer arrives as the wire's reply to a `request` that only
 * greeting_answered understands. */
void greeting_send(struct greeting *greeting, struct wire *wire);
/* Take an answer. False: the connection is of no use, and `why` says more. */
bool greeting_answered(struct greeting *greeting, const void *request,
                       const struct redisReply *reply, char why[GREETING_WHY_MAX]);

#endif
