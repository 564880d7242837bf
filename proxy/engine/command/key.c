/* SPDX-License-Identifier: Apache-2.0 */
/* Commands on keys of any type. */
#include "fence/base/glob.h"
#include "proxy/engine/acl/acl.h"
#include "proxy/engine/command/exec.h"
#include "proxy/engine/command/handlers.h"

enum stk_error key_del(struct exec *exec)
{
    int64_t count = 0;

    for (size_t i = 1; i < exec->argc; i++) {
        enum stk_error error;
        if (i > 1 && txn_failed(error = txn_resource(exec->txn, exec->argv[i], &exec->resource)))
            return error;
        if (exec->resource.type == VALUE_NONE)
            continue;
        count++;
        if (txn_failed(error = txn_value_clear(exec->txn, &exec->resource)))
            return error;
    }
    resp_int(exec->out, count);
    return STK_OK;
}

enum stk_error key_exists(struct exec *exec)
{
    int64_t count = exec->resource.type != VALUE_NONE;

    for (size_t i = 2; i < exec->argc; i++) {
        enum stk_error error;
        if (txn_failed(error = txn_resource(exec->txn, exec->argv[i], &exec->resource)))
            return error;
        count += exec->resource.type != VALUE_NONE;
    }
    resp_int(exec->out, count);
    return STK_OK;
}

/* As Redis says it of a value without expiry, and of none. */
enum stk_error key_ttl(struct exec *exec)
{
    resp_int(exec->out, exec->resource.type == VALUE_NONE ? -2 : -1);
    return STK_OK;
}

enum stk_error key_type(struct exec *exec)
{
    resp_simple(exec->out, exec->resource.type == VALUE_STRING ? "string"
                           : exec->resource.type == VALUE_HASH ? "hash"
                                                               : "none");
    return STK_OK;
}

enum stk_error key_dbsize(struct exec *exec)
{
    enum stk_error error;
    int64_t count;

    if (txn_failed(error = txn_count_keys(exec->txn, &count)))
        return error;
    resp_int(exec->out, count);
    return STK_OK;
}

struct key_scan {
    struct exec_scan options;
    struct exec_collect names;
    int64_t looked_at, last;
    bool more; /* `last` is the cursor */
};

static bool scan_key(void *context, int64_t id, struct bytes name, enum value_type type)
{
    struct key_scan *scan = context;

    scan->more =
        scan->looked_at == scan->options.count || scan->names.body.len > SCAN_PAGE_BYTES_MAX;
    if (scan->more)
        return false;
    scan->looked_at++;
    scan->last = id;
    if (scan->options.match != NULL && !glob_matches(scan->options.match, name))
        return true;
    if (scan->options.typed && scan->options.type != type)
        return true;
    if (scan->names.exec->rights != NULL &&
        !acl_may_touch(scan->names.exec->rights, name, ACL_READS))
        return true;
    return exec_collect(&scan->names, name);
}

/* Ids only grow and a key keeps its id, so a cursor is the last id seen: a key that is there during
 * the whole iteration is returned once. */
enum stk_error key_scan(struct exec *exec)
{
    struct key_scan scan = {.names = {.exec = exec}};
    enum stk_error error;
    int64_t after;

    if (!bytes_to_int64(exec->argv[1], &after) || after < 0)
        return exec_error(exec, "invalid cursor");
    if (!exec_scan_parse(exec, 2, true, &scan.options))
        return STK_OK;
    error = txn_each_key(exec->txn, after, scan_key, &scan);
    glob_free(scan.options.match);
    if (error != STK_OK) {
        buf_free(&scan.names.body);
        return error;
    }
    resp_array(exec->out, 2);
    resp_bulk_int(exec->out, scan.more ? scan.last : 0);
    return exec_collect_end(&scan.names, false);
}
