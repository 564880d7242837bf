/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of this folder begin and assert with, over tests/twins/world.h. */
#ifndef STOCKADE_TESTS_ENGINE_SAYS_H
#define STOCKADE_TESTS_ENGINE_SAYS_H

#include "tests/twins/world.h"
#include "tests/unit/test.h"

/* For cmocka: a world with the options' defaults in *state; and its end, whatever the options. */
int world_setup(void **state);
int world_setup_local(void **state);    /* world_new_local */
int world_setup_unfenced(void **state); /* --unfenced-writes allow */
int world_teardown(void **state);
#define WORLD_TEST(name) TEST_WITH(world_setup, world_teardown, struct world *world, name)
#define LOCAL_TEST(name) TEST_WITH(world_setup_local, world_teardown, struct world *world, name)
#define UNFENCED_TEST(name)                                                                        \
    TEST_WITH(world_setup_unfenced, world_teardown, struct world *world, name)
#define EITHER_TEST(name)                                                                          \
    TEST_WITH_EACH(world_setup, world_setup_local, world_teardown, struct world *world, name)

/* What ACQUIRE replies: a lease, or that another has it. */
#define GRANT(token, ttl_ms) "*2\r\n:" #token "\r\n:" #ttl_ms "\r\n"
#define NOBODY               "*-1\r\n"
#define NIL                  "$-1\r\n"

/* The client sends the line, and gets this reply to the byte; or one that begins with this. */
void assert_says(struct world *world, int client, const char *line, const char *reply);
void assert_begins(struct world *world, int client, const char *line, const char *start);
/* Everything settles, and then this is what the client has received since it was asked last. */
void assert_heard(struct world *world, int client, const char *reply);
void assert_heard_begins(struct world *world, int client, const char *start);
/* Send the line while the lease service takes `late_ms` for its answers, for so long. */
void send_late(struct world *world, int client, const char *line, int64_t late_ms, int64_t for_ms);
/* The client leaves, and everything settles. */
void leave(struct world *world, int client);
/* A number that LEASE tells of the resource, -1 where there is none; of "held", 1 or 0. */
long lease_says(struct world *world, const char *resource, const char *field);
/* Send these words and one more of so many bytes, and return what came back. */
const char *call_large(struct world *world, int client, const char *words, int large_bytes);
/* Another daemon asks this of the lease service, as the owner "me". Return what the service did. */
enum lease_answer asked_elsewhere(struct world *world, enum lease_verb verb, const char *resource,
                                  int64_t token, int64_t ttl_ms);

#endif
