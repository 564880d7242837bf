/* SPDX-License-Identifier: Apache-2.0 */
/* The error table: its codes are wire contract. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fence/base/err.h"

static void test_every_code_of_the_contract_is_there(void **state)
{
    static const char *const contract[] = {
        "STALE", "UNKNOWN", "NOTOKEN",   "RANGE",  "EXPIRED", "DEADLOCK",  "LEASEDOWN", "BUSY",
        "STORE", "GUARDED", "WRONGTYPE", "NOAUTH", "NOPERM",  "EXECABORT", "ERR",
    };

    (void)state;
    for (size_t i = 0; i < sizeof contract / sizeof *contract; i++) {
        int found = 0;
        for (int error = STK_OK + 1; error < STK_ERRORS; error++)
            found += strcmp(stk_error_code((enum stk_error)error), contract[i]) == 0;
        if (found != 1)
            fail_msg("%s is there %d times", contract[i], found);
    }
}

static void test_every_error_has_a_code_of_capitals_and_a_text_of_one_line(void **state)
{
    (void)state;
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

static void test_what_is_no_error_has_a_text_too(void **state)
{
    static const int none[] = {-1, STK_ERRORS, STK_CLIENT_ERRORS_AFTER, STK_CLIENT_ERRORS, 12345};

    (void)state;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_string_equal(stk_error_code((enum stk_error)none[i]), "ERR");
        assert_string_equal(stk_error_text((enum stk_error)none[i]), "an unknown error");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_of_the_contract_is_there),
        cmocka_unit_test(test_every_error_has_a_code_of_capitals_and_a_text_of_one_line),
        cmocka_unit_test(test_what_is_no_error_has_a_text_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
