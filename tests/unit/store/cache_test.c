/* SPDX-License-Identifier: Apache-2.0 */
/* The fence cache answers with what was put last, or not at all. */
#include "store/sqlite/cache.h"

#include <inttypes.h>

#include "tests/unit/store/rig.h"

TESTS_HAVE_ONE_THREAD

enum { HOLDS = 1 << 18 };

static int make_cache(void **state)
{
    *state = cache_new(HOLDS);
    return 0;
}

static int free_cache(void **state)
{
    cache_free(*state);
    return 0;
}

#define CACHE_TEST(name) TEST_WITH(make_cache, free_cache, struct cache *cache, name)

static struct bytes name_of(char *text, int64_t id)
{
    int len = snprintf(text, 32, "name-%lld", (long long)id);
    return (struct bytes){text, (size_t)len};
}

static struct resource resource_of(int64_t id, int64_t token)
{
    return (struct resource){
        .id = id, .fence = {.token = token, .state = FENCE_LIVE}, .type = VALUE_STRING};
}

static bool has(struct cache *cache, const char *name, int64_t token)
{
    struct resource found;

    if (!cache_find(cache, bytes_of(name), &found))
        return false;
    assert_int_equal(found.fence.token, token);
    return true;
}

static void put(struct cache *cache, const char *name, int64_t id, int64_t token)
{
    struct resource resource = resource_of(id, token);
    cache_put(cache, bytes_of(name), &resource);
}

static void update(struct cache *cache, int64_t id, int64_t token)
{
    struct resource resource = resource_of(id, token);
    cache_update(cache, &resource);
}

/* The same under a name that follows from the id. */
static void put_id(struct cache *cache, int64_t id, int64_t token)
{
    struct resource resource = resource_of(id, token);
    char text[32];

    cache_put(cache, name_of(text, id), &resource);
}

/* Return what is found under it, or NULL. Static storage. */
static const struct resource *find_id(struct cache *cache, int64_t id)
{
    static struct resource found;
    char text[32];

    if (!cache_find(cache, name_of(text, id), &found))
        return NULL;
    assert_int_equal(found.id, id);
    return &found;
}

CACHE_TEST(what_is_put_is_found_updated_and_forgotten)
{
    struct resource found;

    assert_false(has(cache, "a", 0));
    put(cache, "a", 7, 1);
    assert_true(cache_find(cache, BYTES_LITERAL("a"), &found));
    assert_int_equal(found.id, 7);
    assert_int_equal(found.fence.state, FENCE_LIVE);
    assert_int_equal(found.type, VALUE_STRING);
    assert_false(has(cache, "ab", 0));
    update(cache, 7, 2);
    assert_true(has(cache, "a", 2));
    put(cache, "a", 7, 3);
    assert_true(has(cache, "a", 3));
    cache_clear(cache);
    assert_false(has(cache, "a", 0));
    update(cache, 7, 3);
    assert_false(has(cache, "a", 0));
}

CACHE_TEST(an_update_reaches_its_entry_or_the_entry_is_gone)
{
    /* Far more than it holds, and ids that share their place in the table by id. */
    enum { COUNT = 600000, STRIDES = 3 };
    static const int64_t strides[STRIDES] = {1, HOLDS, HOLDS / 2 + 1};
    int found_at_all = 0;

    for (int s = 0; s < STRIDES; s++) {
        cache_clear(cache);
        for (int64_t i = 1; i <= COUNT; i++) {
            put_id(cache, i * strides[s], 1);
            if (i % 3 == 0) /* another one, put earlier or not at all */
                update(cache, (i / 2 + 1) * strides[s], 2);
        }
        for (int64_t i = 1; i <= COUNT; i++) {
            update(cache, i * strides[s], 3);
            const struct resource *found = find_id(cache, i * strides[s]);
            if (found == NULL)
                continue;
            found_at_all++;
            assert_int_equal(found->fence.token, 3);
        }
    }
    assert_true(found_at_all > 100000);
}

TEST(nothing_is_lost_until_it_is_full)
{
    enum { MAX = 1 << 15 };
    struct cache *cache = cache_new(MAX);
    struct resource by_id;

    for (int round = 0; round < 2; round++) {
        for (int64_t id = 1; id <= MAX; id++)
            put_id(cache, id, id);
        for (int64_t id = 1; id <= MAX; id++) {
            const struct resource *found = find_id(cache, id);
            assert_non_null(found);
            assert_int_equal(found->fence.token, id);
            assert_true(cache_find_id(cache, id, &by_id));
        }
        /* What is forgotten makes room for as much. */
        for (int64_t id = 1; id <= MAX; id += 2)
            cache_forget(cache, id);
        for (int64_t id = 1; id <= MAX; id++)
            assert_int_equal(find_id(cache, id) != NULL, id % 2 == 0);
        for (int64_t id = 1; id <= MAX; id += 2)
            put(cache, "", MAX + id, 1); /* one name: one entry */
        for (int64_t id = 2; id <= MAX; id += 2)
            assert_non_null(find_id(cache, id));
        cache_clear(cache);
        for (int64_t id = 1; id <= MAX; id++)
            assert_null(find_id(cache, id));
    }
    cache_free(cache);
}

static struct bytes long_name_of(char text[128], int64_t id)
{
    memset(text, '-', 128);
    (void)snprintf(text, 128, "%lld", (long long)id);
    return (struct bytes){text, 64 + (size_t)id % 65};
}

TEST(long_names_push_each_other_out)
{
    enum { COUNT = 500000, MB = 1 << 20 };
    struct cache *cache = cache_new(1 << 20);
    char text[128];
    size_t found = 0;

    put(cache, "short", COUNT + 1, 7);
    for (int64_t id = 1; id <= COUNT; id++) {
        struct resource resource = resource_of(id, id);
        cache_put(cache, long_name_of(text, id), &resource);
    }
    for (int64_t id = 1; id <= COUNT; id++) {
        struct bytes name = long_name_of(text, id);
        struct resource resource;
        if (!cache_find(cache, name, &resource))
            continue;
        assert_int_equal(resource.id, id);
        assert_int_equal(resource.fence.token, id);
        found += name.len;
    }
    assert_in_range(found, 31 * MB, 32 * MB);
    cache_clear(cache);
    assert_false(cache_find(cache, long_name_of(text, COUNT), &(struct resource){.id = 0}));
    put(cache, "short", 1, 8);
    assert_true(has(cache, "short", 8));
    cache_free(cache);
}

CACHE_TEST(names_of_any_length_are_taken_or_left)
{
    char longest[RESOURCE_NAME_MAX];
    struct resource resource = resource_of(1, 1), found;

    memset(longest, 'n', sizeof longest);
    for (size_t len = 1; len <= sizeof longest; len++) {
        struct bytes name = {longest, len};
        resource.id = (int64_t)len;
        cache_put(cache, name, &resource);
        if (cache_find(cache, name, &found))
            assert_int_equal(found.id, len);
    }
    assert_true(cache_find(cache, (struct bytes){longest, 16}, &found));
}

CACHE_TEST(an_undo_forgets_what_was_put_or_updated_since_the_savepoint_and_nothing_else)
{
    put(cache, "committed", 1, 1);
    put(cache, "updated before", 2, 1);
    put(cache, "updated after", 3, 1);
    cache_commit(cache);
    assert_int_equal(cache_savepoint(cache), 0);
    put(cache, "put before", 4, 1);
    update(cache, 2, 2);
    size_t savepoint = cache_savepoint(cache);
    put(cache, "put after", 5, 1);
    update(cache, 3, 2);
    update(cache, 5, 2);
    update(cache, 99, 2); /* is not in there */
    cache_undo(cache, savepoint);
    assert_true(has(cache, "committed", 1));
    assert_true(has(cache, "updated before", 2));
    assert_true(has(cache, "put before", 1));
    assert_false(has(cache, "updated after", 0));
    assert_false(has(cache, "put after", 0));
    assert_int_equal(cache_savepoint(cache), savepoint);
    put(cache, "put after", 5, 7);
    cache_undo(cache, 0);
    assert_true(has(cache, "committed", 1));
    assert_false(has(cache, "updated before", 0));
    assert_false(has(cache, "put before", 0));
    assert_false(has(cache, "put after", 0));
    /* What is forgotten stays so: an update finds no entry to revive. */
    update(cache, 3, 9);
    assert_false(has(cache, "updated after", 0));
}

CACHE_TEST(an_undo_holds_where_the_cache_was_cleared_or_an_entry_forgotten_meanwhile)
{
    put(cache, "a", 1, 1);
    put(cache, "b", 2, 1);
    cache_commit(cache);
    update(cache, 1, 2);
    size_t savepoint = cache_savepoint(cache);
    cache_clear(cache);
    put(cache, "a", 1, 3);
    cache_undo(cache, savepoint);
    assert_false(has(cache, "a", 0));
    put(cache, "a", 1, 4);
    cache_commit(cache);
    put(cache, "b", 2, 1);
    cache_forget(cache, 2);
    cache_forget(cache, 1);
    cache_forget(cache, 77);
    assert_false(has(cache, "a", 0));
    assert_false(has(cache, "b", 0));
    cache_undo(cache, 0);
    assert_false(has(cache, "a", 0));
}

CACHE_TEST(an_undo_finds_every_entry_in_a_full_cache)
{
    enum { BEFORE = 300000, AFTER = 300000 };
    int kept = 0;

    for (int64_t id = 1; id <= BEFORE; id++)
        put_id(cache, id, 1);
    cache_commit(cache);
    for (int64_t id = BEFORE + 1; id <= BEFORE + AFTER; id++) {
        put_id(cache, id, 2);
        update(cache, id - BEFORE, 2); /* an old one, where it is left */
    }
    cache_undo(cache, 0);
    for (int64_t id = 1; id <= BEFORE + AFTER; id++) {
        const struct resource *found = find_id(cache, id);
        if (found == NULL)
            continue;
        assert_int_equal(found->fence.token, 1);
        kept++;
    }
    /* What is left was not updated, and did not have to make room. */
    assert_true(kept < BEFORE / 4);
}

/* Return the string, "(none)" where it is not remembered. Static storage. */
static const char *string_of(struct cache *cache, const char *name)
{
    static char text[64];
    struct bytes value;

    if (!cache_string(cache, bytes_of(name), &value))
        return "(none)";
    snprintf(text, sizeof text, "%.*s", (int)value.len, value.data);
    return text;
}

CACHE_TEST(a_string_is_remembered_with_its_row)
{
    struct resource resource = resource_of(1, 1);
    static const char longest[] = "12345678901234567890123456789012345678901234567890123456789",
                      too_long[] = "123456789012345678901234567890123456789012345678901234567890";

    cache_string_put(cache, 1, BYTES_LITERAL("no row"));
    cache_string_update(cache, 1, BYTES_LITERAL("no row"));
    put(cache, "a", 1, 1);
    put(cache, "b", 2, 1);
    cache_string_update(cache, 1, BYTES_LITERAL("never asked for"));
    assert_string_equal(string_of(cache, "a"), "(none)");
    cache_string_put(cache, 1, BYTES_LITERAL("one"));
    assert_string_equal(string_of(cache, "a"), "one");
    assert_string_equal(string_of(cache, "b"), "(none)");
    cache_string_update(cache, 1, BYTES_LITERAL(longest));
    cache_string_put(cache, 2, (struct bytes){NULL, 0});
    assert_string_equal(string_of(cache, "a"), longest);
    assert_string_equal(string_of(cache, "b"), "");
    update(cache, 1, 2); /* another token, the same string */
    assert_string_equal(string_of(cache, "a"), longest);
    cache_string_update(cache, 1, BYTES_LITERAL(too_long));
    assert_string_equal(string_of(cache, "a"), "(none)");
    cache_string_put(cache, 1, BYTES_LITERAL("two"));
    resource.type = VALUE_HASH;
    cache_update(cache, &resource);
    assert_string_equal(string_of(cache, "a"), "(none)");
    update(cache, 1, 3);
    assert_string_equal(string_of(cache, "a"), "(none)");
    cache_string_put(cache, 1, BYTES_LITERAL("three"));
    put(cache, "a", 3, 1); /* another row of that name */
    assert_string_equal(string_of(cache, "a"), "(none)");
    cache_string_put(cache, 3, BYTES_LITERAL("four"));
    cache_forget(cache, 3);
    put(cache, "c", 4, 1); /* in the same place */
    assert_string_equal(string_of(cache, "c"), "(none)");
    cache_clear(cache);
    assert_string_equal(string_of(cache, "b"), "(none)");
    put(cache, "b", 2, 1);
    assert_string_equal(string_of(cache, "b"), "(none)");
}

/* Free entries have the id 0, and so has a row that is not there. */
CACHE_TEST(a_row_that_is_not_there_has_nothing_of_one_that_was_forgotten)
{
    struct resource resource, hash = {.id = 2, .type = VALUE_HASH};
    struct bytes value;

    put(cache, "a", 1, 5);
    cache_string_put(cache, 1, bytes_of("old"));
    cache_forget(cache, 1);
    assert_false(cache_string_of_id(cache, 0, &value) || cache_find_id(cache, 0, &resource));
    assert_false(cache_string_has_len(cache, 0, 3));
    cache_put(cache, bytes_of("h"), &hash);
    cache_field_put(cache, 2, bytes_of("f"), bytes_of("old"));
    cache_forget(cache, 2);
    assert_false(cache_field(cache, 0, bytes_of("f"), &value));
}

CACHE_TEST(an_undo_forgets_the_strings_put_since)
{
    put(cache, "kept", 1, 1);
    put(cache, "changed", 2, 1);
    cache_string_put(cache, 1, BYTES_LITERAL("one"));
    cache_string_put(cache, 2, BYTES_LITERAL("two"));
    cache_commit(cache);
    cache_string_update(cache, 2, BYTES_LITERAL("new"));
    assert_string_equal(string_of(cache, "changed"), "new");
    cache_undo(cache, 0);
    assert_string_equal(string_of(cache, "kept"), "one");
    assert_string_equal(string_of(cache, "changed"), "(none)");
}

TEST(strings_push_each_other_out)
{
    enum { COUNT = 600000 };
    struct cache *cache = cache_new(1 << 20);
    char text[32], expected[32];
    size_t found = 0;

    for (int round = 0; round < 2; round++)
        for (int64_t id = 1; id <= COUNT; id++) {
            put_id(cache, id, id);
            int len = snprintf(expected, sizeof expected, "%" PRId64, id + round);
            cache_string_put(cache, id, (struct bytes){expected, (size_t)len});
        }
    for (int64_t id = 1; id <= COUNT; id++) {
        struct bytes value;
        if (!cache_string(cache, name_of(text, id), &value))
            continue;
        int len = snprintf(expected, sizeof expected, "%" PRId64, id + 1);
        assert_int_equal(value.len, len);
        assert_memory_equal(value.data, expected, (size_t)len);
        found++;
    }
    assert_int_equal(found, 1 << 18);
    cache_free(cache);
}

static void look_ahead(const struct cache *cache, const char *name)
{
    struct store_op ops[2] = {{.about = bytes_of(name)}, {.about = BYTES_LITERAL("name-1")}};
    struct cache_ahead ahead;
    struct list batch;

    list_init(&batch);
    for (size_t i = 0; i < 2; i++)
        list_append(&batch, &ops[i].link);
    cache_ahead_start(&ahead, cache, batch.next, &batch);
    for (size_t i = 0; i < 2; i++)
        cache_ahead_step(&ahead);
}

/* With the address sanitizer this tests what is read on the way. */
TEST(looking_ahead_changes_nothing_whatever_the_name)
{
    enum { COUNT = 3000 }; /* some chains have several */
    struct cache *cache = cache_new(1024 * 4);
    char name[32];

    look_ahead(cache, "");
    look_ahead(cache, "none yet");
    for (int64_t id = 1; id <= COUNT; id++) {
        (void)name_of(name, id);
        put(cache, name, id, id);
        cache_string_put(cache, id, BYTES_LITERAL("s"));
        look_ahead(cache, name);
    }
    for (int64_t id = 1; id <= 2 * COUNT; id++) {
        struct bytes value;
        (void)name_of(name, id);
        look_ahead(cache, name);
        assert_int_equal(has(cache, name, id), id <= COUNT);
        assert_int_equal(cache_string(cache, bytes_of(name), &value), id <= COUNT);
    }
    cache_clear(cache);
    look_ahead(cache, "name-1");
    assert_false(has(cache, "name-1", 1));
    cache_free(cache);
}
