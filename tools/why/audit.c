/* SPDX-License-Identifier: Apache-2.0 */
/* A refusal's line says neither how late the command was nor who had overtaken it. The last grants
 * of its resource do, so they are kept while the lines are read: of one resource where the story is
 * about one, else of those that were told of last. */
#include "tools/why/audit.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/list.h"
#include "fence/base/mem.h"
#include "fence/base/table.h"
#include "tools/why/lines.h"

enum {
    GRANTS_KEPT = 8,
    PASTS_KEPT = 1 << 16, /* resources, of 1 KB and some texts each */
};

struct grant {
    int64_t token, granted_ms, ended_ms; /* STORY_NONE: not yet */
    struct buf owner, address, end;
};

/* A resource: its last grants, in a ring. */
struct past {
    struct table_node node;
    struct list link; /* the one that was told of last is the last one */
    size_t count;     /* of all its grants so far */
    struct grant grants[GRANTS_KEPT];
    size_t name_len;
    char name[];
};

struct reader {
    struct story *story;
    struct buf name; /* of the resource that the story is about */
    struct table pasts;
    struct list told;
};

static struct bytes name_of(const struct table_node *node)
{
    const struct past *past = (const struct past *)(const void *)node;
    return (struct bytes){past->name, past->name_len};
}

static void free_past(struct table_node *node)
{
    struct past *past = (struct past *)(void *)node;

    for (size_t i = 0; i < GRANTS_KEPT; i++) {
        buf_free(&past->grants[i].owner);
        buf_free(&past->grants[i].address);
        buf_free(&past->grants[i].end);
    }
    free(past);
}

/* Where there are too many, the one that was not told of for longest is forgotten. */
static struct past *past_of(struct reader *reader, struct bytes name)
{
    struct past *past = (struct past *)(void *)table_find(&reader->pasts, name);

    if (past != NULL) {
        list_remove(&past->link);
        list_append(&reader->told, &past->link);
        return past;
    }
    if (reader->pasts.count == PASTS_KEPT) {
        struct past *oldest = list_entry(list_pop(&reader->told), struct past, link);
        table_remove(&reader->pasts, &oldest->node);
        free_past(&oldest->node);
    }
    past = mem_zalloc(sizeof *past + name.len);
    past->name_len = name.len;
    memcpy(past->name, name.data, name.len);
    table_add(&reader->pasts, &past->node);
    list_append(&reader->told, &past->link);
    return past;
}

/* The i-th newest grant of the resource; NULL: it is not kept. */
static struct grant *grant_at(struct past *past, size_t i)
{
    return i < past->count && i < GRANTS_KEPT ? &past->grants[(past->count - 1 - i) % GRANTS_KEPT]
                                              : NULL;
}

static struct grant *find_grant(struct past *past, int64_t token)
{
    struct grant *grant = NULL;

    for (size_t i = 0; (grant = grant_at(past, i)) != NULL && grant->token != token; i++) {
    }
    return grant;
}

static void set(struct buf *buf, struct bytes text)
{
    buf_clear(buf);
    buf_append_bytes(buf, text);
}

static void set_text(void *entry, const struct story_field *fields, size_t count, const char *name,
                     struct bytes text)
{
    for (size_t i = 0; i < count && text.data != NULL; i++)
        if (strcmp(fields[i].name, name) == 0)
            story_set_text(entry, &fields[i], text);
}
#define SET_HOLD(hold, name, text) set_text((hold), hold_fields, HOLD_FIELDS, (name), (text))
#define SET_REFUSAL(refusal, name, text)                                                           \
    set_text((refusal), refusal_fields, REFUSAL_FIELDS, (name), (text))

/* "ttl_ms=N owner=OWNER" */
static struct bytes read_grant_reason(struct bytes reason, int64_t *ttl_ms)
{
    static const struct bytes first = BYTES_LITERAL("ttl_ms="), second = BYTES_LITERAL(" owner=");
    const char *blank = NULL;
    struct bytes owner = {"", 0};

    *ttl_ms = 0;
    if (reason.len > first.len && memcmp(reason.data, first.data, first.len) == 0)
        blank = memchr(reason.data, ' ', reason.len);
    if (blank == NULL)
        return owner;
    const char *digits = reason.data + first.len;
    if (!bytes_to_int64((struct bytes){digits, (size_t)(blank - digits)}, ttl_ms))
        *ttl_ms = 0;
    size_t left = reason.len - (size_t)(blank - reason.data);
    if (left >= second.len && memcmp(blank, second.data, second.len) == 0)
        owner = (struct bytes){blank + second.len, left - second.len};
    return owner;
}

static void take_grant(struct reader *reader, struct json_object *line, struct bytes resource)
{
    struct past *past = past_of(reader, resource);
    struct grant *grant = &past->grants[past->count++ % GRANTS_KEPT];
    int64_t ttl_ms;
    struct bytes owner = read_grant_reason(line_text(line, "reason"), &ttl_ms);

    grant->token = line_number(line, "token");
    grant->granted_ms = line_number(line, "time_ms");
    grant->ended_ms = STORY_NONE;
    set(&grant->owner, owner);
    set(&grant->address, line_text(line, "address"));
    buf_clear(&grant->end);
    if (reader->story->resource == NULL)
        return;
    struct hold *hold = story_add_hold(reader->story);
    hold->token = grant->token;
    hold->granted_ms = grant->granted_ms;
    hold->ttl_ms = ttl_ms;
    hold->ended_ms = STORY_NONE;
    hold->writes = STORY_NONE;
    SET_HOLD(hold, "owner", owner);
    SET_HOLD(hold, "user", line_text(line, "user"));
    SET_HOLD(hold, "address", line_text(line, "address"));
}

/* Return the newest hold of this token; NULL: it is not in the story. */
static struct hold *find_hold(struct story *story, int64_t token)
{
    for (size_t i = story->holds_count; i > 0; i--)
        if (story->holds[i - 1].token == token)
            return &story->holds[i - 1];
    return NULL;
}

static void take_end(struct reader *reader, struct json_object *line, struct bytes resource,
                     bool revoked)
{
    int64_t token = line_number(line, "token"), time_ms = line_number(line, "time_ms");
    struct bytes end = revoked ? BYTES_LITERAL("revoked") : line_text(line, "reason");
    struct grant *grant = find_grant(past_of(reader, resource), token);
    struct hold *hold = find_hold(reader->story, token);

    if (grant != NULL && grant->ended_ms == STORY_NONE) {
        grant->ended_ms = time_ms;
        set(&grant->end, end);
    }
    if (hold == NULL || hold->ended_ms != STORY_NONE)
        return;
    hold->ended_ms = time_ms;
    SET_HOLD(hold, "end", end);
    if (revoked && !bytes_equal(line_text(line, "reason"), end))
        SET_HOLD(hold, "reason", line_text(line, "reason"));
}

/* Its holder has it again: what was told as its end was none. */
static void take_resume(struct reader *reader, struct json_object *line, struct bytes resource)
{
    int64_t token = line_number(line, "token");
    struct grant *grant = find_grant(past_of(reader, resource), token);
    struct hold *hold = find_hold(reader->story, token);

    if (grant != NULL) {
        grant->ended_ms = STORY_NONE;
        buf_clear(&grant->end);
    }
    if (hold != NULL) {
        hold->ended_ms = STORY_NONE;
        SET_HOLD(hold, "end", BYTES_LITERAL(""));
    }
}

static void take_refusal(struct reader *reader, struct json_object *line, struct bytes resource)
{
    struct refusal *refusal = story_add_refusal(reader->story);
    struct past *past = past_of(reader, resource);
    int64_t token = line_number(line, "token");
    const struct grant *own = token == STORY_NONE ? NULL : find_grant(past, token);
    const struct grant *newest = grant_at(past, 0);

    refusal->time_ms = line_number(line, "time_ms");
    refusal->token = token;
    refusal->granted_ms = own == NULL ? STORY_NONE : own->granted_ms;
    refusal->late_ms =
        own == NULL || own->ended_ms == STORY_NONE ? STORY_NONE : refusal->time_ms - own->ended_ms;
    refusal->newest = newest == NULL ? STORY_NONE : newest->token;
    SET_REFUSAL(refusal, "resource", resource);
    SET_REFUSAL(refusal, "code", line_text(line, "code"));
    SET_REFUSAL(refusal, "command", line_text(line, "reason"));
    SET_REFUSAL(refusal, "user", line_text(line, "user"));
    SET_REFUSAL(refusal, "address", line_text(line, "address"));
    if (own != NULL && own->ended_ms != STORY_NONE)
        SET_REFUSAL(refusal, "ended", buf_bytes(&own->end));
    if (newest != NULL && newest->token != token) {
        SET_REFUSAL(refusal, "newest_owner", buf_bytes(&newest->owner));
        SET_REFUSAL(refusal, "newest_address", buf_bytes(&newest->address));
    }
    struct hold *hold = find_hold(reader->story, token);
    if (hold != NULL)
        hold->refused++;
}

/* Lines of other resources are skipped at once: nothing of them is kept. */
static void take_line(void *context, struct json_object *line)
{
    struct reader *reader = context;
    struct bytes event = line_text(line, "event"), resource = line_text(line, "resource");

    if (event.data == NULL || resource.data == NULL || line_number(line, "time_ms") == STORY_NONE ||
        (reader->story->resource != NULL && !bytes_equal(resource, buf_bytes(&reader->name))))
        return;
    if (bytes_equal(event, BYTES_LITERAL("grant")))
        take_grant(reader, line, resource);
    else if (bytes_equal(event, BYTES_LITERAL("release")))
        take_end(reader, line, resource, false);
    else if (bytes_equal(event, BYTES_LITERAL("revoke")))
        take_end(reader, line, resource, true);
    else if (bytes_equal(event, BYTES_LITERAL("resume")))
        take_resume(reader, line, resource);
    else if (bytes_equal(event, BYTES_LITERAL("refused")))
        take_refusal(reader, line, resource);
}

bool audit_read(struct story *story, int64_t count, struct failure *failure)
{
    struct reader reader = {.story = story};

    table_init(&reader.pasts, name_of);
    list_init(&reader.told);
    if (story->resource != NULL)
        reader.name = line_name(story->resource);
    bool read = lines_read(story, count, take_line, &reader, failure);
    table_drain(&reader.pasts, free_past);
    table_free(&reader.pasts);
    buf_free(&reader.name);
    return read;
}
