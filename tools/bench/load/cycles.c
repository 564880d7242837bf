/* SPDX-License-Identifier: Apache-2.0 */
/* Lease cycles over RESP, in two round trips each: take the lease and read; write and give back.
 *
 * lease-cycle: Stockade's; who comes second waits in line. lock-cycle: the lock that many programs
 * keep on Redis, SET NX PX with compare-and-delete; who comes second asks again after 20 ms. */
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

static struct names names_of(struct client *client)
{
    struct names names;

    snprintf(names.key, sizeof names.key, "cycle:%" PRIu64, client_cycle_key(client));
    snprintf(names.lock, sizeof names.lock, "lock:%s", names.key);
    snprintf(names.number, sizeof names.number, "%" PRIu64, client->token);
    snprintf(names.value, sizeof names.value, "%" PRIu64, client->value);
    return names;
}

static enum turn check_ok(struct client *client, unsigned index)
{
    struct bytes reply = client_reply(client, index);

    if (reply.data[0] == '-')
        return client_fail(client, "the server said", reply);
    return TURN_DONE;
}

static enum turn both_ok(struct client *client)
{
    return check_ok(client, 0) == TURN_DONE ? check_ok(client, 1) : TURN_FAILED;
}

static enum turn lease_step(struct client *client)
{
    struct names names = names_of(client);

    if (client->step == 0) {
        SEND(client, "ACQUIRE", names.key, "60000", "WAIT", "60000");
        SEND(client, "GET", names.key);
        return client_await(client, 2);
    }
    if (both_ok(client) == TURN_FAILED)
        return TURN_FAILED;
    if (client->step > 1)
        return TURN_DONE;
    struct bytes grant = client_reply(client, 0);
    if (strncmp(grant.data, "*2\r\n:", 5) != 0)
        return client_fail(client, "no grant", grant);
    client->token = strtoull(grant.data + 5, NULL, 10);
    client->value++;
    names = names_of(client);
    SEND(client, "FENCED", names.number, "SET", names.key, names.value);
    SEND(client, "RELEASE", names.key, names.number);
    return client_await(client, 2);
}

static enum turn lock_step(struct client *client)
{
    struct names names = names_of(client);
    char owner[48];

    snprintf(owner, sizeof owner, "%u:%s", client->number, names.value);
    if (client->step == 0) {
        SEND(client, "SET", names.lock, owner, "NX", "PX", "60000");
        SEND(client, "GET", names.key);
        return client_await(client, 2);
    }
    if (both_ok(client) == TURN_FAILED)
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
