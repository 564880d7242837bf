/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance tests over every provider there is: Redis, its in-memory twin, local. */

#include "fence/base/mem.h"
#include "store/open.h"
#include "tests/twins/memory_lease.h"
#include "tests/unit/fence/conformance.h"
#include "tests/unit/fence/redis_server.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

static struct redis_server *server; /* one for all; a test's program is one process */

/* Redis. */

struct redis_subject {
    struct subject base;
    struct rig rig;
};

static void redis_turn(struct subject *subject)
{
    rig_turn(&((struct redis_subject *)(void *)subject)->rig);
}

static int redis_setup(void **state)
{
    struct redis_subject *subject = mem_zalloc(sizeof *subject);

    redis_server_reset(server);
    rig_init(&subject->rig);
    rig_open(&subject->rig, "redis://127.0.0.1:%d?timeout_ms=5000", server->port);
    rig_until(&subject->rig, rig_up(&subject->rig));
    subject->base = (struct subject){.provider = subject->rig.provider, .turn = redis_turn};
    *state = subject;
    return 0;
}

static int redis_teardown(void **state)
{
    struct redis_subject *subject = *state;

    rig_free(&subject->rig);
    free(subject);
    return 0;
}

/* The other two, under a clock that the test turns. */

struct virtual_subject {
    struct subject base;
    struct clock clock;
    int64_t now_ms;
    struct lease_service *service; /* the memory twin's */
};

static int64_t virtual_now_ms(const struct clock *clock)
{
    return ((const struct virtual_subject *)clock->context)->now_ms;
}

static void virtual_turn(struct subject *base)
{
    struct virtual_subject *subject = (struct virtual_subject *)(void *)base;

    subject->now_ms++;
    if (subject->service != NULL)
        lease_service_step(subject->service);
}

static void virtual_pass(struct subject *base, int64_t ms)
{
    ((struct virtual_subject *)(void *)base)->now_ms += ms;
}

static struct virtual_subject *virtual_new(void **state)
{
    struct virtual_subject *subject = mem_zalloc(sizeof *subject);

    subject->now_ms = 1000000;
    subject->clock = (struct clock){.now_ms = virtual_now_ms, .context = subject};
    subject->base = (struct subject){.turn = virtual_turn, .pass = virtual_pass};
    *state = subject;
    return subject;
}

static int memory_setup(void **state)
{
    struct virtual_subject *subject = virtual_new(state);

    subject->service = lease_service_new(&subject->clock);
    subject->base.provider = lease_memory_new(subject->service);
    return 0;
}

static int late_memory_setup(void **state)
{
    memory_setup(state);
    lease_service_set_late(((struct virtual_subject *)*state)->service, 2);
    return 0;
}

static int local_setup(void **state)
{
    struct virtual_subject *subject = virtual_new(state);

    subject->base.provider = lease_local_new(&subject->clock);
    return 0;
}

static void on_closed(void *context)
{
    *(bool *)context = true;
}

static int virtual_teardown(void **state)
{
    struct virtual_subject *subject = *state;
    bool closed = false;

    lease_provider_close(subject->base.provider, on_closed, &closed);
    if (subject->service != NULL)
        lease_service_free(subject->service);
    free(subject);
    return closed ? 0 : -1;
}

int main(void)
{
    server = redis_server_new(NULL);
    int failed = conformance_run("redis", redis_setup, redis_teardown);
    redis_server_free(server);
    failed += conformance_run("memory", memory_setup, virtual_teardown);
    failed += conformance_run("memory, answering late", late_memory_setup, virtual_teardown);
    failed += conformance_run("local", local_setup, virtual_teardown);
    return failed;
}
