/* SPDX-License-Identifier: Apache-2.0 */
/* The client's own life. */
#include "proxy/client/client.h"

#include <stdlib.h>
#include <unistd.h>

#include "fence/base/mem.h"
#include "proxy/client/embedded.h"
#include "proxy/client/export.h"
#include "proxy/client/lease.h"
#include "proxy/engine/command/table.h"

enum { TIMEOUT_MS_MAX = 24 * 3600 * 1000 };

#ifndef STOCKADE_VERSION
#define STOCKADE_VERSION "0.1.0"
#endif

EXPORT const char *stk_version(void)
{
    return STOCKADE_VERSION;
}

enum stk_error client_check(const stk_client *client)
{
    return client->pid == getpid() ? STK_OK : fail(STK_FORKED, NULL);
}

bool client_command_reads(const stk_client *client, struct bytes name)
{
    const struct command *command = command_find(&client->commands, name);
    return command != NULL && (command->order == ORDER_READ || command->order == ORDER_NOW ||
                               bytes_equal_nocase(name, "LEASE"));
}

/* The first connection, or the engine: says at once whether the client can be of use. */
static enum stk_error begin(stk_client *client)
{
    enum stk_error error = STK_OK;

    if (client->target.kind == TARGET_EMBEDDED) {
        client->embedded = embedded_open(&client->target, &error);
        return error;
    }
    struct call call = {.client = client,
                        .replies_count = 1,
                        .repeatable = true,
                        .deadline_ms = now_ms() + client->timeout_ms};
    struct peer *peer = peer_open(&client->target, NULL, call.deadline_ms, -1, &error);
    if (peer == NULL)
        return error;
    list_append(&client->idle, &peer->link);
    client->idle_count = 1;
    ask_begin(&call.request, 1);
    ask_text(&call.request, "PING");
    error = call_run(&call);
    if (error == STK_OK)
        error = reply_error(call.replies[0]);
    call_end(&call);
    return error;
}

EXPORT enum stk_error stk_client_open(const char *uri, int64_t timeout_ms, stk_client **opened)
{
    char why[256];

    *opened = NULL;
    if (timeout_ms < 1 || timeout_ms > TIMEOUT_MS_MAX)
        return fail(STK_MISUSE, "timeout_ms is from 1 to %d", TIMEOUT_MS_MAX);
    stk_client *client = mem_zalloc(sizeof *client);
    client->pid = getpid();
    client->timeout_ms = timeout_ms;
    list_init(&client->idle);
    list_init(&client->leases);
    pthread_mutex_init(&client->lock, NULL);
    command_index_fill(&client->commands, commands, commands_count);
    enum stk_error error = target_parse(uri, &client->target, why, sizeof why)
                               ? begin(client)
                               : fail(STK_MISUSE, "URI: %s", why);
    if (error == STK_OK)
        *opened = client;
    else
        stk_client_close(client);
    return error;
}

/* Leases outlive their client as handles and no more. */
static void orphan_leases(stk_client *client)
{
    struct list *link;

    while ((link = list_pop(&client->leases)) != NULL) {
        stk_lease *lease = list_entry(link, stk_lease, link);
        if (lease->peer != NULL)
            peer_close(lease->peer);
        lease->peer = NULL;
        lease->kept = false;
        lease->client = NULL;
    }
}

static void close_idle(stk_client *client)
{
    while (!list_empty(&client->idle)) /* which peer_close makes shorter */
        peer_close(list_entry(client->idle.next, struct peer, link));
}

/* After fork: only descriptors of ours are let go of, where no thread was at work on the lists. The
 * connections themselves are the parent's. */
static void drop(stk_client *client)
{
    if (client->embedded != NULL || pthread_mutex_trylock(&client->lock) != 0)
        return;
    close_idle(client);
    orphan_leases(client);
    keepalive_drop(client->keeper);
    pthread_mutex_unlock(&client->lock);
}

EXPORT void stk_client_close(stk_client *client)
{
    if (client == NULL)
        return;
    if (client->pid != getpid()) {
        drop(client);
        return;
    }
    keepalive_free(client->keeper);
    client->keeper = NULL;
    orphan_leases(client);
    close_idle(client);
    embedded_close(client->embedded);
    pthread_mutex_destroy(&client->lock);
    free(client);
}
