/* SPDX-License-Identifier: Apache-2.0 */
/* DEADLOCK: a wait holds up its connection, and so a RELEASE behind it that would end the wait.
 * Only a client that shares one connection among its callers sends one. That the connection's
 * earlier command got the lease proves nothing: pools lend a connection to one caller after the
 * other. */
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/session/behind.h"

static bool ends_lease(const struct deadlock *deadlock, struct request *request)
{
    const struct command *command = request->command;
    enum deed deed = command->deed;
    int64_t token;

    if (command->order == ORDER_NOW)
        return false;
    if (command->act != NULL)
        deed = command->act(request->session->rights, request, request->argv, request->argc).deed;
    if (deed != DEED_RELEASE || (command->flags & COMMAND_LOCK_KEYS))
        return deed == DEED_RELEASE || deed == DEED_REVOKE;
    return bytes_to_int64(request->argv[2], &token) && token >= deadlock->token;
}

static bool is_sought(struct behind *behind, struct request *request)
{
    const struct deadlock *deadlock = list_entry(behind, struct deadlock, behind);
    const struct engine *engine = request->engine;
    const struct command *command = request->command;
    struct key_places keys = command_keys(command, request->argv, request->argc);

    for (size_t i = keys.at; i < keys.end; i += keys.step) {
        struct bytes name = request->argv[i];
        if ((command->flags & COMMAND_LOCK_KEYS) && engine->on_lock_key != NULL)
            (void)engine->on_lock_key(engine, request->argv[i], &name);
        if (bytes_equal(name, deadlock->resource))
            return ends_lease(deadlock, request);
    }
    return false;
}

static void on_found(struct behind *behind)
{
    struct deadlock *deadlock = list_entry(behind, struct deadlock, behind);

    deadlock->found = true;
    deadlock->on_found(deadlock);
}

void deadlock_watch(struct deadlock *deadlock, struct session *session, struct bytes resource,
                    const struct lease_call *call, const struct lease_record *record)
{
    deadlock->found = false;
    deadlock->resource = resource;
    deadlock->token = call->answer == LEASE_HELD ? call->answer_token : record->token + 1;
    deadlock->behind = (struct behind){.is_sought = is_sought, .on_found = on_found};
    behind_look(session, &deadlock->behind);
}
