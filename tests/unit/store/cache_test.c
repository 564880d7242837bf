/* SPDX-License-Identifier: Apache-2.0 */
/* The fence cache never says anything that was not put last. */
#include "store/sqlite/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/store/rig.h"

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

static void what_is_put_is_found_updated_and_forgotten(void **state)
{
    struct cache *cache = cache_new();
    struct resource resource = resource_of(7, 1), found;

    (void)state;
    assert_false(cache_find(cache, BYTES_LITERAL("a"), &found));
    cache_put(cache, BYTES_LITERAL("a"), &resource);
    assert_true(cache_find(cache, BYTES_LITERAL("a"), &found));
    assert_int_equal(found.id, 7);
    assert_int_equal(found.fence.state, FENCE_LIVE);
    assert_int_equal(found.type, VALUE_STRING);
    assert_false(cache_find(cache, BYTES_LITERAL("ab"), &found));
    resource.fence.token = 2;
    cache_update(cache, &resource);
    assert_true(cache_find(cache, BYTES_LITERAL("a"), &found));
    assert_int_equal(found.fence.token, 2);
    resource.fence.token = 3;
    cache_put(cache, BYTES_LITERAL("a"), &resource);
    assert_true(cache_find(cache, BYTES_LITERAL("a"), &found));
    assert_int_equal(found.fence.token, 3);
    cache_clear(cache);
    assert_false(cache_find(cache, BYTES_LITERAL("a"), &found));
    cache_update(cache, &resource);
    assert_false(cache_find(cache, BYTES_LITERAL("a"), &found));
    cache_free(cache);
}

static void an_update_reaches_its_entry_or_the_entry_is_gone(void **state)
{
    /* Far more than it holds, and ids that share their place in the table by id. */
    enum { COUNT = 600000, STRIDES = 3 };
    static const int64_t strides[STRIDES] = {1, 1 << 18, (1 << 17) + 1};
    struct cache *cache = cache_new();
    char text[32];
    int found_at_all = 0;

    (void)state;
    for (int s = 0; s < STRIDES; s++) {
        cache_clear(cache);
        for (int64_t i = 1; i <= COUNT; i++) {
            struct resource resource = resource_of(i * strides[s], 1);
            cache_put(cache, name_of(text, resource.id), &resource);
            if (i % 3 == 0) { /* another one, put earlier or not at all */
                resource = resource_of((i / 2 + 1) * strides[s], 2);
                cache_update(cache, &resource);
            }
        }
        for (int64_t i = 1; i <= COUNT; i++) {
            struct resource resource = resource_of(i * strides[s], 3), found;
            cache_update(cache, &resource);
            if (!cache_find(cache, name_of(text, resource.id), &found))
                continue;
            found_at_all++;
            assert_int_equal(found.id, resource.id);
            assert_int_equal(found.fence.token, 3);
        }
    }
    assert_true(found_at_all > 100000);
    cache_free(cache);
}

static void names_of_any_length_are_taken_or_left(void **state)
{
    struct cache *cache = cache_new();
    char longest[RESOURCE_NAME_MAX];
    struct resource resource = resource_of(1, 1), found;

    (void)state;
    memset(longest, 'n', sizeof longest);
    for (size_t len = 1; len <= sizeof longest; len++) {
        struct bytes name = {longest, len};
        resource.id = (int64_t)len;
        cache_put(cache, name, &resource);
        if (cache_find(cache, name, &found))
            assert_int_equal(found.id, len);
    }
    assert_true(cache_find(cache, (struct bytes){longest, 16}, &found));
    cache_free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_is_found_updated_and_forgotten),
        cmocka_unit_test(an_update_reaches_its_entry_or_the_entry_is_gone),
        cmocka_unit_test(names_of_any_length_are_taken_or_left),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
