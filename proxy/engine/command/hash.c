/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes: Redis's commands, arguments and replies. */
#include "fence/base/glob.h"
#include "proxy/engine/command/exec.h"
#include "proxy/engine/command/handlers.h"

static bool field_fits(struct exec *exec, struct bytes field)
{
    if (field.len >= 1 && field.len <= RESOURCE_NAME_MAX)
        return true;
    exec_error(exec, "a field must be 1 to 512 bytes long");
    return false;
}

/* Find a field's value. A missing hash has no fields. */
static enum stk_error look_up(struct exec *exec, struct bytes field, bool *found,
                              struct bytes *value)
{
    *found = false;
    if (exec->resource.type != VALUE_HASH)
        return STK_OK;
    return txn_field(exec->txn, &exec->resource, field, found, value);
}

static enum stk_error put(struct exec *exec, struct bytes field, struct bytes value)
{
    enum stk_error error;

    if (exec->resource.id == 0 &&
        txn_failed(error = txn_resource_make(exec->txn, exec->argv[1], &exec->resource)))
        return error;
    return txn_field_put(exec->txn, &exec->resource, field, value);
}

static enum stk_error reply_field(struct exec *exec, struct bytes field)
{
    enum stk_error error;
    struct bytes value;
    bool found;

    if (txn_failed(error = look_up(exec, field, &found, &value)))
        return error;
    if (found)
        return exec_bulk(exec, value);
    resp_null(exec->out, exec->resp3);
    return STK_OK;
}

enum stk_error hash_get(struct exec *exec)
{
    return exec_wrong_type(exec, VALUE_HASH) ? STK_OK : reply_field(exec, exec->argv[2]);
}

enum stk_error hash_mget(struct exec *exec)
{
    if (exec_wrong_type(exec, VALUE_HASH))
        return STK_OK;
    resp_array(exec->out, exec->argc - 2);
    for (size_t i = 2; i < exec->argc; i++) {
        enum stk_error error;
        if (txn_failed(error = reply_field(exec, exec->argv[i])))
            return error;
        if (exec->out->len > REPLY_BYTES_MAX)
            return exec_error_instead(exec, "the reply is too large; ask for fewer fields");
    }
    return STK_OK;
}

/* Reply whether the field is there, or how long its value is. */
static enum stk_error reply_measure(struct exec *exec, bool length)
{
    enum stk_error error;
    struct bytes value;
    bool found;

    if (exec_wrong_type(exec, VALUE_HASH))
        return STK_OK;
    if (txn_failed(error = look_up(exec, exec->argv[2], &found, &value)))
        return error;
    resp_int(exec->out, !found ? 0 : length ? (int64_t)value.len : 1);
    return STK_OK;
}

enum stk_error hash_exists(struct exec *exec)
{
    return reply_measure(exec, false);
}

enum stk_error hash_strlen(struct exec *exec)
{
    return reply_measure(exec, true);
}

enum stk_error hash_len(struct exec *exec)
{
    enum stk_error error;
    int64_t count = 0;

    if (exec_wrong_type(exec, VALUE_HASH))
        return STK_OK;
    if (exec->resource.type == VALUE_HASH &&
        txn_failed(error = txn_count_fields(exec->txn, &exec->resource, &count)))
        return error;
    resp_int(exec->out, count);
    return STK_OK;
}

struct all {
    struct exec_collect parts;
    bool fields, values;
};

static bool collect_all(void *context, struct bytes field, struct bytes value)
{
    struct all *all = context;
    return (!all->fields || exec_collect(&all->parts, field)) &&
           (!all->values || exec_collect(&all->parts, value));
}

static enum stk_error reply_all(struct exec *exec, bool fields, bool values)
{
    struct all all = {.parts = {.exec = exec}, .fields = fields, .values = values};

    if (exec_wrong_type(exec, VALUE_HASH))
        return STK_OK;
    if (exec->resource.type == VALUE_HASH) {
        enum stk_error error =
            txn_each_field_from(exec->txn, &exec->resource, (struct bytes){0}, collect_all, &all);
        if (error != STK_OK) {
            buf_free(&all.parts.body);
            return error;
        }
    }
    return exec_collect_end(&all.parts, fields && values);
}

enum stk_error hash_getall(struct exec *exec)
{
    return reply_all(exec, true, true);
}

enum stk_error hash_keys(struct exec *exec)
{
    return reply_all(exec, true, false);
}

enum stk_error hash_vals(struct exec *exec)
{
    return reply_all(exec, false, true);
}

/* Set the fields and values from argv[2] on. Reply with the number of new fields, or OK. */
static enum stk_error set_pairs(struct exec *exec, const char *arity, bool reply_ok)
{
    int64_t added = 0;

    if (exec->argc % 2 != 0)
        return exec_error(exec, arity);
    for (size_t i = 2; i < exec->argc; i += 2)
        if (!field_fits(exec, exec->argv[i]))
            return STK_OK;
    if (exec_wrong_type(exec, VALUE_HASH))
        return STK_OK;
    for (size_t i = 2; i < exec->argc; i += 2) {
        enum stk_error error;
        struct bytes old;
        bool found = false;
        if (!reply_ok && txn_failed(error = look_up(exec, exec->argv[i], &found, &old)))
            return error;
        if (txn_failed(error = put(exec, exec->argv[i], exec->argv[i + 1])))
            return error;
        added += !found;
    }
    if (reply_ok)
        resp_simple(exec->out, "OK");
    else
        resp_int(exec->out, added);
    return STK_OK;
}

enum stk_error hash_set(struct exec *exec)
{
    return set_pairs(exec, "wrong number of arguments for 'hset' command", false);
}

enum stk_error hash_mset(struct exec *exec)
{
    return set_pairs(exec, "wrong number of arguments for 'hmset' command", true);
}

enum stk_error hash_setnx(struct exec *exec)
{
    enum stk_error error;
    struct bytes old;
    bool found;

    if (!field_fits(exec, exec->argv[2]) || exec_wrong_type(exec, VALUE_HASH))
        return STK_OK;
    if (txn_failed(error = look_up(exec, exec->argv[2], &found, &old)))
        return error;
    if (!found && txn_failed(error = put(exec, exec->argv[2], exec->argv[3])))
        return error;
    resp_int(exec->out, !found);
    return STK_OK;
}

enum stk_error hash_del(struct exec *exec)
{
    int64_t removed = 0;

    if (exec_wrong_type(exec, VALUE_HASH))
        return STK_OK;
    for (size_t i = 2; i < exec->argc && exec->resource.type == VALUE_HASH; i++) {
        enum stk_error error;
        bool found;
        if (txn_failed(error = txn_field_remove(exec->txn, &exec->resource, exec->argv[i], &found)))
            return error;
        removed += found;
    }
    resp_int(exec->out, removed);
    return STK_OK;
}

enum stk_error hash_incrby(struct exec *exec)
{
    enum stk_error error;
    struct exec_add by;
    struct bytes old = {0};
    bool found;
    int64_t sum;
    char text[INT64_TEXT_MAX];

    if (!exec_add_parse(exec, 3, &by) || !field_fits(exec, exec->argv[2]) ||
        exec_wrong_type(exec, VALUE_HASH))
        return STK_OK;
    if (txn_failed(error = look_up(exec, exec->argv[2], &found, &old)))
        return error;
    if (!exec_add_apply(exec, &by, found, old, "hash value is not an integer", &sum))
        return STK_OK;
    if (txn_failed(error = put(exec, exec->argv[2], bytes_of_int64(sum, text))))
        return error;
    resp_int(exec->out, sum);
    return STK_OK;
}

enum stk_error hash_incrbyfloat(struct exec *exec)
{
    enum stk_error error;
    struct bytes old = {0}, sum;
    char text[EXEC_FLOAT_SIZE];
    bool found, finite;

    if (!exec_is_float(exec->argv[3], &finite))
        return exec_error(exec, EXEC_NOT_FLOAT);
    if (!finite)
        return exec_error(exec, "value is NaN or Infinity");
    if (!field_fits(exec, exec->argv[2]) || exec_wrong_type(exec, VALUE_HASH))
        return STK_OK;
    if (txn_failed(error = look_up(exec, exec->argv[2], &found, &old)))
        return error;
    if (!exec_add_float(exec, exec->argv[3], found, old, "hash value is not a float", text, &sum))
        return STK_OK;
    if (txn_failed(error = put(exec, exec->argv[2], sum)))
        return error;
    resp_bulk(exec->out, sum);
    return STK_OK;
}

struct field_scan {
    struct exec_scan options;
    struct exec_collect parts;
    int64_t looked_at, sought, cursor; /* sought: its page begins at the field of this cursor */
};

static bool scan_field(void *context, struct bytes field, struct bytes value)
{
    struct field_scan *scan = context;
    size_t more = field.len + value.len;

    if (scan->sought != 0 && cursor_of(field) != scan->sought)
        return true;
    scan->sought = 0;
    if (scan->looked_at == scan->options.count ||
        (scan->parts.count > 0 && scan->parts.body.len + more > SCAN_PAGE_BYTES_MAX)) {
        scan->cursor = cursors_note(scan->parts.exec->cursors, field);
        return false;
    }
    scan->looked_at++;
    if (scan->options.match != NULL && !glob_matches(scan->options.match, field))
        return true;
    return exec_collect(&scan->parts, field) && exec_collect(&scan->parts, value);
}

static enum stk_error scan_from(struct field_scan *scan, int64_t cursor)
{
    struct exec *exec = scan->parts.exec;
    struct buf from = {0};
    enum stk_error error;

    if (cursor != 0 && !cursors_find(exec->cursors, cursor, &from))
        scan->sought = cursor;
    error = txn_each_field_from(exec->txn, &exec->resource, buf_bytes(&from), scan_field, scan);
    buf_free(&from);
    if (error != STK_OK || scan->sought == 0)
        return error;
    scan->sought = 0; /* that field is gone, and nobody knows where it was: from the beginning */
    return scan_from(scan, 0);
}

/* A field that is there during the whole iteration is returned, and once, but see cursors.h. */
enum stk_error hash_scan(struct exec *exec)
{
    struct field_scan scan = {.parts = {.exec = exec}};
    enum stk_error error = STK_OK;
    int64_t cursor;

    if (!bytes_to_int64(exec->argv[2], &cursor) || cursor < 0)
        return exec_error(exec, "invalid cursor");
    /* The type first, as Redis looks at it. */
    if (exec_wrong_type(exec, VALUE_HASH) || !exec_scan_parse(exec, 3, false, &scan.options))
        return STK_OK;
    if (exec->resource.type == VALUE_HASH)
        error = scan_from(&scan, cursor);
    glob_free(scan.options.match);
    if (error != STK_OK) {
        buf_free(&scan.parts.body);
        return error;
    }
    resp_array(exec->out, 2);
    resp_bulk_int(exec->out, scan.cursor);
    return exec_collect_end(&scan.parts, false);
}
