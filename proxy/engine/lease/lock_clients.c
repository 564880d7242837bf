/* SPDX-License-Identifier: Apache-2.0 */
/* See lock_clients.h. */
#include "proxy/engine/lease/lock_clients.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/log.h"
#include "fence/base/mem.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/session.h"

enum { CLIENTS_MAX = 64, WHO_SIZE = 320 };

struct lock_client {
    struct lock_clients *clients;
    char who[WHO_SIZE];
    uint64_t taken, unpresented;
};

struct lock_clients {
    struct engine *engine;
    size_t count;
    struct lock_client all[CLIENTS_MAX]; /* the last one stands for all others */
};

struct lock_clients *lock_clients_new(struct engine *engine)
{
    struct lock_clients *clients = mem_zalloc(sizeof *clients);

    clients->engine = engine;
    return clients;
}

void lock_clients_free(struct lock_clients *clients)
{
    free(clients);
}

/* 10.0.0.7 lib=redis-py(5.0.1) name=till */
static void describe(const struct session *session, char who[WHO_SIZE])
{
    const char *colon = strrchr(session->peer, ':');
    size_t host = colon == NULL ? strlen(session->peer) : (size_t)(colon - session->peer);
    int len = snprintf(who, WHO_SIZE, "%.*s", (int)host, session->peer);

    if (session->lib_name[0] != '\0')
        len += snprintf(who + len, WHO_SIZE - (size_t)len, " lib=%s(%s)", session->lib_name,
                        session->lib_version);
    if (session->name[0] != '\0')
        snprintf(who + len, WHO_SIZE - (size_t)len, " name=%s", session->name);
}

struct lock_client *lock_client_of(struct session *session)
{
    struct lock_clients *clients = session->engine->lock_clients;
    char who[WHO_SIZE];

    describe(session, who);
    for (size_t i = 0; i < clients->count; i++)
        if (strcmp(clients->all[i].who, who) == 0)
            return &clients->all[i];
    if (clients->count == CLIENTS_MAX)
        return &clients->all[CLIENTS_MAX - 1];
    struct lock_client *client = &clients->all[clients->count++];
    client->clients = clients;
    snprintf(client->who, WHO_SIZE, "%s", clients->count < CLIENTS_MAX ? who : "others");
    return client;
}

void lock_client_took(struct lock_client *client)
{
    client->taken++;
    client->clients->engine->counters.locks_taken++;
}

void lock_client_ended(struct lock_client *client, struct bytes resource, bool presented)
{
    struct engine *engine = client->clients->engine;
    char name[128];

    if (presented)
        return;
    engine->counters.locks_unpresented++;
    if (client->unpresented++ > 0)
        return;
    log_warn(engine->options.log,
             "client %s has locked %s and presented no token for it: what it wrote meanwhile was "
             "not fenced; let it write with FENCED and the lock's value",
             client->who, log_quoted(resource, name, sizeof name));
}

void lock_clients_print(const struct lock_clients *clients, struct buf *out)
{
    for (size_t i = 0; i < clients->count; i++) {
        const struct lock_client *client = &clients->all[i];
        buf_printf(out, "lock_client%zu:taken=%" PRIu64 ",without_token=%" PRIu64 ",client=%s\r\n",
                   i, client->taken, client->unpresented, client->who);
    }
}
