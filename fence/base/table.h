/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table of structs by a name that they hold. It costs a pointer in each, where there may be
 * a million; where there are few, uthash is the better choice.
 *
 * It grows and shrinks with its contents and owns none of them. */
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
    struct bytes (*name_of)(const struct table_node *node); /* the same as long as it is in there */
    struct table_node **chains;
    size_t chains_count, count;
    uint64_t seed; /* nobody can choose names that share a chain */
};

void table_init(struct table *table, struct bytes (*name_of)(const struct table_node *node));
/* What is in there is left to the caller. */
void table_free(struct table *table);
/* NULL: there is none. */
struct table_node *table_find(const struct table *table, struct bytes name);
/* There is none of that name. */
void table_add(struct table *table, struct table_node *node);
/* It is in there. */
void table_remove(struct table *table, struct table_node *node);
/* Takes all out, and gives each to `taken`, which may free it. */
void table_drain(struct table *table, void (*taken)(struct table_node *node));

#endif
