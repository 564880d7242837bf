/* SPDX-License-Identifier: Apache-2.0 */
/* The error table as text. */
#include "fence/base/err.h"

#include "fence/base/check.h"

static const struct {
    const char *code, *text;
} errors[STK_ERRORS] = {
#define X(name, code_, text_) [STK_##name] = {code_, text_},
    STK_ERROR_MAP(X)
#undef X
};

const char *stk_error_code(enum stk_error error)
{
    check(error > STK_OK && error < STK_ERRORS);
    return errors[error].code;
}

const char *stk_error_text(enum stk_error error)
{
    check(error > STK_OK && error < STK_ERRORS);
    return errors[error].text;
}
