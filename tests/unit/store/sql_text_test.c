/* SPDX-License-Identifier: Apache-2.0 */
/* What a statement's text says of it, without SQLite. */
#include "store/sql_text.h"
#include "tests/unit/test.h"

TEST(the_first_word_tells_the_kind)
{
    static const struct {
        const char *text;
        enum sql_kind kind;
    } texts[] = {
        {"SELECT 1", SQL_QUERY},
        {"select*from t", SQL_QUERY},
        {"VALUES(1)", SQL_QUERY},
        {"With x AS (SELECT 1) DELETE FROM t", SQL_QUERY},
        {"EXPLAIN CREATE TABLE t(a)", SQL_QUERY},
        {"INSERT INTO t VALUES(1)", SQL_CHANGE},
        {"update t set a = 1", SQL_CHANGE},
        {"DELETE\nFROM t", SQL_CHANGE},
        {"replace into t values(1)", SQL_CHANGE},
        {"CREATE TABLE t(a)", SQL_DEFINITION},
        {"\t\f\r\n create/**/table t(a)", SQL_DEFINITION},
        {"-- SELECT\nDROP TABLE t", SQL_DEFINITION},
        {"/* SELECT */ -- x\n /*/**/ ALTER TABLE t ADD c", SQL_DEFINITION},
        {";; ; REINDEX", SQL_DEFINITION},
        {"ANALYZE", SQL_DEFINITION},
        {"", SQL_OTHER},
        {"--CREATE", SQL_OTHER},
        {"/* CREATE", SQL_OTHER},
        {"- CREATE", SQL_OTHER},
        {"CREATED", SQL_OTHER},
        {"_CREATE", SQL_OTHER},
        {"CREATE\xc3\xa4", SQL_OTHER},
        {"'CREATE' TABLE", SQL_OTHER},
        {"\"DROP\"", SQL_OTHER},
        {":CREATE", SQL_OTHER},
        {"\vCREATE TABLE t(a)", SQL_OTHER},
        {"PRAGMA user_version", SQL_OTHER},
        {"(SELECT 1)", SQL_OTHER},
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (sql_kind(bytes_of(texts[i].text)) != texts[i].kind)
            fail_msg("%s", texts[i].text);
    assert_int_equal(sql_kind((struct bytes){NULL, 0}), SQL_OTHER);
}

TEST(blanks_comments_and_semicolons_are_nothing)
{
    static const char *const blank[] = {
        "", " \n\t\r\f", ";", " ; ;", "-- x", "-- x\n;--", "/* x", "/**/ /* ' */;", "/*/ x */"};
    static const char *const not_blank[] = {"x", "-",  "/",  "*/",       "-- x\nx", "/**/x",
                                            "'", "''", "\v", "\xc2\xa0", ":",       "/*/*/*/"};

    for (size_t i = 0; i < sizeof blank / sizeof *blank; i++)
        assert_true(sql_text_is_blank(bytes_of(blank[i])));
    for (size_t i = 0; i < sizeof not_blank / sizeof *not_blank; i++)
        if (sql_text_is_blank(bytes_of(not_blank[i])))
            fail_msg("%s", not_blank[i]);
}

/* Why a text is refused that repeats the piece so many times. */
static const char *refusal(const char *piece, int times)
{
    struct buf text = {.data = NULL};

    for (int i = 0; i < times; i++)
        buf_append_text(&text, piece);
    const char *refusal = sql_text_refuses(buf_bytes(&text));
    buf_free(&text);
    return refusal;
}

TEST(selects_are_counted_where_they_are_words)
{
    static const char *const counted[] = {"SELECT ",       "(values(1))",    "select'x'",
                                          "x'00'SELECT\n", "/**/SELECT/**/", "--\nSELECT;"};
    static const char *const passed_over[] = {
        "'SELECT' ", "\"SELECT\"", "`SELECT`",  "[SELECT]",  "--SELECT\n",     "/*SELECT*/",
        ":SELECT ",  "@select,",   "?1SELECT ", "SELECTED ", "'it''s SELECT'", "a$SELECT "};

    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++) {
        assert_null(refusal(counted[i], SQL_SELECTS_MAX));
        assert_non_null(refusal(counted[i], SQL_SELECTS_MAX + 1));
    }
    for (size_t i = 0; i < sizeof passed_over / sizeof *passed_over; i++)
        if (refusal(passed_over[i], SQL_SELECTS_MAX + 1) != NULL)
            fail_msg("%s", passed_over[i]);
}

TEST(length_and_zero_bytes_are_bounded)
{
    assert_null(refusal(" ", SQL_STATEMENT_MAX));
    assert_non_null(refusal(" ", SQL_STATEMENT_MAX + 1));
    assert_non_null(sql_text_refuses((struct bytes){"SELECT 1\0", 9}));
    assert_null(sql_text_refuses((struct bytes){NULL, 0}));
}

TEST(a_word_is_found_anywhere_in_either_case)
{
    assert_true(sql_text_has(bytes_of("SELECT \"a_B_c\""), "b_"));
    assert_true(sql_text_has(bytes_of("b_"), "b_"));
    assert_true(sql_text_has(bytes_of("_bb_"), "B_"));
    assert_false(sql_text_has(bytes_of("_b"), "b_"));
    assert_false(sql_text_has(bytes_of("_"), "b_"));
    assert_false(sql_text_has((struct bytes){NULL, 0}, "b_"));
}
