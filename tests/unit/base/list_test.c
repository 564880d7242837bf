/* SPDX-License-Identifier: Apache-2.0 */
/* The intrusive list. */
#include "fence/base/list.h"
#include "tests/unit/test.h"

struct item {
    int number;
    struct list link;
};

/* Return the numbers in order, as one: 123. Walk both ways and check that they agree. */
static int content(struct list *head)
{
    int forward = 0, backward = 0, power = 1;

    for (struct list *at = head->next; at != head; at = at->next)
        forward = forward * 10 + list_entry(at, struct item, link)->number;
    for (struct list *at = head->prev; at != head; at = at->prev) {
        backward += power * list_entry(at, struct item, link)->number;
        power *= 10;
    }
    assert_int_equal(forward, backward);
    return forward;
}

struct fixture {
    struct list head;
    struct item items[5];
};

static int setup(void **state)
{
    static struct fixture fixture;

    list_init(&fixture.head);
    for (int i = 0; i < 5; i++) {
        fixture.items[i].number = i + 1;
        list_init(&fixture.items[i].link);
    }
    *state = &fixture;
    return 0;
}

#define FIXTURE_TEST(name) TEST_WITH(setup, NULL, struct fixture *f, name)

FIXTURE_TEST(elements_stand_in_the_order_they_came)
{
    assert_true(list_empty(&f->head));
    for (int i = 0; i < 3; i++)
        list_append(&f->head, &f->items[i].link);
    assert_int_equal(content(&f->head), 123);
    list_insert(&f->items[1].link, &f->items[3].link);
    assert_int_equal(content(&f->head), 1423);
    list_insert(f->head.next, &f->items[4].link);
    assert_int_equal(content(&f->head), 51423);
    assert_false(list_empty(&f->head));
}

FIXTURE_TEST(any_element_can_leave_and_leaving_twice_is_harmless)
{
    for (int i = 0; i < 3; i++)
        list_append(&f->head, &f->items[i].link);
    list_remove(&f->items[1].link);
    assert_int_equal(content(&f->head), 13);
    list_remove(&f->items[1].link);
    assert_int_equal(content(&f->head), 13);
    list_append(&f->head, &f->items[1].link);
    assert_int_equal(content(&f->head), 132);
}

FIXTURE_TEST(pop_takes_the_first_until_there_is_none)
{
    assert_null(list_pop(&f->head));
    list_append(&f->head, &f->items[0].link);
    list_append(&f->head, &f->items[1].link);
    assert_ptr_equal(list_pop(&f->head), &f->items[0].link);
    assert_true(list_empty(&f->items[0].link)); /* unlinked */
    assert_ptr_equal(list_pop(&f->head), &f->items[1].link);
    assert_null(list_pop(&f->head));
}

FIXTURE_TEST(splice_moves_all_in_order)
{
    struct list other;

    list_init(&other);
    list_splice(&f->head, &other);
    assert_true(list_empty(&f->head));
    list_append(&f->head, &f->items[0].link);
    for (int i = 1; i < 4; i++)
        list_append(&other, &f->items[i].link);
    list_splice(&f->head, &other);
    assert_int_equal(content(&f->head), 1234);
    assert_true(list_empty(&other));
    list_splice(&other, &f->head);
    assert_int_equal(content(&other), 1234);
    assert_true(list_empty(&f->head));
}
