/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that lock libraries have beside a lock key, and the commands that they send for them. These
 * read no data; any other command on such a key is a data command as on any key.
 *
 *   redisson_lock_token:{KEY}        GET: RFencedLock.getToken(), the newest token
 *   redisson_unlock_latch:{KEY}:ID   DEL: forget an unlock
 *   lock-signal:NAME                 BLPOP, DEL: python-redis-lock waits for lock:NAME
 */
#include "proxy/engine/lockkeys/companion.h"

#include <string.h>

#include "proxy/engine/lockkeys/lock_keys.h"
#include "proxy/engine/lockkeys/signals.h"

static bool begins(struct bytes text, struct bytes start)
{
    return text.len > start.len && memcmp(text.data, start.data, start.len) == 0;
}

static const char *last(struct bytes text, char c)
{
    return memrchr(text.data, c, text.len);
}

/* Return the lock key behind Redisson's prefix. Redisson puts it in braces, unless it has its own.
 */
static struct bytes redisson_key(struct bytes rest, bool has_id)
{
    const char *brace = last(rest, '}'), *colon = last(rest, ':');

    if (rest.data[0] == '{' && brace != NULL)
        return (struct bytes){rest.data + 1, (size_t)(brace - rest.data) - 1};
    if (has_id && colon != NULL)
        return (struct bytes){rest.data, (size_t)(colon - rest.data)};
    return rest;
}

/* Is lock:NAME a lock key? `resource` is its resource, as a part of `name`. */
static bool signal_resource(const struct engine *engine, struct bytes name, struct bytes *resource)
{
    static const struct bytes lock = BYTES_LITERAL("lock:");
    char text[RESOURCE_NAME_MAX + sizeof "lock:"];

    memcpy(text, lock.data, lock.len);
    memcpy(text + lock.len, name.data, name.len);
    if (!lock_patterns_match(&engine->lock_patterns, (struct bytes){text, lock.len + name.len},
                             resource) ||
        resource->data < text + lock.len)
        return false;
    resource->data = name.data + (resource->data - (text + lock.len));
    return true;
}

enum lock_companion lock_companion_of(const struct engine *engine, struct bytes key,
                                      struct bytes *resource)
{
    static const struct {
        enum lock_companion kind;
        struct bytes prefix;
    } kinds[] = {
        {LOCK_COMPANION_TOKEN, {"redisson_lock_token:", 20}},
        {LOCK_COMPANION_LATCH, {"redisson_unlock_latch:", 22}},
        {LOCK_COMPANION_SIGNAL, {"lock-signal:", 12}},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && key.len <= RESOURCE_NAME_MAX; i++) {
        if (!begins(key, kinds[i].prefix))
            continue;
        struct bytes rest = {key.data + kinds[i].prefix.len, key.len - kinds[i].prefix.len};
        bool has_id = kinds[i].kind == LOCK_COMPANION_LATCH;
        bool fits =
            kinds[i].kind == LOCK_COMPANION_SIGNAL
                ? signal_resource(engine, rest, resource)
                : lock_patterns_match(&engine->lock_patterns, redisson_key(rest, has_id), resource);
        return fits ? kinds[i].kind : LOCK_COMPANION_NONE;
    }
    return LOCK_COMPANION_NONE;
}

/* GET redisson_lock_token:{KEY}: the newest token, held or not. */

static enum stk_error token_run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);
    struct bytes name = {"", 0};
    struct resource resource;

    (void)lock_companion_of(request->engine, request->argv[1], &name);
    enum stk_error error = txn_resource(txn, name, &resource);
    buf_clear(&request->reply);
    if (error == STK_OK && resource.fence.token > 0)
        resp_bulk_int(&request->reply, resource.fence.token);
    else if (error == STK_OK)
        resp_null(&request->reply, request->resp3);
    return error;
}

void lock_companion_token(struct request *request)
{
    request_run(request, false, token_run, request_done);
}

/* DEL of a latch or signal: there is nothing to remove. */
void lock_companion_del(struct request *request)
{
    resp_int(&request->reply, 0);
    request_finish(request);
}

/* BLPOP lock-signal:NAME seconds */
void lock_companion_wait(struct request *request)
{
    struct bytes resource = {"", 0};

    if (lock_companion_of(request->engine, request->argv[1], &resource) == LOCK_COMPANION_SIGNAL)
        lock_signal_wait(request, resource);
    else
        request_fail(request, STK_ERR,
                     "there are no lists here: BLPOP is for python-redis-lock's lock-signal:NAME, "
                     "where lock:NAME is a lock key; to wait for a lease use ACQUIRE ... WAIT");
}
