/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table of structs by a name that they hold. It costs one pointer in each struct, which
 * counts where there may be a million; where there are few, uthash does more.
 *
 * It grows and shrinks with its contents, and owns none of them. */
#ifndef STOCKADE_BASE_TABLE_H
#define STOCKADE_BASE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"

/* Embed it. */
struct table_node {
    struct table_node *next; /* in its chain */
};

struct table {
    struct bytes (*name_of)(const struct table_node *node); /* constant while it is in the table */
    struct table_node **chains;
    size_t chains_count, count;
    uint64_t seed; /* nobody can choose names that share a chain */
};

/* Make an empty table; table_free when done. */
void table_init(struct table *table, struct bytes (*name_of)(const struct table_node *node));
/* Free the table; what is in it is the caller's. */
void table_free(struct table *table);
/* Return the node of this name, or NULL. */
struct table_node *table_find(const struct table *table, struct bytes name);
/* Add a node. No other one of its name may be in the table. */
void table_add(struct table *table, struct table_node *node);
/* Remove a node that is in the table. */
void table_remove(struct table *table, struct table_node *node);
/* Remove all nodes, and give each to `taken`, which may free it. */
void table_drain(struct table *table, void (*taken)(struct table_node *node));

#endif
