/* SPDX-License-Identifier: Apache-2.0 */
/* An open hash table with linear probing, rebuilt at twice the size when it is half full. */
#include "tools/replay/names.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"

enum { SLOTS_MIN = 4096 };

static uint64_t name_hash(struct bytes name)
{
    uint64_t hash = 14695981039346656037U; /* FNV-1a */

    for (size_t i = 0; i < name.len; i++) {
        hash = (hash ^ (unsigned char)name.data[i]) * 1099511628211U;
    }
    return hash;
}

/* The slot of the name, or the free one where it belongs. */
static uint32_t *name_slot(const struct names *names, struct bytes name)
{
    size_t mask = names->slot_count - 1;

    for (size_t at = name_hash(name) & mask;; at = (at + 1) & mask) {
        uint32_t *slot = &names->slots[at];
        if (*slot == 0 || bytes_equal(bytes_of(names->texts[*slot - 1]), name)) {
            return slot;
        }
    }
}

static void slots_grow(struct names *names)
{
    if (2 * (size_t)names->count < names->slot_count) {
        return;
    }
    free(names->slots);
    names->slot_count = names->slot_count == 0 ? SLOTS_MIN : 2 * names->slot_count;
    names->slots = mem_zalloc(names->slot_count * sizeof *names->slots);
    for (uint32_t i = 0; i < names->count; i++) {
        *name_slot(names, bytes_of(names->texts[i])) = i + 1;
    }
}

uint32_t names_number(struct names *names, struct bytes name)
{
    slots_grow(names);
    uint32_t *slot = name_slot(names, name);
    if (*slot == 0) {
        if (names->count == names->room) {
            names->room = names->room == 0 ? SLOTS_MIN : 2 * names->room;
            names->texts = mem_realloc(names->texts, names->room * sizeof *names->texts);
        }
        char *text = mem_alloc(name.len + 1);
        memcpy(text, name.data, name.len);
        text[name.len] = '\0';
        names->texts[names->count++] = text;
        *slot = names->count;
    }
    return *slot - 1;
}

void names_free(struct names *names)
{
    for (uint32_t i = 0; i < names->count; i++) {
        free(names->texts[i]);
    }
    free(names->texts);
    free(names->slots);
    *names = (struct names){.texts = NULL};
}
