/* SPDX-License-Identifier: Apache-2.0 */
/* A store to test, of either kind, in a folder of its own, and operations to run on it. */
#ifndef STOCKADE_TESTS_STORE_RIG_H
#define STOCKADE_TESTS_STORE_RIG_H

#include <pthread.h>

#include "store/open.h"
#include "store/txn.h"
#include "tests/disk/fault_vfs.h"
#include "tests/unit/store/plain.h"
#include "tests/unit/test.h"

#define assert_ok(call)             assert_int_equal((call), STK_OK)
#define assert_contains(text, part) assert_non_null(strstr((text), (part)))
#define COUNT(array)                (sizeof(array) / sizeof *(array))

enum { RIG_QUEUE_MAX = 64, RIG_BATCH_MAX = 16 };

struct rig {
    struct store *store;
    bool sqlite;
    struct fault_vfs *vfs; /* SQLite only */
    char folder[64], path[96];
    int woken[2]; /* a pipe: one byte for each wake */
    struct log_file log_file;
    struct log log; /* into a file, for rig_log */
    struct clock clock;
    /* Change these while no batch runs. */
    int64_t now_ms;        /* the machine's clock, which stands still unless a test moves it */
    int64_t wall_ahead_ms; /* how far ahead of it the wall clock is */
    const char *boot;      /* which boot of the machine this is */
    int checkpoint_pages;  /* for the next rig_open; 0: as the store thinks best */
    struct list ops;       /* those of rig_op_new */
};

typedef enum stk_error (*rig_body)(struct store_txn *txn, void *arg);
/* An operation that consists of assertions. */
typedef void (*rig_block)(struct store_txn *txn);

/* An operation that runs body(txn, arg). It counts its runs, and notes when it was done. */
struct rig_op {
    struct store_op base; /* first */
    rig_body body;
    void *arg;
    int runs, done;
    int *order; /* the next place, shared by those whose order matters; may be NULL */
    int place;
    pthread_t thread; /* that ran it last */
    struct list link; /* rig->ops */
};

/* cmocka's set-up and tear-down: *state is a rig whose store is open. */
int rig_memory(void **state);
int rig_sqlite(void **state);
int rig_threaded(void **state); /* SQLite, with its threads */
/* PostgreSQL, with its threads, where the environment has a URI of a fresh database; else NULL. */
int rig_postgresql(void **state);
int rig_end(void **state);
#define MEMORY_TEST(name)   TEST_WITH(rig_memory, rig_end, struct rig *rig, name)
#define SQLITE_TEST(name)   TEST_WITH(rig_sqlite, rig_end, struct rig *rig, name)
#define THREADED_TEST(name) TEST_WITH(rig_threaded, rig_end, struct rig *rig, name)
#define BOTH_TEST(name)     TEST_WITH_EACH(rig_memory, rig_sqlite, rig_end, struct rig *rig, name)
/* A test that is one write, on either store. */
#define BOTH_WRITE_TEST(name)                                                                      \
    static void name##_block(struct store_txn *txn);                                               \
    BOTH_TEST(name)                                                                                \
    {                                                                                              \
        rig_in_write(rig, name##_block);                                                           \
    }                                                                                              \
    static void name##_block(struct store_txn *txn)

/* Open the rig's file (again). */
void rig_open(struct rig *rig, bool threads);
/* Close the store, if it is open. */
void rig_close(struct rig *rig);
/* Close it and open it again, without threads. */
void rig_reopen(struct rig *rig);
/* Return why the rig's file cannot be opened; fail the test where it can. Static storage. */
const char *rig_refusal(struct rig *rig);

struct rig_op rig_op(bool writes, rig_body body, void *arg);
/* The same, owned by the rig: it outlives a test that fails while another thread still runs it. */
struct rig_op *rig_op_new(struct rig *rig, bool writes, rig_body body, void *arg);
void rig_submit(struct rig *rig, struct rig_op *op);
/* Step and collect until there is nothing left to do. */
void rig_settle(struct rig *rig);
/* Submit them all, then settle. */
void rig_batch(struct rig *rig, struct rig_op *ops, size_t count);
/* Run one operation from submit to done. Return its error. */
enum stk_error rig_write(struct rig *rig, rig_body body, void *arg);
enum stk_error rig_read(struct rig *rig, rig_body body, void *arg);
void rig_in_write(struct rig *rig, rig_block block);
void rig_in_read(struct rig *rig, rig_block block);
/* In the writer, with its cache, and in the reader. */
void rig_in_both(struct rig *rig, rig_block block);
/* For a store with threads: wait to be woken and collect, once or until the operation is done. */
void rig_wait(struct rig *rig);
void rig_await(struct rig *rig, const struct rig_op *op);

/* From now on commits fail cleanly, or with an unknown outcome, until rig_heal. (The memory store
 * fails one.) */
void rig_fail_commit(struct rig *rig);
void rig_lose_commit(struct rig *rig);
void rig_heal(struct rig *rig);
/* Open another program's connection to the rig's file. Close it with sqlite3_close. */
sqlite3 *rig_foreign(const struct rig *rig);
/* Run statements there; fail the test where one fails. */
void rig_sql(const struct rig *rig, const char *sql);
/* Return the first column of a query's first row there; fail the test where there is none. */
int64_t rig_number(const struct rig *rig, const char *sql);
/* See plain_rows. Static storage. */
const char *rig_rows(const struct rig *rig, const char *sql);
/* Return what was logged so far. Static storage. */
const char *rig_log(const struct rig *rig);

/* Bodies about the resource "r". */
enum stk_error rig_set_r(struct store_txn *txn, void *value);
/* `text` has room for 16 bytes. */
enum stk_error rig_get_r(struct store_txn *txn, void *text);
enum stk_error rig_find_r(struct store_txn *txn, void *resource);
/* `resource` becomes what it is after the grant. */
enum stk_error rig_grant_r(struct store_txn *txn, void *resource);
/* Count up, and set "r" to the count: another value each time, since SQLite does not write a page
 * that has not changed. It asserts nothing, so it may run on any thread. */
enum stk_error rig_count_r(struct store_txn *txn, void *number);
/* Set "r" in an operation of its own. */
void rig_write_r(struct rig *rig, const char *value);
/* Grant "r" in an operation of its own. Return the token. */
int64_t rig_next_token(struct rig *rig);
/* Expect this value of "r", in the writer and in the reader. */
void rig_expect_r(struct rig *rig, const char *value);

/* Steps of bodies. What fails fails the test. */
struct resource rig_find(struct store_txn *txn, const char *name);
/* Find or make the resource, and grant its next token to `owner`. */
struct resource rig_grant(struct store_txn *txn, const char *name, const char *owner);
void rig_set(struct store_txn *txn, const char *name, const char *value);
/* The same, but it asserts nothing, so it may run on any thread. */
enum stk_error rig_try_set(struct store_txn *txn, const char *name, struct bytes value);
struct lease rig_lease(struct store_txn *txn, const char *name);
/* End its live token. */
void rig_release(struct store_txn *txn, const char *name);
/* Put a receipt of the newest token. */
void rig_receipt_put(struct store_txn *txn, const char *name, const char *id);
/* Return the reply in a receipt, "(none)" where there is no receipt. Static storage. */
const char *rig_receipt(struct store_txn *txn, const char *name, const char *id);
/* Return the string, "(none)" where there is none. Static storage. */
const char *rig_get(struct store_txn *txn, const char *name);

#endif
