/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/engine/says.h"

#include "proxy/engine/lease/lease.h"

int world_setup(void **state)
{
    *state = world_new(NULL);
    return 0;
}

int world_setup_local(void **state)
{
    *state = world_new_local(NULL);
    return 0;
}

int world_setup_unfenced(void **state)
{
    *state = world_new(&(struct engine_options){.unfenced_writes = true});
    return 0;
}

int world_teardown(void **state)
{
    world_free(*state);
    return 0;
}

/* Whoever is told BUSY is counted: more than there were before. */
static void assert_counted(struct world *world, const char *start, long before)
{
    if (strncmp(start, "-BUSY ", 6) == 0 && world_counter(world, "refused_busy") <= before)
        fail_msg("%s: it is not counted", start);
}

void assert_heard(struct world *world, int client, const char *reply)
{
    world_settle(world);
    assert_string_equal(world_received(world, client), reply);
}

void assert_heard_begins(struct world *world, int client, const char *start)
{
    world_settle(world);
    const char *reply = world_received(world, client);
    if (strncmp(reply, start, strlen(start)) != 0)
        fail_msg("got %s, not %s", reply, start);
    assert_counted(world, start, 0);
}

void assert_says(struct world *world, int client, const char *line, const char *reply)
{
    assert_string_equal(world_call(world, client, line), reply);
}

void assert_begins(struct world *world, int client, const char *line, const char *start)
{
    long busy = world_counter(world, "refused_busy");
    const char *reply = world_call(world, client, line);
    if (strncmp(reply, start, strlen(start)) != 0)
        fail_msg("%s: got %s, not %s", line, reply, start);
    assert_counted(world, start, busy);
}

void send_late(struct world *world, int client, const char *line, int64_t late_ms, int64_t for_ms)
{
    lease_service_set_late(world->service, late_ms);
    world_send(world, client, line);
    world_pass(world, for_ms);
    lease_service_set_late(world->service, 0);
}

void leave(struct world *world, int client)
{
    world_disconnect(world, client);
    world_settle(world);
}

long lease_says(struct world *world, const char *resource, const char *field)
{
    char line[64], key[32];

    snprintf(line, sizeof line, "LEASE %s", resource);
    const char *reply = world_call(world, 9, line);
    if (strcmp(field, "held") == 0)
        return strstr(reply, "\r\nheld\r\n") != NULL;
    snprintf(key, sizeof key, "%s\r\n:", field);
    const char *at = strstr(reply, key);
    return at == NULL ? -1 : strtol(at + strlen(key), NULL, 10);
}

const char *call_large(struct world *world, int client, const char *words, int large_bytes)
{
    struct buf request = {0};
    int count = 2;

    for (const char *at = words; *at != '\0'; at++)
        count += *at == ' ';
    buf_printf(&request, "*%d\r\n", count);
    for (size_t len; count > 1; count--, words += len + (words[len] != '\0')) {
        len = strcspn(words, " ");
        buf_printf(&request, "$%zu\r\n%.*s\r\n", len, (int)len, words);
    }
    buf_printf(&request, "$%d\r\n%*s", large_bytes, large_bytes, "x");
    buf_append(&request, "", 1);
    world_send(world, client, request.data);
    buf_free(&request);
    return world_received(world, client);
}

static void ignore(struct lease_call *call)
{
    (void)call;
}

enum lease_answer asked_elsewhere(struct world *world, enum lease_verb verb, const char *resource,
                                  int64_t token, int64_t ttl_ms)
{
    struct lease_provider *other = lease_memory_new(world->service);
    struct lease_call call = {.verb = verb,
                              .resource = bytes_of(resource),
                              .token = token,
                              .ttl_ms = ttl_ms,
                              .believed_max = TOKEN_MAX,
                              .done = ignore};

    lease_nonce(BYTES_LITERAL("me"), false, call.nonce);
    lease_ask(other, &call);
    enum lease_answer answer = call.answer; /* late or not, it has happened */
    lease_provider_close(other, free, NULL);
    return answer;
}
