/* SPDX-License-Identifier: Apache-2.0 */
/* What a test does around and inside the store: faults, another program, a grant. See rig.h. */
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
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(rig->path, &db), SQLITE_OK);
    return db;
}

void rig_sql(const struct rig *rig, const char *sql)
{
    sqlite3 *db = rig_foreign(rig);
    int code = sqlite3_exec(db, sql, NULL, NULL, NULL);
    if (code != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_close(db);
}

int64_t rig_number(const struct rig *rig, const char *sql)
{
    sqlite3 *db = rig_foreign(rig);
    sqlite3_stmt *stmt = NULL;

    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return value;
}

const char *rig_log(const struct rig *rig)
{
    static char text[8192];
    ssize_t got = pread(rig->log.fd, text, sizeof text - 1, 0);
    assert_true(got >= 0);
    text[got] = '\0';
    return text;
}

struct resource rig_find(struct store_txn *txn, const char *name)
{
    struct resource resource;
    assert_int_equal(txn_resource(txn, bytes_of(name), &resource), STK_OK);
    return resource;
}

struct resource rig_grant(struct store_txn *txn, const char *name, const char *owner)
{
    struct resource resource = rig_find(txn, name);
    struct lease lease = {.owner = bytes_of(owner), .holds = 1, .ttl_ms = 1000, .session = 1};

    assert_int_equal(txn_resource_make(txn, bytes_of(name), &resource), STK_OK);
    resource.fence.token = resource.fence.floor + 1;
    resource.fence.state = FENCE_LIVE;
    assert_int_equal(txn_fence_put(txn, &resource, &lease), STK_OK);
    return resource;
}

void rig_set(struct store_txn *txn, const char *name, const char *value)
{
    struct resource resource = rig_find(txn, name);
    assert_int_equal(txn_resource_make(txn, bytes_of(name), &resource), STK_OK);
    assert_int_equal(txn_string_put(txn, &resource, bytes_of(value)), STK_OK);
}

struct lease rig_lease(struct store_txn *txn, const char *name)
{
    struct resource resource = rig_find(txn, name);
    struct lease lease;

    assert_int_equal(txn_lease(txn, &resource, &lease), STK_OK);
    return lease;
}

void rig_release(struct store_txn *txn, const char *name)
{
    struct resource resource = rig_find(txn, name);
    struct lease lease = rig_lease(txn, name);

    lease.holds = 0;
    resource.fence.state = FENCE_RELEASED;
    assert_int_equal(txn_fence_put(txn, &resource, &lease), STK_OK);
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

    assert_int_equal(txn_receipt_put(txn, &resource, bytes_of(id), &receipt), STK_OK);
}

const char *rig_receipt(struct store_txn *txn, const char *name, const char *id)
{
    static char text[64];
    struct resource resource = rig_find(txn, name);
    struct receipt receipt;
    bool found;

    assert_int_equal(txn_receipt(txn, &resource, bytes_of(id), &found, &receipt), STK_OK);
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

    assert_int_equal(txn_string(txn, &resource, &found, &value), STK_OK);
    if (!found)
        return "(none)";
    assert_true(value.len < sizeof text);
    memcpy(text, value.data, value.len);
    text[value.len] = '\0';
    return text;
}
