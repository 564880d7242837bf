/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of this folder begin and assert with, over world.h. */
#ifndef STOCKADE_TESTS_ENGINE_SAYS_H
#define STOCKADE_TESTS_ENGINE_SAYS_H

#include "tests/unit/engine/world.h"
#include "tests/unit/test.h"

/* For cmocka: a world with the options' defaults in *state; and its end, whatever the options. */
int world_setup(void **state);
int world_setup_local(void **state); /* world_new_local */
int world_teardown(void **state);
#define WORLD_TEST(name) TEST_WITH(world_setup, world_teardown, struct world *world, name)
#define LOCAL_TEST(name) TEST_WITH(world_setup_local, world_teardown, struct world *world, name)
#define EITHER_TEST(name)                                                                          \
    TEST_WITH_EACH(world_setup, world_setup_local, world_teardown, struct world *world, name)

/* The client sends the line, and gets this reply to the byte; or one that begins with this. */
void assert_says(struct world *world, int client, const char *line, const char *reply);
void assert_begins(struct world *world, int client, const char *line, const char *start);
/* How often the resource's lease is entered; -1: it has none. */
long holds(struct world *world, const char *resource);

#endif
