/* SPDX-License-Identifier: Apache-2.0 */
#include "store/working_set.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

enum { BLOCK_BYTES = 64 * 1024, ALIGN = 16 };

struct set_block {
    struct set_block *next;
    size_t used, size;
    _Alignas(ALIGN) char bytes[];
};

/* A row's or a part's content before a change. */
struct set_saved {
    void *at;
    size_t size;
    const void *before;
};

/* Memory. */

void *set_alloc(struct set *set, size_t size)
{
    struct set_block *block = set->blocks;

    size = (size + ALIGN - 1) / ALIGN * ALIGN;
    if (block == NULL || block->size - block->used < size) {
        size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        block = mem_alloc(sizeof *block + room);
        block->used = 0;
        block->size = room;
        block->next = set->blocks;
        set->blocks = block;
    }
    void *bytes = block->bytes + block->used;
    block->used += size;
    return bytes;
}

struct bytes set_copy(struct set *set, struct bytes bytes)
{
    char *copy = set_alloc(set, bytes.len);

    if (bytes.len > 0)
        memcpy(copy, bytes.data, bytes.len);
    return (struct bytes){copy, bytes.len};
}

static struct bytes key_of(const struct table_node *node)
{
    return list_entry(node, const struct item, node)->key;
}

void set_init(struct set *set)
{
    *set = (struct set){0};
    table_init(&set->items, key_of);
    list_init(&set->rows);
    list_init(&set->parts);
}

static void drained(struct table_node *node)
{
    (void)node;
}

void set_clear(struct set *set)
{
    struct set_block *block = set->blocks;

    table_drain(&set->items, drained);
    list_init(&set->rows);
    list_init(&set->parts);
    set->journal_count = set->retired_count = set->hints_count = 0;
    /* Keep one block for the next transaction. */
    while (block != NULL && block->next != NULL) {
        struct set_block *next = block->next;
        free(block);
        block = next;
    }
    set->blocks = block;
    if (block != NULL)
        block->used = 0;
}

void set_free(struct set *set)
{
    set_clear(set);
    table_free(&set->items);
    free(set->blocks);
    free(set->journal);
    free(set->retired);
    free(set->hints);
}

/* Finding. A key is a letter for the kind, then the id (but for names), then the name. */

enum { NAME = 'n', ID = 'i', KEY_ROOM = 9 + SET_KEY_MAX };

static struct bytes make_key(char *out, char kind, int64_t id, struct bytes name)
{
    size_t len = 0;

    check(name.len <= SET_KEY_MAX);
    out[len++] = kind;
    if (kind != NAME) {
        memcpy(out + len, &id, sizeof id);
        len += sizeof id;
    }
    if (name.len > 0)
        memcpy(out + len, name.data, name.len);
    return (struct bytes){out, len + name.len};
}

static struct item *find(const struct set *set, struct bytes key)
{
    struct table_node *node = table_find(&set->items, key);
    return node == NULL ? NULL : list_entry(node, struct item, node);
}

static void add(struct set *set, struct item *item, struct bytes key)
{
    item->key = set_copy(set, key);
    table_add(&set->items, &item->node);
}

struct row *set_row(struct set *set, struct bytes name)
{
    char text[KEY_ROOM];
    struct bytes key = make_key(text, NAME, 0, name);
    struct item *item = find(set, key);

    if (item != NULL)
        return list_entry(item, struct row, by_name);
    struct row *row = set_alloc(set, sizeof *row);
    *row = (struct row){.known = UNKNOWN};
    add(set, &row->by_name, key);
    row->name = (struct bytes){row->by_name.key.data + 1, name.len};
    list_append(&set->rows, &row->link);
    return row;
}

struct row *set_row_by_id(const struct set *set, int64_t id)
{
    char text[KEY_ROOM];
    struct item *item = find(set, make_key(text, ID, id, (struct bytes){"", 0}));
    return item == NULL ? NULL : list_entry(item, struct row, by_id);
}

void set_identify(struct set *set, struct row *row, int64_t id)
{
    char text[KEY_ROOM];

    if (row->id == id)
        return;
    if (row->id != 0) /* we made the row and undid that; meanwhile somebody else has made it */
        table_remove(&set->items, &row->by_id.node);
    add(set, &row->by_id, make_key(text, ID, id, (struct bytes){"", 0}));
    row->id = id;
}

static struct part *find_part(const struct set *set, const struct row *row, enum part_kind kind,
                              struct bytes key)
{
    char text[KEY_ROOM];
    struct item *item = find(set, make_key(text, (char)kind, row->id, key));
    return item == NULL ? NULL : list_entry(item, struct part, item);
}

struct part *set_part(struct set *set, struct row *row, enum part_kind kind, struct bytes key)
{
    char text[KEY_ROOM];
    struct part *part = find_part(set, row, kind, key);

    if (part != NULL)
        return part;
    part = set_alloc(set, sizeof *part);
    *part = (struct part){.row = row, .kind = kind, .next = row->parts};
    add(set, &part->item, make_key(text, (char)kind, row->id, key));
    part->key = (struct bytes){part->item.key.data + 1 + sizeof(int64_t), key.len};
    row->parts = part;
    list_append(&set->parts, &part->link);
    return part;
}

void set_want(enum known *known)
{
    if (*known == UNKNOWN)
        *known = WANTED;
}

/* Hints. Names that are too long for a row are passed over. */

static void hint_part(struct set *set, struct row *row, enum part_kind kind, struct bytes key)
{
    if (row->known == KNOWN || key.len == 0 || key.len > SET_KEY_MAX)
        return;
    if (set->hints_count == set->hints_room) {
        set->hints_room = set->hints_room * 2 + 64;
        set->hints = mem_realloc(set->hints, set->hints_room * sizeof *set->hints);
    }
    set->hints[set->hints_count++] = (struct hint){row, kind, key};
}

static void take_hint(void *context, const struct store_hint *hint)
{
    struct set *set = context;

    if (hint->resource.len == 0 || hint->resource.len > RESOURCE_NAME_MAX)
        return;
    struct row *row = set_row(set, hint->resource);
    set_want(&row->known);
    hint_part(set, row, PART_FIELD, hint->field);
    hint_part(set, row, PART_RECEIPT, hint->receipt);
}

void set_hint(struct set *set, const struct store_op *op)
{
    take_hint(set, &(struct store_hint){.resource = op->about});
    if (op->hints != NULL)
        op->hints(op, take_hint, set);
}

/* Changing, and undoing. */

static void save(struct set *set, void *at, size_t size)
{
    void *before = set_alloc(set, size);

    memcpy(before, at, size);
    if (set->journal_count == set->journal_room) {
        set->journal_room = set->journal_room * 2 + 64;
        set->journal = mem_realloc(set->journal, set->journal_room * sizeof *set->journal);
    }
    set->journal[set->journal_count++] = (struct set_saved){at, size, before};
}

struct content *set_change(struct set *set, struct row *row)
{
    save(set, &row->now, sizeof row->now);
    return &row->now;
}

struct part_content *set_change_part(struct set *set, struct part *part)
{
    save(set, &part->now, sizeof part->now);
    return &part->now;
}

void set_retire(struct set *set, int64_t resource, int64_t token)
{
    if (set->retired_count == set->retired_room) {
        set->retired_room = set->retired_room * 2 + 16;
        set->retired = mem_realloc(set->retired, set->retired_room * sizeof *set->retired);
    }
    set->retired[set->retired_count++] = (struct retired){resource, token};
}

struct set_savepoint set_savepoint(const struct set *set)
{
    return (struct set_savepoint){set->journal_count, set->retired_count};
}

void set_undo(struct set *set, struct set_savepoint savepoint)
{
    while (set->journal_count > savepoint.journal) {
        const struct set_saved *saved = &set->journal[--set->journal_count];
        memcpy(saved->at, saved->before, saved->size);
    }
    set->retired_count = savepoint.retired;
}

bool set_changed(const struct set *set)
{
    return set->journal_count > 0 || set->retired_count > 0;
}

void set_written(struct set *set)
{
    for (struct list *at = set->rows.next; at != &set->rows; at = at->next) {
        struct row *row = list_entry(at, struct row, link);
        row->stored |= row->now.exists;
        if (row->now.put_value) {
            row->string = row->now.string;
            row->string_known = KNOWN;
        }
        row->now.put_fence = row->now.put_value = row->now.put_type = row->now.cleared = false;
    }
    for (struct list *at = set->parts.next; at != &set->parts; at = at->next)
        list_entry(at, struct part, link)->now.put = false;
    set->journal_count = set->retired_count = 0;
}

void set_forget(struct set *set)
{
    for (struct list *at = set->rows.next; at != &set->rows; at = at->next) {
        struct row *row = list_entry(at, struct row, link);
        row->known = row->fields = row->string_known = UNKNOWN;
        row->stored = false;
        row->now = (struct content){.exists = false};
    }
    for (struct list *at = set->parts.next; at != &set->parts; at = at->next) {
        struct part *part = list_entry(at, struct part, link);
        part->known = UNKNOWN;
        part->now = (struct part_content){.exists = false};
    }
    set->journal_count = set->retired_count = 0;
}
