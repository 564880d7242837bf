/* SPDX-License-Identifier: Apache-2.0 */
/* The error table: its codes are wire contract. */
#include <ctype.h>

#include "fence/base/err.h"
#include "tests/unit/test.h"

TEST(every_code_of_the_contract_is_there)
{
    static const char *const contract[] = {
        "STALE", "UNKNOWN", "NOTOKEN",   "RANGE",  "EXPIRED", "DEADLOCK",  "LEASEDOWN", "BUSY",
        "STORE", "GUARDED", "WRONGTYPE", "NOAUTH", "NOPERM",  "EXECABORT", "ERR",       "NOSCRIPT",
    };

    for (size_t i = 0; i < sizeof contract / sizeof *contract; i++) {
        int found = 0;
        for (int error = STK_OK + 1; error < STK_ERRORS; error++)
            found += strcmp(stk_error_code((enum stk_error)error), contract[i]) == 0;
        if (found != 1)
            fail_msg("%s is there %d times", contract[i], found);
    }
}

TEST(every_error_has_a_code_of_capitals_and_a_text_of_one_line)
{
    for (int error = STK_OK; error < STK_CLIENT_ERRORS; error++) {
        if (error == STK_ERRORS)
            error = STK_CLIENT_ERRORS_AFTER + 1;
        const char *code = stk_error_code((enum stk_error)error);
        const char *text = stk_error_text((enum stk_error)error);
        assert_true(strlen(code) > 0 && strlen(text) > 0);
        for (; *code != '\0'; code++)
            assert_true(isupper((unsigned char)*code));
        assert_null(strpbrk(text, "\r\n"));
    }
}

TEST(what_is_no_error_has_a_text_too)
{
    static const int none[] = {-1, STK_ERRORS, STK_CLIENT_ERRORS_AFTER, STK_CLIENT_ERRORS, 12345};

    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_string_equal(stk_error_code((enum stk_error)none[i]), "ERR");
        assert_string_equal(stk_error_text((enum stk_error)none[i]), "an unknown error");
    }
}
