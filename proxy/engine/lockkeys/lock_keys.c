/* SPDX-License-Identifier: Apache-2.0 */
/* Which command runs where a key is a lock key; and the search for data under lock keys, at the
 * start. */
#include <stdlib.h>

#include "fence/base/mem.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/lease/lock_clients.h"
#include "proxy/engine/lockkeys/companion.h"
#include "proxy/engine/lockkeys/lock_keys.h"

static bool is_lock_key(const struct engine *engine, struct bytes key)
{
    struct bytes resource;
    return lock_patterns_match(&engine->lock_patterns, key, &resource);
}

/* The command to run instead where the key is one that a lock library has beside a lock key. */
static const struct command *companion_row(const struct engine *engine,
                                           const struct command *command, struct bytes key)
{
    struct bytes resource;
    enum lock_companion kind = lock_companion_of(engine, key, &resource);

    if (kind == LOCK_COMPANION_TOKEN && bytes_equal(bytes_of(command->name), bytes_of("GET")))
        return &lock_command_token;
    if ((kind == LOCK_COMPANION_LATCH || kind == LOCK_COMPANION_SIGNAL) &&
        bytes_equal(bytes_of(command->name), bytes_of("DEL")))
        return &lock_command_forget;
    return command;
}

/* An engine's on_parsed. Where keys are lock keys, return the row of lock_commands, or the one that
 * refuses. Return the command itself where no key is, and where it minds lock keys itself: FENCED
 * and data commands refuse them in their plan, EVAL and BLPOP are about them. */
static const struct command *on_parsed(struct engine *engine, const struct command *command,
                                       const struct bytes *argv, size_t argc)
{
    const struct lock_keys *keys = engine->lock_keys;
    const struct command *row = command_find(&keys->index, argv[0]);
    struct key_places places = command_keys(command, argv, argc);
    size_t locks = 0, all = 0;

    if (command->flags & (COMMAND_FENCED | COMMAND_FENCEDALL | COMMAND_LOCK_KEYS))
        return command;
    for (size_t i = places.at; i < places.end; i += places.step) {
        locks += is_lock_key(engine, argv[i]);
        all++;
        if (all > 1 && locks < all && command->exec != NULL)
            return command; /* its plan refuses lock keys among others: one look at each is enough
                             */
    }
    if (locks == 0)
        return all == 1 ? companion_row(engine, command, argv[command->key_first]) : command;
    if (row != NULL && locks == all)
        return row;
    return command->exec != NULL ? command : &lock_command_refused;
}

/* An engine's on_lock_key. */
static bool on_lock_key(const struct engine *engine, struct bytes key, struct bytes *resource)
{
    return lock_patterns_match(&engine->lock_patterns, key, resource) ||
           lock_companion_of(engine, key, resource) != LOCK_COMPANION_NONE;
}

/* Data under lock keys. */

struct search {
    struct engine *engine;
    void (*on_end)(void *context, enum stk_error error, struct bytes key);
    void *context;
    struct buf key;
    struct store_op op;
};

static bool search_one(void *context, int64_t id, struct bytes name, enum value_type type)
{
    struct search *search = context;

    (void)id, (void)type;
    if (!is_lock_key(search->engine, name))
        return true;
    buf_append_bytes(&search->key, name);
    return false;
}

static enum stk_error search_run(struct store_op *op, struct store_txn *txn)
{
    struct search *search = list_entry(op, struct search, op);

    buf_clear(&search->key);
    return txn_each_key(txn, 0, search_one, search);
}

static void search_done(struct store_op *op)
{
    struct search *search = list_entry(op, struct search, op);

    search->engine->requests_open--;
    search->on_end(search->context, op->error, buf_bytes(&search->key));
    buf_free(&search->key);
    free(search);
}

void engine_find_locked_data(struct engine *engine,
                             void (*on_end)(void *context, enum stk_error error, struct bytes key),
                             void *context)
{
    struct search *search = mem_zalloc(sizeof *search);

    *search = (struct search){.engine = engine,
                              .on_end = on_end,
                              .context = context,
                              .op = {.slow = true, .run = search_run, .done = search_done}};
    list_init(&search->op.link);
    engine->requests_open++;
    /* Once submitted, the operation is the store's. */
    enum stk_error error = store_submit(engine->options.store, &search->op);
    if (error != STK_OK) {
        search->op.error = error;
        search_done(&search->op);
    }
}

/* The beginning and end of lock keys in an engine. */

void lock_keys_init(struct engine *engine)
{
    const struct engine_options *options = &engine->options;

    lock_patterns_init(&engine->lock_patterns, options->lock_keys, options->lock_keys_count);
    if (options->lock_keys_count == 0)
        return;
    engine->lock_keys = mem_zalloc(sizeof *engine->lock_keys);
    command_index_fill(&engine->lock_keys->index, lock_commands, lock_commands_count);
    engine->lock_clients = lock_clients_new(engine);
    engine->lock_keys->texts = lock_texts_new();
    list_init(&engine->lock_keys->signals);
    engine->on_parsed = on_parsed;
    engine->on_lock_key = on_lock_key;
    engine->on_presented = held_presented;
}

void lock_keys_free(struct engine *engine)
{
    if (engine->lock_keys != NULL) {
        lock_clients_free(engine->lock_clients);
        lock_texts_free(engine->lock_keys->texts);
        free(engine->lock_keys);
    }
    lock_patterns_free(&engine->lock_patterns);
}
