/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance tests over Redlock: on in-memory masters, on late ones, with a minority of them
 * down, and on real Redises. */

#include "fence/base/mem.h"
#include "tests/unit/fence/conformance.h"
#include "tests/unit/fence/masters.h"
#include "tests/unit/fence/redis_server.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

#define SERVERS 3

static struct redis_server *servers[SERVERS];

/* Real Redises. */

struct real_subject {
    struct subject base;
    struct rig rig;
};

static void real_turn(struct subject *subject)
{
    rig_turn(&((struct real_subject *)(void *)subject)->rig);
}

static int real_setup(void **state)
{
    struct real_subject *subject = mem_zalloc(sizeof *subject);
    char uri[256] = "redlock://";

    for (int i = 0; i < SERVERS; i++) {
        size_t used = strlen(uri);
        redis_server_reset(servers[i]);
        snprintf(uri + used, sizeof uri - used, "%s127.0.0.1:%d", i == 0 ? "" : ",",
                 servers[i]->port);
    }
    rig_init(&subject->rig);
    rig_open(&subject->rig, "%s?timeout_ms=5000", uri); /* the machine may be busy */
    rig_until(&subject->rig, rig_detail_has(&subject->rig, "3 masters, 3 ready"));
    subject->base = (struct subject){.provider = subject->rig.provider, .turn = real_turn};
    *state = subject;
    return 0;
}

static int real_teardown(void **state)
{
    struct real_subject *subject = *state;

    rig_free(&subject->rig);
    free(subject);
    return 0;
}

/* In memory. */

struct memory_subject {
    struct subject base;
    struct masters *masters;
};

static void memory_turn(struct subject *base)
{
    masters_pass(((struct memory_subject *)(void *)base)->masters, 1);
}

static void memory_pass(struct subject *base, int64_t ms)
{
    masters_pass(((struct memory_subject *)(void *)base)->masters, ms);
}

static struct memory_subject *memory_new(void **state, int count)
{
    struct memory_subject *subject = mem_zalloc(sizeof *subject);

    subject->masters = masters_new(count);
    subject->base = (struct subject){.provider = subject->masters->clients[0].provider,
                                     .turn = memory_turn,
                                     .pass = memory_pass};
    *state = subject;
    return subject;
}

static int one_setup(void **state)
{
    memory_new(state, 1);
    return 0;
}

static int four_setup(void **state)
{
    memory_new(state, 4);
    return 0;
}

/* Each in another time. */
static int late_setup(void **state)
{
    struct memory_subject *subject = memory_new(state, 5);

    for (int i = 0; i < 5; i++)
        lease_service_set_late(subject->masters->services[i], 5 - i);
    return 0;
}

static int minority_setup(void **state)
{
    struct memory_subject *subject = memory_new(state, 5);

    lease_service_set_down(subject->masters->services[0], "gone");
    lease_service_set_late(subject->masters->services[2], -1); /* never answers */
    return 0;
}

static int memory_teardown(void **state)
{
    struct memory_subject *subject = *state;

    masters_free(subject->masters);
    free(subject);
    return 0;
}

int main(void)
{
    int failed = conformance_run("redlock of 1", one_setup, memory_teardown);

    failed += conformance_run("redlock of 4", four_setup, memory_teardown);
    failed += conformance_run("redlock of 5, answering late", late_setup, memory_teardown);
    failed +=
        conformance_run("redlock of 5, one down, one silent", minority_setup, memory_teardown);
    for (int i = 0; i < SERVERS; i++)
        servers[i] = redis_server_new(NULL);
    failed += conformance_run("redlock of 3 Redises", real_setup, real_teardown);
    for (int i = 0; i < SERVERS; i++)
        redis_server_free(servers[i]);
    return failed;
}
