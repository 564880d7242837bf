/* SPDX-License-Identifier: Apache-2.0 */
/* See arguments.h. */
#include "proxy/engine/session/arguments.h"

#include <string.h>

#include "fence/base/check.h"
#include "fence/base/glob.h"
#include "proxy/engine/session/identity.h"
#include "proxy/engine/session/session.h"

void request_reply_arity(struct request *request, const char *name)
{
    char lower[COMMAND_LOWER_SIZE];

    buf_clear(&request->reply);
    resp_error(&request->reply, STK_ERR, "wrong number of arguments for '%s' command",
               command_lower(name, lower));
}

void request_reply_misfit(struct request *request, const struct command *command, size_t argc)
{
    char lower[COMMAND_LOWER_SIZE];

    request_reply_arity(request, command->name);
    if (!arity_fits(command->arity, argc))
        return;
    buf_clear(&request->reply);
    resp_error(&request->reply, STK_ERR, "too many arguments for '%s' command: it takes at most %d",
               command_lower(command->name, lower), COMMAND_WORDS_MAX - 1);
}

void request_fail_arity(struct request *request, const char *name)
{
    request_reply_arity(request, name);
    request_finish(request);
}

void request_start_subcommand(struct request *request)
{
    const struct subcommand *subcommand = subcommand_find(request->command, request->argv[1]);
    char hint[NEAREST_HINT_MAX];

    if (subcommand == NULL) {
        request_fail(request, STK_ERR, "unknown subcommand '%.*s'. Try %s HELP.%s",
                     BYTES_CUT(request->argv[1], 128), request->command->name,
                     subcommand_hint(request->command, request->argv[1], hint));
        return;
    }
    request->session->last_command = subcommand->name;
    if (arity_fits(subcommand->arity, request->argc))
        subcommand->start(request);
    else
        request_fail_arity(request, subcommand->name);
}

void request_help(struct request *request)
{
    const struct command *command = request->command;
    char title[COMMAND_LOWER_SIZE];
    size_t count = 0;

    while (command->subcommands[count].name != NULL)
        count++;
    resp_array(&request->reply, count + 2);
    resp_simple(&request->reply, command->summary);
    for (size_t i = 0; i < count; i++)
        resp_simple(&request->reply, command_title(command->subcommands[i].name, title));
    resp_simple(&request->reply, "What each of them does: proxy/COMMANDS.md");
    request_finish(request);
}

bool request_is_word(const struct request *request, size_t i, const char *word)
{
    return i < request->argc && bytes_equal_nocase(request->argv[i], word);
}

bool request_int(struct request *request, size_t i, int64_t min, int64_t max, const char *what,
                 int64_t *value)
{
    if (bytes_to_int64(request->argv[i], value) && *value >= min && *value <= max)
        return true;
    request_fail(request, STK_ERR, "%s must be a number from %lld to %lld", what, (long long)min,
                 (long long)max);
    return false;
}

bool request_glob(struct request *request, size_t i, struct glob **glob)
{
    if (request->argv[i].len > GLOB_MAX) {
        request_fail(request, STK_ERR, GLOB_TOO_LONG);
        return false;
    }
    if (*glob != NULL) { /* thousands of them would take long */
        request_fail(request, STK_ERR, "syntax error: one pattern at most");
        return false;
    }
    *glob = glob_new(request->argv[i]);
    return true;
}

bool request_match_and_count(struct request *request, int64_t count_max, struct glob **match,
                             int64_t *count)
{
    for (size_t i = 1; i < request->argc; i += 2)
        if (i + 1 < request->argc && request_is_word(request, i, "MATCH")) {
            if (!request_glob(request, i + 1, match))
                return false;
        } else if (i + 1 < request->argc && request_is_word(request, i, "COUNT")) {
            if (!request_int(request, i + 1, 1, count_max, "COUNT", count))
                return false;
        } else {
            request_fail(request, STK_ERR, "syntax error: %s [MATCH glob] [COUNT n]",
                         request->command->name);
            return false;
        }
    return true;
}

bool request_name(struct request *request, size_t i, const char *what)
{
    if (request->argv[i].len >= 1 && request->argv[i].len <= RESOURCE_NAME_MAX)
        return true;
    request_fail(request, STK_ERR, "%s must be 1 to %d bytes long", what, RESOURCE_NAME_MAX);
    return false;
}

bool receipt_id_is_own(struct bytes id)
{
    struct bytes own = RECEIPT_ID_OWN;
    return id.len >= own.len && memcmp(id.data, own.data, own.len) == 0;
}

const char *receipt_id_refused(struct bytes id)
{
    if (id.len < 1 || id.len > RECEIPT_ID_MAX)
        return "an ID must be 1 to 512 bytes long";
    if (receipt_id_is_own(id))
        return "IDs that begin so are the daemon's own";
    return NULL;
}

const char *request_scope(struct request *request, size_t i)
{
    const size_t longest = RESOURCE_NAME_MAX + 1 + ACL_USER_MAX;
    struct bytes *name = &request->argv[i];
    struct buf *scoped = &request->scoped;

    /* A request has an owner and an ID at most; what was handed out before does not move. */
    if (scoped->cap == 0)
        buf_reserve(scoped, 2 * longest);
    check(scoped->cap - scoped->len >= longest);
    *name = identity_scope(request->session, *name, scoped);
    return name->len > RESOURCE_NAME_MAX
               ? "an owner or ID must be 1 to 512 bytes long, together with the name of its user"
               : NULL;
}

bool request_id(struct request *request, size_t i)
{
    const char *why = receipt_id_refused(request->argv[i]);

    if (why == NULL)
        why = request_scope(request, i);
    if (why != NULL)
        request_fail(request, STK_ERR, "%s", why);
    return why == NULL;
}

bool request_owner(struct request *request, size_t i)
{
    if (!request_name(request, i, "an owner"))
        return false;
    const char *why = request_scope(request, i);
    if (why != NULL)
        request_fail(request, STK_ERR, "%s", why);
    return why == NULL;
}

bool request_token(struct request *request, size_t i, int64_t *token)
{
    if (token_parse(request->argv[i], token))
        return true;
    request_fail(request, STK_ERR, "a token is a number from 1 to %lld", (long long)TOKEN_MAX);
    return false;
}
