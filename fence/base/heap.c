/* SPDX-License-Identifier: Apache-2.0 */
/* A binary heap in an array. A node knows its place, so that any node can leave in log time. */
#include "fence/base/heap.h"

#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

static void put(struct heap *heap, size_t place, struct heap_node *node)
{
    heap->nodes[place - 1] = node;
    node->place = place;
}

static void sift_up(struct heap *heap, struct heap_node *node)
{
    size_t place = node->place;
    while (place > 1 && heap->nodes[place / 2 - 1]->at_ms > node->at_ms) {
        put(heap, place, heap->nodes[place / 2 - 1]);
        place /= 2;
    }
    put(heap, place, node);
}

static void sift_down(struct heap *heap, struct heap_node *node)
{
    size_t place = node->place;
    for (;;) {
        size_t child = place * 2;
        if (child > heap->count)
            break;
        if (child < heap->count && heap->nodes[child]->at_ms < heap->nodes[child - 1]->at_ms)
            child++;
        if (heap->nodes[child - 1]->at_ms >= node->at_ms)
            break;
        put(heap, place, heap->nodes[child - 1]);
        place = child;
    }
    put(heap, place, node);
}

void heap_set(struct heap *heap, struct heap_node *node, int64_t at_ms)
{
    node->at_ms = at_ms;
    if (node->place == 0) {
        if (heap->count == heap->cap) {
            heap->cap = heap->cap == 0 ? 16 : heap->cap * 2;
            heap->nodes = mem_realloc(heap->nodes, heap->cap * sizeof *heap->nodes);
        }
        heap->count++;
        put(heap, heap->count, node);
    }
    check(node->place <= heap->count && heap->nodes[node->place - 1] == node);
    sift_up(heap, node);
    sift_down(heap, node);
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    if (node->place == 0)
        return;
    check(node->place <= heap->count && heap->nodes[node->place - 1] == node);
    struct heap_node *last = heap->nodes[heap->count - 1];
    heap->count--;
    if (last != node) {
        put(heap, node->place, last);
        sift_up(heap, last);
        sift_down(heap, last);
    }
    node->place = 0;
}

struct heap_node *heap_first(const struct heap *heap)
{
    return heap->count == 0 ? NULL : heap->nodes[0];
}

void heap_free(struct heap *heap)
{
    free(heap->nodes);
    *heap = (struct heap){0};
}
