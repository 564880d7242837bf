/* SPDX-License-Identifier: Apache-2.0 */
/* Commands under tokens, bare ones, and what is made of them: values, questions about leases,
 * REVOKE, receipts. To a daemon every write goes with an ID, so that a repeat after a lost reply
 * applies nothing twice. In this process no reply gets lost, and the ID would only cost a row. */
#include "proxy/client/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "proxy/client/reply.h"
#include "proxy/resp/resp.h"
#include "store/sql_text.h"

static struct bytes words_at(const stk_words *words, size_t i)
{
    return (struct bytes){words->argv[i],
                          words->lens != NULL ? words->lens[i] : strlen(words->argv[i])};
}

void words_add(struct buf *out, const stk_words *words)
{
    for (size_t i = 0; i < words->argc; i++)
        resp_bulk(out, words_at(words, i));
}

enum stk_error leases_check(stk_lease *const *leases, size_t count, const stk_client *client)
{
    for (size_t i = 0; i < count; i++) {
        enum stk_error error = lease_check(leases[i]);
        if (error != STK_OK)
            return error;
        if (leases[i]->client != client)
            return fail(STK_MISUSE, "the leases are of different clients");
    }
    return STK_OK;
}

void fence_begin(struct buf *out, stk_lease *const *leases, size_t count, const char *id,
                 size_t argc)
{
    size_t holds = 0;

    for (size_t i = 0; i < count; i++)
        holds += leases[i]->count;
    resp_array(out, 2 + 2 * holds + (id != NULL ? 2 : 0) + argc);
    resp_bulk_text(out, "FENCEDALL");
    resp_bulk_int(out, (int64_t)holds);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < leases[i]->count; j++) {
            resp_bulk_text(out, leases[i]->holds[j].resource);
            resp_bulk_int(out, leases[i]->holds[j].token);
        }
    if (id != NULL) {
        resp_bulk_text(out, "ID");
        resp_bulk_text(out, id);
    }
}

/* Run a call of one reply, turn that into `*reply` (may be NULL) or an error, and end the call. */
static enum stk_error call_for_reply(struct call *call, stk_reply **reply)
{
    enum stk_error error = call_run(call);

    if (error == STK_OK)
        error = reply_error(call->replies[0]);
    if (error == STK_OK)
        reply_take(&call->replies[0], reply);
    call_end(call);
    return error;
}

enum stk_error stk_fenced_all(stk_lease *const *leases, size_t count, size_t argc,
                              const char *const *argv, const size_t *lens, stk_reply **reply)
{
    const stk_words words = {argc, argv, lens};
    char id[ID_MAX + 1] = "";

    if (reply != NULL)
        *reply = NULL;
    if (count == 0 || argc == 0 || leases[0] == NULL)
        return fail(STK_MISUSE, "a lease and a command are needed");
    stk_client *client = leases[0]->client;
    enum stk_error error = leases_check(leases, count, client);
    if (error != STK_OK)
        return error;
    bool reads = client_command_reads(client, words_at(&words, 0));
    struct call call = {.client = client,
                        .replies_count = 1,
                        .repeatable = reads || client->embedded == NULL,
                        .changes = !reads,
                        .deadline_ms = now_ms() + client->timeout_ms};
    if (!reads) {
        thread_take_id(client->embedded == NULL, id);
        thread_set_last_id(id);
    }
    fence_begin(&call.request, leases, count, id[0] != '\0' ? id : NULL, argc);
    words_add(&call.request, &words);
    error = call_for_reply(&call, reply);
    if (error == STK_STALE && count == 1)
        lease_on_stale(leases[0]);
    return error;
}

enum stk_error stk_fenced(stk_lease *lease, size_t argc, const char *const *argv,
                          const size_t *lens, stk_reply **reply)
{
    return stk_fenced_all(&lease, 1, argc, argv, lens, reply);
}

/* Whether the command changes its connection, which would then not be fit for the next call. */
static bool changes_connection(const stk_client *client, struct bytes name)
{
    const struct command *command = command_find(&client->commands, name);
    const unsigned flags = COMMAND_UNQUEUED | COMMAND_PUBSUB | COMMAND_NO_AUTH;

    return command != NULL && (command->flags & flags) != 0 && !bytes_equal_nocase(name, "PING");
}

bool words_only_read(const stk_client *client, const stk_words *words)
{
    if (words->argc > 1 && bytes_equal_nocase(words_at(words, 0), "SQL")) {
        bool typed = words->argc > 3 && bytes_equal_nocase(words_at(words, 1), "TYPES");
        return sql_kind(words_at(words, typed ? 3 : 1)) == SQL_QUERY;
    }
    return client_command_reads(client, words_at(words, 0));
}

/* Add a bare command to a call. STK_OK, or fail(). */
static enum stk_error add_bare(struct call *call, const stk_words *words)
{
    stk_client *client = call->client;

    if (words->argc == 0)
        return fail(STK_MISUSE, "a command is needed");
    if (changes_connection(client, words_at(words, 0)))
        return fail(STK_MISUSE, "%s is about a connection, and a client has several",
                    words->argv[0]);
    bool reads = words_only_read(client, words);
    call->repeatable &= reads;
    call->changes |= !reads;
    if (!reads)
        thread_set_last_id("");
    resp_array(&call->request, words->argc);
    words_add(&call->request, words);
    return STK_OK;
}

enum stk_error stk_command(stk_client *client, size_t argc, const char *const *argv,
                           const size_t *lens, stk_reply **reply)
{
    const stk_words words = {argc, argv, lens};
    struct call call = {.client = client, .replies_count = 1, .repeatable = true};
    enum stk_error error = client_check(client);

    if (reply != NULL)
        *reply = NULL;
    if (error == STK_OK)
        error = add_bare(&call, &words);
    if (error != STK_OK)
        return error;
    call.deadline_ms = now_ms() + client->timeout_ms;
    return call_for_reply(&call, reply);
}

/* The replies as one array. */
static stk_reply *array_of(redisReply **replies, size_t count)
{
    redisReply *array = mem_zalloc(sizeof *array);

    array->type = REDIS_REPLY_ARRAY;
    array->elements = count;
    array->element = mem_zalloc(count * sizeof(redisReply *));
    memcpy(array->element, replies, count * sizeof(redisReply *));
    memset(replies, 0, count * sizeof(redisReply *));
    return reply_out(array);
}

enum stk_error stk_command_all(stk_client *client, const stk_words *batch, size_t count,
                               stk_reply **reply)
{
    struct call call = {.client = client, .replies_count = count, .repeatable = true};
    enum stk_error error = client_check(client);

    *reply = NULL;
    if (error == STK_OK && count == 0)
        error = fail(STK_MISUSE, "a command is needed");
    for (size_t i = 0; i < count && error == STK_OK; i++)
        error = add_bare(&call, &batch[i]);
    if (error == STK_OK) {
        call.deadline_ms = now_ms() + client->timeout_ms;
        error = call_run(&call);
    }
    for (size_t i = 0; i < count && error == STK_OK; i++)
        error = reply_error(call.replies[i]);
    if (error == STK_OK)
        *reply = array_of(call.replies, count);
    call_end(&call);
    return error;
}

enum stk_error stk_get(stk_client *client, const char *key, char **value, size_t *len)
{
    const char *const argv[] = {"GET", key};
    stk_reply *reply = NULL;
    size_t ignored;

    *value = NULL;
    if (len == NULL)
        len = &ignored;
    *len = 0;
    enum stk_error error = stk_command(client, 2, argv, NULL, &reply);
    const char *string = error == STK_OK ? stk_reply_string(reply, len) : NULL;
    if (string != NULL) {
        *value = malloc(*len + 1);
        if (*value != NULL)
            memcpy(*value, string, *len + 1);
        else
            error = fail(STK_ERR, "out of memory");
    }
    stk_reply_free(reply);
    return error;
}

enum stk_error stk_set(stk_lease *lease, const char *key, const void *value, size_t len)
{
    const char *const argv[] = {"SET", key, value};
    const size_t lens[] = {3, strlen(key), len};

    return stk_fenced(lease, 3, argv, lens, NULL);
}

enum stk_error stk_take(stk_lease *lease, const char *key, int64_t n, int64_t *left)
{
    struct buf number = {0};
    stk_reply *reply = NULL;

    if (left != NULL)
        *left = 0;
    if (n < 0)
        return fail(STK_MISUSE, "%lld cannot be taken: it would be added", (long long)n);
    buf_printf(&number, "%lld", (long long)n);
    const char *const argv[] = {"DECRBY", key, number.data, "MIN", "0"};
    const size_t lens[] = {6, strlen(key), number.len, 3, 1};
    enum stk_error error = stk_fenced(lease, 5, argv, lens, &reply);
    buf_free(&number);
    if (left != NULL && error == STK_OK)
        *left = stk_reply_integer(reply);
    stk_reply_free(reply);
    return error;
}

enum stk_error stk_revoke(stk_client *client, const char *resource, int64_t *token)
{
    const char *const argv[] = {"REVOKE", resource};
    stk_reply *reply = NULL;
    enum stk_error error = stk_command(client, 2, argv, NULL, &reply);

    if (token != NULL)
        *token = error == STK_OK ? stk_reply_integer(reply) : 0;
    stk_reply_free(reply);
    return error;
}

static void read_field(stk_lease_info *info, const char *name, const stk_reply *value)
{
    const char *text = stk_reply_string(value, NULL);

    if (strcmp(name, "state") == 0)
        info->held = text != NULL && strcmp(text, "held") == 0;
    else if (strcmp(name, "token") == 0)
        info->token = stk_reply_integer(value);
    else if (strcmp(name, "owner") == 0 && text != NULL)
        snprintf(info->owner, sizeof info->owner, "%s", text);
    else if (strcmp(name, "ttl_ms") == 0)
        info->ttl_ms = stk_reply_integer(value);
    else if (strcmp(name, "holds") == 0)
        info->holds = stk_reply_integer(value);
    else if (strcmp(name, "waiters") == 0)
        info->waiters = stk_reply_integer(value);
}

enum stk_error stk_query(stk_client *client, const char *resource, stk_lease_info *info)
{
    const char *const argv[] = {"LEASE", resource};
    stk_reply *reply = NULL;

    *info = (stk_lease_info){.held = false};
    enum stk_error error = stk_command(client, 2, argv, NULL, &reply);
    for (size_t i = 0; i + 1 < stk_reply_count(reply); i += 2) {
        const char *name = stk_reply_string(stk_reply_at(reply, i), NULL);
        if (name != NULL)
            read_field(info, name, stk_reply_at(reply, i + 1));
    }
    stk_reply_free(reply);
    return error;
}

/* [1, reply], [0, null] or null */
static enum stk_error read_receipt(redisReply *receipt, enum stk_outcome *outcome,
                                   stk_reply **reply)
{
    if (receipt->type == REDIS_REPLY_ERROR)
        return reply_error(receipt);
    if (receipt->type == REDIS_REPLY_NIL)
        return STK_OK;
    if (receipt->type != REDIS_REPLY_ARRAY || receipt->elements != 2 ||
        !reply_is_int(receipt->element[0]))
        return reply_strange("RECEIPT");
    *outcome = receipt->element[0]->integer == 1 ? STK_APPLIED : STK_NOT_APPLIED;
    if (*outcome == STK_APPLIED)
        reply_take(&receipt->element[1], reply);
    return STK_OK;
}

enum stk_error stk_receipt(stk_client *client, const char *resource, int64_t token, const char *id,
                           enum stk_outcome *outcome, stk_reply **reply)
{
    enum stk_error error = client_check(client);
    struct call call = {.client = client, .replies_count = 1, .repeatable = true};

    *outcome = STK_NOT_YET;
    if (reply != NULL)
        *reply = NULL;
    if (error != STK_OK)
        return error;
    call.deadline_ms = now_ms() + client->timeout_ms;
    resp_array(&call.request, 4);
    resp_bulk_text(&call.request, "RECEIPT");
    resp_bulk_text(&call.request, resource);
    resp_bulk_int(&call.request, token);
    resp_bulk_text(&call.request, id);
    error = call_run(&call);
    if (error == STK_OK)
        error = read_receipt(call.replies[0], outcome, reply);
    call_end(&call);
    return error;
}
