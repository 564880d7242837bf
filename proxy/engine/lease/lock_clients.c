/* SPDX-License-Identifier: Apache-2.0 */
/* See lock_clients.h. Which prefixes guarded tables have is the store's to tell: it is asked where
 * a lease has ended whose token was not presented, at most once in GUARDS_KNOWN_MS. What ends
 * meanwhile is judged when the answer is there; beyond UNJUDGED_MAX of these it is not counted. */
#include "proxy/engine/lease/lock_clients.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/log.h"
#include "fence/base/mem.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/lease/lease.h"
#include "store/sql.h"

enum { CLIENTS_MAX = 64, GUARDS_KNOWN_MS = 10000, UNJUDGED_MAX = 256 };

struct lock_client {
    struct lock_clients *clients;
    char who[SESSION_LIKE_SIZE];
    uint64_t taken, unpresented;
};

/* A lease that has ended, and whose token was not presented here. */
struct unjudged {
    struct list link;
    struct lock_client *client;
    struct buf resource;
};

/* Each prefix behind its length. */
struct prefixes {
    struct buf all;
};

struct lock_clients {
    struct engine *engine;
    size_t count;
    struct lock_client all[CLIENTS_MAX]; /* the last one stands for all others */
    struct prefixes guarded;
    int64_t guarded_until_ms; /* they are known up to then */
    struct list unjudged;
    size_t unjudged_count;

    /* The store's while it is asked: unjudged_count > 0. */
    struct store_op op;
    struct prefixes found;
};

struct lock_clients *lock_clients_new(struct engine *engine)
{
    struct lock_clients *clients = mem_zalloc(sizeof *clients);

    clients->engine = engine;
    list_init(&clients->unjudged);
    return clients;
}

void lock_clients_free(struct lock_clients *clients)
{
    check(list_empty(&clients->unjudged));
    buf_free(&clients->guarded.all);
    buf_free(&clients->found.all);
    free(clients);
}

struct lock_client *lock_client_of(struct session *session)
{
    struct lock_clients *clients = session->engine->lock_clients;
    char who[SESSION_LIKE_SIZE];

    session_describe_like(session, who);
    for (size_t i = 0; i < clients->count; i++)
        if (strcmp(clients->all[i].who, who) == 0)
            return &clients->all[i];
    if (clients->count == CLIENTS_MAX)
        return &clients->all[CLIENTS_MAX - 1];
    struct lock_client *client = &clients->all[clients->count++];
    client->clients = clients;
    snprintf(client->who, sizeof client->who, "%s", clients->count < CLIENTS_MAX ? who : "others");
    return client;
}

void lock_client_took(struct lock_client *client)
{
    client->taken++;
    client->clients->engine->counters.locks_taken++;
}

static void prefixes_add(struct prefixes *prefixes, struct bytes prefix)
{
    buf_append(&prefixes->all, &prefix.len, sizeof prefix.len);
    buf_append_bytes(&prefixes->all, prefix);
}

/* Does the name begin with one of them? */
static bool prefixes_fit(const struct prefixes *prefixes, struct bytes name)
{
    size_t len;

    for (size_t at = 0; at < prefixes->all.len; at += len) {
        memcpy(&len, prefixes->all.data + at, sizeof len);
        at += sizeof len;
        if (name.len >= len && memcmp(name.data, prefixes->all.data + at, len) == 0)
            return true;
    }
    return false;
}

static void judge(struct lock_client *client, struct bytes resource)
{
    struct engine *engine = client->clients->engine;
    char name[128];

    if (prefixes_fit(&client->clients->guarded, resource))
        return;
    engine->counters.locks_unpresented++;
    if (client->unpresented++ > 0)
        return;
    log_warn(engine->options.log,
             "client %s has locked %s and presented no token for it: if it wrote meanwhile, that "
             "was not fenced; let it write with FENCED and the lock's value, or guard its table",
             client->who, log_quoted(resource, name, sizeof name));
}

static void note_guard(void *context, const struct table_guard *guard, struct bytes flaw)
{
    if (flaw.len == 0)
        prefixes_add(context, guard->prefix);
}

static enum stk_error guards_run(struct store_op *op, struct store_txn *txn)
{
    struct lock_clients *clients = list_entry(op, struct lock_clients, op);

    buf_clear(&clients->found.all);
    return txn_guards(txn, note_guard, &clients->found);
}

static void guards_done(struct store_op *op)
{
    struct lock_clients *clients = list_entry(op, struct lock_clients, op);
    struct prefixes before = clients->guarded;
    struct list *link;

    clients->engine->requests_open--;
    if (op->error == STK_OK) {
        clients->guarded = clients->found;
        clients->found = before;
        clients->guarded_until_ms = engine_now_ms(clients->engine) + GUARDS_KNOWN_MS;
    }
    while ((link = list_pop(&clients->unjudged)) != NULL) {
        struct unjudged *unjudged = list_entry(link, struct unjudged, link);
        judge(unjudged->client, buf_bytes(&unjudged->resource));
        buf_free(&unjudged->resource);
        free(unjudged);
    }
    clients->unjudged_count = 0;
}

/* On the writer, as GUARD LIST is. */
static void ask_for_guards(struct lock_clients *clients, struct bytes about)
{
    clients->engine->requests_open++;
    enum stk_error error =
        lease_submit(clients->engine, &clients->op, true, about, guards_run, guards_done);
    if (error != STK_OK) { /* else the operation is the store's already */
        clients->op.error = error;
        guards_done(&clients->op);
    }
}

void lock_client_ended(struct lock_client *client, struct bytes resource, bool presented)
{
    struct lock_clients *clients = client->clients;

    if (presented || clients->unjudged_count == UNJUDGED_MAX)
        return;
    if (engine_now_ms(clients->engine) < clients->guarded_until_ms) {
        judge(client, resource);
        return;
    }
    struct unjudged *unjudged = mem_zalloc(sizeof *unjudged);
    unjudged->client = client;
    buf_append_bytes(&unjudged->resource, resource);
    list_append(&clients->unjudged, &unjudged->link);
    if (++clients->unjudged_count == 1)
        ask_for_guards(clients, buf_bytes(&unjudged->resource));
}

void lock_clients_print(const struct lock_clients *clients, struct buf *out)
{
    for (size_t i = 0; i < clients->count; i++) {
        const struct lock_client *client = &clients->all[i];
        buf_printf(out, "lock_client%zu:taken=%" PRIu64 ",without_token=%" PRIu64 ",client=%s\r\n",
                   i, client->taken, client->unpresented, client->who);
    }
}
