/* SPDX-License-Identifier: Apache-2.0 */
/* A line of the log is a refusal where it has the resource, the token, the code and the command
 * that refusals have; others are skipped. */
#include "tools/why/log.h"

#include "tools/why/lines.h"

/* What reading lines needs. */
struct reader {
    struct story *story;
    struct buf name; /* that refusals must have, where the story is about one */
};

static bool is_wanted(const struct reader *reader, struct json_object *line)
{
    struct bytes resource = line_text(line, "resource");

    return resource.data != NULL && line_text(line, "code").data != NULL &&
           line_text(line, "command").data != NULL &&
           json_object_object_get_ex(line, "token", NULL) &&
           (reader->story->resource == NULL || bytes_equal(resource, buf_bytes(&reader->name)));
}

static void take_line(void *context, struct json_object *line)
{
    const struct reader *reader = context;

    if (!is_wanted(reader, line))
        return;
    struct refusal *refusal = story_add_refusal(reader->story);
    for (size_t i = 0; i < REFUSAL_FIELDS; i++) {
        const struct story_field *field = &refusal_fields[i];
        struct bytes text = line_text(line, field->name);
        if (!field->is_text)
            story_set_number(refusal, field, line_number(line, field->name));
        else if (text.data != NULL)
            story_set_text(refusal, field, text);
    }
}

bool log_read(struct story *story, int64_t count, struct failure *failure)
{
    struct reader reader = {.story = story};

    if (story->resource != NULL)
        reader.name = line_name(story->resource);
    bool read = lines_read(story, count, take_line, &reader, failure);
    buf_free(&reader.name);
    return read;
}
