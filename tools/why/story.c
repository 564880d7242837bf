/* SPDX-License-Identifier: Apache-2.0 */
/* Holds and refusals in memory, and as JSON. One table of fields serves every way in and out. */
#include "tools/why/story.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/json.h"
#include "fence/base/mem.h"
#include "fence/lease/provider.h"

#define TIME_MAX_MS INT64_C(253402300799999)

#define TEXT(entry, field)                                                                         \
    {                                                                                              \
#field, offsetof(struct entry, field), true, false, true                                   \
    }
#define COUNT(entry, field)                                                                        \
    {                                                                                              \
#field, offsetof(struct entry, field), false, false, false                                 \
    }
#define TIME(entry, field)                                                                         \
    {                                                                                              \
#field, offsetof(struct entry, field), false, true, false                                  \
    }
#define MISSING_COUNT(entry, field)                                                                \
    {                                                                                              \
#field, offsetof(struct entry, field), false, false, true                                  \
    }
#define MISSING_TIME(entry, field)                                                                 \
    {                                                                                              \
#field, offsetof(struct entry, field), false, true, true                                   \
    }

const struct story_field hold_fields[HOLD_FIELDS] = {
    COUNT(hold, token),  TEXT(hold, owner),      TEXT(hold, user),    TEXT(hold, client),
    TEXT(hold, address), TIME(hold, granted_ms), TIME(hold, ttl_ms),  MISSING_TIME(hold, ended_ms),
    TEXT(hold, end),     TEXT(hold, reason),     COUNT(hold, writes), COUNT(hold, refused),
};

const struct story_field refusal_fields[REFUSAL_FIELDS] = {
    TIME(refusal, time_ms),
    TEXT(refusal, resource),
    MISSING_COUNT(refusal, token),
    TEXT(refusal, code),
    TEXT(refusal, command),
    TEXT(refusal, user),
    TEXT(refusal, client),
    TEXT(refusal, address),
    MISSING_TIME(refusal, granted_ms),
    MISSING_TIME(refusal, late_ms),
    TEXT(refusal, ended),
    MISSING_COUNT(refusal, newest),
    TEXT(refusal, newest_owner),
    TEXT(refusal, newest_address),
};

const struct story_field waiter_fields[WAITER_FIELDS] = {
    COUNT(waiter, place),  TEXT(waiter, owner),     TEXT(waiter, client),
    TEXT(waiter, address), TIME(waiter, waited_ms), TEXT(waiter, way),
};

/* Arrays grow when their count is a power of two. */
static void *grown(void *array, size_t count, size_t size)
{
    bool is_full = (count & (count - 1)) == 0;
    return is_full ? mem_realloc(array, (count > 0 ? count * 2 : 1) * size) : array;
}

struct hold *story_add_hold(struct story *story)
{
    story->holds = grown(story->holds, story->holds_count, sizeof *story->holds);
    struct hold *hold = &story->holds[story->holds_count++];
    *hold = (struct hold){.token = 0};
    return hold;
}

struct refusal *story_add_refusal(struct story *story)
{
    story->refusals = grown(story->refusals, story->refusals_count, sizeof *story->refusals);
    struct refusal *refusal = &story->refusals[story->refusals_count++];
    *refusal = (struct refusal){.token = 0};
    return refusal;
}

struct waiter *story_add_waiter(struct story *story)
{
    story->line = grown(story->line, story->line_count, sizeof *story->line);
    struct waiter *waiter = &story->line[story->line_count++];
    *waiter = (struct waiter){.place = 0};
    return waiter;
}

static void free_texts(void *entry, const struct story_field *fields, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fields[i].is_text)
            buf_free((struct buf *)(void *)((char *)entry + fields[i].offset));
}

void story_keep_refusals(struct story *story, size_t count)
{
    size_t drop = story->refusals_count > count ? story->refusals_count - count : 0;

    for (size_t i = 0; i < drop; i++)
        free_texts(&story->refusals[i], refusal_fields, REFUSAL_FIELDS);
    if (drop > 0) {
        memmove(story->refusals, story->refusals + drop, count * sizeof *story->refusals);
        story->refusals_count = count;
        story->left_out += (int64_t)drop;
    }
}

void story_keep_holds(struct story *story, size_t count)
{
    size_t drop = story->holds_count > count ? story->holds_count - count : 0;

    for (size_t i = 0; i < drop; i++)
        free_texts(&story->holds[i], hold_fields, HOLD_FIELDS);
    if (drop > 0) {
        memmove(story->holds, story->holds + drop, count * sizeof *story->holds);
        story->holds_count = count;
        story->is_cut = true;
    }
}

void story_set_text(void *entry, const struct story_field *field, struct bytes text)
{
    struct buf *buf = (struct buf *)(void *)((char *)entry + field->offset);

    check(field->is_text);
    *buf_reserve(buf, text.len + 1) = '\0'; /* there is data where the text is empty, too */
    buf_append_bytes(buf, text);
}

void story_set_number(void *entry, const struct story_field *field, int64_t number)
{
    check(!field->is_text);
    if (field->is_time && (number < 0 || number > TIME_MAX_MS))
        number = STORY_NONE;
    if (number == STORY_NONE && !field->may_miss)
        number = 0;
    *(int64_t *)(void *)((char *)entry + field->offset) = number;
}

void story_reverse(struct story *story)
{
    for (size_t i = 0, j = story->holds_count; i + 1 < j; i++) {
        struct hold kept = story->holds[i];
        story->holds[i] = story->holds[--j];
        story->holds[j] = kept;
    }
    for (size_t i = 0, j = story->refusals_count; i + 1 < j; i++) {
        struct refusal kept = story->refusals[i];
        story->refusals[i] = story->refusals[--j];
        story->refusals[j] = kept;
    }
}

bool story_is_nameless(struct bytes owner)
{
    bool is_hex = owner.len == LEASE_NONCE_LEN;

    for (size_t i = 0; i < owner.len && is_hex; i++)
        is_hex = bytes_hex_digit(owner.data[i]) >= 0;
    return is_hex;
}

bool story_is_on(const struct story *story, const struct hold *hold)
{
    return hold->ended_ms == STORY_NONE && story->is_held && hold->token == story->token;
}

int64_t story_hold_until(const struct story *story, const struct hold *hold)
{
    if (hold->ended_ms != STORY_NONE)
        return hold->ended_ms;
    return story_is_on(story, hold) && story->now_ms > hold->granted_ms ? story->now_ms
                                                                        : hold->granted_ms;
}

void story_free(struct story *story)
{
    for (size_t i = 0; i < story->holds_count; i++)
        free_texts(&story->holds[i], hold_fields, HOLD_FIELDS);
    for (size_t i = 0; i < story->refusals_count; i++)
        free_texts(&story->refusals[i], refusal_fields, REFUSAL_FIELDS);
    for (size_t i = 0; i < story->line_count; i++)
        free_texts(&story->line[i], waiter_fields, WAITER_FIELDS);
    free(story->holds);
    free(story->refusals);
    free(story->line);
    buf_free(&story->owner);
    *story = (struct story){.resource = NULL};
}

static void append_entry(struct buf *json, const void *entry, const struct story_field *fields,
                         size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const void *field = (const char *)entry + fields[i].offset;
        const struct buf *text = field;
        const int64_t *number = field;

        buf_printf(json, "%s\"%s\": ", i == 0 ? "{" : ", ", fields[i].name);
        if (fields[i].is_text && text->data != NULL)
            json_string(json, buf_bytes(text));
        else if (!fields[i].is_text && *number != STORY_NONE)
            buf_printf(json, "%" PRId64, *number);
        else
            buf_append_text(json, "null");
    }
    buf_append_text(json, "}");
}

static void append_entries(struct buf *json, const void *entries, size_t count, size_t size,
                           const struct story_field *fields, size_t fields_count)
{
    buf_append_text(json, "[");
    for (size_t i = 0; i < count; i++) {
        buf_append_text(json, i == 0 ? "" : ", ");
        append_entry(json, (const char *)entries + i * size, fields, fields_count);
    }
    buf_append_text(json, "]");
}

void story_append_holds(struct buf *json, const struct story *story)
{
    append_entries(json, story->holds, story->holds_count, sizeof *story->holds, hold_fields,
                   HOLD_FIELDS);
}

void story_append_refusals(struct buf *json, const struct story *story)
{
    append_entries(json, story->refusals, story->refusals_count, sizeof *story->refusals,
                   refusal_fields, REFUSAL_FIELDS);
}

void story_append_waiters(struct buf *json, const struct story *story)
{
    append_entries(json, story->line, story->line_count, sizeof *story->line, waiter_fields,
                   WAITER_FIELDS);
}
