/* SPDX-License-Identifier: Apache-2.0 */
/* A client's life: it is opened, and closed, in the process that opened it or in a child of it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/mem.h"
#include "proxy/client/renewer.h"
#include "proxy/client/reply.h"
#include "proxy/resp/resp.h"

enum { TIMEOUT_MS_MAX = 24 * 3600 * 1000 };

const char *stk_version(void)
{
    return STK_VERSION;
}

/* Make the first connection, or start the engine: it shows at once whether the client is of use. */
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
    struct connection *connection =
        client_connect(client, call.deadline_ms, thread_cancel_fd(), &error);
    if (connection == NULL)
        return error;
    list_append(&client->idle, &connection->link);
    client->idle_count = 1;
    resp_array(&call.request, 1);
    resp_bulk_text(&call.request, "PING");
    error = call_run(&call);
    if (error == STK_OK)
        error = reply_error(call.replies[0]);
    if (error == STK_NOPERM) /* it may do other things, and there is a daemon */
        error = STK_OK;
    call_end(&call);
    return error;
}

/* Tells the processes of a program apart, also on several machines behind one address:
 * till-4711@web-2. */
static void name_process(char name[STK_NAME_MAX + 1])
{
    char host[64] = "";

    (void)gethostname(host, sizeof host - 1);
    snprintf(name, STK_NAME_MAX + 1, "%.32s-%d@%.20s", program_invocation_short_name, (int)getpid(),
             host);
    for (char *at = name; *at != '\0'; at++)
        if (*at < '!' || *at > '~')
            *at = '-';
}

enum stk_error stk_client_open(const char *uri, int64_t timeout_ms, stk_client **opened)
{
    char why[256];

    *opened = NULL;
    if (timeout_ms < 1 || timeout_ms > TIMEOUT_MS_MAX)
        return fail(STK_MISUSE, "timeout_ms is from 1 to %d", TIMEOUT_MS_MAX);
    stk_client *client = mem_zalloc(sizeof *client);
    client->pid = getpid();
    atomic_init(&client->timeout_ms, timeout_ms);
    name_process(client->name);
    list_init(&client->idle);
    list_init(&client->leases);
    pthread_mutex_init(&client->lock, NULL);
    command_index_fill(&client->commands, commands, commands_count);
    enum stk_error error = target_parse(uri, &client->target, why, sizeof why)
                               ? begin(client)
                               : fail(STK_MISUSE, "%s", why);
    if (error == STK_OK)
        *opened = client;
    else
        stk_client_close(client);
    return error;
}

static void close_idle(stk_client *client, void (*close)(struct connection *connection))
{
    while (!list_empty(&client->idle)) /* which `close` shortens */
        close(list_entry(client->idle.next, struct connection, link));
}

enum stk_error stk_client_set_timeout(stk_client *client, int64_t timeout_ms)
{
    enum stk_error error = client_check(client);

    if (error == STK_OK && (timeout_ms < 1 || timeout_ms > TIMEOUT_MS_MAX))
        error = fail(STK_MISUSE, "timeout_ms is from 1 to %d", TIMEOUT_MS_MAX);
    if (error == STK_OK)
        atomic_store(&client->timeout_ms, timeout_ms);
    return error;
}

enum stk_error stk_client_set_name(stk_client *client, const char *name)
{
    enum stk_error error = client_check(client);
    const char *given = name == NULL ? "" : name;
    size_t len = strlen(given), plain = 0;

    while (plain < len && given[plain] >= '!' && given[plain] <= '~')
        plain++;
    if (error == STK_OK && (len < 1 || len > STK_NAME_MAX || plain < len))
        error = fail(STK_MISUSE, "a name is 1 to %d visible characters of ASCII, without blanks",
                     STK_NAME_MAX);
    if (error != STK_OK)
        return error;
    pthread_mutex_lock(&client->lock);
    memcpy(client->name, given, len + 1);
    close_idle(client, connection_close); /* they have the old one */
    client->idle_count = 0;
    pthread_mutex_unlock(&client->lock);
    return STK_OK;
}

/* Let go of our copies of the descriptors, where no thread was at work on the lists when the parent
 * forked. The connections themselves are the parent's. */
static void drop(stk_client *client)
{
    if (client->embedded != NULL || pthread_mutex_trylock(&client->lock) != 0)
        return;
    close_idle(client, connection_drop);
    leases_orphan(client, connection_drop);
    renewer_drop(client->renewer);
    pthread_mutex_unlock(&client->lock);
}

void stk_client_close(stk_client *client)
{
    if (client == NULL)
        return;
    if (client->pid != getpid()) {
        drop(client);
        return;
    }
    renewer_free(client->renewer);
    client->renewer = NULL;
    leases_orphan(client, connection_close);
    close_idle(client, connection_close);
    embedded_close(client->embedded);
    pthread_mutex_destroy(&client->lock);
    free(client);
}
