/* SPDX-License-Identifier: Apache-2.0 */
/* See plain.h. */
#include "tests/unit/store/plain.h"

#include "fence/base/bytes.h"
#include "tests/unit/test.h"

sqlite3 *plain_open(const char *path)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    return db;
}

void plain_run(sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
}

static sqlite3_stmt *prepare(sqlite3 *db, const char **sql)
{
    sqlite3_stmt *stmt = NULL;
    if (sqlite3_prepare_v2(db, *sql, -1, &stmt, sql) != SQLITE_OK)
        fail_msg("%s", sqlite3_errmsg(db));
    return stmt;
}

int64_t plain_number(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt = prepare(db, &sql);

    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return value;
}

char *plain_rows(sqlite3 *db, const char *sql)
{
    struct buf out = {0};

    while (*sql != '\0') {
        sqlite3_stmt *stmt = prepare(db, &sql);
        while (sqlite3_step(stmt) == SQLITE_ROW)
            for (int at = 0; at < sqlite3_column_count(stmt); at++) {
                const unsigned char *text = sqlite3_column_text(stmt, at);
                buf_printf(&out, "%s%s",
                           at > 0        ? "|"
                           : out.len > 0 ? "\n"
                                         : "",
                           text == NULL ? (const unsigned char *)"(null)" : text);
            }
        assert_int_equal(sqlite3_finalize(stmt), SQLITE_OK);
    }
    buf_append(&out, "", 1);
    return out.data;
}
