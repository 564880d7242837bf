/* SPDX-License-Identifier: Apache-2.0 */
/* Timers in order: a binary heap of intrusive nodes, the earliest time first; nodes of the same
 * time leave in no particular order. Adding grows an array (amortised); removing never allocates.
 */
#ifndef STOCKADE_BASE_HEAP_H
#define STOCKADE_BASE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All zero: not in a heap. Owned by its embedder; remove it before that goes. */
struct heap_node {
    int64_t at_ms;
    size_t place; /* 1-based index in the heap, 0 = not in it */
};

/* All zero: empty. */
struct heap {
    struct heap_node **nodes;
    size_t count, cap;
};

/* Put the node in at `at_ms`, or move it there. */
void heap_set(struct heap *heap, struct heap_node *node, int64_t at_ms);
/* Take it out; harmless where it is not in. */
void heap_remove(struct heap *heap, struct heap_node *node);
/* Return the earliest node, which stays in the heap, or NULL. */
struct heap_node *heap_first(const struct heap *heap);
/* Free the array; the nodes are not its own. */
void heap_free(struct heap *heap);

#endif
