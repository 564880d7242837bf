/* SPDX-License-Identifier: Apache-2.0 */
/* The error table as text. The library hands these functions to its callers, so a number that is no
 * error gets a text as well, instead of ending the process. */
#include "fence/base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct entry {
    const char *code, *text;
};

static const struct entry errors[STK_CLIENT_ERRORS] = {[STK_OK] = {"OK", "no error"},
#define X(name, code, text) [STK_##name] = {code, text},
                                                       STK_ERROR_MAP(X) STK_CLIENT_ERROR_MAP(X)
#undef X
};
static const struct entry unknown = {"ERR", "an unknown error"};

static const struct entry *entry_of(enum stk_error error)
{
    bool known = (int)error >= 0 && error < STK_CLIENT_ERRORS && errors[error].code != NULL;
    return known ? &errors[error] : &unknown;
}

const char *stk_error_code(enum stk_error error)
{
    return entry_of(error)->code;
}

const char *stk_error_text(enum stk_error error)
{
    return entry_of(error)->text;
}
