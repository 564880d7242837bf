/* SPDX-License-Identifier: Apache-2.0 */
/* Stand-ins for SQLite's instr, replace, trim, ltrim and rtrim. Those take time in proportion to
 * the product of their arguments' lengths: hours, for two texts of some megabytes, and nothing can
 * interrupt them. These give the same results, and refuse where it would take long.
 *
 * They do what sqlite.org/lang_corefunc.html says, and, where that leaves it open (invalid UTF-8,
 * NULs, blobs), what SQLite does: indexes may have been built with SQLite's own. */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "fence/base/bytes.h"
#include "store/sqlite/sql.h"

/* Steps: to compare one place with a text is fast, one character with a set of them is not. */
#define SEARCH_STEPS_MAX (INT64_C(1) << 32)
#define TRIM_STEPS_MAX   (INT64_C(1) << 28)

static bool too_long(sqlite3_context *call, struct bytes text, struct bytes other, int64_t max)
{
    if ((int64_t)text.len * (int64_t)other.len <= max)
        return false;
    sqlite3_result_error(call, "the texts are too long for this function", -1);
    return true;
}

/* False: the value is NULL, or there is no memory. */
static bool text_of(sqlite3_value *value, struct bytes *text)
{
    text->data = (const char *)sqlite3_value_text(value);
    text->len = text->data != NULL ? (size_t)sqlite3_value_bytes(value) : 0;
    return text->data != NULL;
}

static bool is_blob(sqlite3_value *value)
{
    return sqlite3_value_type(value) == SQLITE_BLOB;
}

static bool continues(char c)
{
    return (c & 0xc0) == 0x80;
}

static void find(sqlite3_context *call, struct bytes text, struct bytes part, bool bytewise)
{
    sqlite3_int64 place = 1;

    if (too_long(call, text, part, SEARCH_STEPS_MAX))
        return;
    while (part.len > 0 && text.len >= part.len && memcmp(text.data, part.data, part.len) != 0) {
        do {
            text.data++;
            text.len--;
        } while (!bytewise && text.len > 0 && continues(text.data[0]));
        place++;
    }
    sqlite3_result_int64(call, text.len >= part.len ? place : 0);
}

/* instr(text, part): where `part` is first found, from 1 on; in characters, or in bytes if both are
 * blobs. */
static void instr(sqlite3_context *call, int argc, sqlite3_value **argv)
{
    bool bytewise = is_blob(argv[0]) && is_blob(argv[1]);
    struct bytes text, part;

    (void)argc;
    if (sqlite3_value_type(argv[0]) == SQLITE_NULL || sqlite3_value_type(argv[1]) == SQLITE_NULL)
        return;
    if (bytewise) {
        text = (struct bytes){sqlite3_value_blob(argv[0]), (size_t)sqlite3_value_bytes(argv[0])};
        part = (struct bytes){sqlite3_value_blob(argv[1]), (size_t)sqlite3_value_bytes(argv[1])};
        find(call, text, part, true);
        return;
    }
    /* Copies: a blob that is asked for its text stays text for the rest of the statement. */
    sqlite3_value *whole = sqlite3_value_dup(argv[0]), *piece = sqlite3_value_dup(argv[1]);
    if (whole != NULL && piece != NULL && text_of(whole, &text) && text_of(piece, &part))
        find(call, text, part, false);
    else
        sqlite3_result_error_nomem(call);
    sqlite3_value_free(whole);
    sqlite3_value_free(piece);
}

/* replace(text, part, by) */
static void replace(sqlite3_context *call, int argc, sqlite3_value **argv)
{
    struct bytes text, part, by;
    struct buf out = {.data = NULL};
    size_t max = (size_t)sqlite3_limit(sqlite3_context_db_handle(call), SQLITE_LIMIT_LENGTH, -1);

    (void)argc;
    if (!text_of(argv[0], &text) || !text_of(argv[1], &part))
        return;
    if (part.data[0] == '\0') {
        sqlite3_result_value(call, argv[0]);
        return;
    }
    if (!text_of(argv[2], &by) || too_long(call, text, part, SEARCH_STEPS_MAX))
        return;
    for (const char *end = text.data + text.len;;) {
        const char *found = memmem(text.data, (size_t)(end - text.data), part.data, part.len);
        const char *until = found != NULL ? found : end;
        if (out.len + (size_t)(until - text.data) + by.len > max) {
            sqlite3_result_error_toobig(call);
            break;
        }
        buf_append(&out, text.data, (size_t)(until - text.data));
        if (found == NULL) {
            sqlite3_result_text64(call, out.data != NULL ? out.data : "", out.len, SQLITE_TRANSIENT,
                                  SQLITE_UTF8);
            break;
        }
        buf_append(&out, by.data, by.len);
        text.data = found + part.len;
    }
    buf_free(&out);
}

/* The first character of a text that is not empty, as SQLite cuts it off. */
static size_t character(struct bytes text)
{
    size_t len = 1;

    if ((unsigned char)text.data[0] >= 0xc0)
        while (len < text.len && continues(text.data[len]))
            len++;
    return len;
}

/* How many bytes of the text's beginning, or end, are one of the characters in `set`. */
static size_t match(struct bytes text, struct bytes set, bool at_end)
{
    while (set.len > 0) {
        size_t len = character(set);
        if (len <= text.len &&
            memcmp(at_end ? text.data + text.len - len : text.data, set.data, len) == 0)
            return len;
        set.data += len;
        set.len -= len;
    }
    return 0;
}

enum { TRIM_LEFT = 1, TRIM_RIGHT = 2 };

/* trim(text [, characters]) */
static void trim(sqlite3_context *call, int argc, sqlite3_value **argv)
{
    int sides = (int)(intptr_t)sqlite3_user_data(call);
    struct bytes text, set = {" ", 1};

    if (!text_of(argv[0], &text) || (argc == 2 && !text_of(argv[1], &set)))
        return;
    set.len = strlen(set.data);
    if (too_long(call, text, set, TRIM_STEPS_MAX))
        return;
    for (size_t len; sides & TRIM_LEFT && text.len > 0 && (len = match(text, set, false)) > 0;) {
        text.data += len;
        text.len -= len;
    }
    for (size_t len; sides & TRIM_RIGHT && text.len > 0 && (len = match(text, set, true)) > 0;)
        text.len -= len;
    sqlite3_result_text64(call, text.data, text.len, SQLITE_TRANSIENT, SQLITE_UTF8);
}

int sql_functions_add(sqlite3 *db)
{
    static const struct {
        const char *name;
        int args, sides;
        void (*function)(sqlite3_context *, int, sqlite3_value **);
    } functions[] = {
        {"instr", 2, 0, instr},
        {"replace", 3, 0, replace},
        {"trim", 1, TRIM_LEFT | TRIM_RIGHT, trim},
        {"trim", 2, TRIM_LEFT | TRIM_RIGHT, trim},
        {"ltrim", 1, TRIM_LEFT, trim},
        {"ltrim", 2, TRIM_LEFT, trim},
        {"rtrim", 1, TRIM_RIGHT, trim},
        {"rtrim", 2, TRIM_RIGHT, trim},
    };
    int code = SQLITE_OK;

    for (size_t i = 0; i < sizeof functions / sizeof *functions && code == SQLITE_OK; i++)
        code = sqlite3_create_function(db, functions[i].name, functions[i].args,
                                       SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
                                       (void *)(intptr_t)functions[i].sides, functions[i].function,
                                       NULL, NULL);
    return code;
}
