/* SPDX-License-Identifier: Apache-2.0 */
/* The index of commands: open addressing, since it is asked for each command that arrives. */
#include "proxy/engine/command/command.h"

#include <string.h>

#include "fence/base/check.h"
#include "fence/base/plain.h"

enum { NAME_MAX_LEN = 32 };

static size_t slot_of(struct bytes name)
{
    size_t hash = 5381;
    for (size_t i = 0; i < name.len; i++)
        hash = hash * 33 + (name.data[i] & 0xdf); /* the same for both cases of a letter */
    return hash % COMMAND_SLOTS;
}

void command_index_fill(struct command_index *index, const struct command *all, size_t count)
{
    check(count * 2 < COMMAND_SLOTS);
    memset(index, 0, sizeof *index);
    index->all = all;
    index->count = count;
    for (size_t i = 0; i < count; i++) {
        size_t slot = slot_of(bytes_of(all[i].name));
        check(all[i].deed != DEED_NOT_SAID);
        for (const struct subcommand *sub = all[i].subcommands; sub != NULL && sub->name != NULL;
             sub++)
            check(sub->deed != DEED_NOT_SAID);
        while (index->slots[slot] != NULL)
            slot = (slot + 1) % COMMAND_SLOTS;
        index->slots[slot] = &all[i];
    }
}

const struct command *command_find(const struct command_index *index, struct bytes name)
{
    if (name.len > NAME_MAX_LEN)
        return NULL;
    for (size_t slot = slot_of(name); index->slots[slot] != NULL; slot = (slot + 1) % COMMAND_SLOTS)
        if (bytes_equal_nocase(name, index->slots[slot]->name))
            return index->slots[slot];
    return NULL;
}

const struct subcommand *subcommand_find(const struct command *command, struct bytes word)
{
    for (const struct subcommand *at = command->subcommands; at != NULL && at->name != NULL; at++)
        if (bytes_equal_nocase(word, strchr(at->name, '|') + 1))
            return at;
    return NULL;
}

const char *command_hint(const struct command_index *index, struct bytes name,
                         char out[NEAREST_HINT_MAX])
{
    struct nearest nearest = nearest_to(name);

    for (size_t i = 0; i < index->count; i++)
        nearest_offer(&nearest, index->all[i].name);
    return nearest_hint(&nearest, out);
}

const char *subcommand_hint(const struct command *command, struct bytes word,
                            char out[NEAREST_HINT_MAX])
{
    struct nearest nearest = nearest_to(word);

    for (const struct subcommand *at = command->subcommands; at != NULL && at->name != NULL; at++)
        nearest_offer(&nearest, strchr(at->name, '|') + 1);
    nearest_hint(&nearest, out);
    for (char *c = strchr(out, '?'); c != NULL && c[-1] != ' '; c--)
        c[-1] = plain_upper(c[-1]);
    return out;
}

struct key_places command_keys(const struct command *command, const struct bytes *argv, size_t argc)
{
    struct key_places places = {(size_t)command->key_first, argc, (size_t)command->key_step};
    int64_t count;

    if (command->flags & COMMAND_COUNTED) {
        places = (struct key_places){3, argc, 1};
        if (bytes_to_int64(argv[2], &count) && count >= 0 && (uint64_t)count < argc - 3)
            places.end = 3 + (size_t)count;
    } else if (command->key_first == 0) {
        places.at = argc;
    } else if (command->key_last >= 0) {
        places.end = (size_t)command->key_last + 1;
    } else {
        places.end = argc - (size_t)-command->key_last + 1;
    }
    return places;
}

const char *command_title(const char *name, char out[COMMAND_LOWER_SIZE])
{
    size_t len = 0;

    for (; name[len] != '\0' && len + 1 < COMMAND_LOWER_SIZE; len++)
        out[len] = name[len] == '|' ? ' ' : plain_upper(name[len]);
    out[len] = '\0';
    return out;
}

const char *command_lower(const char *name, char out[COMMAND_LOWER_SIZE])
{
    size_t len = 0;

    for (; name[len] != '\0' && len + 1 < COMMAND_LOWER_SIZE; len++)
        out[len] = plain_lower(name[len]);
    out[len] = '\0';
    return out;
}
