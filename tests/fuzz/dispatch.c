/* SPDX-License-Identifier: Apache-2.0 */
/* See dispatch.h. Requests are counted by the parser that resp_fuzz.c tests. */
#include "tests/fuzz/dispatch.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/replies.h"

static void expect(struct talk *talk, const struct bytes *echo)
{
    if (talk->count == talk->room) {
        talk->room = talk->room * 2 + 16;
        talk->expected = mem_realloc(talk->expected, talk->room * sizeof *talk->expected);
    }
    struct expected *expected = &talk->expected[talk->count++];
    *expected = (struct expected){.echo = false};
    if (echo != NULL && echo->len <= sizeof expected->text) {
        expected->echo = true;
        expected->len = echo->len;
        memcpy(expected->text, echo->data, echo->len);
    }
}

static void present(struct talk *talk, struct bytes resource, struct bytes token)
{
    struct presented *next = &talk->presented[talk->presented_count];

    if (talk->presented_count == TALK_PRESENTED_MAX || !bytes_to_int64(token, &next->token))
        return;
    char *copy = mem_alloc(resource.len + 1);
    memcpy(copy, resource.data, resource.len);
    next->resource = (struct bytes){copy, resource.len};
    talk->presented_count++;
}

/* FENCED token [ID id] command key ..., FENCEDALL n resource token ... */
static void note_tokens(struct talk *talk, const struct bytes *argv, size_t argc)
{
    int64_t count;

    if (bytes_equal_nocase(argv[0], "FENCED") && argc >= 4) {
        size_t key = bytes_equal_nocase(argv[2], "ID") ? 5 : 3;
        if (key < argc)
            present(talk, argv[key], argv[1]);
    } else if (bytes_equal_nocase(argv[0], "FENCEDALL") && argc >= 2 &&
               bytes_to_int64(argv[1], &count)) {
        for (size_t i = 2; i + 1 < argc && count > 0; i += 2, count--)
            present(talk, argv[i], argv[i + 1]);
    }
}

static bool is_one_of(struct bytes name, const char *const *names)
{
    for (; *names != NULL; names++)
        if (bytes_equal_nocase(name, *names))
            return true;
    return false;
}

static void note_request(struct talk *talk, const struct bytes *argv, size_t argc)
{
    static const char *const uncounted[] = {"SUBSCRIBE",    "UNSUBSCRIBE", "PSUBSCRIBE",
                                            "PUNSUBSCRIBE", "QUIT",        "POST",
                                            "Host:",        "CLIENT",      NULL};
    static const char *const multi_ends[] = {"EXEC", "DISCARD", "RESET", NULL};
    bool is_echo = argc == 2 && bytes_equal_nocase(argv[0], "ECHO");

    talk->uncounted |= is_one_of(argv[0], uncounted);
    talk->resp3 |= bytes_equal_nocase(argv[0], "HELLO");
    talk->notified |= bytes_equal_nocase(argv[0], "RENEW") && argc == 5;
    if (bytes_equal_nocase(argv[0], "MULTI"))
        talk->in_multi = true;
    else if (is_one_of(argv[0], multi_ends))
        talk->in_multi = false;
    note_tokens(talk, argv, argc);
    expect(talk, is_echo ? &argv[1] : NULL);
}

void talk_sent(struct talk *talk, struct bytes data)
{
    size_t at = 0;

    if (talk->parser == NULL)
        talk->parser = resp_parser_new();
    while (!talk->silent) {
        size_t used;
        enum resp_status status =
            resp_parse(talk->parser, &resp_limits_default, data.data + at, data.len - at, &used);
        at += used;
        if (status == RESP_MORE)
            return;
        if (status == RESP_REQUEST) {
            note_request(talk, resp_argv(talk->parser), resp_argc(talk->parser));
        } else {
            expect(talk, NULL);
            talk->silent = true;
        }
    }
}

/* What stands between the replies: pushes, and in RESP2 the news of a lost lease. */
static bool is_news(const struct talk *talk, const struct reply *reply)
{
    static const char lost[] = "*4\r\n$13\r\nstockade:lost\r\n";
    size_t len = sizeof lost - 1;

    return reply->type == '>' ||
           (talk->notified && reply->whole.len > len && memcmp(reply->whole.data, lost, len) == 0);
}

void talk_received(struct talk *talk, struct bytes data)
{
    struct reply reply;

    while (reply_next(&data, &reply)) {
        if (reply.resp3 && !talk->resp3)
            fuzz_wrong("a RESP2 client got RESP3: %.*s", (int)reply.whole.len, reply.whole.data);
        if (is_news(talk, &reply) || talk->uncounted)
            continue;
        if (talk->from == talk->count)
            fuzz_wrong("a reply that nobody asked for: %.*s", (int)reply.whole.len,
                       reply.whole.data);
        const struct expected *due = &talk->expected[talk->from++];
        if (due->echo && reply.type != '-' &&
            (reply.type != '$' || !bytes_equal(reply.text, (struct bytes){due->text, due->len})))
            fuzz_wrong("ECHO %.*s got %.*s", (int)due->len, due->text, (int)reply.whole.len,
                       reply.whole.data);
    }
}

bool talk_all_answered(const struct talk *talk)
{
    return talk->uncounted || talk->from == talk->count;
}

bool talk_presented(const struct talk *talk, const char *name, size_t len, int64_t from, int64_t to)
{
    for (size_t i = 0; i < talk->presented_count; i++)
        if (bytes_equal(talk->presented[i].resource, (struct bytes){name, len}) &&
            talk->presented[i].token >= from && talk->presented[i].token <= to)
            return true;
    /* More than is remembered was sent at once. */
    return talk->presented_count == TALK_PRESENTED_MAX;
}

static void forget_presented(struct talk *talk)
{
    for (size_t i = 0; i < talk->presented_count; i++)
        free((char *)(uintptr_t)talk->presented[i].resource.data);
    talk->presented_count = 0;
}

void talk_settled(struct talk *talk)
{
    if (talk->uncounted || talk->in_multi || talk->from < talk->count)
        return;
    forget_presented(talk);
    talk->from = talk->count = 0;
}

void talk_disconnected(struct talk *talk)
{
    if (talk->parser != NULL)
        resp_parser_free(talk->parser);
    talk->parser = NULL;
    talk->from = talk->count = 0;
    talk->in_multi = talk->uncounted = talk->silent = talk->resp3 = talk->notified = false;
}

void talk_end(struct talk *talk)
{
    talk_disconnected(talk);
    forget_presented(talk);
    free(talk->expected);
    *talk = (struct talk){.parser = NULL};
}
