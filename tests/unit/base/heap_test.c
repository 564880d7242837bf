/* SPDX-License-Identifier: Apache-2.0 */
/* The heap of timers, compared with a plain search. */
#include "fence/base/heap.h"
#include "tests/unit/test.h"

TEST(an_empty_heap_has_no_first)
{
    struct heap heap = {0};
    struct heap_node node = {0};

    assert_null(heap_first(&heap));
    heap_remove(&heap, &node); /* not in it: harmless */
    heap_set(&heap, &node, 5);
    assert_ptr_equal(heap_first(&heap), &node);
    heap_remove(&heap, &node);
    assert_null(heap_first(&heap));
    assert_int_equal(node.place, 0);
    heap_free(&heap);
}

TEST(nodes_leave_in_order_of_time)
{
    enum { COUNT = 1000 };
    static struct heap_node nodes[COUNT];
    struct heap heap = {0};
    int64_t last_ms = INT64_MIN;

    for (int64_t i = 0; i < COUNT; i++)
        heap_set(&heap, &nodes[i], i * 7919 % 500 - 100);
    for (int i = 0; i < COUNT; i++) {
        struct heap_node *first = heap_first(&heap);
        assert_true(first->at_ms >= last_ms);
        last_ms = first->at_ms;
        heap_remove(&heap, first);
    }
    assert_null(heap_first(&heap));
    heap_free(&heap);
}

/* Set, move and remove at random; after each step the first one must be what a search finds. */
TEST(it_agrees_with_a_search_whatever_is_done_to_it)
{
    enum { COUNT = 50, STEPS = 50000 };
    static struct heap_node nodes[COUNT];
    struct heap heap = {0};
    uint32_t dice = 12345;

    for (int step = 0; step < STEPS; step++) {
        dice = dice * 1664525 + 1013904223;
        struct heap_node *node = &nodes[(dice >> 8) % COUNT];
        if ((dice >> 16) % 3 == 0)
            heap_remove(&heap, node);
        else
            heap_set(&heap, node, (int64_t)((dice >> 20) % 100));

        size_t in = 0;
        int64_t earliest_ms = INT64_MAX;
        for (int i = 0; i < COUNT; i++)
            if (nodes[i].place != 0) {
                in++;
                if (nodes[i].at_ms < earliest_ms)
                    earliest_ms = nodes[i].at_ms;
            }
        assert_int_equal(heap.count, in);
        if (in > 0)
            assert_int_equal(heap_first(&heap)->at_ms, earliest_ms);
        else
            assert_null(heap_first(&heap));
    }
    heap_free(&heap);
}
