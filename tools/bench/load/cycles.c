/* SPDX-License-Identifier: Apache-2.0 */
/* Lease cycles over RESP, in two round trips each: take the lease and read; write and give back.
 *
 * lease-cycle: Stockade's; who comes second waits in line. With a pipeline each client runs so many
 * side by side, on keys of its own. lock-cycle: the lock that many programs keep on Redis, SET NX
 * PX with compare-and-delete; who comes second asks again after 20 ms. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/load/load.h"

static void send_words(struct client *client, unsigned count, const char *const *words)
{
    buf_printf(&client->out, "*%u\r\n", count);
    for (unsigned i = 0; i < count; i++)
        buf_printf(&client->out, "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
}

#define SEND(client, ...)                                                                          \
    send_words(client, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *),                     \
               (const char *[]){__VA_ARGS__})

struct names {
    char key[32], lock[40], number[24], value[24];
};

/* Of the cycle that is this one of those which the client runs side by side. */
static struct names names_of(struct client *client, unsigned at)
{
    uint64_t key = client_cycle_key(client) * (uint64_t)client->load->settings->pipeline + at;
    struct names names;

    snprintf(names.key, sizeof names.key, "cycle:%" PRIu64, key);
    snprintf(names.lock, sizeof names.lock, "lock:%s", names.key);
    snprintf(names.number, sizeof names.number, "%" PRIu64, client->token);
    snprintf(names.value, sizeof names.value, "%" PRIu64, client->value);
    return names;
}

static enum turn all_ok(struct client *client)
{
    for (unsigned i = 0; i < client->got; i++)
        if (client_reply(client, i).data[0] == '-')
            return client_fail(client, "the server said", client_reply(client, i));
    return TURN_DONE;
}

/* What waits in line holds back what follows on its connection: side by side, nobody waits. */
static void take_leases(struct client *client, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct names names = names_of(client, i);
        if (count > 1)
            SEND(client, "ACQUIRE", names.key, "60000");
        else
            SEND(client, "ACQUIRE", names.key, "60000", "WAIT", "60000");
    }
    for (unsigned i = 0; i < count; i++) {
        struct names names = names_of(client, i);
        SEND(client, "GET", names.key);
    }
}

static enum turn give_leases_back(struct client *client, unsigned count)
{
    client->value++;
    for (unsigned i = 0; i < count; i++) {
        struct bytes grant = client_reply(client, i);
        if (strncmp(grant.data, "*2\r\n:", 5) != 0)
            return client_fail(client, "no grant", grant);
        client->token = strtoull(grant.data + 5, NULL, 10);
        struct names names = names_of(client, i);
        SEND(client, "FENCED", names.number, "SET", names.key, names.value);
        SEND(client, "RELEASE", names.key, names.number);
    }
    return client_await(client, 2 * count);
}

static enum turn lease_step(struct client *client)
{
    unsigned count = (unsigned)client->load->settings->pipeline;

    if (client->step == 0) {
        take_leases(client, count);
        return client_await(client, 2 * count);
    }
    if (all_ok(client) == TURN_FAILED)
        return TURN_FAILED;
    return client->step > 1 ? TURN_DONE : give_leases_back(client, count);
}

static enum turn lock_step(struct client *client)
{
    struct names names = names_of(client, 0);
    char owner[48];

    snprintf(owner, sizeof owner, "%u:%s", client->number, names.value);
    if (client->step == 0) {
        SEND(client, "SET", names.lock, owner, "NX", "PX", "60000");
        SEND(client, "GET", names.key);
        return client_await(client, 2);
    }
    if (all_ok(client) == TURN_FAILED)
        return TURN_FAILED;
    if (client->step > 1) {
        client->value++;
        return TURN_DONE;
    }
    if (client_reply(client, 0).data[0] == '$')
        return TURN_RETRY; /* another holds it */
    SEND(client, "SET", names.key, names.value);
    SEND(client, "EVALSHA", client->load->settings->script, "1", names.lock, owner);
    return client_await(client, 2);
}

const struct work lease_cycle_work = {
    .name = "lease-cycle", .protocol = &resp_protocol, .step = lease_step};
const struct work lock_cycle_work = {
    .name = "lock-cycle", .protocol = &resp_protocol, .step = lock_step};
