/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a greeting, in the order of sending, and what their answers have to be. CLIENT
 * SETNAME is a courtesy, so its refusal does not matter. It comes late, because a Redis that is
 * full answers the first command with the reason, and only that. */
#include "fence/lease/redis/greeting.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#include "fence/lease/redis/wire.h"

#define ARGS_MAX 4

enum step {
    STEP_AUTH,
    STEP_ROLE,
    STEP_MASTER,
    STEP_SELECT,
    STEP_LOAD, /* and as many more as there are scripts */
    STEP_NAME = STEP_LOAD + SCRIPTS,
    STEP_SUBSCRIBE,
    STEPS
};

static const char requests[STEPS]; /* only their addresses matter */

static void *request_of(int step)
{
    return (void *)(uintptr_t)&requests[step];
}

static void send(struct greeting *greeting, struct wire *wire, int step, int argc,
                 const char **argv)
{
    size_t lens[ARGS_MAX];

    for (int i = 0; i < argc; i++)
        lens[i] = strlen(argv[i]);
    greeting->unanswered++;
    wire_send(wire, request_of(step), argc, argv, lens);
}

void greeting_send(struct greeting *greeting, struct wire *wire)
{
    const struct lease_uri *uri = greeting->uri;
    char db[16];

    greeting->unanswered = 0;
    if (uri->login.user[0] != '\0')
        send(greeting, wire, STEP_AUTH, 3,
             (const char *[]){"AUTH", uri->login.user, uri->login.password});
    else if (uri->login.password[0] != '\0')
        send(greeting, wire, STEP_AUTH, 2, (const char *[]){"AUTH", uri->login.password});
    if ((greeting->parts & GREETING_ROLE) != 0)
        send(greeting, wire, STEP_ROLE, 1, (const char *[]){"ROLE"});
    if ((greeting->parts & GREETING_MASTER) != 0)
        send(greeting, wire, STEP_MASTER, 3,
             (const char *[]){"SENTINEL", "GET-MASTER-ADDR-BY-NAME", uri->name});
    snprintf(db, sizeof db, "%d", uri->db);
    if ((greeting->parts & GREETING_SCRIPTS) != 0 && uri->db != 0)
        send(greeting, wire, STEP_SELECT, 2, (const char *[]){"SELECT", db});
    for (int i = 0; (greeting->parts & GREETING_SCRIPTS) != 0 && i < SCRIPTS; i++)
        send(greeting, wire, STEP_LOAD + i, 3,
             (const char *[]){"SCRIPT", "LOAD", script_text((enum lease_verb)i)});
    send(greeting, wire, STEP_NAME, 3,
         (const char *[]){"CLIENT", "SETNAME", greeting->client_name});
    if ((greeting->parts & GREETING_SUBSCRIBE) != 0) {
        greeting->unanswered++;
        wire_listen(wire, request_of(STEP_SUBSCRIBE), greeting->channel);
    }
}

static bool is_string(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING;
}

static bool fail(char *why, const char *text)
{
    snprintf(why, GREETING_WHY_MAX, "%s", text);
    return false;
}

/* Sentinels may be late to notice a failover, and a replica takes no writes. */
static bool take_role(const redisReply *reply, char *why)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 || !is_string(reply->element[0]))
        return fail(why, "ROLE did not answer with a role (is it Redis?)");
    if (strcmp(reply->element[0]->str, "master") == 0)
        return true;
    snprintf(why, GREETING_WHY_MAX, "its role is %.16s, not master", reply->element[0]->str);
    return false;
}

static bool take_master(const redisReply *reply, struct uri_host *master, char *why)
{
    int64_t port;

    if (reply->type == REDIS_REPLY_NIL)
        return fail(why, "it knows no master of this name");
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && is_string(reply->element[0]) &&
        is_string(reply->element[1])) {
        const redisReply *host = reply->element[0], *number = reply->element[1];
        if (host->len > 0 && host->len < sizeof master->name &&
            bytes_to_int64((struct bytes){number->str, number->len}, &port) && port > 0 &&
            port <= 65535) {
            memcpy(master->name, host->str, host->len + 1);
            master->port = (int)port;
            return true;
        }
    }
    return fail(why, "it did not answer with an address (is it a sentinel?)");
}

static bool take_sha(const redisReply *reply, char sha[SHA_LEN + 1], char *why)
{
    if (!is_string(reply) || reply->len != SHA_LEN)
        return fail(why, "SCRIPT LOAD did not answer with a SHA (is it Redis?)");
    memcpy(sha, reply->str, SHA_LEN);
    return true;
}

/* The wire lets only arrays of three pass. */
static bool take_subscribed(const redisReply *reply, char *why)
{
    return reply->element[2]->type == REDIS_REPLY_INTEGER ||
           fail(why, "SUBSCRIBE was not confirmed (is it Redis?)");
}

bool greeting_answered(struct greeting *greeting, const void *request,
                       const struct redisReply *reply, char why[GREETING_WHY_MAX])
{
    int step = (int)((const char *)request - requests);

    greeting->unanswered--;
    if (step == STEP_NAME)
        return true;
    if (reply->type == REDIS_REPLY_ERROR) {
        script_error(reply, why);
        return false;
    }
    switch (step) {
    case STEP_AUTH:
    case STEP_SELECT: return true;
    case STEP_ROLE: return take_role(reply, why);
    case STEP_MASTER: return take_master(reply, &greeting->master, why);
    case STEP_SUBSCRIBE: return take_subscribed(reply, why);
    default: return take_sha(reply, greeting->shas[step - STEP_LOAD], why);
    }
}
