/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/engine/says.h"
#include "tests/unit/test.h"

int world_setup(void **state)
{
    *state = world_new(NULL);
    return 0;
}

int world_setup_local(void **state)
{
    *state = world_new_local();
    return 0;
}

int world_teardown(void **state)
{
    world_free(*state);
    return 0;
}

void assert_says(struct world *world, int client, const char *line, const char *reply)
{
    assert_string_equal(world_call(world, client, line), reply);
}

void assert_begins(struct world *world, int client, const char *line, const char *start)
{
    const char *reply = world_call(world, client, line);
    if (strncmp(reply, start, strlen(start)) != 0)
        fail_msg("%s: got %s, not %s", line, reply, start);
}

long holds(struct world *world, const char *resource)
{
    char line[64];
    snprintf(line, sizeof line, "LEASE %s", resource);
    const char *at = strstr(world_call(world, 9, line), "holds\r\n:");
    return at == NULL ? -1 : strtol(at + 8, NULL, 10);
}
