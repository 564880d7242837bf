/* SPDX-License-Identifier: Apache-2.0 */
/* Judge one row, of a guard by presented tokens or by column. Whatever is not plainly in order is
 * refused: a key that names no resource, a resource without a live token, a connection on which
 * REPLACE goes round the triggers. */
#include "store/sqlite/guard_function.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fence/token.h"

const char *guard_printable(struct bytes text, char out[GUARD_PRINTABLE_MAX])
{
    size_t len = text.len < GUARD_PRINTABLE_MAX ? text.len : GUARD_PRINTABLE_MAX - 4;

    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        out[i] = (char)(byte < ' ' || byte == 0x7f ? '?' : byte);
    }
    strcpy(out + len, text.len > len ? "..." : "");
    return out;
}

__attribute__((format(printf, 2, 3))) static void refuse(sqlite3_context *call, const char *format,
                                                         ...)
{
    char text[512] = "GUARDED ";
    size_t used = strlen(text);
    va_list args;

    va_start(args, format);
    vsnprintf(text + used, sizeof text - used, format, args);
    va_end(args);
    sqlite3_result_error(call, text, -1);
}

static struct bytes value_bytes(sqlite3_value *value, bool as_text)
{
    /* The pointer first: asking for it may convert the value and change its length. */
    const void *data =
        as_text ? (const void *)sqlite3_value_text(value) : sqlite3_value_blob(value);
    return (struct bytes){data, data != NULL ? (size_t)sqlite3_value_bytes(value) : 0};
}

/* prefix || key, into `name`. False: that names no resource, which has been said. */
static bool name_resource(sqlite3_context *call, sqlite3_value *prefix, sqlite3_value *key,
                          char name[RESOURCE_NAME_MAX], struct bytes *resource)
{
    static const char *const kinds[] = {
        [SQLITE_FLOAT] = "a float", [SQLITE_BLOB] = "a blob", [SQLITE_NULL] = "NULL"};
    struct bytes head = value_bytes(prefix, true), tail;
    int type = sqlite3_value_type(key);
    char shown[GUARD_PRINTABLE_MAX];

    if (type != SQLITE_INTEGER && type != SQLITE_TEXT) {
        refuse(call,
               "the key of a guarded row must be text or an integer, to name the resource "
               "'%s...', and not %s",
               guard_printable(head, shown), kinds[type]);
        return false;
    }
    tail = value_bytes(key, true);
    if (head.data == NULL || tail.data == NULL) {
        sqlite3_result_error_nomem(call);
        return false;
    }
    if (head.len + tail.len == 0 || head.len + tail.len > RESOURCE_NAME_MAX) {
        refuse(call, "'%s' and the row's key together must have 1 to %d bytes, to name a resource",
               guard_printable(head, shown), RESOURCE_NAME_MAX);
        return false;
    }
    memcpy(name, head.data, head.len);
    memcpy(name + head.len, tail.data, tail.len);
    *resource = (struct bytes){name, head.len + tail.len};
    return true;
}

/* Where they are not recursive, REPLACE goes round them. */
static bool is_recursive(sqlite3_context *call, const struct guard_witness *witness)
{
    if (witness->recursive == NULL || witness->recursive(witness->context))
        return true;
    refuse(call, "rows change only while PRAGMA recursive_triggers is ON: without it, REPLACE "
                 "removes rows that nobody judges");
    return false;
}

static void judge(sqlite3_context *call, int argc, sqlite3_value **argv)
{
    const struct guard_witness *witness = sqlite3_user_data(call);
    char name[RESOURCE_NAME_MAX], shown[GUARD_PRINTABLE_MAX];
    struct bytes resource;

    (void)argc;
    if (!is_recursive(call, witness))
        return;
    if (!name_resource(call, argv[0], argv[1], name, &resource))
        return;
    if (sqlite3_value_type(argv[2]) != SQLITE_INTEGER)
        refuse(call, "nobody holds '%s': acquire it, then %s", guard_printable(resource, shown),
               witness->how);
    else if (!witness->presented(witness->context, value_bytes(argv[3], false), resource,
                                 sqlite3_value_int64(argv[2])))
        refuse(call, "the token of '%s' was not presented in this transaction: %s",
               guard_printable(resource, shown), witness->how);
    else
        sqlite3_result_int(call, 1);
}

/* Guards by column. */

enum {
    COLUMN,
    PREFIX,
    KEY,
    OLD_KEY,
    STANDING,
    ASSIGNED,
    TOKEN,
    STATE,
    FILE_MARK,
    TAKES,
    ARGUMENTS
};

__attribute__((format(printf, 3, 4))) static void fail(sqlite3_context *call, const char *code,
                                                       const char *format, ...)
{
    char text[512];
    size_t used = (size_t)snprintf(text, sizeof text, "%s ", code);
    va_list args;

    va_start(args, format);
    vsnprintf(text + used, sizeof text - used, format, args);
    va_end(args);
    sqlite3_result_error(call, text, -1);
}

/* Does the row stay this resource's? Both keys are those of columns, so equal as text is equal. */
static bool stays(sqlite3_value **argv)
{
    struct bytes key = value_bytes(argv[KEY], true), old = value_bytes(argv[OLD_KEY], true);

    return sqlite3_value_type(argv[OLD_KEY]) != SQLITE_NULL && key.len == old.len &&
           (key.len == 0 || memcmp(key.data, old.data, key.len) == 0);
}

static void take(struct guard_witness *witness, struct bytes resource, int64_t token)
{
    memcpy(witness->taken_from, resource.data, resource.len);
    witness->taken_from_len = resource.len;
    witness->taken = token;
}

/* Is this the guard's own UPDATE, which takes that token out of its row? */
static bool is_taken(const struct guard_witness *witness, struct bytes resource, int64_t token)
{
    return witness->taken != 0 && witness->taken == token &&
           witness->taken_from_len == resource.len &&
           memcmp(witness->taken_from, resource.data, resource.len) == 0;
}

/* Say what is wrong with what the statement assigns. True: nothing. */
static bool judge_assigned(sqlite3_context *call, sqlite3_value **argv, struct bytes resource)
{
    int64_t token = sqlite3_value_int64(argv[ASSIGNED]);
    struct fence fence = {.token = sqlite3_value_int64(argv[TOKEN])};
    int state = sqlite3_value_int(argv[STATE]);
    char shown[GUARD_PRINTABLE_MAX], column[GUARD_PRINTABLE_MAX];

    guard_printable(resource, shown);
    guard_printable(value_bytes(argv[COLUMN], true), column);
    if (!stays(argv)) {
        fail(call, "GUARDED",
             "the row would become '%s', and one token stands for one resource: DELETE it under "
             "its token by stockade_present, INSERT it anew under the other",
             shown);
        return false;
    }
    if (sqlite3_value_type(argv[ASSIGNED]) == SQLITE_NULL) {
        fail(call, "NOTOKEN",
             "the statement assigns no token to its row of '%s': set its column %s", shown, column);
        return false;
    }
    if (sqlite3_value_type(argv[ASSIGNED]) != SQLITE_INTEGER) {
        fail(call, "UNKNOWN", "token of '%s': column %s takes integers", shown, column);
        return false;
    }
    fence.state = fence.token == 0 ? FENCE_NONE : state == FENCE_LIVE ? FENCE_LIVE : FENCE_RELEASED;
    enum stk_error error = fence_judge(&fence, token);
    if (error != STK_OK)
        fail(call, stk_error_code(error), "token %lld of '%s': %s", (long long)token, shown,
             stk_error_text(error));
    return error == STK_OK;
}

static bool is_sound(sqlite3_context *call, struct guard_witness *witness, sqlite3_value **argv)
{
    char why[256];

    if (!is_recursive(call, witness))
        return false;
    if (witness->served != NULL &&
        !witness->served(witness->context, value_bytes(argv[FILE_MARK], false), why, sizeof why)) {
        fail(call, "STORE", "%s", why);
        return false;
    }
    return true;
}

static void judge_column(sqlite3_context *call, int argc, sqlite3_value **argv)
{
    struct guard_witness *witness = sqlite3_user_data(call);
    bool stands = sqlite3_value_type(argv[STANDING]) != SQLITE_NULL;
    bool assigns = sqlite3_value_type(argv[ASSIGNED]) != SQLITE_NULL;
    bool takes = sqlite3_value_int(argv[TAKES]) != 0;
    int64_t token = sqlite3_value_int64(argv[ASSIGNED]);
    char name[RESOURCE_NAME_MAX], shown[GUARD_PRINTABLE_MAX];
    struct bytes resource;

    (void)argc;
    if (!name_resource(call, argv[PREFIX], argv[KEY], name, &resource))
        return;
    bool own =
        stands && !assigns && is_taken(witness, resource, sqlite3_value_int64(argv[STANDING]));
    witness->taken = 0;
    if (own) {
        sqlite3_result_int(call, 1);
        return;
    }
    /* Before it is written. Afterwards the row has what was assigned, of course. */
    if (stands && !takes && (!assigns || token == sqlite3_value_int64(argv[STANDING]))) {
        refuse(
            call,
            "the row of '%s' still has an earlier statement's token, for a trigger of yours came "
            "before the guard's: GUARD DROP and GUARD CREATE, or assign a newer token",
            guard_printable(resource, shown));
        return;
    }
    if ((!takes && !is_sound(call, witness, argv)) || !judge_assigned(call, argv, resource))
        return;
    if (takes)
        take(witness, resource, token);
    sqlite3_result_int(call, 1);
}

int guard_function_add(sqlite3 *db, struct guard_witness *witness, void (*destroy)(void *))
{
    /* Innocuous: triggers may call it where the schema is not trusted. */
    int code = sqlite3_create_function_v2(db, "stockade_assigned", ARGUMENTS,
                                          SQLITE_UTF8 | SQLITE_INNOCUOUS, witness, judge_column,
                                          NULL, NULL, NULL);

    /* The last one destroys, also where it fails; SQLite removes functions in any order, but calls
     * none of them meanwhile. */
    if (code != SQLITE_OK) {
        if (destroy != NULL)
            destroy(witness);
        return code;
    }
    return sqlite3_create_function_v2(db, "stockade_guard", 4, SQLITE_UTF8 | SQLITE_INNOCUOUS,
                                      witness, judge, NULL, NULL, destroy);
}
