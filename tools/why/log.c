/* SPDX-License-Identifier: Apache-2.0 */
/* The log is read line by line, and no more of it is kept than is told, so that it may be of any
 * size. A line is a refusal where it has the resource, the token, the code and the command that
 * refusals have; others are skipped. */
#include "tools/why/log.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/json.h"

enum { LINE_MAX_BYTES = 64 * 1024, DEPTH_MAX = 8 };

/* What reading lines needs. */
struct reader {
    struct story *story;
    struct json_tokener *tokener;
    struct json_object *name; /* that refusals must have; NULL: any */
};

/* Return the value that the whole of `text` is, or NULL. */
static struct json_object *parse(struct json_tokener *tokener, struct bytes text)
{
    json_tokener_reset(tokener);
    struct json_object *value = json_tokener_parse_ex(tokener, text.data, (int)text.len);
    if (json_tokener_get_error(tokener) != json_tokener_success) { /* also where more follows */
        json_object_put(value);
        value = NULL;
    }
    return value;
}

/* Names are JSON strings in the log. The one that is looked for becomes one, too, and is read
 * again, so that equal names are equal texts, whatever their bytes. */
static struct json_object *name_as_logged(struct json_tokener *tokener, const char *name)
{
    struct buf text = {0};

    json_string(&text, bytes_of(name));
    struct json_object *read = parse(tokener, buf_bytes(&text));
    buf_free(&text);
    return read;
}

/* A view of a string; of anything else, no data. */
static struct bytes text_of(struct json_object *line, const char *name)
{
    struct json_object *value;

    if (!json_object_object_get_ex(line, name, &value) ||
        !json_object_is_type(value, json_type_string)) {
        return (struct bytes){NULL, 0};
    }
    return (struct bytes){json_object_get_string(value), (size_t)json_object_get_string_len(value)};
}

static int64_t number_of(struct json_object *line, const char *name)
{
    struct json_object *value;

    return json_object_object_get_ex(line, name, &value) &&
                   json_object_is_type(value, json_type_int)
               ? json_object_get_int64(value)
               : STORY_NONE;
}

static bool is_wanted(const struct reader *reader, struct json_object *line)
{
    struct bytes resource = text_of(line, "resource");
    struct json_object *name = reader->name;

    return resource.data != NULL && text_of(line, "code").data != NULL &&
           text_of(line, "command").data != NULL &&
           json_object_object_get_ex(line, "token", NULL) &&
           (name == NULL ||
            bytes_equal(resource, (struct bytes){json_object_get_string(name),
                                                 (size_t)json_object_get_string_len(name)}));
}

static void read_refusal(struct refusal *refusal, struct json_object *line)
{
    for (size_t i = 0; i < REFUSAL_FIELDS; i++) {
        const struct story_field *field = &refusal_fields[i];
        struct bytes text = text_of(line, field->name);
        if (!field->is_text) {
            story_set_number(refusal, field, number_of(line, field->name));
        } else if (text.data != NULL) {
            story_set_text(refusal, field, text);
        }
    }
}

/* Take what one line says. */
static void read_line(struct reader *reader, struct bytes text)
{
    struct json_object *line = parse(reader->tokener, text);

    if (!json_object_is_type(line, json_type_object)) {
        reader->story->bad_lines++;
    } else if (is_wanted(reader, line)) {
        read_refusal(story_add_refusal(reader->story), line);
    }
    json_object_put(line);
}

/* Take the next line without its end. False: there is none. A line that does not fit is read to its
 * end, and `*fits` is false. */
static bool next_line(FILE *file, char *line, size_t *len, bool *fits)
{
    int byte;

    *len = 0;
    *fits = true;
    while ((byte = getc_unlocked(file)) != EOF && byte != '\n') {
        if (*len == LINE_MAX_BYTES) {
            *fits = false;
        } else {
            line[(*len)++] = (char)byte;
        }
    }
    return byte != EOF || *len > 0;
}

static void read_file(struct story *story, FILE *file, size_t count)
{
    char line[LINE_MAX_BYTES];
    struct reader reader = {.story = story, .tokener = json_tokener_new_ex(DEPTH_MAX)};
    size_t len;
    bool fits;

    check(reader.tokener != NULL);
    json_tokener_set_flags(reader.tokener, JSON_TOKENER_STRICT);
    if (story->resource != NULL) {
        reader.name = name_as_logged(reader.tokener, story->resource);
    }
    while (next_line(file, line, &len, &fits)) {
        if (!fits) {
            story->bad_lines++;
        } else if (len > 0) {
            read_line(&reader, (struct bytes){line, len});
        }
        if (story->refusals_count >= 2 * count) {
            story_keep_refusals(story, count);
        }
    }
    story_keep_refusals(story, count);
    json_object_put(reader.name);
    json_tokener_free(reader.tokener);
}

bool log_read(struct story *story, int64_t count, struct failure *failure)
{
    bool is_stdin = strcmp(story->log, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(story->log, "re");

    if (file == NULL) {
        return failure_set(failure, "%s: %s", story->log, strerror(errno));
    }
    story->now_ms = STORY_NONE;
    errno = 0;
    read_file(story, file, (size_t)count);
    bool good = ferror(file) == 0 ||
                failure_set(failure, "%s: %s", story->log, strerror(errno != 0 ? errno : EIO));
    if (!is_stdin) {
        (void)fclose(file);
    }
    return good;
}
