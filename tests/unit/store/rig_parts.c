/* SPDX-License-Identifier: Apache-2.0 */
/* See rig.h. What a test does around a store and in its operations: faults, another program, a
 * grant. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/twins/memory_store.h"
#include "tests/unit/store/rig.h"

void rig_fail_commit(struct rig *rig)
{
    if (rig->sqlite)
        fault_vfs_set(rig->vfs, FAULT_WRITE, "-wal", FAULT_FOR_EVER, SQLITE_FULL);
    else
        store_memory_fail(rig->store, MEMORY_COMMIT_FAILS);
}

void rig_lose_commit(struct rig *rig)
{
    if (rig->sqlite)
        fault_vfs_set(rig->vfs, FAULT_SYNC, "-wal", FAULT_FOR_EVER, SQLITE_IOERR_FSYNC);
    else
        store_memory_fail(rig->store, MEMORY_COMMIT_LOST);
}

void rig_heal(struct rig *rig)
{
    if (rig->sqlite)
        fault_vfs_clear(rig->vfs);
}

sqlite3 *rig_foreign(const struct rig *rig)
{
    return plain_open(rig->path);
}

void rig_sql(const struct rig *rig, const char *sql)
{
    sqlite3 *db = rig_foreign(rig);
    plain_run(db, sql);
    sqlite3_close(db);
}

int64_t rig_number(const struct rig *rig, const char *sql)
{
    sqlite3 *db = rig_foreign(rig);
    int64_t value = plain_number(db, sql);
    sqlite3_close(db);
    return value;
}

const char *rig_rows(const struct rig *rig, const char *sql)
{
    static char text[16384];
    sqlite3 *db = rig_foreign(rig);
    char *rows = plain_rows(db, sql);

    assert_true(snprintf(text, sizeof text, "%s", rows) < (int)sizeof text);
    free(rows);
    sqlite3_close(db);
    return text;
}

const char *rig_log(const struct rig *rig)
{
    static char text[1 << 18];
    ssize_t got = pread(rig->log_file.fd, text, sizeof text - 1, 0);
    assert_true(got >= 0);
    text[got] = '\0';
    return text;
}

struct resource rig_find(struct store_txn *txn, const char *name)
{
    struct resource resource;
    assert_ok(txn_resource(txn, bytes_of(name), &resource));
    return resource;
}

struct resource rig_grant(struct store_txn *txn, const char *name, const char *owner)
{
    struct resource resource = rig_find(txn, name);
    struct lease lease = {.owner = bytes_of(owner), .holds = 1, .ttl_ms = 1000, .opening = 1};

    resource.fence.token = resource.fence.floor + 1;
    resource.fence.state = FENCE_LIVE;
    assert_ok(txn_fence_make(txn, bytes_of(name), &resource, &lease));
    return resource;
}

enum stk_error rig_try_set(struct store_txn *txn, const char *name, struct bytes value)
{
    struct resource resource;
    enum stk_error error = txn_resource(txn, bytes_of(name), &resource);

    if (error == STK_OK)
        error = txn_resource_make(txn, bytes_of(name), &resource);
    return error == STK_OK ? txn_string_put(txn, &resource, value) : error;
}

void rig_set(struct store_txn *txn, const char *name, const char *value)
{
    assert_ok(rig_try_set(txn, name, bytes_of(value)));
}

struct lease rig_lease(struct store_txn *txn, const char *name)
{
    struct resource resource = rig_find(txn, name);
    struct lease lease;

    assert_ok(txn_lease(txn, &resource, &lease));
    return lease;
}

void rig_release(struct store_txn *txn, const char *name)
{
    struct resource resource = rig_find(txn, name);
    struct lease lease = rig_lease(txn, name);

    lease.holds = 0;
    resource.fence.state = FENCE_RELEASED;
    assert_ok(txn_fence_put(txn, &resource, &lease));
}

void rig_receipt_put(struct store_txn *txn, const char *name, const char *id)
{
    struct resource resource = rig_find(txn, name);
    char reply[64];
    int len = snprintf(reply, sizeof reply, "reply to %s", id);
    struct receipt receipt = {.token = resource.fence.token,
                              .fingerprint = UINT64_MAX - 1,
                              .resp3 = true,
                              .reply = {reply, (size_t)len}};

    assert_ok(txn_receipt_put(txn, &resource, bytes_of(id), &receipt));
}

const char *rig_receipt(struct store_txn *txn, const char *name, const char *id)
{
    static char text[64];
    struct resource resource = rig_find(txn, name);
    struct receipt receipt;
    bool found;

    assert_ok(txn_receipt(txn, &resource, bytes_of(id), &found, &receipt));
    if (!found)
        return "(none)";
    snprintf(text, sizeof text, "%.*s", (int)receipt.reply.len, receipt.reply.data);
    return text;
}

const char *rig_get(struct store_txn *txn, const char *name)
{
    static char text[256];
    struct resource resource = rig_find(txn, name);
    struct bytes value;
    bool found;

    assert_ok(txn_string(txn, &resource, &found, &value));
    if (!found)
        return "(none)";
    assert_true(value.len < sizeof text);
    memcpy(text, value.data, value.len);
    text[value.len] = '\0';
    return text;
}

enum stk_error rig_set_r(struct store_txn *txn, void *value)
{
    rig_set(txn, "r", value);
    return STK_OK;
}

enum stk_error rig_get_r(struct store_txn *txn, void *text)
{
    snprintf(text, 16, "%s", rig_get(txn, "r"));
    return STK_OK;
}

enum stk_error rig_find_r(struct store_txn *txn, void *resource)
{
    *(struct resource *)resource = rig_find(txn, "r");
    return STK_OK;
}

enum stk_error rig_grant_r(struct store_txn *txn, void *resource)
{
    *(struct resource *)resource = rig_grant(txn, "r", "owner");
    return STK_OK;
}

enum stk_error rig_count_r(struct store_txn *txn, void *number)
{
    char value[16];
    int len = snprintf(value, sizeof value, "%d", ++*(int *)number);
    return rig_try_set(txn, "r", (struct bytes){value, (size_t)len});
}

void rig_write_r(struct rig *rig, const char *value)
{
    assert_ok(rig_write(rig, rig_set_r, (void *)(uintptr_t)value));
}

int64_t rig_next_token(struct rig *rig)
{
    struct resource resource;
    assert_ok(rig_write(rig, rig_grant_r, &resource));
    return resource.fence.token;
}

void rig_expect_r(struct rig *rig, const char *value)
{
    char seen[16];

    assert_ok(rig_read(rig, rig_get_r, seen));
    assert_string_equal(seen, value);
    assert_ok(rig_write(rig, rig_get_r, seen));
    assert_string_equal(seen, value);
}
