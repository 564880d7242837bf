/* SPDX-License-Identifier: Apache-2.0 */
/* Commands under tokens, and bare ones. To a daemon every write goes with an ID, so that a repeat
 * after a lost reply applies nothing twice. In this process no reply gets lost, and the ID would
 * only cost a row. */
#include "proxy/client/fenced.h"

#include <stdlib.h>
#include <string.h>

#include "proxy/client/export.h"
#include "store/sql_text.h"

struct bytes words_at(const struct words *words, size_t i)
{
    return (struct bytes){words->argv[i],
                          words->lens != NULL ? words->lens[i] : strlen(words->argv[i])};
}

void words_add(struct buf *out, const struct words *words)
{
    for (size_t i = 0; i < words->argc; i++)
        ask_word(out, words_at(words, i));
}

enum stk_error leases_check(stk_lease *const *leases, size_t count, const stk_client *client)
{
    for (size_t i = 0; i < count; i++) {
        enum stk_error error = handle_check(leases[i]);
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
    ask_begin(out, 2 + 2 * holds + (id != NULL ? 2 : 0) + argc);
    ask_text(out, "FENCEDALL");
    ask_int(out, (int64_t)holds);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < leases[i]->count; j++) {
            ask_text(out, leases[i]->holds[j].resource);
            ask_int(out, leases[i]->holds[j].token);
        }
    if (id != NULL) {
        ask_text(out, "ID");
        ask_text(out, id);
    }
}

enum stk_error call_for_reply(struct call *call, size_t which, stk_reply **reply)
{
    enum stk_error error = call_run(call);

    if (error == STK_OK)
        error = reply_error(call->replies[which]);
    if (error == STK_OK && reply != NULL) {
        *reply = (stk_reply *)(void *)call->replies[which];
        call->replies[which] = NULL;
    }
    call_end(call);
    return error;
}

EXPORT enum stk_error stk_fenced_all(stk_lease *const *leases, size_t count, size_t argc,
                                     const char *const *argv, const size_t *lens, stk_reply **reply)
{
    const struct words words = {argc, argv, lens};
    char id[ID_LEN + 1] = "";

    if (reply != NULL)
        *reply = NULL;
    if (count == 0 || argc == 0 || leases[0] == NULL)
        return fail(STK_MISUSE, "a lease and a command are needed");
    stk_client *client = leases[0]->client;
    enum stk_error error = leases_check(leases, count, client);
    if (error != STK_OK)
        return error;
    bool reads = client_command_reads(client, words_at(&words, 0)) &&
                 !bytes_equal_nocase(words_at(&words, 0), "SQL");
    struct call call = {.client = client,
                        .replies_count = 1,
                        .repeatable = reads || client->embedded == NULL,
                        .changes = !reads,
                        .deadline_ms = now_ms() + client->timeout_ms};
    if (!reads && client->embedded == NULL)
        id_make(id);
    if (!reads)
        own_id_keep(id);
    fence_begin(&call.request, leases, count, id[0] != '\0' ? id : NULL, argc);
    words_add(&call.request, &words);
    error = call_for_reply(&call, 0, reply);
    if (error == STK_STALE && count == 1)
        handle_is_stale(leases[0]);
    return error;
}

EXPORT enum stk_error stk_fenced(stk_lease *lease, size_t argc, const char *const *argv,
                                 const size_t *lens, stk_reply **reply)
{
    return stk_fenced_all(&lease, 1, argc, argv, lens, reply);
}

/* What such a command leaves behind on its connection would meet the next call there. */
static bool changes_connection(const stk_client *client, struct bytes name)
{
    const struct command *command = command_find(&client->commands, name);
    const unsigned flags = COMMAND_UNQUEUED | COMMAND_PUBSUB | COMMAND_NO_AUTH;

    return command != NULL && (command->flags & flags) != 0 && !bytes_equal_nocase(name, "PING");
}

EXPORT enum stk_error stk_command(stk_client *client, size_t argc, const char *const *argv,
                                  const size_t *lens, stk_reply **reply)
{
    const struct words words = {argc, argv, lens};
    enum stk_error error = client_check(client);

    if (reply != NULL)
        *reply = NULL;
    if (error != STK_OK)
        return error;
    if (argc == 0)
        return fail(STK_MISUSE, "a command is needed");
    if (changes_connection(client, words_at(&words, 0)))
        return fail(STK_MISUSE, "%s is about a connection, and a client has several", argv[0]);
    bool reads = client_command_reads(client, words_at(&words, 0));
    if (argc > 1 && bytes_equal_nocase(words_at(&words, 0), "SQL")) {
        bool typed = argc > 3 && bytes_equal_nocase(words_at(&words, 1), "TYPES");
        reads = sql_kind(words_at(&words, typed ? 3 : 1)) == SQL_QUERY;
    }
    struct call call = {.client = client,
                        .replies_count = 1,
                        .repeatable = reads,
                        .changes = !reads,
                        .deadline_ms = now_ms() + client->timeout_ms};
    ask_begin(&call.request, argc);
    words_add(&call.request, &words);
    if (!reads)
        own_id_keep("");
    return call_for_reply(&call, 0, reply);
}

EXPORT enum stk_error stk_get(stk_client *client, const char *key, char **value, size_t *len)
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

EXPORT enum stk_error stk_set(stk_lease *lease, const char *key, const void *value, size_t len)
{
    const char *const argv[] = {"SET", key, value};
    const size_t lens[] = {3, strlen(key), len};
    return stk_fenced(lease, 3, argv, lens, NULL);
}

EXPORT enum stk_error stk_take(stk_lease *lease, const char *key, int64_t n, int64_t *left)
{
    struct buf number = {0};
    stk_reply *reply = NULL;

    buf_printf(&number, "%lld", (long long)n);
    const char *const argv[] = {"DECRBY", key, number.data, "MIN", "0"};
    const size_t lens[] = {6, strlen(key), number.len, 3, 1};
    enum stk_error error = stk_fenced(lease, 5, argv, lens, &reply);
    buf_free(&number);
    if (left != NULL)
        *left = error == STK_OK ? stk_reply_integer(reply) : 0;
    stk_reply_free(reply);
    return error;
}
