/* SPDX-License-Identifier: Apache-2.0 */
/* Chains that double in number when there are as many nodes, and halve when few are left. */
#include "fence/base/table.h"

#include <stdlib.h>
#include <xxhash.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

enum { CHAINS_MIN = 64, SPARSE = 8 };

static struct table_node **chain_of(const struct table *table, struct bytes name)
{
    return &table->chains[XXH3_64bits_withSeed(name.data, name.len, table->seed) &
                          (table->chains_count - 1)];
}

static void chain_in(struct table *table, struct table_node *node)
{
    struct table_node **chain = chain_of(table, table->name_of(node));

    node->next = *chain;
    *chain = node;
}

static void resize(struct table *table, size_t count)
{
    struct table_node **old = table->chains, *next;
    size_t old_count = table->chains_count;

    table->chains = mem_zalloc(count * sizeof *table->chains);
    table->chains_count = count;
    for (size_t i = 0; i < old_count; i++)
        for (struct table_node *node = old[i]; node != NULL; node = next) {
            next = node->next;
            chain_in(table, node);
        }
    free(old);
}

void table_init(struct table *table, struct bytes (*name_of)(const struct table_node *node))
{
    *table = (struct table){.name_of = name_of, .seed = (uint64_t)(uintptr_t)table};
    resize(table, CHAINS_MIN);
}

void table_free(struct table *table)
{
    free(table->chains);
    table->chains = NULL;
    table->chains_count = table->count = 0;
}

struct table_node *table_find(const struct table *table, struct bytes name)
{
    if (table->count == 0)
        return NULL;
    struct table_node *node = *chain_of(table, name);
    while (node != NULL && !bytes_equal(table->name_of(node), name))
        node = node->next;
    return node;
}

void table_add(struct table *table, struct table_node *node)
{
    if (table->count == table->chains_count)
        resize(table, table->chains_count * 2);
    chain_in(table, node);
    table->count++;
}

void table_remove(struct table *table, struct table_node *node)
{
    struct table_node **at = chain_of(table, table->name_of(node));

    while (*at != node) {
        check(*at != NULL);
        at = &(*at)->next;
    }
    *at = node->next;
    table->count--;
    if (table->chains_count > CHAINS_MIN && table->count < table->chains_count / SPARSE)
        resize(table, table->chains_count / 2);
}

void table_drain(struct table *table, void (*taken)(struct table_node *node))
{
    table->count = 0;
    for (size_t i = 0; i < table->chains_count; i++) {
        struct table_node *node = table->chains[i], *next;
        table->chains[i] = NULL;
        for (; node != NULL; node = next) {
            next = node->next;
            taken(node);
        }
    }
}
