/* SPDX-License-Identifier: Apache-2.0 */
/* What commands do with their arguments: subcommands, words, numbers, names. Where an argument
 * cannot be read the request fails, with Redis's error where Redis has one. */
#ifndef STOCKADE_ENGINE_ARGUMENTS_H
#define STOCKADE_ENGINE_ARGUMENTS_H

#include "proxy/engine/session/request.h"

struct glob;

#define RECEIPT_ID_MAX 512 /* bytes */
/* Receipts of our own have IDs that begin with this; those of clients do not. */
#define RECEIPT_ID_OWN BYTES_LITERAL("stockade:value:\n")
bool receipt_id_is_own(struct bytes id);

/* Fail with "wrong number of arguments for 'get' command", in Redis's words; "client|id" for
 * subcommands. */
void request_fail_arity(struct request *request, const char *name);
/* Make that error the reply, without finishing the request. */
void request_reply_arity(struct request *request, const char *name);
/* The same for a command that may not have so many words (words_fit): too few, or too many. */
void request_reply_misfit(struct request *request, const struct command *command, size_t argc);

/* A command's start: start the subcommand that argv[1] names, or fail as Redis does. */
command_start request_start_subcommand;
/* The start of each command's subcommand HELP: what its row knows of it, as lines. */
command_start request_help;

/* Is argv[i] there, and is it this word, in any case? */
bool request_is_word(const struct request *request, size_t i, const char *word);
/* Read an integer from min to max. False: the request has failed, the error names `what`. */
bool request_int(struct request *request, size_t i, int64_t min, int64_t max, const char *what,
                 int64_t *value);
/* Compile argv[i] into *glob, which is the caller's, and NULL before. False: the request has
 * failed, also where there is a pattern already. */
bool request_glob(struct request *request, size_t i, struct glob **glob);
/* Read all arguments as [MATCH glob] [COUNT n], n up to count_max; what is not there stays as it
 * is. *match is the caller's as in request_glob. */
bool request_match_and_count(struct request *request, int64_t count_max, struct glob **match,
                             int64_t *count);
/* Is argv[i] a name of a resource or key: 1 to RESOURCE_NAME_MAX bytes? */
bool request_name(struct request *request, size_t i, const char *what);
/* Why it cannot be the ID of a client's request, for people; NULL: it can. */
const char *receipt_id_refused(struct bytes id);
/* Is argv[i] the ID of a request? From then on it is the user's own. */
bool request_id(struct request *request, size_t i);
/* The same for the name of an owner. */
bool request_owner(struct request *request, size_t i);
/* What the two do in the end: make argv[i] the user's own name (scope.h). NULL, or why not. */
const char *request_scope(struct request *request, size_t i);
/* Read argv[i] as a token. */
bool request_token(struct request *request, size_t i, int64_t *token);

#endif
