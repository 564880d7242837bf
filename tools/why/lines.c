/* SPDX-License-Identifier: Apache-2.0 */
/* Reading lines, and JSON in them by json-c. */
#include "tools/why/lines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/json.h"

enum { LINE_MAX_BYTES = 64 * 1024, DEPTH_MAX = 8 };

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

static struct json_tokener *new_tokener(void)
{
    struct json_tokener *tokener = json_tokener_new_ex(DEPTH_MAX);

    check(tokener != NULL);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    return tokener;
}

/* It becomes a JSON string, as it is in the lines, and is read again. */
struct buf line_name(const char *name)
{
    struct json_tokener *tokener = new_tokener();
    struct buf text = {0}, read = {0};

    json_string(&text, bytes_of(name));
    struct json_object *value = parse(tokener, buf_bytes(&text));
    buf_append(&read, json_object_get_string(value), (size_t)json_object_get_string_len(value));
    json_object_put(value);
    json_tokener_free(tokener);
    buf_free(&text);
    return read;
}

struct bytes line_text(struct json_object *line, const char *name)
{
    struct json_object *value;

    if (!json_object_object_get_ex(line, name, &value) ||
        !json_object_is_type(value, json_type_string))
        return (struct bytes){NULL, 0};
    return (struct bytes){json_object_get_string(value), (size_t)json_object_get_string_len(value)};
}

int64_t line_number(struct json_object *line, const char *name)
{
    struct json_object *value;

    return json_object_object_get_ex(line, name, &value) &&
                   json_object_is_type(value, json_type_int)
               ? json_object_get_int64(value)
               : STORY_NONE;
}

/* Take the next line without its end. False: there is none. A line that does not fit is read to its
 * end, and `*fits` is false. */
static bool next_line(FILE *file, char *line, size_t *len, bool *fits)
{
    int byte;

    *len = 0;
    *fits = true;
    while ((byte = getc_unlocked(file)) != EOF && byte != '\n')
        if (*len == LINE_MAX_BYTES)
            *fits = false;
        else
            line[(*len)++] = (char)byte;
    return byte != EOF || *len > 0;
}

static void read_file(struct story *story, FILE *file, size_t count,
                      void (*take)(void *context, struct json_object *line), void *context)
{
    char text[LINE_MAX_BYTES];
    struct json_tokener *tokener = new_tokener();
    size_t len;
    bool fits;

    while (next_line(file, text, &len, &fits)) {
        if (len == 0)
            continue;
        struct json_object *line = fits ? parse(tokener, (struct bytes){text, len}) : NULL;
        if (json_object_is_type(line, json_type_object))
            take(context, line);
        else
            story->bad_lines++;
        json_object_put(line);
        if (story->refusals_count >= 2 * count)
            story_keep_refusals(story, count);
        if (story->holds_count >= 2 * count)
            story_keep_holds(story, count);
    }
    story_keep_refusals(story, count);
    story_keep_holds(story, count);
    json_tokener_free(tokener);
}

bool lines_read(struct story *story, int64_t count,
                void (*take)(void *context, struct json_object *line), void *context,
                struct failure *failure)
{
    bool is_stdin = strcmp(story->log, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(story->log, "re");

    if (file == NULL)
        return failure_set(failure, "%s: %s", story->log, strerror(errno));
    story->now_ms = STORY_NONE;
    errno = 0;
    read_file(story, file, (size_t)count, take, context);
    bool good = ferror(file) == 0 ||
                failure_set(failure, "%s: %s", story->log, strerror(errno != 0 ? errno : EIO));
    if (!is_stdin)
        (void)fclose(file);
    return good;
}
