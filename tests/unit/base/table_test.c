/* SPDX-License-Identifier: Apache-2.0 */
/* A table of any size finds what is in it by name, and nothing else. */
#include "fence/base/list.h"
#include "fence/base/mem.h"
#include "fence/base/table.h"
#include "tests/unit/test.h"

enum { COUNT = 5000 };

struct thing {
    struct table_node node;
    int number;
    char name[16];
};

static int drained;

static struct bytes name_of(const struct table_node *node)
{
    const struct thing *thing = list_entry(node, struct thing, node);
    return (struct bytes){thing->name, strlen(thing->name)};
}

static struct bytes name_for(char name[16], int number)
{
    (void)snprintf(name, 16, "thing %d", number);
    return (struct bytes){name, strlen(name)};
}

static struct thing *find(const struct table *table, int number)
{
    char name[16];
    struct table_node *node = table_find(table, name_for(name, number));
    return node == NULL ? NULL : list_entry(node, struct thing, node);
}

static void add(struct table *table, int number)
{
    struct thing *thing = mem_zalloc(sizeof *thing);

    thing->number = number;
    (void)name_for(thing->name, number);
    table_add(table, &thing->node);
}

static void take(struct table_node *node)
{
    drained++;
    free(list_entry(node, struct thing, node));
}

TEST(what_was_added_is_found_until_it_is_removed)
{
    struct table table;

    table_init(&table, name_of);
    assert_null(find(&table, 1));
    for (int i = 0; i < COUNT; i++) {
        assert_null(find(&table, i));
        add(&table, i);
        assert_int_equal(find(&table, i)->number, i);
    }
    assert_int_equal(table.count, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(find(&table, i)->number, i);
    for (int i = 0; i < COUNT; i++) {
        struct thing *thing = find(&table, i);
        table_remove(&table, &thing->node);
        free(thing);
        assert_null(find(&table, i));
        if (i + 1 < COUNT)
            assert_int_equal(find(&table, COUNT - 1)->number, COUNT - 1);
    }
    assert_int_equal(table.count, 0);
    table_free(&table);
}

TEST(memory_follows_the_contents)
{
    struct table table;

    table_init(&table, name_of);
    size_t least = table.chains_count;
    for (int i = 0; i < COUNT; i++)
        add(&table, i);
    assert_in_range(table.chains_count, COUNT, 2 * COUNT);
    for (int i = 0; i < COUNT; i++) {
        struct thing *thing = find(&table, i);
        table_remove(&table, &thing->node);
        free(thing);
    }
    assert_int_equal(table.chains_count, least);
    table_free(&table);
}

TEST(a_drain_gives_everything_out_once)
{
    struct table table;

    table_init(&table, name_of);
    for (int i = 0; i < COUNT; i++)
        add(&table, i);
    drained = 0;
    table_drain(&table, take);
    assert_int_equal(drained, COUNT);
    assert_int_equal(table.count, 0);
    assert_null(find(&table, 0));
    add(&table, 0);
    assert_non_null(find(&table, 0));
    table_drain(&table, take);
    table_free(&table);
}
