/* SPDX-License-Identifier: Apache-2.0 */
/* Judge one row. Whatever is not plainly in order is refused: a key that names no resource, a
 * resource without a live token, a connection on which REPLACE goes round the triggers. */
#include "store/sqlite/guard_function.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "store/txn.h"

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

static void judge(sqlite3_context *call, int argc, sqlite3_value **argv)
{
    const struct guard_witness *witness = sqlite3_user_data(call);
    char name[RESOURCE_NAME_MAX], shown[GUARD_PRINTABLE_MAX];
    struct bytes resource;

    (void)argc;
    if (witness->recursive != NULL && !witness->recursive(witness->context)) {
        refuse(call, "rows change only while PRAGMA recursive_triggers is ON: without it, REPLACE "
                     "removes rows that nobody judges");
        return;
    }
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

int guard_function_add(sqlite3 *db, struct guard_witness *witness, void (*destroy)(void *))
{
    /* Innocuous: triggers may call it where the schema is not trusted. */
    return sqlite3_create_function_v2(db, "stockade_guard", 4, SQLITE_UTF8 | SQLITE_INNOCUOUS,
                                      witness, judge, NULL, NULL, destroy);
}
