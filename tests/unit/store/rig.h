/* SPDX-License-Identifier: Apache-2.0 */
/* A store to test: either kind, in a folder of its own, and operations that are one function. */
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
    int woken[2];   /* a pipe: one byte for each wake */
    struct log log; /* into a file, for rig_log */
    struct clock clock;
    /* The machine's count, which stands still, and the store's time where nothing has parted them;
     * how far ahead of it the wall clock is; the machine's boot. Change them while no batch runs.
     */
    int64_t now_ms, wall_ahead_ms;
    const char *boot;
    int checkpoint_pages; /* for the next rig_open; 0: as the store thinks best */
    struct list ops;      /* those of rig_op_new */
};

typedef enum stk_error (*rig_body)(struct store_txn *txn, void *arg);
/* An operation of assertions, which succeeds where they hold. */
typedef void (*rig_block)(struct store_txn *txn);

/* An operation whose `run` is body(txn, arg). It counts, and keeps the order of, what is done. */
struct rig_op {
    struct store_op base; /* first */
    rig_body body;
    void *arg;
    int runs, done;
    int *order; /* the next place in the order of `done`; may be NULL */
    int place;
    pthread_t thread; /* that ran it last */
    struct list link; /* rig->ops */
};

/* cmocka's set-up and tear-down; *state is the rig. The store is open. */
int rig_memory(void **state);
int rig_sqlite(void **state);
int rig_threaded(void **state); /* SQLite, with its threads */
int rig_end(void **state);
#define MEMORY_TEST(name)   TEST_WITH(rig_memory, rig_end, struct rig *rig, name)
#define SQLITE_TEST(name)   TEST_WITH(rig_sqlite, rig_end, struct rig *rig, name)
#define THREADED_TEST(name) TEST_WITH(rig_threaded, rig_end, struct rig *rig, name)
#define BOTH_TEST(name)     TEST_WITH_EACH(rig_memory, rig_sqlite, rig_end, struct rig *rig, name)
/* A test that is one write, in which both stores have to behave alike. */
#define BOTH_WRITE_TEST(name)                                                                      \
    static void name##_block(struct store_txn *txn);                                               \
    BOTH_TEST(name)                                                                                \
    {                                                                                              \
        rig_in_write(rig, name##_block);                                                           \
    }                                                                                              \
    static void name##_block(struct store_txn *txn)

/* Opens the rig's file (again). */
void rig_open(struct rig *rig, bool threads);
/* Closes the store, if it is open. */
void rig_close(struct rig *rig);
/* Closes it and opens it again, without threads. */
void rig_reopen(struct rig *rig);
/* The reason why the rig's file cannot be opened; fails the test where it can. Static storage. */
const char *rig_refusal(struct rig *rig);

struct rig_op rig_op(bool writes, rig_body body, void *arg);
/* The same, owned by the rig: it outlives a test that fails while another thread still runs it. */
struct rig_op *rig_op_new(struct rig *rig, bool writes, rig_body body, void *arg);
void rig_submit(struct rig *rig, struct rig_op *op);
/* Steps and collects until there is nothing left to do. */
void rig_settle(struct rig *rig);
/* Submits them all, then settles. */
void rig_batch(struct rig *rig, struct rig_op *ops, size_t count);
/* One operation from submit to done; its error. */
enum stk_error rig_write(struct rig *rig, rig_body body, void *arg);
enum stk_error rig_read(struct rig *rig, rig_body body, void *arg);
void rig_in_write(struct rig *rig, rig_block block);
void rig_in_read(struct rig *rig, rig_block block);
/* By the writer, with its cache, and by the reader. */
void rig_in_both(struct rig *rig, rig_block block);
/* With threads: waits to be woken and collects, once or until the operation is done. */
void rig_wait(struct rig *rig);
void rig_await(struct rig *rig, const struct rig_op *op);

/* The next commit of the store fails cleanly, or with an unknown outcome; rig_heal ends either. */
void rig_fail_commit(struct rig *rig);
void rig_lose_commit(struct rig *rig);
void rig_heal(struct rig *rig);
/* Another program's connection to the rig's file. Close with sqlite3_close. */
sqlite3 *rig_foreign(const struct rig *rig);
/* Runs statements there; fails the test where that fails. */
void rig_sql(const struct rig *rig, const char *sql);
/* The first column of the first row of a query there; fails the test where there is none. */
int64_t rig_number(const struct rig *rig, const char *sql);
/* See plain_rows. Static storage. */
const char *rig_rows(const struct rig *rig, const char *sql);
/* What was logged so far. Static storage. */
const char *rig_log(const struct rig *rig);

/* Bodies about "r". What they are given: the value to set, room for 16 bytes of it, where to put
 * the resource as it is now or as it is after a grant. */
enum stk_error rig_set_r(struct store_txn *txn, void *value);
enum stk_error rig_get_r(struct store_txn *txn, void *text);
enum stk_error rig_find_r(struct store_txn *txn, void *resource);
enum stk_error rig_grant_r(struct store_txn *txn, void *resource);
/* Counts up and sets "r" to that, for an unchanged page is not written. On any thread: it asserts
 * nothing. */
enum stk_error rig_count_r(struct store_txn *txn, void *number);
/* Whole operations: sets "r"; grants it and returns the token; expects its value of writer and
 * reader. */
void rig_write_r(struct rig *rig, const char *value);
int64_t rig_next_token(struct rig *rig);
void rig_expect_r(struct rig *rig, const char *value);

/* Shorthands for bodies. */
struct resource rig_find(struct store_txn *txn, const char *name);
/* Finds or makes, and grants the next token to `owner`. */
struct resource rig_grant(struct store_txn *txn, const char *name, const char *owner);
void rig_set(struct store_txn *txn, const char *name, const char *value);
/* The same, on any thread: it asserts nothing. */
enum stk_error rig_try_set(struct store_txn *txn, const char *name, struct bytes value);
struct lease rig_lease(struct store_txn *txn, const char *name);
/* Ends its live token. */
void rig_release(struct store_txn *txn, const char *name);
/* Puts a receipt of the newest token. */
void rig_receipt_put(struct store_txn *txn, const char *name, const char *id);
/* "(none)" where there is no receipt, else its reply. Static storage. */
const char *rig_receipt(struct store_txn *txn, const char *name, const char *id);
/* "(none)" where there is no string. Static storage. */
const char *rig_get(struct store_txn *txn, const char *name);

#endif
