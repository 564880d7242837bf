/* SPDX-License-Identifier: Apache-2.0 */
/* Fields that this version does not know are skipped, and those that are missing stay unknown: the
 * daemon may be older or newer than the command line. */
#include "tools/why/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Append the pattern that matches this name only. */
static void append_pattern(struct buf *pattern, const char *name)
{
    for (const char *at = name; *at != '\0'; at++) {
        if (strchr("*?[\\", *at) != NULL)
            buf_append_text(pattern, "\\");
        buf_append(pattern, at, 1);
    }
    buf_append(pattern, "", 1);
}

static void read_entry(void *entry, const struct story_field *fields, size_t count,
                       const stk_reply *map)
{
    for (size_t i = 0; i < count; i++) {
        const stk_reply *value = answer_entry(map, fields[i].name);
        bool known = value != NULL && stk_reply_type(value) != STK_NIL;
        if (!fields[i].is_text)
            story_set_number(entry, &fields[i], known ? stk_reply_integer(value) : STORY_NONE);
        else if (known)
            story_set_text(entry, &fields[i], answer_string(value));
    }
}

/* TIME's reply: seconds and microseconds. */
static int64_t time_of(const stk_reply *reply)
{
    return stk_reply_integer(stk_reply_at(reply, 0)) * 1000 +
           stk_reply_integer(stk_reply_at(reply, 1)) / 1000;
}

static void read_lease(struct story *story, const stk_reply *lease)
{
    story->is_leased = stk_reply_type(lease) == STK_ARRAY;
    story->is_held = bytes_equal(answer_entry_text(lease, "state"), BYTES_LITERAL("held"));
    story->token = answer_entry_number(lease, "token");
    story->left_ms = answer_entry_number(lease, "ttl_ms");
    story->entered = answer_entry_number(lease, "holds");
    story->waiters = answer_entry_number(lease, "waiters");
    buf_append_bytes(&story->owner, answer_entry_text(lease, "owner"));
}

static void read_all(struct story *story, const stk_reply *replies)
{
    const stk_reply *holds = stk_reply_at(replies, 1), *refusals = stk_reply_at(replies, 2),
                    *line = stk_reply_at(replies, 4);

    read_lease(story, stk_reply_at(replies, 0));
    for (size_t i = 0; i < stk_reply_count(holds); i++)
        read_entry(story_add_hold(story), hold_fields, HOLD_FIELDS, stk_reply_at(holds, i));
    for (size_t i = 0; i < stk_reply_count(refusals); i++)
        read_entry(story_add_refusal(story), refusal_fields, REFUSAL_FIELDS,
                   stk_reply_at(refusals, i));
    for (size_t i = 0; i < stk_reply_count(line); i++)
        read_entry(story_add_waiter(story), waiter_fields, WAITER_FIELDS, stk_reply_at(line, i));
    story->now_ms = time_of(stk_reply_at(replies, 3));
    story_reverse(story);
}

bool wire_read(struct answer *answer, struct story *story, int64_t count, int *code)
{
    char number[24];
    struct buf pattern = {0};
    stk_reply *replies;

    if (!answer_connect(answer, code))
        return false;
    (void)snprintf(number, sizeof number, "%" PRId64, count);
    append_pattern(&pattern, story->resource);
    const char *lease[] = {"LEASE", story->resource};
    const char *history[] = {"HISTORY", story->resource, "COUNT", number};
    const char *refusals[] = {"REFUSALS", "MATCH", pattern.data, "COUNT", number};
    const char *now[] = {"TIME"};
    const char *line[] = {"WAITERS", story->resource, "COUNT", number};
    const stk_words commands[] = {
        {2, lease, NULL}, {4, history, NULL}, {5, refusals, NULL}, {1, now, NULL}, {4, line, NULL}};
    enum stk_error error =
        stk_command_all(answer->client, commands, sizeof commands / sizeof *commands, &replies);
    if (error == STK_OK) {
        read_all(story, replies);
        story->is_cut = (int64_t)story->holds_count == count;
        stk_reply_free(replies);
    } else {
        *code = answer_fail(answer, error);
    }
    buf_free(&pattern);
    return error == STK_OK;
}
