/* SPDX-License-Identifier: Apache-2.0 */
/* What may be wrong with the daemon: each condition alone is told, and says whether leases can be
 * granted. A row of the table that no scene here makes come true fails the test. */
#include <stdio.h>
#include <string.h>

#include "fence/lease/provider_impl.h"
#include "proxy/engine/audit.h"
#include "proxy/engine/internal.h"
#include "tests/unit/engine/says.h"

/* Stubs that say what a scene wants. */
static struct store_stats says;
static bool lost, down;
static const char *failing;

static struct store_stats stats(const struct store *store)
{
    (void)store;
    return says;
}

static bool is_lost(const struct store *store)
{
    (void)store;
    return lost;
}

static void health(const struct lease_provider *provider, struct lease_health *health)
{
    (void)provider;
    health->up = !down;
}

static uint64_t note(void *context, const struct audit_note *note)
{
    (void)context, (void)note;
    return 0;
}

static struct audit_state audit_state(void *context)
{
    (void)context;
    return (struct audit_state){.failing = failing, .chain = "", .head = ""};
}

static int64_t opening(const struct store *store)
{
    (void)store;
    return 2;
}

static const struct store_impl store_impl = {.stats = stats, .lost = is_lost, .opening = opening};
static const struct lease_provider_impl provider_impl = {.name = "stub", .health = health};

struct telling {
    const char *wanted;
    size_t others;
    bool told, stops;
};

static void hear(void *context, const struct condition *condition, const struct trouble *trouble)
{
    struct telling *telling = context;

    assert_true(trouble->text[0] != '\0');
    if (strcmp(condition->name, telling->wanted) == 0)
        telling->told = true;
    else
        telling->others++;
    telling->stops |= condition->stops_grants;
}

static struct list owed;
/* With each of these, no lease can be granted. */
static const char stopping[] = "stopping store_lost store_stopped store_failing lease_service_down "
                               "audit_stops_grants";

/* Make it come true. False: there is no scene for it. */
static bool set_scene(struct engine *engine, const char *name)
{
    if (strcmp(name, "stopping") == 0) {
        engine->draining = true;
    } else if (strcmp(name, "store_lost") == 0) {
        lost = true;
    } else if (strcmp(name, "store_stopped") == 0) {
        says.state = STORE_STOPPED;
    } else if (strcmp(name, "store_failing") == 0) {
        says.state = STORE_FAILING;
    } else if (strcmp(name, "lease_service_down") == 0) {
        down = true;
    } else if (strcmp(name, "audit_failing") == 0) {
        failing = "full";
    } else if (strcmp(name, "audit_stops_grants") == 0) {
        failing = "full";
        engine->options.audit.durable = AUDIT_LEASES;
    } else if (strcmp(name, "store_errors") == 0) {
        engine->counters.store_errors++;
    } else if (strcmp(name, "lease_service_errors") == 0) {
        engine->counters.lease_service_errors++;
    } else if (strcmp(name, "snapshot_old") == 0) {
        says.oldest_snapshot_s = 301;
    } else if (strcmp(name, "guard_broken") == 0) {
        says.guard[0] = 'x';
    } else if (strcmp(name, "certificate_ends") == 0) {
        engine->options.certificate_ends_s = 1;
    } else if (strcmp(name, "store_in_memory") == 0) {
        engine->options.store_passes = true;
    } else if (strcmp(name, "releases_owed") == 0) {
        list_append(&engine->owed, &owed);
    } else {
        return strcmp(name, "long_wait") == 0 || strcmp(name, "log_lost") == 0;
    } /* below */
    return true;
}

WORLD_TEST(each_condition_alone_is_told_and_says_whether_leases_can_be_granted)
{
    struct engine *engine = world->engine, before = *engine;
    struct store store = {&store_impl};
    struct lease_provider provider = {.impl = &provider_impl};

    for (size_t i = 0; i < conditions_count; i++) {
        struct telling telling = {.wanted = conditions[i].name};
        struct buf text = {0};
        says = (struct store_stats){.state = STORE_FINE};
        lost = down = false;
        failing = NULL;
        engine->options.store = &store;
        engine->options.provider = &provider;
        engine->options.store_passes = false;
        engine->options.audit = (struct audit){.note = note, .state = audit_state};
        engine->options.certificate_ends_s = 0;
        list_init(&owed);
        conditions_look(engine);
        memset(engine->lately, 0, sizeof engine->lately);
        engine->counters.store_errors = engine->counters.lease_service_errors = 0;
        assert_true(conditions_tell(engine, &text));
        assert_int_equal(text.len, 0);
        assert_true(set_scene(engine, conditions[i].name));
        conditions_each(engine, hear, &telling);
        if (strcmp(conditions[i].name, "long_wait") != 0 &&
            strcmp(conditions[i].name, "log_lost") != 0) {
            assert_true(telling.told);
            assert_int_equal(telling.others, 0);
            assert_int_equal(telling.stops, strstr(stopping, conditions[i].name) != NULL);
            assert_int_equal(conditions_tell(engine, &text), !conditions[i].stops_grants);
            assert_true(text.len > 0);
        }
        buf_free(&text);
        list_remove(&owed);
        engine->draining = false;
    }
    engine->options = before.options;
    engine->counters = before.counters;
    memcpy(engine->lately, before.lately, sizeof engine->lately);
}

static const char *troubles(struct world *world)
{
    const char *found = strstr(world_call(world, 9, "INFO server"), "troubles_detail:");

    assert_non_null(found);
    return found + strlen("troubles_detail:");
}

WORLD_TEST(who_waits_behind_a_holder_that_writes_nothing_is_told)
{
    assert_says(world, 1, "ACQUIRE r 86400000", GRANT(1, 86400000));
    for (int i = 2; i < 5; i++)
        world_send(world, i, "ACQUIRE r 1000 WAIT 3600000");
    world_pass(world, 9000);
    assert_true(*troubles(world) == '\r');
    world_pass(world, 2000);
    assert_non_null(strstr(troubles(world), "3 wait for a resource"));
    assert_non_null(strstr(troubles(world), "written nothing"));
    assert_says(world, 1, "FENCED 1 SET r x", "+OK\r\n");
    assert_true(*troubles(world) == '\r');
    world_pass(world, 50000);
    assert_non_null(strstr(troubles(world), "3 wait for a resource"));
    assert_says(world, 1, "RELEASE r 1", ":0\r\n");
}

WORLD_TEST(an_error_is_told_for_a_minute_and_no_longer)
{
    world->engine->counters.store_errors++;
    world_pass(world, 1500);
    assert_non_null(strstr(troubles(world), "failed with STORE"));
    world_pass(world, 50000);
    assert_non_null(strstr(troubles(world), "failed with STORE"));
    world_pass(world, 12000);
    assert_true(*troubles(world) == '\r');
}

/* Its waiters are others than those of ACQUIRE. */
WORLD_TEST(a_basket_that_waits_behind_such_a_holder_is_told_like_others)
{
    assert_says(world, 1, "ACQUIRE c 86400000", GRANT(1, 86400000));
    world_send(world, 2, "ACQUIREALL 60000 3 a b c WAIT 3600000");
    world_pass(world, 11000);
    assert_non_null(strstr(troubles(world), "1 wait for a resource"));
}
