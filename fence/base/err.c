/* SPDX-License-Identifier: Apache-2.0 */
/* The error table as text. The library hands these functions to its callers, so a number that is no
 * error gets a text as well, instead of ending the process. */
#include "fence/base/err.h"

struct entry {
    const char *code, *text;
};

static const struct entry errors[STK_ERRORS] = {[STK_OK] = {"OK", "no error"},
#define X(name, code, text) [STK_##name] = {code, text},
                                                STK_ERROR_MAP(X)
#undef X
};

static const struct entry client_errors[STK_CLIENT_ERRORS - STK_CLIENT_ERRORS_AFTER] = {
    [0] = {"ERR", "an unknown error"},
#define X(name, code, text) [STK_##name - STK_CLIENT_ERRORS_AFTER] = {code, text},
    STK_CLIENT_ERROR_MAP(X)
#undef X
};

static const struct entry *entry_of(enum stk_error error)
{
    if ((int)error >= 0 && error < STK_ERRORS)
        return &errors[error];
    if (error > STK_CLIENT_ERRORS_AFTER && error < STK_CLIENT_ERRORS)
        return &client_errors[error - STK_CLIENT_ERRORS_AFTER];
    return &client_errors[0];
}

const char *stk_error_code(enum stk_error error)
{
    return entry_of(error)->code;
}

const char *stk_error_text(enum stk_error error)
{
    return entry_of(error)->text;
}
