/* SPDX-License-Identifier: Apache-2.0 */
/* Strings: Redis's commands, arguments and replies, without expiry. They run inside the store's
 * transaction. Each decides first and changes last, so that a refused one has changed nothing. */
#include <string.h>

#include "proxy/engine/command/exec.h"
#include "proxy/engine/command/handlers.h"
#include "proxy/engine/session/request.h"
#include "proxy/engine/write/plan.h"

/* Replaces whatever the key holds; exec->resource is the key's. */
static enum stk_error put(struct exec *exec, struct bytes key, struct bytes value)
{
    enum stk_error error;

    if (exec->resource.type == VALUE_HASH &&
        txn_failed(error = txn_value_clear(exec->txn, &exec->resource)))
        return error;
    if (exec->resource.id == 0 &&
        txn_failed(error = txn_resource_make(exec->txn, key, &exec->resource)))
        return error;
    return txn_string_put(exec->txn, &exec->resource, value);
}

/* Reply with the present value or null. */
static enum stk_error reply_value(struct exec *exec, bool *found)
{
    enum stk_error error;
    struct bytes value;

    if (txn_failed(error = txn_string(exec->txn, &exec->resource, found, &value)))
        return error;
    if (*found)
        return exec_bulk(exec, value);
    resp_null(exec->out, exec->resp3);
    return STK_OK;
}

enum stk_error string_get(struct exec *exec)
{
    bool found;
    return exec_wrong_type(exec, VALUE_STRING) ? STK_OK : reply_value(exec, &found);
}

enum stk_error string_strlen(struct exec *exec)
{
    enum stk_error error;
    struct bytes value;
    bool found;

    if (exec_wrong_type(exec, VALUE_STRING))
        return STK_OK;
    if (txn_failed(error = txn_string(exec->txn, &exec->resource, &found, &value)))
        return error;
    resp_int(exec->out, found ? (int64_t)value.len : 0);
    return STK_OK;
}

enum stk_error string_mget(struct exec *exec)
{
    resp_array(exec->out, exec->argc - 1);
    for (size_t i = 1; i < exec->argc; i++) {
        enum stk_error error;
        bool found;
        if (i > 1 && txn_failed(error = txn_resource(exec->txn, exec->argv[i], &exec->resource)))
            return error;
        if (exec->resource.type != VALUE_STRING)
            resp_null(exec->out, exec->resp3);
        else if (txn_failed(error = reply_value(exec, &found)))
            return error;
        if (exec->out->len > REPLY_BYTES_MAX)
            return exec_error_instead(exec, "the reply is too large; ask for fewer keys");
    }
    return STK_OK;
}

#define SET_EXPIRES_ERROR                                                                          \
    "values do not expire here: SET takes NX, XX and GET; for a lock: ACQUIRE key ttl_ms, or a "   \
    "key that --lock-keys names"

/* Is it a SET with an expiry, the usual recipe for a lock? */
static bool expires(const struct bytes *argv, size_t argc)
{
    static const char *const words[] = {"EX", "PX", "EXAT", "PXAT"};

    for (size_t i = 3; i < argc; i++)
        for (size_t j = 0; j < sizeof words / sizeof *words; j++)
            if (bytes_equal_nocase(argv[i], words[j]))
                return true;
    return false;
}

/* Whoever tries the recipe for a lock is told how it is done here, rather than that a token is
 * missing. */
void string_set_prepare(struct request *request)
{
    plan_make(request);
    if (request->verdict == STK_NOTOKEN && expires(request->argv, request->argc))
        step_refuse(request, STK_NOTOKEN, SET_EXPIRES_ERROR);
}

/* With GET it tells what was there, wherever the word stands. */
struct act string_set_act(const struct acl_user *user, struct request *request,
                          const struct bytes *argv, size_t argc)
{
    struct act act = {.deed = DEED_WRITE};

    (void)user, (void)request;
    for (size_t i = 3; i < argc; i++)
        if (bytes_equal_nocase(argv[i], "GET"))
            act.deed = DEED_EXCHANGE;
    return act;
}

enum stk_error string_set(struct exec *exec)
{
    bool nx = false, xx = false, get = false, found;
    enum stk_error error;

    if (exec->argc > 3 && expires(exec->argv, exec->argc))
        return exec_error(exec, SET_EXPIRES_ERROR);
    for (size_t i = 3; i < exec->argc; i++) {
        nx |= exec_is_word(exec, i, "NX");
        xx |= exec_is_word(exec, i, "XX");
        get |= exec_is_word(exec, i, "GET");
        if (!exec_is_word(exec, i, "NX") && !exec_is_word(exec, i, "XX") &&
            !exec_is_word(exec, i, "GET") && !exec_is_word(exec, i, "KEEPTTL")) /* it has none */
            return exec_syntax(exec);
    }
    if (nx && xx)
        return exec_syntax(exec);
    if (get && exec_wrong_type(exec, VALUE_STRING))
        return STK_OK;
    if (get && txn_failed(error = reply_value(exec, &found)))
        return error;
    bool exists = exec->resource.type != VALUE_NONE;
    if ((nx && exists) || (xx && !exists)) {
        if (!get)
            resp_null(exec->out, exec->resp3);
        return STK_OK;
    }
    if (txn_failed(error = put(exec, exec->argv[1], exec->argv[2])))
        return error;
    if (!get)
        resp_simple(exec->out, "OK");
    return STK_OK;
}

enum stk_error string_setnx(struct exec *exec)
{
    enum stk_error error;
    bool exists = exec->resource.type != VALUE_NONE;

    if (!exists && txn_failed(error = put(exec, exec->argv[1], exec->argv[2])))
        return error;
    resp_int(exec->out, !exists);
    return STK_OK;
}

enum stk_error string_getset(struct exec *exec)
{
    enum stk_error error;
    bool found;

    if (exec_wrong_type(exec, VALUE_STRING))
        return STK_OK;
    if (txn_failed(error = reply_value(exec, &found)))
        return error;
    return put(exec, exec->argv[1], exec->argv[2]);
}

enum stk_error string_getdel(struct exec *exec)
{
    enum stk_error error;
    bool found;

    if (exec_wrong_type(exec, VALUE_STRING))
        return STK_OK;
    if (txn_failed(error = reply_value(exec, &found)))
        return error;
    return found ? txn_value_clear(exec->txn, &exec->resource) : STK_OK;
}

enum stk_error string_mset(struct exec *exec)
{
    enum stk_error error;

    if (exec->argc % 2 == 0)
        return exec_error(exec, "wrong number of arguments for 'mset' command");
    for (size_t i = 1; i < exec->argc; i += 2) {
        if (i > 1 && txn_failed(error = txn_resource(exec->txn, exec->argv[i], &exec->resource)))
            return error;
        if (txn_failed(error = put(exec, exec->argv[i], exec->argv[i + 1])))
            return error;
    }
    resp_simple(exec->out, "OK");
    return STK_OK;
}

enum stk_error string_append(struct exec *exec)
{
    enum stk_error error;
    struct bytes old = {0};
    bool found;

    if (exec_wrong_type(exec, VALUE_STRING))
        return STK_OK;
    if (txn_failed(error = txn_string(exec->txn, &exec->resource, &found, &old)))
        return error;
    if (old.len + exec->argv[2].len > VALUE_BYTES_MAX)
        return exec_error(exec, "string exceeds maximum allowed size (proto-max-bulk-len)");
    struct buf joined = {0};
    buf_append_bytes(&joined, old);
    buf_append_bytes(&joined, exec->argv[2]);
    error = put(exec, exec->argv[1], buf_bytes(&joined));
    resp_int(exec->out, (int64_t)joined.len);
    buf_free(&joined);
    return error;
}

enum stk_error string_getrange(struct exec *exec)
{
    enum stk_error error;
    struct bytes value = {0};
    int64_t start, end;
    bool found;

    if (!bytes_to_int64(exec->argv[2], &start) || !bytes_to_int64(exec->argv[3], &end))
        return exec_error(exec, "value is not an integer or out of range");
    if (exec_wrong_type(exec, VALUE_STRING))
        return STK_OK;
    if (txn_failed(error = txn_string(exec->txn, &exec->resource, &found, &value)))
        return error;
    int64_t len = found ? (int64_t)value.len : 0;
    bool crossed = start < 0 && end < 0 && start > end; /* also where both are before the start */
    start = start >= 0 ? start : start + len < 0 ? 0 : start + len;
    end = end >= 0 ? end : end + len < 0 ? 0 : end + len;
    if (end >= len)
        end = len - 1;
    if (crossed || start > end)
        return exec_bulk(exec, (struct bytes){"", 0});
    return exec_bulk(exec, (struct bytes){value.data + start, (size_t)(end - start) + 1});
}

enum stk_error string_setrange(struct exec *exec)
{
    enum stk_error error;
    struct bytes old = {0}, part = exec->argv[3];
    struct buf joined = {0};
    int64_t offset;
    bool found;

    if (!bytes_to_int64(exec->argv[2], &offset))
        return exec_error(exec, "value is not an integer or out of range");
    if (offset < 0)
        return exec_error(exec, "offset is out of range");
    if (exec_wrong_type(exec, VALUE_STRING))
        return STK_OK;
    if (txn_failed(error = txn_string(exec->txn, &exec->resource, &found, &old)))
        return error;
    if (part.len == 0) {
        resp_int(exec->out, (int64_t)old.len);
        return STK_OK;
    }
    if (offset > VALUE_BYTES_MAX || (size_t)offset + part.len > VALUE_BYTES_MAX)
        return exec_error(exec, "string exceeds maximum allowed size (proto-max-bulk-len)");
    size_t from = (size_t)offset, len = from + part.len > old.len ? from + part.len : old.len;
    memset(buf_reserve(&joined, len), 0, len);
    buf_append_bytes(&joined, old);
    memcpy(joined.data + from, part.data, part.len);
    joined.len = len;
    error = put(exec, exec->argv[1], buf_bytes(&joined));
    resp_int(exec->out, (int64_t)len);
    buf_free(&joined);
    return error;
}

enum stk_error string_incrbyfloat(struct exec *exec)
{
    enum stk_error error;
    struct bytes old = {0}, sum;
    char text[EXEC_FLOAT_SIZE];
    bool found;

    if (exec_wrong_type(exec, VALUE_STRING))
        return STK_OK;
    if (txn_failed(error = txn_string(exec->txn, &exec->resource, &found, &old)))
        return error;
    if (!exec_add_float(exec, exec->argv[2], found, old, EXEC_NOT_FLOAT, text, &sum))
        return STK_OK;
    if (txn_failed(error = put(exec, exec->argv[1], sum)))
        return error;
    resp_bulk(exec->out, sum);
    return STK_OK;
}

static enum stk_error add(struct exec *exec, const struct exec_add *add)
{
    enum stk_error error;
    struct bytes old = {0};
    bool found;
    int64_t sum;
    char text[INT64_TEXT_MAX];

    if (exec_wrong_type(exec, VALUE_STRING))
        return STK_OK;
    if (txn_failed(error = txn_string(exec->txn, &exec->resource, &found, &old)))
        return error;
    if (!exec_add_apply(exec, add, found, old, "value is not an integer or out of range", &sum))
        return STK_OK;
    if (txn_failed(error = put(exec, exec->argv[1], bytes_of_int64(sum, text))))
        return error;
    resp_int(exec->out, sum);
    return STK_OK;
}

enum stk_error string_incr(struct exec *exec)
{
    return add(exec, &(struct exec_add){1, INT64_MIN, INT64_MAX});
}

enum stk_error string_decr(struct exec *exec)
{
    return add(exec, &(struct exec_add){-1, INT64_MIN, INT64_MAX});
}

enum stk_error string_incrby(struct exec *exec)
{
    struct exec_add by;
    return exec_add_parse(exec, 2, &by) ? add(exec, &by) : STK_OK;
}

enum stk_error string_decrby(struct exec *exec)
{
    struct exec_add by;

    if (!exec_add_parse(exec, 2, &by))
        return STK_OK;
    if (by.delta == INT64_MIN)
        return exec_error(exec, "decrement would overflow");
    by.delta = -by.delta;
    return add(exec, &by);
}
