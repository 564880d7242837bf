/* SPDX-License-Identifier: Apache-2.0 */
/* What the primitives of txn.h promise, for both stores. */
#include "tests/support/flush.h"
#include "tests/unit/store/rig.h"

#define assert_bytes(got, text) assert_true(bytes_equal((got), BYTES_LITERAL(text)))

static void unmade(struct store_txn *txn)
{
    struct resource resource;
    struct lease lease;
    struct bytes value;
    bool found = true;
    int64_t count = -1;

    memset(&resource, 0x55, sizeof resource);
    assert_ok(txn_resource(txn, bytes_of("nowhere"), &resource));
    assert_int_equal(resource.id, 0);
    assert_int_equal(resource.fence.state, FENCE_NONE);
    assert_int_equal(resource.fence.token, 0);
    assert_int_equal(resource.fence.floor, 0);
    assert_int_equal(resource.type, VALUE_NONE);
    assert_ok(txn_string(txn, &resource, &found, &value));
    assert_false(found);
    found = true;
    assert_ok(txn_field(txn, &resource, bytes_of("f"), &found, &value));
    assert_false(found);
    assert_ok(txn_count_fields(txn, &resource, &count));
    assert_int_equal(count, 0);
    assert_ok(txn_lease(txn, &resource, &lease));
    assert_int_equal(lease.holds, 0);
}

BOTH_TEST(a_resource_that_was_never_made_is_nothing)
{
    rig_in_both(rig, unmade);
}

BOTH_WRITE_TEST(making_gives_rising_ids_and_is_harmless_twice)
{
    struct resource a = rig_find(txn, "a"), b = rig_find(txn, "b"), again = a;

    assert_ok(txn_resource_make(txn, bytes_of("a"), &a));
    assert_ok(txn_resource_make(txn, bytes_of("b"), &b));
    assert_true(a.id > 0 && b.id > a.id);
    assert_int_equal(a.fence.state, FENCE_NONE);
    assert_int_equal(rig_find(txn, "a").id, a.id);
    assert_ok(txn_resource_make(txn, bytes_of("a"), &again));
    assert_int_equal(again.id, a.id);
    assert_ok(txn_resource_make(txn, bytes_of("a"), &a));
    assert_int_equal(rig_find(txn, "b").id, b.id);
}

BOTH_WRITE_TEST(names_fields_and_values_are_any_bytes)
{
    char longest[RESOURCE_NAME_MAX];
    struct bytes names[] = {
        {"a", 1}, {"a\0", 2}, {"\0", 1}, {"\xff", 1}, {longest, sizeof longest}};
    enum { NAMES = COUNT(names) };
    struct resource resource;
    struct bytes value;
    bool found;

    memset(longest, 'n', sizeof longest);
    for (size_t i = 0; i < NAMES; i++) {
        assert_ok(txn_resource(txn, names[i], &resource));
        assert_int_equal(resource.id, 0);
        assert_ok(txn_resource_make(txn, names[i], &resource));
        assert_ok(txn_field_put(txn, &resource, names[i], names[NAMES - 1 - i]));
    }
    for (size_t i = 0; i < NAMES; i++) {
        assert_ok(txn_resource(txn, names[i], &resource));
        for (size_t field = 0; field < NAMES; field++) {
            assert_ok(txn_field(txn, &resource, names[field], &found, &value));
            assert_int_equal(found, field == i);
        }
        assert_ok(txn_field(txn, &resource, names[i], &found, &value));
        assert_true(bytes_equal(value, names[NAMES - 1 - i]));
    }
}

BOTH_WRITE_TEST(a_fence_and_its_lease_are_read_as_they_were_put)
{
    struct resource resource = rig_grant(txn, "r", "first owner"), found;
    struct lease want = {.owner = {"o\0w", 3},
                         .anonymous = true,
                         .holds = 3,
                         .ttl_ms = 86400000,
                         .opening = 7,
                         .connection = 42};
    struct lease got;

    resource.fence.token = TOKEN_MAX;
    assert_ok(txn_fence_put(txn, &resource, &want));
    assert_ok(txn_lease(txn, &resource, &got));
    assert_bytes(got.owner, "o\0w");
    assert_true(got.anonymous);
    assert_int_equal(got.holds, 3);
    assert_int_equal(got.ttl_ms, 86400000);
    assert_int_equal(got.opening, 7);
    assert_int_equal(got.connection, 42);
    /* Retired, with the owner as it was read: its bytes are the store's own. */
    got.holds = 0;
    resource.fence.state = FENCE_RELEASED;
    assert_ok(txn_fence_put(txn, &resource, &got));
    found = rig_find(txn, "r");
    assert_int_equal(found.fence.token, TOKEN_MAX);
    assert_int_equal(found.fence.floor, TOKEN_MAX);
    assert_int_equal(found.fence.state, FENCE_RELEASED);
    assert_ok(txn_lease(txn, &found, &got));
    assert_bytes(got.owner, "o\0w");
    assert_int_equal(got.holds, 0);
}

/* The fence and the lease of one that has no row, as they are put; what comes of it. */
static struct resource make_fence(struct store_txn *txn, struct resource *resource, int64_t token,
                                  const char *owner)
{
    struct lease want = {.owner = bytes_of(owner),
                         .anonymous = true,
                         .holds = 2,
                         .ttl_ms = 5000,
                         .opening = 7,
                         .connection = -42};
    struct lease got;

    resource->fence = (struct fence){.token = token, .floor = token, .state = FENCE_LIVE};
    assert_ok(txn_fence_make(txn, bytes_of("new"), resource, &want));
    struct resource found = rig_find(txn, "new");
    assert_int_equal(found.id, resource->id);
    assert_int_equal(found.fence.token, token);
    assert_int_equal(found.fence.state, FENCE_LIVE);
    assert_int_equal(found.type, VALUE_NONE);
    assert_ok(txn_lease(txn, &found, &got));
    assert_true(bytes_equal(got.owner, bytes_of(owner)));
    assert_true(got.anonymous);
    assert_int_equal(got.holds, 2);
    assert_int_equal(got.ttl_ms, 5000);
    assert_int_equal(got.opening, 7);
    assert_int_equal(got.connection, -42);
    assert_int_equal(got.changed_ms, txn_now_ms(txn));
    return found;
}

BOTH_WRITE_TEST(a_row_is_made_with_its_fence_and_lease)
{
    struct resource none = rig_find(txn, "new"), new = none, stale = none;

    assert_ok(txn_savepoint(txn));
    make_fence(txn, &new, 3, "never");
    assert_ok(txn_savepoint_undo(txn));
    assert_int_equal(rig_find(txn, "new").id, 0);
    new = none;
    new = make_fence(txn, &new, 3, "first");
    assert_int_equal(rig_lease(txn, "new").receipts_gone, 0);
    assert_ok(txn_string_put(txn, &new, BYTES_LITERAL("value")));
    rig_receipt_put(txn, "new", "id");
    assert_ok(txn_value_clear(txn, &new));
    /* The row is there by now, whether the caller knows or not. */
    make_fence(txn, &stale, 4, "second");
    assert_int_equal(stale.id, new.id);
    make_fence(txn, &stale, 5, "third");
    assert_string_equal(rig_receipt(txn, "new", "id"), "reply to id");
}

static void leave_a_floor(struct store_txn *txn)
{
    int64_t after = 0;
    size_t removed;
    bool more;

    rig_grant(txn, "gone", "o");
    rig_grant(txn, "gone", "o");
    rig_release(txn, "gone");
    rig_grant(txn, "last", "o");
    assert_ok(txn_sweep_resources(txn, INT64_MAX, 0, 100, &after, &removed, &more));
    assert_int_equal(removed, 1);
}

static void make_after_the_sweep(struct store_txn *txn)
{
    struct resource new = rig_find(txn, "new");

    assert_int_equal(new.fence.floor, 2);
    make_fence(txn, &new, 9, "o");
}

/* The row itself, which a reader sees, says it, and what the writer remembers of it. */
static void look_at_the_new_one(struct store_txn *txn)
{
    struct lease lease = rig_lease(txn, "new");

    assert_int_equal(lease.receipts_gone, 2); /* it may have had a row before, and receipts */
    assert_bytes(lease.owner, "o");
    assert_true(lease.anonymous);
    assert_int_equal(lease.holds, 2);
    assert_int_equal(lease.ttl_ms, 5000);
    assert_int_equal(lease.opening, 7);
    assert_int_equal(lease.connection, -42);
    assert_int_equal(rig_find(txn, "new").fence.token, 9);
}

BOTH_TEST(a_row_that_is_made_with_its_fence_says_which_receipts_may_be_gone)
{
    rig_in_write(rig, leave_a_floor);
    rig_in_write(rig, make_after_the_sweep);
    rig_in_both(rig, look_at_the_new_one);
}

BOTH_WRITE_TEST(a_string_is_put_replaced_and_cleared)
{
    static char large[1 << 20];
    struct resource resource = rig_grant(txn, "r", "o");
    struct bytes value;
    bool found;

    memset(large, 'x', sizeof large);
    assert_ok(txn_string_put(txn, &resource, BYTES_LITERAL("")));
    assert_int_equal(resource.type, VALUE_STRING);
    assert_int_equal(rig_find(txn, "r").type, VALUE_STRING);
    assert_ok(txn_string(txn, &resource, &found, &value));
    assert_true(found && value.len == 0);
    assert_ok(txn_string_put(txn, &resource, (struct bytes){large, sizeof large}));
    assert_ok(txn_string(txn, &resource, &found, &value));
    assert_true(found && value.len == sizeof large);
    assert_memory_equal(value.data, large, sizeof large);
    assert_ok(txn_string_put(txn, &resource, BYTES_LITERAL("z\0z")));
    assert_ok(txn_string(txn, &resource, &found, &value));
    assert_bytes(value, "z\0z");
    assert_ok(txn_value_clear(txn, &resource));
    assert_int_equal(resource.type, VALUE_NONE);
    assert_int_equal(rig_find(txn, "r").type, VALUE_NONE);
    assert_int_equal(rig_find(txn, "r").fence.state, FENCE_LIVE);
    assert_string_equal(rig_get(txn, "r"), "(none)");
}

BOTH_WRITE_TEST(fields_are_put_replaced_and_removed_and_the_type_follows)
{
    struct resource resource = rig_grant(txn, "r", "o");
    struct bytes value;
    int64_t count;
    bool found;

    assert_ok(txn_field_put(txn, &resource, bytes_of("f"), BYTES_LITERAL("1")));
    assert_ok(txn_field_put(txn, &resource, bytes_of("g"), BYTES_LITERAL("")));
    assert_ok(txn_field_put(txn, &resource, bytes_of("f"), BYTES_LITERAL("2")));
    assert_int_equal(resource.type, VALUE_HASH);
    assert_int_equal(rig_find(txn, "r").type, VALUE_HASH);
    assert_ok(txn_count_fields(txn, &resource, &count));
    assert_int_equal(count, 2);
    assert_ok(txn_field(txn, &resource, bytes_of("f"), &found, &value));
    assert_bytes(value, "2");
    assert_ok(txn_field(txn, &resource, bytes_of("g"), &found, &value));
    assert_true(found && value.len == 0);
    assert_ok(txn_field_remove(txn, &resource, bytes_of("h"), &found));
    assert_false(found);
    assert_ok(txn_field_remove(txn, &resource, bytes_of("f"), &found));
    assert_true(found);
    assert_int_equal(resource.type, VALUE_HASH);
    assert_ok(txn_field_remove(txn, &resource, bytes_of("g"), &found));
    assert_true(found);
    assert_int_equal(resource.type, VALUE_NONE);
    assert_int_equal(rig_find(txn, "r").type, VALUE_NONE);
    /* Now it may become a string, and a hash again. */
    assert_ok(txn_string_put(txn, &resource, BYTES_LITERAL("s")));
    assert_ok(txn_value_clear(txn, &resource));
    assert_ok(txn_field_put(txn, &resource, bytes_of("f"), BYTES_LITERAL("3")));
    assert_ok(txn_value_clear(txn, &resource));
    assert_ok(txn_count_fields(txn, &resource, &count));
    assert_int_equal(count, 0);
}

/* What an iteration gave: names joined by blanks; it stops when `left` is used up. */
struct visit {
    char text[256];
    int left;
    int64_t last;
};

static bool visit(struct visit *visit, struct bytes name)
{
    size_t used = strlen(visit->text);
    snprintf(visit->text + used, sizeof visit->text - used, "%.*s ", (int)name.len, name.data);
    return --visit->left > 0;
}

static bool visit_name(void *context, int64_t id, struct bytes name, enum value_type type)
{
    struct visit *at = context;
    (void)type;
    assert_true(id > at->last);
    at->last = id;
    return visit(at, name);
}

static bool visit_field(void *context, struct bytes field, struct bytes value)
{
    assert_int_equal(value.len, 1);
    return visit(context, field);
}

BOTH_WRITE_TEST(fields_come_in_the_order_of_their_bytes)
{
    static const char *const names[] = {"b", "\xff", "a", "aa", "B", "c"};
    struct resource resource = rig_grant(txn, "r", "o"), other = rig_grant(txn, "s", "o");
    struct visit all = {.left = 100}, some = {.left = 2}, none = {.left = 1};

    for (size_t i = 0; i < COUNT(names); i++)
        assert_ok(txn_field_put(txn, &resource, bytes_of(names[i]), BYTES_LITERAL("v")));
    assert_ok(txn_field_put(txn, &other, bytes_of("other"), BYTES_LITERAL("v")));
    assert_ok(txn_each_field_from(txn, &resource, BYTES_LITERAL(""), visit_field, &all));
    assert_string_equal(all.text, "B a aa b c \xff ");
    assert_ok(txn_each_field_from(txn, &resource, BYTES_LITERAL("aa"), visit_field, &some));
    assert_string_equal(some.text, "aa b ");
    assert_ok(txn_each_field_from(txn, &resource, BYTES_LITERAL("\xff\xff"), visit_field, &none));
    assert_string_equal(none.text, "");
}

static void populate(struct store_txn *txn)
{
    struct lease lease = {.owner = {"o", 1}};
    struct resource gone;

    for (int i = 0; i < 6; i++) {
        char name[8];
        snprintf(name, sizeof name, "r%d", i);
        struct resource resource = rig_grant(txn, name, "o");
        if (i % 2 == 0)
            assert_ok(txn_string_put(txn, &resource, BYTES_LITERAL("v")));
    }
    gone = rig_find(txn, "r2");
    gone.fence.state = FENCE_RELEASED;
    assert_ok(txn_fence_put(txn, &gone, &lease));
}

static void each(struct store_txn *txn)
{
    struct visit live = {.left = 100}, keys = {.left = 100}, some = {.left = 2};
    int64_t count;

    assert_ok(txn_each_live(txn, 0, visit_name, &live));
    assert_string_equal(live.text, "r0 r1 r3 r4 r5 ");
    assert_ok(txn_each_key(txn, 0, visit_name, &keys));
    assert_string_equal(keys.text, "r0 r2 r4 ");
    assert_ok(txn_each_live(txn, rig_find(txn, "r1").id, visit_name, &some));
    assert_string_equal(some.text, "r3 r4 ");
    assert_ok(txn_each_live(txn, INT64_MAX, visit_name, &live));
    assert_string_equal(live.text, "r0 r1 r3 r4 r5 ");
    assert_ok(txn_count_live(txn, &count));
    assert_int_equal(count, 5);
    assert_ok(txn_count_keys(txn, &count));
    assert_int_equal(count, 3);
}

BOTH_TEST(live_fences_and_keys_are_listed_by_id_and_counted)
{
    rig_in_write(rig, populate);
    rig_in_both(rig, each);
}

static void flush(struct store_txn *txn)
{
    struct resource before = rig_find(txn, "r0");
    assert_ok(flush_in_steps(txn));
    struct resource after = rig_find(txn, "r0");
    assert_int_equal(after.id, before.id);
    assert_int_equal(after.fence.token, before.fence.token);
    assert_int_equal(after.fence.state, FENCE_REVOKED);
    assert_int_equal(after.type, VALUE_NONE);
}

static void flushed(struct store_txn *txn)
{
    struct resource resource = rig_find(txn, "r1");
    struct lease lease;
    int64_t count;

    assert_int_equal(rig_find(txn, "r2").fence.state, FENCE_RELEASED);
    assert_int_equal(resource.fence.state, FENCE_REVOKED);
    assert_ok(txn_lease(txn, &resource, &lease));
    assert_int_equal(lease.holds, 0);
    assert_ok(txn_count_live(txn, &count));
    assert_int_equal(count, 0);
    assert_ok(txn_count_keys(txn, &count));
    assert_int_equal(count, 0);
    assert_string_equal(rig_get(txn, "r0"), "(none)");
}

enum { HASHES = 4, FIELDS = 5 };

static void populate_hashes(struct store_txn *txn)
{
    for (int i = 0; i < HASHES; i++) {
        char name[8];
        snprintf(name, sizeof name, "r%d", i);
        struct resource resource = rig_grant(txn, name, "o");
        for (int at = 0; at < FIELDS; at++) {
            snprintf(name, sizeof name, "f%d", at);
            assert_ok(txn_field_put(txn, &resource, bytes_of(name), BYTES_LITERAL("v")));
        }
    }
}

static void flush_a_step(struct store_txn *txn)
{
    struct flush_walk walk = {.more = true};

    assert_ok(txn_flush(txn, FIELDS + 1, &walk));
    assert_true(walk.more);
    assert_int_equal(rig_find(txn, "r1").type, VALUE_NONE);
    assert_int_equal(rig_find(txn, "r2").type, VALUE_HASH);
    assert_ok(txn_flush(txn, FIELDS, &walk));
    assert_int_equal(rig_find(txn, "r2").type, VALUE_NONE);
    assert_int_equal(rig_find(txn, "r3").type, VALUE_HASH);
    assert_ok(txn_flush(txn, FIELDS, &walk));
    assert_int_equal(rig_find(txn, "r3").type, VALUE_NONE);
    assert_false(walk.more);
}

/* A hash is as much work as it has fields, and is done as a whole. */
SQLITE_TEST(a_step_of_a_flush_ends_with_so_many_fields)
{
    rig_in_write(rig, populate_hashes);
    rig_in_write(rig, flush_a_step);
}

BOTH_TEST(a_flush_drops_values_and_revokes_what_is_live_but_keeps_tokens)
{
    rig_in_write(rig, populate);
    rig_in_write(rig, flush);
    rig_in_both(rig, flushed);
}
