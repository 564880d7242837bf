/* SPDX-License-Identifier: Apache-2.0 */
/* See sql_rig.h. */
#include "tests/unit/store/sql_rig.h"

#include <stdio.h>
#include <string.h>

static __attribute__((format(printf, 2, 3))) void add(struct ask *ask, const char *format, ...)
{
    size_t used = strlen(ask->text);
    va_list args;

    va_start(args, format);
    vsnprintf(ask->text + used, sizeof ask->text - used, format, args);
    va_end(args);
}

static void on_columns(void *context, const char *const *names, size_t count)
{
    struct ask *ask = context;

    assert_int_equal(ask->columns_calls++, 0);
    assert_int_equal(ask->rows, 0);
    for (size_t i = 0; i < count; i++)
        snprintf(ask->names + strlen(ask->names), sizeof ask->names - strlen(ask->names), "%s%s",
                 i > 0 ? "," : "", names[i]);
}

static void add_value(struct ask *ask, const struct sql_value *value)
{
    switch (value->type) {
    case SQL_NULL: add(ask, "NULL"); break;
    case SQL_INTEGER: add(ask, "%lld", (long long)value->integer); break;
    case SQL_FLOAT: add(ask, "%#.17g", value->real); break;
    case SQL_TEXT:
        add(ask, "'%.*s'", (int)(value->bytes.len < 200 ? value->bytes.len : 200),
            value->bytes.data);
        break;
    case SQL_BLOB:
        add(ask, "x'");
        for (size_t i = 0; i < value->bytes.len && i < 100; i++)
            add(ask, "%02x", (unsigned char)value->bytes.data[i]);
        add(ask, "'");
        break;
    }
}

static bool on_row(void *context, const struct sql_value *values, size_t count)
{
    struct ask *ask = context;

    assert_int_equal(ask->columns_calls, 1);
    if (ask->rows_max > 0 && ask->rows == ask->rows_max)
        return false;
    ask->rows++;
    for (size_t i = 0; i < count; i++) {
        add(ask, i > 0 ? "," : "");
        add_value(ask, &values[i]);
    }
    add(ask, ";");
    return true;
}

struct ask ask_of(enum sql_right right, const char *statement)
{
    return (struct ask){.call = {.statement = bytes_of(statement),
                                 .right = right,
                                 .time_limit_ms = 60000,
                                 .columns = on_columns,
                                 .row = on_row}};
}

enum stk_error sql_body(struct store_txn *txn, void *arg)
{
    struct ask *ask = arg;

    ask->columns_calls = ask->rows = 0;
    ask->names[0] = ask->text[0] = '\0';
    ask->call.context = ask;
    if (ask->claim.resource.len > 0)
        txn_present(txn, &ask->claim, 1);
    enum stk_error error = txn_sql(txn, &ask->call);
    if (error != STK_OK && error != STK_STORE)
        assert_true(ask->call.why[0] != '\0');
    return error;
}

const char *sql_do(struct rig *rig, struct ask *ask)
{
    ask->error = ask->call.right == SQL_MAY_READ ? rig_read(rig, sql_body, ask)
                                                 : rig_write(rig, sql_body, ask);
    if (ask->error != STK_OK)
        snprintf(ask->text, sizeof ask->text, "%s %s", stk_error_code(ask->error), ask->call.why);
    return ask->text;
}

static const char *simple(struct rig *rig, enum sql_right right, const char *statement)
{
    static struct ask ask;

    ask = ask_of(right, statement);
    return sql_do(rig, &ask);
}

const char *sql_ask(struct rig *rig, const char *statement)
{
    return simple(rig, SQL_MAY_READ, statement);
}

const char *sql_change(struct rig *rig, const char *statement)
{
    return simple(rig, SQL_MAY_WRITE, statement);
}

const char *sql_define(struct rig *rig, const char *statement)
{
    return simple(rig, SQL_MAY_DEFINE, statement);
}

void sql_expect(const char *text, const char *begin, const char *part)
{
    if (strncmp(text, begin, strlen(begin)) != 0 || strstr(text, part) == NULL)
        fail_msg("expected '%s... %s...', got '%s'", begin, part, text);
}
