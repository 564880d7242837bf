/* SPDX-License-Identifier: Apache-2.0 */
/* SQL [TYPES itfbn...] statement [param ...]: one statement over the users' own tables.
 *
 * The reply is a map: columns, rows, changes, last_insert_rowid. RESP3 keeps the types of values;
 * in RESP2 a row holds text and nulls. A statement that fails replies with its error, and the
 * caller has to undo it (see txn_sql). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "fence/base/plain.h"
#include "proxy/engine/acl/acl.h"
#include "proxy/engine/command/exec.h"
#include "proxy/engine/command/handlers.h"
#include "proxy/engine/session/request.h"
#include "proxy/engine/write/plan.h"
#include "store/sql_text.h"

enum { SQL_ROWS_MAX = 100000, SQL_PARAMS_MAX = 32766 };

/* The reply while it is made. The rows are kept apart, since their number comes before them. */
struct result {
    struct exec *exec;
    struct sql_call call;
    struct buf columns, rows;
    size_t columns_count, rows_count;
    bool resp3, no_room;
};

static bool has_types(const struct bytes *argv, size_t argc)
{
    return argc > 2 && bytes_equal_nocase(argv[1], "TYPES");
}

static struct bytes statement_of(const struct bytes *argv, size_t argc)
{
    size_t at = has_types(argv, argc) ? 3 : 1;
    return at < argc ? argv[at] : BYTES_LITERAL("");
}

/* Without a token a statement only reads, unless it defines: that needs no token, but an
 * administrator, and the writer. */
void sql_prepare(struct request *request)
{
    plan_make(request);
    if (sql_kind(statement_of(request->argv, request->argc)) != SQL_DEFINITION)
        return;
    if (request->stage == REQUEST_QUEUED) {
        step_refuse(request, STK_ERR, "DDL is no part of a transaction here: send it alone");
    } else {
        request->plan.only_step.sql_right = SQL_MAY_DEFINE;
        request->plan.needs_savepoint = true;
        request->order = ORDER_WRITE;
    }
}

/* Read a finite decimal or an infinity. (SQLite would make NULL of a NaN.) */
static bool parse_float(struct bytes text, double *value)
{
    char copy[512], *end;

    if (text.len == 0 || text.len >= sizeof copy)
        return false;
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    const char *digits = copy + (copy[0] == '-' || copy[0] == '+');
    if (plain_equal(digits, "inf")) {
        *value = copy[0] == '-' ? -HUGE_VAL : HUGE_VAL;
        return true;
    }
    if (strspn(copy, "0123456789+-.eE") != text.len)
        return false;
    *value = plain_to_double(copy, &end);
    return end == copy + text.len && isfinite(*value);
}

/* Read a parameter. False: there is no such type, or the text is not of that type. */
static bool parse_value(char type, struct bytes text, struct sql_value *value)
{
    value->bytes = text;
    switch (type) {
    case 'i': value->type = SQL_INTEGER; return bytes_to_int64(text, &value->integer);
    case 'f': value->type = SQL_FLOAT; return parse_float(text, &value->real);
    case 't': value->type = SQL_TEXT; return true;
    case 'b': value->type = SQL_BLOB; return true;
    case 'n': value->type = SQL_NULL; return true;
    default: return false;
    }
}

/* Read the parameters from argv[at] on. False: an error was replied. */
static bool parse_params(struct exec *exec, size_t at, struct sql_value *params)
{
    size_t count = exec->argc - at;
    bool typed = has_types(exec->argv, exec->argc);

    if (typed && exec->argv[2].len != count) {
        resp_error(exec->out, STK_ERR, "TYPES names %zu parameters, and there are %zu",
                   exec->argv[2].len, count);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        char type = typed ? exec->argv[2].data[i] : 't';
        if (parse_value(type, exec->argv[at + i], &params[i]))
            continue;
        if (type == 'i' || type == 'f')
            resp_error(exec->out, STK_ERR, "parameter %zu is not %s", i + 1,
                       type == 'i' ? "an integer of 64 bits" : "a float");
        else
            resp_error(exec->out, STK_ERR,
                       "TYPES takes i (integer), t (text), f (float), b (blob) and n (null)");
        return false;
    }
    return true;
}

static void on_columns(void *context, const char *const *names, size_t count)
{
    struct result *result = context;

    result->columns_count = count;
    for (size_t i = 0; i < count; i++)
        resp_bulk_text(&result->columns, names[i]);
}

static void add_value(struct result *result, const struct sql_value *value)
{
    struct buf *out = &result->rows;

    switch (value->type) {
    case SQL_NULL: resp_null(out, result->resp3); break;
    case SQL_INTEGER:
        if (result->resp3)
            resp_int(out, value->integer);
        else
            resp_bulk_int(out, value->integer);
        break;
    case SQL_FLOAT: resp_double(out, value->real, result->resp3); break;
    case SQL_TEXT:
    case SQL_BLOB: resp_bulk(out, value->bytes); break;
    }
}

static bool too_much(struct result *result, const char *what)
{
    snprintf(result->call.why, SQL_WHY_MAX, "the result is too large: %s; use LIMIT", what);
    return false;
}

static bool on_row(void *context, const struct sql_value *values, size_t count)
{
    struct result *result = context;

    if (++result->rows_count > SQL_ROWS_MAX)
        return too_much(result, "100000 rows at most");
    resp_array(&result->rows, count);
    for (size_t i = 0; i < count; i++) {
        if (result->columns.len + result->rows.len + values[i].bytes.len > REPLY_BYTES_MAX)
            return too_much(result, "64 MiB at most");
        result->no_room = exec_room(result->exec, result->columns.len + result->rows.len +
                                                      values[i].bytes.len) != STK_OK;
        if (result->no_room)
            return false;
        add_value(result, &values[i]);
    }
    return true;
}

static void reply(struct exec *exec, const struct result *result)
{
    struct buf *out = exec->out;

    resp_map(out, 4, exec->resp3);
    resp_bulk_text(out, "columns");
    resp_array(out, result->columns_count);
    buf_append_bytes(out, buf_bytes(&result->columns));
    resp_bulk_text(out, "rows");
    resp_array(out, result->rows_count);
    buf_append_bytes(out, buf_bytes(&result->rows));
    resp_bulk_text(out, "changes");
    resp_int(out, result->call.changes);
    resp_bulk_text(out, "last_insert_rowid");
    resp_int(out, result->call.last_insert_rowid);
}

static enum stk_error run(struct exec *exec, size_t at, const struct sql_value *params)
{
    struct result result = {
        .exec = exec,
        .call = {.statement = exec->argv[at - 1],
                 .params = params,
                 .params_count = exec->argc - at,
                 .right = exec->sql_right,
                 .own_hidden = exec->rights != NULL && !acl_may_touch_all(exec->rights, ACL_READS),
                 .time_limit_ms = exec->sql_limit_ms,
                 .columns = on_columns,
                 .row = on_row,
                 .context = &result},
        .resp3 = exec->resp3,
    };
    enum stk_error error = txn_sql(exec->txn, &result.call);

    if (error == STK_OK) {
        reply(exec, &result);
    } else if (result.no_room) {
        error = STK_BUSY;
    } else if (error != STK_STORE) {
        resp_error(exec->out, error, "%s", result.call.why);
        error = STK_OK;
    }
    buf_free(&result.columns);
    buf_free(&result.rows);
    return error;
}

enum stk_error sql_exec(struct exec *exec)
{
    size_t at = has_types(exec->argv, exec->argc) ? 4 : 2; /* of the first parameter */

    if (exec->argc < at)
        return exec_syntax(exec);
    if (exec->argc - at > SQL_PARAMS_MAX)
        return exec_error(exec, "a statement takes 32766 parameters at most");
    struct sql_value *params = mem_zalloc((exec->argc - at + 1) * sizeof *params);
    enum stk_error error = STK_OK;
    if (parse_params(exec, at, params))
        error = run(exec, at, params);
    free(params);
    return error;
}
