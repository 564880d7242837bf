/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine tells its audit, and that replies wait for what has to be on disk before them. */
#include "tests/unit/engine/says.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/engine/audit.h"
#include "proxy/engine/engine.h"
#include "proxy/engine/session/identity.h"
#include "proxy/engine/session/session.h"
#include "proxy/engine/show/show.h"

/* An audit in memory: the events as text, one a line. */
struct memory_audit {
    struct buf told;
    uint64_t tickets;
    uint32_t durable;
    bool full;           /* there is no room for what is durable */
    const char *failing; /* as in struct audit_state */
};

static const char *const names[] = {
#define X(id, name) name,
    AUDIT_EVENTS(X)
#undef X
};

static void append(struct buf *out, const char *name, struct bytes text)
{
    if (text.len > 0)
        buf_printf(out, " %s=%.*s", name, (int)text.len, text.data);
}

static uint64_t take_note(void *context, const struct audit_note *note)
{
    struct memory_audit *audit = context;

    buf_append_text(&audit->told, names[note->event]);
    append(&audit->told, "user", note->user);
    if (note->address.len > 0)
        buf_append_text(&audit->told, " from");
    append(&audit->told, "resource", note->resource);
    if (note->token != 0)
        buf_printf(&audit->told, " token=%lld", (long long)note->token);
    if (note->code != STK_OK)
        buf_printf(&audit->told, " code=%s", stk_error_code(note->code));
    append(&audit->told, "reason", note->reason);
    buf_append_text(&audit->told, "\n");
    if ((audit->durable >> note->event & 1) == 0)
        return 0;
    return audit->full ? AUDIT_LOST : ++audit->tickets;
}

static struct audit_state state_of(void *context)
{
    const struct memory_audit *audit = context;
    return (struct audit_state){.failing = audit->failing, .chain = "", .head = ""};
}

struct audited {
    struct memory_audit audit;
    struct world *world;
};

static void begin(struct audited *audited, uint32_t durable, const char *password)
{
    audited->audit.durable = durable;
    audited->world = world_new(&(struct engine_options){
        .acl = acl_without_file(password, commands, commands_count),
        .audit = {
            .note = take_note, .state = state_of, .durable = durable, .context = &audited->audit}});
}

static int setup(void **state)
{
    *state = mem_zalloc(sizeof(struct audited));
    return 0;
}

static int teardown(void **state)
{
    struct audited *audited = *state;

    world_free(audited->world);
    buf_free(&audited->audit.told);
    free(audited);
    return 0;
}
#define AUDIT_TEST(name) TEST_WITH(setup, teardown, struct audited *audited, name)

/* What was told since the last call is this. */
static void assert_told(struct audited *audited, const char *expected)
{
    buf_append(&audited->audit.told, "", 1);
    assert_string_equal(audited->audit.told.data, expected);
    buf_clear(&audited->audit.told);
}

AUDIT_TEST(grants_and_their_ends_are_told)
{
    begin(audited, 0, NULL);
    struct world *world = audited->world;
    world_call(world, 1, "ACQUIRE k 1000 OWNER ann");
    assert_told(audited,
                "grant user=default from resource=k token=1 reason=ttl_ms=1000 owner=ann\n");
    world_call(world, 1, "ACQUIRE k 1000 OWNER ann");
    assert_told(audited, ""); /* entered again: no new grant */
    world_call(world, 1, "RELEASE k 1");
    assert_told(audited, "");
    world_call(world, 1, "RELEASE k 1");
    assert_told(audited, "release user=default from resource=k token=1 reason=released\n");
    world_call(world, 1, "ACQUIRE k 1000 OWNER bob");
    buf_clear(&audited->audit.told);
    world_call(world, 2, "REVOKE k");
    assert_told(audited, "revoke user=default from resource=k token=2 reason=revoked\n");
    world_call(world, 1, "ACQUIRE k 500 OWNER cat");
    buf_clear(&audited->audit.told);
    world_pass(world, 1000);
    assert_told(audited, "release user=default from resource=k token=3 reason=expired\n");
}

/* An end that was none is taken back in the audit, too. */
AUDIT_TEST(a_renewal_that_takes_a_lease_back_is_told)
{
    begin(audited, 0, NULL);
    struct world *world = audited->world;
    world_call(world, 1, "ACQUIRE k 100 OWNER ann");
    world_pass(world, 200);
    buf_clear(&audited->audit.told);
    world_call(world, 1, "RENEW k 1 1000");
    assert_told(audited, "resume user=default from resource=k token=1 "
                         "reason=taken back ttl_ms=1000 owner=ann\n");
    world_call(world, 1, "RENEW k 1 1000");
    assert_told(audited, "");
    store_memory_set_opening(world->store, 2);
    world_restart_engine(world, 0);
    buf_clear(&audited->audit.told);
    world_call(world, 1, "RENEW k 1 1000");
    assert_told(audited, "resume user=default from resource=k token=1 "
                         "reason=taken in ttl_ms=1000 owner=ann\n");
    world_call(world, 1, "RELEASE k 1");
    assert_told(audited, "release user=default from resource=k token=1 reason=released\n");
}

AUDIT_TEST(nothing_is_taken_back_that_the_audit_cannot_be_told_of)
{
    begin(audited, AUDIT_LEASES, NULL);
    struct world *world = audited->world;
    world_send(world, 1, "ACQUIRE k 100");
    engine_audited(world->engine, audited->audit.tickets);
    assert_heard(world, 1, GRANT(1, 100));
    audited->audit.failing = "no room";
    assert_says(world, 1, "RENEW k 1 200", ":200\r\n"); /* of what is known, nothing is told */
    world_pass(world, 300);
    assert_begins(world, 1, "RENEW k 1 1000", "-STORE the audit cannot be written");
    assert_int_equal(world_counter(world, "leases_held"), 0);
    audited->audit.failing = NULL;
    assert_says(world, 1, "RENEW k 1 1000", ""); /* not before it is on disk */
    engine_audited(world->engine, audited->audit.tickets);
    assert_heard(world, 1, ":1000\r\n");
}

AUDIT_TEST(a_lease_of_an_earlier_run_ends_in_the_audit)
{
    begin(audited, 0, NULL);
    struct world *world = audited->world;
    world_call(world, 1, "ACQUIRE k 60000 OWNER ann");
    world_restart_engine(world, 10);
    buf_clear(&audited->audit.told);
    world_call(world, 1, "REVOKE k");
    assert_told(audited, "revoke user=default from resource=k token=1 reason=revoked\n");
}

AUDIT_TEST(refused_writes_are_told_and_accepted_ones_are_not)
{
    begin(audited, 0, NULL);
    struct world *world = audited->world;
    world_call(world, 1, "ACQUIRE k 60000 OWNER ann");
    buf_clear(&audited->audit.told);
    world_call(world, 1, "FENCED 1 SET k v");
    assert_told(audited, "");
    world_call(world, 1, "RELEASE k 1");
    buf_clear(&audited->audit.told);
    world_call(world, 1, "FENCED 1 SET k w");
    assert_told(audited, "refused user=default from resource=k token=1 code=STALE reason=SET\n");
    world_call(world, 1, "SET k w");
    assert_told(audited, "refused user=default from resource=k code=NOTOKEN reason=SET\n");
}

AUDIT_TEST(logins_and_denials_are_told_without_the_password)
{
    begin(audited, 0, "sesame");
    struct world *world = audited->world;
    world_call(world, 1, "AUTH guessed-wrong");
    assert_told(audited, "login_failed user=default from code=WRONGPASS\n");
    world_call(world, 1, "AUTH eve sesame");
    assert_told(audited, "login_failed user=eve from code=WRONGPASS\n");
    world_call(world, 1, "HELLO 3 AUTH default sesame");
    assert_told(audited, "login user=default from\n");
    world_call(world, 1, "CONFIG GET save");
    assert_told(audited, "admin user=default from reason=CONFIG GET\n");
}

AUDIT_TEST(who_may_not_is_told)
{
    begin(audited, 0, NULL);
    struct world *world = audited->world;
    world_connect(world, 1);
    world->clients[1].session->trusted = false; /* as one from another machine */
    identity_forget(world->clients[1].session);
    world_call(world, 1, "CONFIG GET save");
    assert_told(audited, "denied user=default from code=NOPERM reason=CONFIG GET\n");
    world_call(world, 1, "CLIENT KILL ID 1");
    assert_told(audited, "denied user=default from code=NOPERM reason=CLIENT KILL\n");
}

AUDIT_TEST(a_reply_waits_until_its_event_is_on_disk)
{
    begin(audited, AUDIT_BIT(AUDIT_GRANT) | AUDIT_BIT(AUDIT_RELEASE), NULL);
    struct world *world = audited->world;
    assert_string_equal(world_call(world, 1, "ACQUIRE k 60000 OWNER ann"), "");
    assert_string_equal(world_call(world, 2, "PING"), "+PONG\r\n"); /* another's do not wait */
    assert_string_equal(world_call(world, 1, "PING"), "");          /* its own stay in order */
    assert_false(engine_idle(world->engine));
    engine_audited(world->engine, 0);
    assert_heard(world, 1, "");
    engine_audited(world->engine, 1);
    assert_heard(world, 1, GRANT(1, 60000) "+PONG\r\n");
    assert_true(engine_idle(world->engine));
    assert_string_equal(world_call(world, 1, "FENCED 1 SET k v"), "+OK\r\n"); /* not durable */
}

AUDIT_TEST(a_reply_that_has_waited_tells_what_is_left_by_then)
{
    begin(audited, AUDIT_BIT(AUDIT_GRANT), NULL);
    struct world *world = audited->world;
    assert_string_equal(world_call(world, 1, "ACQUIRE k 60000"), "");
    assert_string_equal(world_call(world, 1, "RENEW k 1 30000"), "");
    world_pass(world, 2000);
    engine_audited(world->engine, 1);
    assert_heard(world, 1, GRANT(1, 58000) ":28000\r\n");
    assert_string_equal(world_call(world, 1, "ACQUIRE short 1000"), "");
    world_pass(world, 2000);
    engine_audited(world->engine, 3); /* it has ended, which is an event, too */
    assert_heard(world, 1, "*-1\r\n");
}

AUDIT_TEST(nobody_waits_for_the_disk_for_ever)
{
    begin(audited, AUDIT_BIT(AUDIT_GRANT), NULL);
    struct world *world = audited->world;
    world_call(world, 1, "ACQUIRE a 60000");
    world_pass(world, AUDIT_WAIT_MS / 2);
    world_call(world, 2, "ACQUIRE b 60000");
    world_pass(world, AUDIT_WAIT_MS / 2 + 10);
    assert_true(world->clients[1].session == NULL); /* what came of it is not told */
    assert_heard(world, 1, "");
    assert_false(world->clients[2].session == NULL);
    engine_audited(world->engine, 2);
    assert_heard(world, 2, GRANT(1, 58490));
    world_pass(world, 2 * AUDIT_WAIT_MS);
    assert_string_equal(world_call(world, 2, "PING"), "+PONG\r\n");
}

AUDIT_TEST(tickets_are_answered_in_order)
{
    begin(audited, AUDIT_BIT(AUDIT_GRANT), NULL);
    struct world *world = audited->world;
    world_call(world, 1, "ACQUIRE a 60000");
    world_call(world, 2, "ACQUIRE b 60000");
    world_call(world, 1, "ACQUIRE c 60000"); /* now it waits for the third */
    engine_audited(world->engine, 2);
    assert_heard(world, 1, "");
    assert_heard(world, 2, GRANT(1, 60000));
    engine_audited(world->engine, 3);
    assert_heard(world, 1, GRANT(1, 60000) GRANT(1, 60000));
}

AUDIT_TEST(nobody_is_told_of_what_cannot_be_put_on_disk)
{
    begin(audited, AUDIT_BIT(AUDIT_GRANT), NULL);
    struct world *world = audited->world;
    assert_string_equal(world_call(world, 1, "ACQUIRE k 60000"), "");
    engine_audit_failed(world->engine);
    assert_heard(world, 1, "");
    assert_true(world->clients[1].session == NULL);
    audited->audit.full = true;
    assert_string_equal(world_call(world, 2, "ACQUIRE l 60000"), "");
    assert_true(world->clients[2].session == NULL);
    assert_string_equal(world_call(world, 3, "PING"), "+PONG\r\n");
}

/* REVOKE from the page. */
struct page {
    struct revocation revocation;
    bool answered;
};

static void on_revoked(struct revocation *revocation)
{
    list_entry(revocation, struct page, revocation)->answered = true;
}

static void revoke_by_page(struct page *page, struct world *world)
{
    *page = (struct page){.revocation = {.engine = world->engine,
                                         .resource = BYTES_LITERAL("k"),
                                         .reason = BYTES_LITERAL("it hangs"),
                                         .from = "10.0.0.1:5",
                                         .user = "ann",
                                         .token = 1,
                                         .on_end = on_revoked}};
    revocation_start(&page->revocation);
    world_settle(world);
}

AUDIT_TEST(the_page_waits_for_the_disk_too)
{
    begin(audited, AUDIT_BIT(AUDIT_REVOKE), NULL);
    struct world *world = audited->world;
    struct page page;
    world_call(world, 1, "ACQUIRE k 60000");
    revoke_by_page(&page, world);
    assert_false(page.answered);
    assert_false(engine_idle(world->engine));
    engine_audited(world->engine, 0);
    assert_false(page.answered);
    engine_audited(world->engine, 1);
    assert_true(page.answered && page.revocation.ended);
    assert_int_equal(page.revocation.error, STK_OK);
    assert_true(engine_idle(world->engine));
    revoke_by_page(&page, world); /* it has ended: nothing is told, so nothing is waited for */
    assert_true(page.answered && !page.revocation.ended);
}

AUDIT_TEST(a_line_that_is_on_disk_before_the_lock_is_gone)
{
    begin(audited, AUDIT_BIT(AUDIT_REVOKE), NULL);
    struct world *world = audited->world;
    struct page page;
    world_call(world, 1, "ACQUIRE k 60000");
    lease_service_set_late(world->service, 100);
    revoke_by_page(&page, world);
    engine_audited(world->engine, 1);
    assert_false(page.answered);
    world_pass(world, 200);
    assert_true(page.answered && page.revocation.ended);
}

AUDIT_TEST(the_page_waits_no_longer_than_others_and_is_not_told)
{
    begin(audited, AUDIT_BIT(AUDIT_REVOKE), NULL);
    struct world *world = audited->world;
    struct page page;
    world_call(world, 1, "ACQUIRE k 60000");
    revoke_by_page(&page, world);
    world_pass(world, AUDIT_WAIT_MS - 10);
    assert_false(page.answered);
    world_pass(world, 20);
    assert_true(page.answered && !page.revocation.ended);
    assert_int_equal(page.revocation.error, STK_STORE);
    assert_true(engine_idle(world->engine));
}

AUDIT_TEST(the_page_is_not_told_of_what_cannot_be_put_on_disk)
{
    for (int way = 0; way < 2; way++) {
        begin(audited, AUDIT_BIT(AUDIT_REVOKE), NULL);
        struct world *world = audited->world;
        struct page page;
        world_call(world, 1, "ACQUIRE k 60000");
        audited->audit.full = way == 0;
        revoke_by_page(&page, world);
        if (way == 1)
            engine_audit_failed(world->engine);
        assert_true(page.answered && !page.revocation.ended);
        assert_int_equal(page.revocation.error, STK_STORE);
        if (way == 0)
            world_free(world);
    }
}

AUDIT_TEST(what_has_to_be_on_disk_is_refused_while_the_audit_fails)
{
    begin(audited, AUDIT_LEASES, NULL);
    struct world *world = audited->world;
    world_call(world, 1, "ACQUIRE k 60000");
    engine_audited(world->engine, 1);
    assert_heard(world, 1, GRANT(1, 60000));
    audited->audit.failing = "no space";
    assert_begins(world, 1, "ACQUIRE l 60000", "-STORE the audit cannot be written");
    assert_begins(world, 1, "ACQUIREALL 60000 1 l", "-STORE the audit cannot be written");
    assert_begins(world, 1, "RELEASE k 1", "-STORE the audit cannot be written");
    assert_begins(world, 1, "REVOKE k", "-STORE the audit cannot be written");
    assert_string_equal(world_call(world, 1, "FENCED 1 SET k v"), "+OK\r\n");
    assert_string_equal(world_call(world, 1, "RENEW k 1 60000"), ":60000\r\n");
    audited->audit.failing = NULL;
    assert_string_equal(world_call(world, 1, "RELEASE k 1"), "");
    engine_audited(world->engine, 2);
    assert_heard(world, 1, ":0\r\n");
}

AUDIT_TEST(writes_are_refused_where_refusals_have_to_be_on_disk)
{
    begin(audited, AUDIT_BIT(AUDIT_REFUSED), NULL);
    struct world *world = audited->world;
    world_call(world, 1, "ACQUIRE k 60000");
    audited->audit.failing = "no space";
    assert_begins(world, 1, "FENCED 1 SET k v", "-STORE the audit cannot be written");
    assert_string_equal(world_call(world, 1, "GET k"), "$-1\r\n");
    assert_string_equal(world_call(world, 1, "RELEASE k 1"), ":0\r\n");
}
