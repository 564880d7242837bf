/* SPDX-License-Identifier: Apache-2.0 */
/* instr, replace and trim against SQLite's own, over values drawn to meet often: short, of few
 * letters, with characters of several bytes, broken ones, zero bytes, and of every type. */
#include "store/sqlite/sql.h"
#include "tests/unit/store/plain.h"
#include "tests/unit/test.h"

TESTS_HAVE_ONE_THREAD

enum { ROUNDS = 40000 };

static uint32_t draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

static void bind_drawn(sqlite3_stmt *stmts[2], int at, uint64_t *seed)
{
    static const char *const pieces[] = {
        "a", "b", " ", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\x80", "\xc3", "\xff"};
    char text[64];
    size_t len = 0;
    uint32_t type = draw(seed, 12);

    for (uint32_t left = draw(seed, 7); left > 0; left--) {
        if (draw(seed, 30) == 0) {
            text[len++] = '\0';
            continue;
        }
        const char *piece = pieces[draw(seed, draw(seed, 2) == 0 ? 3 : 9)];
        memcpy(text + len, piece, strlen(piece));
        len += strlen(piece);
    }
    sqlite3_int64 number = (sqlite3_int64)draw(seed, 300) - 100;
    for (int i = 0; i < 2; i++)
        if (type == 0)
            sqlite3_bind_null(stmts[i], at);
        else if (type == 1)
            sqlite3_bind_int64(stmts[i], at, number);
        else if (type == 2)
            sqlite3_bind_double(stmts[i], at, (double)number / 8);
        else if (type <= 4)
            sqlite3_bind_blob(stmts[i], at, text, (int)len, SQLITE_TRANSIENT);
        else
            sqlite3_bind_text(stmts[i], at, text, (int)len, SQLITE_TRANSIENT);
}

static void expect_same(sqlite3_stmt *stmts[2])
{
    assert_int_equal(sqlite3_step(stmts[0]), SQLITE_ROW);
    assert_int_equal(sqlite3_step(stmts[1]), SQLITE_ROW);
    for (int at = 0; at < sqlite3_column_count(stmts[0]); at++) {
        int type = sqlite3_column_type(stmts[0], at), len = sqlite3_column_bytes(stmts[0], at);
        if (type != sqlite3_column_type(stmts[1], at) ||
            len != sqlite3_column_bytes(stmts[1], at) ||
            (len > 0 && memcmp(sqlite3_column_blob(stmts[0], at), sqlite3_column_blob(stmts[1], at),
                               (size_t)len) != 0))
            fail_msg("%s: column %d: %s, not %s", sqlite3_expanded_sql(stmts[1]), at,
                     sqlite3_column_text(stmts[1], at), sqlite3_column_text(stmts[0], at));
    }
    sqlite3_reset(stmts[0]);
    sqlite3_reset(stmts[1]);
}

TEST(each_gives_what_sqlite_gives)
{
    /* With the types of the arguments after the call, which must not have changed. */
    static const char *const calls[] = {
        "SELECT instr(?1, ?2), typeof(?1), typeof(?2)",
        "SELECT replace(?1, ?2, ?3), typeof(replace(?1, ?2, ?3))",
        "SELECT trim(?1), ltrim(?1), rtrim(?1)",
        "SELECT trim(?1, ?2), ltrim(?1, ?2), rtrim(?1, ?2)",
    };
    sqlite3 *dbs[2];
    uint64_t seed = 20251121;

    for (int i = 0; i < 2; i++)
        dbs[i] = plain_open(":memory:");
    assert_int_equal(sql_functions_add(dbs[1]), SQLITE_OK);
    for (size_t which = 0; which < sizeof calls / sizeof *calls; which++) {
        sqlite3_stmt *stmts[2];
        for (int i = 0; i < 2; i++)
            assert_int_equal(sqlite3_prepare_v2(dbs[i], calls[which], -1, &stmts[i], NULL),
                             SQLITE_OK);
        for (int round = 0; round < ROUNDS; round++) {
            for (int at = 1; at <= sqlite3_bind_parameter_count(stmts[0]); at++)
                bind_drawn(stmts, at, &seed);
            expect_same(stmts);
        }
        for (int i = 0; i < 2; i++)
            sqlite3_finalize(stmts[i]);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(sqlite3_close(dbs[i]), SQLITE_OK);
}

TEST(an_index_of_sqlites_own_is_found_with_them)
{
    sqlite3 *db = plain_open(":memory:");

    plain_run(db, "CREATE TABLE t(a, b AS (replace(a, 'x', 'y')) STORED);"
                  "INSERT INTO t VALUES(' x '); CREATE INDEX i ON t(trim(a));");
    assert_int_equal(sql_functions_add(db), SQLITE_OK);
    plain_run(db, "INSERT INTO t VALUES('zx')");
    char *rows = plain_rows(db, "SELECT group_concat(b) FROM t INDEXED BY i WHERE trim(a) > 'a';"
                                "PRAGMA integrity_check");
    assert_string_equal(rows, " y ,zy\nok");
    free(rows);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}
