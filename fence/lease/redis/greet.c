/* SPDX-License-Identifier: Apache-2.0 */
/* The first commands on a new connection, sent in one go; the answers come in the same order. Any
 * refusal ends the attempt with Redis's own words as the reason, but for CLIENT SETNAME: that is a
 * courtesy, and comes last, so as not to swallow a refusal of the whole connection. Who was sent by
 * sentinels asks for the role first: they may be late, and a replica takes no writes. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <string.h>

#include "fence/lease/redis/link_impl.h"

/* What an answer is to: requests of the greeting are these texts, and the loads' are the scripts.
 */
static const char step_auth[] = "AUTH";
static const char step_select[] = "SELECT";
static const char step_name[] = "CLIENT SETNAME";
static const char step_role[] = "ROLE";
static const char step_master[] = "SENTINEL GET-MASTER-ADDR-BY-NAME";
static const char step_listen[] = "SUBSCRIBE";

static void send_step(struct redis_link *link, const char *step, int argc, const char **argv)
{
    size_t lens[4];

    for (int i = 0; i < argc; i++)
        lens[i] = strlen(argv[i]);
    link->greetings++;
    wire_send(link->wire, (void *)(uintptr_t)step, argc, argv, lens);
}

void link_greet(struct redis_link *link)
{
    char db[16];

    link->greetings = 0;
    if (link->uri.login.user[0] != '\0')
        send_step(link, step_auth, 3,
                  (const char *[]){"AUTH", link->uri.login.user, link->uri.login.password});
    else if (link->uri.login.password[0] != '\0')
        send_step(link, step_auth, 2, (const char *[]){"AUTH", link->uri.login.password});
    snprintf(db, sizeof db, "%d", link->uri.db);
    if (link->sentinels != NULL)
        send_step(link, step_role, 1, (const char *[]){"ROLE"});
    if (link->named != NULL)
        send_step(link, step_master, 3,
                  (const char *[]){"SENTINEL", "GET-MASTER-ADDR-BY-NAME", link->uri.name});
    if (link->heard != NULL) { /* its channel is one for all databases */
        send_step(link, step_name, 3, (const char *[]){"CLIENT", "SETNAME", "stockade-listener"});
        link->greetings++;
        wire_listen(link->wire, (void *)(uintptr_t)step_listen, link->channel);
        return;
    }
    if (link->uri.db != 0)
        send_step(link, step_select, 2, (const char *[]){"SELECT", db});
    for (int i = 0; i < SCRIPTS; i++) {
        const char *text = script_text((enum lease_verb)i);
        send_step(link, text, 3, (const char *[]){"SCRIPT", "LOAD", text});
    }
    send_step(link, step_name, 3, (const char *[]){"CLIENT", "SETNAME", "stockade"});
}

static bool is_string(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING;
}

static void take_role(struct redis_link *link, const redisReply *reply)
{
    char why[64];

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 || !is_string(reply->element[0])) {
        link_fail(link, "ROLE did not answer with a role (is it Redis?)");
    } else if (strcmp(reply->element[0]->str, "master") != 0) {
        snprintf(why, sizeof why, "its role is %.16s, not master", reply->element[0]->str);
        link_fail(link, why);
    }
}

/* The address that a sentinel names. */
static void take_master(struct redis_link *link, const redisReply *reply)
{
    struct uri_host *master = &link->master;
    int64_t port;

    if (reply->type == REDIS_REPLY_NIL) {
        link_fail(link, "it knows no master of this name");
        return;
    }
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && is_string(reply->element[0]) &&
        is_string(reply->element[1])) {
        const redisReply *host = reply->element[0], *number = reply->element[1];
        if (host->len > 0 && host->len < sizeof master->name &&
            bytes_to_int64((struct bytes){number->str, number->len}, &port) && port > 0 &&
            port <= 65535) {
            memcpy(master->name, host->str, host->len + 1);
            master->port = (int)port;
            return;
        }
    }
    link_fail(link, "it did not answer with an address (is it a sentinel?)");
}

void link_greeted(struct redis_link *link, const char *step, const struct redisReply *reply)
{
    char why[SCRIPT_ERROR_MAX];

    if (link->state != LINK_GREETING || step == step_name) {
        /* The attempt has failed already, or nobody minds. */
    } else if (reply->type == REDIS_REPLY_ERROR) {
        script_error(reply, why);
        link_fail(link, why);
    } else if (step == step_role) {
        take_role(link, reply);
    } else if (step == step_master) {
        take_master(link, reply);
    } else if (step == step_listen) {
        if (reply->element[2]->type != REDIS_REPLY_INTEGER)
            link_fail(link, "SUBSCRIBE was not confirmed (is it Redis?)");
    } else if (step != step_auth && step != step_select) {
        if (reply->type != REDIS_REPLY_STRING || reply->len != SHA_LEN) {
            link_fail(link, "SCRIPT LOAD did not answer with a SHA (is it Redis?)");
            return;
        }
        for (int i = 0; i < SCRIPTS; i++)
            if (step == script_text((enum lease_verb)i))
                memcpy(link->shas[i], reply->str, SHA_LEN);
    }
    if (--link->greetings == 0 && link->state == LINK_GREETING)
        link_enter(link, LINK_READY);
}
