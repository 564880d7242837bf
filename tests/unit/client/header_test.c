/* SPDX-License-Identifier: Apache-2.0 */
/* The public header by itself, as a user has it: it has the same error codes as the error table. */
#include "proxy/client/stockade.h"
#include "tests/unit/test.h"

#define ROW(name)                                                                                  \
    {                                                                                              \
        STK_##name, #name                                                                          \
    }

static const struct {
    enum stk_error error;
    const char *code;
} rows[] = {
    ROW(OK),       ROW(STALE),     ROW(UNKNOWN), ROW(NOTOKEN),     ROW(RANGE),     ROW(EXPIRED),
    ROW(DEADLOCK), ROW(LEASEDOWN), ROW(BUSY),    ROW(STORE),       ROW(GUARDED),   ROW(WRONGTYPE),
    ROW(NOAUTH),   ROW(WRONGPASS), ROW(NOPERM),  ROW(NOPROTO),     ROW(EXECABORT), ROW(ERR),
    ROW(HELD),     ROW(TIMEOUT),   ROW(UNSURE),  ROW(UNREACHABLE), ROW(ABANDONED), ROW(RELEASED),
    ROW(FORKED),   ROW(PROTOCOL),  ROW(MISUSE),  ROW(CANCELLED),
};
enum { ROWS = sizeof rows / sizeof *rows };

TEST(each_code_of_the_header_is_that_of_the_table)
{
    for (int i = 0; i < ROWS; i++)
        assert_string_equal(stk_error_code(rows[i].error), rows[i].code);
}

TEST(the_table_has_no_code_that_the_header_lacks)
{
    int known = 0;
    for (int error = 0; error < 1000; error++) {
        const char *text = stk_error_text((enum stk_error)error);
        known += strcmp(text, "an unknown error") != 0;
    }
    assert_int_equal(known, ROWS);
}

TEST(numbers_that_programs_were_compiled_with_stay)
{
    assert_int_equal(STK_STALE, 1);
    assert_int_equal(STK_ERR, 17);
    assert_int_equal(STK_HELD, 100);
    assert_int_equal(STK_MISUSE, 108);
    assert_int_equal(STK_CANCELLED, 109);
    assert_string_equal(stk_version(), "0.1.0");
}
