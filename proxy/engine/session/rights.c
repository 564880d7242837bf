/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/session/rights.h"

#include "proxy/engine/internal.h"
#include "proxy/engine/session/arguments.h"

struct asking {
    const struct acl_user *user;
    const struct engine *engine;
    struct denial *denial;
};

static bool deny(const struct asking *asking, enum denied_for reason, struct bytes object,
                 unsigned needs)
{
    asking->denial->reason = reason;
    asking->denial->object = object;
    asking->denial->needs = needs;
    return false;
}

static bool permits_key(const struct asking *asking, struct bytes key, unsigned needs)
{
    return acl_may_touch(asking->user, key, needs) || deny(asking, DENIED_FOR_KEY, key, needs);
}

static unsigned needs_of(const struct command *command)
{
    return command->category == CATEGORY_READ ? ACL_READS : ACL_WRITES;
}

/* A lock key is a lock on its resource: the right has to be for that name. */
static bool permits_keys(const struct asking *asking, const struct command *command,
                         const struct bytes *argv, size_t argc)
{
    const struct engine *engine = asking->engine;
    struct key_places places = command_keys(command, argv, argc);

    for (; places.at < places.end; places.at += places.step) {
        struct bytes name = argv[places.at];
        bool is_lock = (command->flags & COMMAND_LOCK_KEYS) && engine->on_lock_key != NULL &&
                       engine->on_lock_key(engine, argv[places.at], &name);
        if (!is_lock && (command->flags & COMMAND_COUNTED) && command->key_first == 0)
            continue; /* a script's channel, or no lock: lockkeys/eval.c minds both */
        if (!permits_key(asking, name, needs_of(command)))
            return false;
    }
    return true;
}

static bool permits_channels(const struct asking *asking, const struct command *command,
                             const struct bytes *argv, size_t argc)
{
    bool patterns = command->flags & COMMAND_PATTERNS;
    size_t end = command->flags & COMMAND_CHANNELS  ? argc
                 : command->flags & COMMAND_CHANNEL ? 2
                                                    : 1;

    for (size_t i = 1; i < end; i++)
        if (!acl_may_hear(asking->user, argv[i], patterns))
            return deny(asking, DENIED_FOR_CHANNEL, argv[i], 0);
    return true;
}

/* One command, alone or as a step of another. */
static bool permits_command(const struct asking *asking, const struct command *command,
                            const struct bytes *argv, size_t argc)
{
    const struct command *row =
        command->right == NULL ? command
                               : command_find(&asking->engine->index, bytes_of(command->right));
    const struct subcommand *subcommand = argc > 1 ? subcommand_find(command, argv[1]) : NULL;
    enum command_category category = subcommand != NULL ? subcommand->category : row->category;

    if (category == CATEGORY_NONE)
        return true;
    asking->denial->command = subcommand != NULL ? subcommand->name : command->name;
    asking->denial->category = acl_category_name(category);
    if (!acl_may_run(asking->user, row, subcommand))
        return deny(asking, DENIED_FOR_COMMAND, (struct bytes){"", 0}, 0);
    return permits_keys(asking, command, argv, argc) &&
           permits_channels(asking, command, argv, argc);
}

/* Only administrators define tables. */
static bool permits_definition(const struct asking *asking, const struct step *step)
{
    if (step->sql_right != SQL_MAY_DEFINE || asking->user->admin)
        return true;
    asking->denial->category = acl_category_name(CATEGORY_ADMIN);
    return deny(asking, DENIED_FOR_COMMAND, (struct bytes){"", 0}, 0);
}

/* SQL acts under every claim of its transaction, whichever step has presented it. */
static bool writes_by_sql(const struct plan *plan)
{
    for (size_t i = 0; i < plan->steps_count; i++)
        if (plan->steps[i].sql_right == SQL_MAY_WRITE &&
            (plan->steps[i].command->flags & COMMAND_SQL))
            return true;
    return false;
}

static bool permits_step(const struct asking *asking, const struct step *step, bool by_sql)
{
    unsigned needs = by_sql ? ACL_WRITES : needs_of(step->command);

    if (!permits_command(asking, step->command, step->argv, step->argc) ||
        !permits_definition(asking, step))
        return false;
    if (by_sql)
        asking->denial->command = "SQL";
    for (size_t i = 0; i < step->claims_count; i++)
        if (!permits_key(asking, step->claims[i].resource, needs))
            return false;
    return true;
}

bool rights_permit(const struct acl_user *user, const struct request *request,
                   struct denial *denial)
{
    const struct asking asking = {user, request->engine, denial};
    const struct plan *plan = &request->plan;

    if (user->all)
        return true;
    if (plan->steps_count == 0) /* no plan, or one that was refused */
        return permits_command(&asking, request->command, request->argv, request->argc);
    bool by_sql = writes_by_sql(plan);
    for (size_t i = 0; i < plan->steps_count; i++)
        if (!permits_step(&asking, &plan->steps[i], by_sql))
            return false;
    return true;
}

void rights_explain(const struct acl_user *user, const struct denial *denial, struct buf *text)
{
    char lower[COMMAND_LOWER_SIZE];
    const char *command = command_lower(denial->command, lower);

    switch (denial->reason) {
    case DENIED_FOR_KEY:
        buf_printf(text, "user '%s' may not %s '%.*s', as '%s' does: it needs %s~ for it",
                   user->name, denial->needs == ACL_READS ? "read" : "write",
                   BYTES_CUT(denial->object, 64), command,
                   denial->needs == ACL_READS ? "%R" : "%W");
        break;
    case DENIED_FOR_CHANNEL:
        buf_printf(text, "user '%s' may not use channel '%.*s': it needs &", user->name,
                   BYTES_CUT(denial->object, 64));
        break;
    default:
        buf_printf(text, "user '%s' may not run '%s': it needs @%s", user->name, command,
                   denial->category);
    }
}
