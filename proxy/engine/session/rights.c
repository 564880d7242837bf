/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/session/rights.h"

#include "proxy/engine/internal.h"
#include "proxy/engine/session/arguments.h"

/* A slice takes some milliseconds: so many bytes of names, each held against each pattern. */
enum { SLICE_COST = 4 << 20, NAME_COST = 32 };

struct asking {
    const struct acl_user *user;
    const struct engine *engine;
    struct denial *denial;
    size_t seen;    /* names of the request, in their order */
    size_t looked;  /* of which so many need not be looked at */
    size_t cost;    /* of those that were */
    bool in_slices; /* it ends where that is too much for this turn, */
    bool unfinished;
};

static bool deny(const struct asking *asking, enum denied_for reason, struct bytes object,
                 unsigned needs)
{
    asking->denial->reason = reason;
    asking->denial->object = object;
    asking->denial->needs = needs;
    return false;
}

/* Is this name to be looked at, which is held against so many patterns? */
static bool looks_at(struct asking *asking, struct bytes name, size_t patterns)
{
    if (asking->seen++ < asking->looked)
        return false;
    asking->cost += (name.len + NAME_COST) * (patterns + 1);
    return true;
}

static bool permits_key(struct asking *asking, struct bytes key, unsigned needs)
{
    return !looks_at(asking, key, asking->user->keys_count) ||
           acl_may_touch(asking->user, key, needs) || deny(asking, DENIED_FOR_KEY, key, needs);
}

static bool permits_channel(struct asking *asking, struct bytes channel, bool is_pattern)
{
    return !looks_at(asking, channel, asking->user->channels_count) ||
           acl_may_hear(asking->user, channel, is_pattern) ||
           deny(asking, DENIED_FOR_CHANNEL, channel, 0);
}

/* Is it enough for this turn? Then all ends as if something was denied. */
static bool is_enough(struct asking *asking)
{
    asking->unfinished =
        asking->in_slices && asking->seen > asking->looked && asking->cost > SLICE_COST;
    return asking->unfinished;
}

/* The row of `commands`; NULL for a row that stands in for one, on lock keys. */
static const struct command *row_of(const struct engine *engine, const struct command *command)
{
    const struct command_index *index = &engine->index;

    return command >= index->all && command < index->all + index->count ? command : NULL;
}

/* A command's own right is asked for where it does what it is for. Where it does something else it
 * needs the right of the command which is for that. */
static bool may_do(const struct acl_user *user, const struct engine *engine,
                   const struct command *command, const struct subcommand *subcommand,
                   enum deed deed)
{
    const struct deed_needs *needs = deed_needs(deed);
    const struct command *row = row_of(engine, command);
    enum command_category own =
        subcommand != NULL ? subcommand_category(subcommand) : command_category(command);

    if (needs->category == CATEGORY_NONE)
        return true;
    if (row != NULL && own == needs->category)
        return acl_may_run(user, row, subcommand);
    if (needs->command == NULL)
        return user->admin;
    return acl_may_run(user, command_find(&engine->index, bytes_of(needs->command)), NULL);
}

bool rights_permit_deed(const struct acl_user *user, const struct engine *engine,
                        const struct command *command, enum deed deed)
{
    return may_do(user, engine, command, NULL, deed);
}

/* A lock key is a lock on its resource: the right has to be for that name. */
static bool permits_keys(struct asking *asking, const struct command *command,
                         const struct bytes *argv, size_t argc, unsigned needs)
{
    const struct engine *engine = asking->engine;
    struct key_places places = command_keys(command, argv, argc);

    for (; places.at < places.end; places.at += places.step) {
        struct bytes name = argv[places.at];
        if (asking->seen < asking->looked && command->key_first != 0) {
            asking->seen++;
            continue;
        }
        bool is_lock = (command->flags & COMMAND_LOCK_KEYS) && engine->on_lock_key != NULL &&
                       engine->on_lock_key(engine, argv[places.at], &name);
        if (!is_lock && (command->flags & COMMAND_COUNTED) && command->key_first == 0)
            continue; /* a script's channel, or no lock: lockkeys/eval.c minds both */
        if (!permits_key(asking, name, needs) || is_enough(asking))
            return false;
    }
    return true;
}

static bool permits_channels(struct asking *asking, const struct command *command,
                             const struct bytes *argv, size_t argc, struct bytes published)
{
    bool patterns = command->flags & COMMAND_PATTERNS;
    size_t end = command->flags & COMMAND_CHANNELS  ? argc
                 : command->flags & COMMAND_CHANNEL ? 2
                                                    : 1;

    for (size_t i = 1; i < end; i++)
        if (!permits_channel(asking, argv[i], patterns) || is_enough(asking))
            return false;
    return published.len == 0 || permits_channel(asking, published, false);
}

/* What one command does, alone or as a step of another. */
static struct act act_of(const struct asking *asking, struct request *request,
                         const struct command *command, const struct bytes *argv, size_t argc)
{
    const struct subcommand *subcommand = argc > 1 ? subcommand_find(command, argv[1]) : NULL;

    if (command->act != NULL)
        return command->act(asking->user, request, argv, argc);
    return (struct act){.deed = subcommand != NULL ? subcommand->deed : command->deed};
}

static bool permits_command(struct asking *asking, const struct command *command,
                            const struct bytes *argv, size_t argc, struct act act)
{
    const struct subcommand *subcommand = argc > 1 ? subcommand_find(command, argv[1]) : NULL;
    const struct deed_needs *needs = deed_needs(act.deed);

    if (needs->category == CATEGORY_NONE)
        return true;
    asking->denial->command = subcommand != NULL ? subcommand->name : command->name;
    asking->denial->category = acl_category_name(needs->category);
    if (!may_do(asking->user, asking->engine, command, subcommand, act.deed))
        return deny(asking, DENIED_FOR_COMMAND, (struct bytes){"", 0}, 0);
    return permits_keys(asking, command, argv, argc, needs->keys) &&
           permits_channels(asking, command, argv, argc, act.channel);
}

/* Only administrators define tables. */
static bool permits_definition(const struct asking *asking, const struct step *step)
{
    if (step->sql_right != SQL_MAY_DEFINE ||
        may_do(asking->user, asking->engine, step->command, NULL, DEED_ADMIN))
        return true;
    asking->denial->category = acl_category_name(deed_needs(DEED_ADMIN)->category);
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

/* What is only claimed is not read by what writes. */
static unsigned needs_of_claims(const struct act *act, bool by_sql)
{
    unsigned keys = deed_needs(act->deed)->keys;

    return by_sql || (keys & ACL_WRITES) ? ACL_WRITES : keys;
}

static bool permits_step(struct asking *asking, struct request *request, const struct step *step,
                         bool by_sql)
{
    const struct act act = act_of(asking, request, step->command, step->argv, step->argc);

    if (!permits_command(asking, step->command, step->argv, step->argc, act) ||
        !permits_definition(asking, step))
        return false;
    size_t looked = asking->looked;
    if (by_sql) {
        asking->denial->command = "SQL";
        asking->looked = 0; /* that was for less */
    }
    for (size_t i = 0; i < step->claims_count; i++)
        if (!permits_key(asking, step->claims[i].resource, needs_of_claims(&act, by_sql)))
            return false;
    asking->looked = looked;
    return true;
}

static bool permits_all(struct asking *asking, struct request *request)
{
    const struct plan *plan = &request->plan;

    if (plan->steps_count == 0) /* no plan, or one that was refused */
        return permits_command(
            asking, request->command, request->argv, request->argc,
            act_of(asking, request, request->command, request->argv, request->argc));
    bool by_sql = writes_by_sql(plan);
    for (size_t i = 0; i < plan->steps_count; i++)
        if (!permits_step(asking, request, &plan->steps[i], by_sql))
            return false;
    return true;
}

static struct asking asking_of(const struct acl_user *user, const struct request *request,
                               struct denial *denial)
{
    bool goes_on = request->rights == user && request->acl == request->engine->acl;

    return (struct asking){.user = user,
                           .engine = request->engine,
                           .denial = denial,
                           .looked = goes_on ? request->looked : 0};
}

bool rights_permit(const struct acl_user *user, struct request *request, struct denial *denial)
{
    struct asking asking = asking_of(user, request, denial);

    return user->all || permits_all(&asking, request);
}

/* One slice will do, whatever is in it. */
static bool is_small(const struct acl_user *user, const struct request *request)
{
    size_t patterns = user->keys_count + user->channels_count;

    return request->size <= SLICE_COST / 2 / (patterns + 1);
}

bool rights_look(const struct acl_user *user, struct request *request)
{
    struct denial denial;
    struct asking asking = asking_of(user, request, &denial);

    if (is_small(user, request))
        return true;
    asking.in_slices = true;
    asking.cost = request->engine->looked;
    bool permitted = permits_all(&asking, request);
    request->engine->looked = asking.cost;
    if (permitted || !asking.unfinished)
        return true;
    request_take_rights(request, user);
    request->looked = asking.seen;
    return false;
}

void rights_explain(const struct acl_user *user, const struct denial *denial, struct buf *text)
{
    static const struct {
        const char *verb, *rule;
    } ways[] = {[ACL_READS] = {"read", "%R"},
                [ACL_WRITES] = {"write", "%W"},
                [ACL_READS | ACL_WRITES] = {"read and write", "%RW"}};
    char lower[COMMAND_LOWER_SIZE];
    const char *command = command_lower(denial->command, lower);

    switch (denial->reason) {
    case DENIED_FOR_KEY:
        buf_printf(text, "user '%s' may not %s '%.*s', as '%s' does: it needs %s~ for it",
                   user->name, ways[denial->needs].verb, BYTES_CUT(denial->object, 64), command,
                   ways[denial->needs].rule);
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
