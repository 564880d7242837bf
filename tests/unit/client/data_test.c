/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, writes, transactions and SQL on an engine in this process, by one thread and by several.
 */
#include "tests/unit/client/rig.h"

#include <math.h>
#include <pthread.h>

#include "fence/base/mem.h"
#include "tests/unit/test.h"

RIG_TEST(values_are_bytes)
{
    stk_lease *lease = rig_acquire(rig->client, "r", 60000);
    char *value, *big = mem_alloc(8 << 20);
    size_t len;

    ok(stk_set(lease, "r", "a\0b\r\n", 5));
    ok(stk_get(rig->client, "r", &value, &len));
    assert_int_equal(len, 5);
    assert_memory_equal(value, "a\0b\r\n", 6);
    free(value);
    ok(stk_set(lease, "r", "", 0));
    ok(stk_get(rig->client, "r", &value, &len));
    assert_true(value != NULL && len == 0);
    free(value);
    memset(big, 'x', 8 << 20);
    ok(stk_set(lease, "r", big, 8 << 20));
    ok(stk_get(rig->client, "r", &value, &len));
    assert_int_equal(len, 8 << 20);
    assert_memory_equal(value, big, 8 << 20);
    free(value);
    free(big);
    stk_lease_free(lease);
}

RIG_TEST(a_token_is_for_its_own_key_alone)
{
    stk_lease *one = rig_acquire(rig->client, "one", 60000);
    stk_lease *two = rig_acquire(rig->client, "two", 60000);

    assert_int_equal(stk_lease_token(one, NULL), stk_lease_token(two, NULL)); /* both are 1 */
    assert_int_equal(stk_set(one, "two", "x", 1), STK_NOTOKEN);
    assert_int_equal(stk_fenced(one, WORDS("MSET", "one", "1", "two", "2"), NULL, NULL),
                     STK_NOTOKEN);
    ok(stk_fenced_all((stk_lease *[]){one, two}, 2, WORDS("MSET", "one", "1", "two", "2"), NULL,
                      NULL));
    stk_lease_free(one);
    stk_lease_free(two);
}

/* As stockade.h says: on an error out parameters are NULL or zero. */
RIG_TEST(a_call_that_fails_leaves_nothing_of_before_in_its_out_parameters)
{
    static const char *const none[] = {""}, *const misused[] = {"MULTI"}, *const wrong[] = {"GET"};
    static char before;
    const stk_words bad = {1, misused, NULL}, refused = {1, wrong, NULL};
    const stk_sql_value odd = {.type = (enum stk_sql_type)9};
    stk_client *client = rig->client;
    stk_lease *good = rig_acquire(client, "r", 60000), *lease;
    stk_reply *reply;
    stk_rows *rows;
    enum stk_outcome outcome;
    char *value;
    size_t len;
    int64_t number;
    stk_txn *txn;

    ok(stk_set(good, "r", "x", 1));
#define FAILS(out, call)                                                                           \
    do {                                                                                           \
        (out) = (void *)&before;                                                                   \
        assert_int_not_equal(call, STK_OK);                                                        \
        assert_null(out);                                                                          \
    } while (0)
#define FAILS_WITHOUT(number, call)                                                                \
    do {                                                                                           \
        (number) = 7;                                                                              \
        assert_int_not_equal(call, STK_OK);                                                        \
        assert_int_equal(number, 0);                                                               \
    } while (0)
    FAILS(lease, stk_acquire(client, "", NULL, &lease));
    FAILS(lease, stk_acquire(client, "r", &(stk_lease_options){.ttl_ms = 9}, &lease));
    FAILS(lease, stk_acquire(client, "r", NULL, &lease));
    FAILS(lease, stk_acquire_all(client, none, 0, NULL, &lease));
    FAILS(lease, stk_acquire_all(client, none, 1, NULL, &lease));
    FAILS(lease, stk_lease_use(client, "r", 0, &lease));
    FAILS(reply, stk_command(client, 0, NULL, NULL, &reply));
    FAILS(reply, stk_command(client, 1, misused, NULL, &reply));
    FAILS(reply, stk_command(client, 1, wrong, NULL, &reply));
    FAILS(reply, stk_command_all(client, &bad, 0, &reply));
    FAILS(reply, stk_command_all(client, &bad, 1, &reply));
    FAILS(reply, stk_command_all(client, &refused, 1, &reply));
    FAILS(reply, stk_fenced(NULL, 1, wrong, NULL, &reply));
    FAILS(reply, stk_fenced(good, 0, NULL, NULL, &reply));
    FAILS(reply, stk_fenced(good, 1, wrong, NULL, &reply));
    FAILS(reply, stk_fenced_all(&good, 0, 1, wrong, NULL, &reply));
    FAILS(rows, stk_sql(client, NULL, 0, "nonsense", NULL, 0, &rows));
    FAILS(rows, stk_sql(client, NULL, 0, "SELECT ?1", &odd, 1, &rows));
    FAILS(reply, stk_receipt(client, "r", 0, "id", &outcome, &reply));
    FAILS(reply, stk_receipt(client, "", 1, "id", &outcome, &reply));
    ok(stk_txn_begin(client, &txn));
    ok(stk_txn_add(txn, NULL, 1, wrong, NULL));
    FAILS(reply, stk_txn_exec(txn, &reply));
    stk_txn_free(txn);
    FAILS(value, stk_get(client, "", &value, &len));
    FAILS_WITHOUT(len, stk_get(client, "", &value, &len));
    FAILS_WITHOUT(number, stk_take(good, "r", 1, &number));
    FAILS_WITHOUT(number, stk_revoke(client, "", &number));
#undef FAILS
#undef FAILS_WITHOUT
    stk_lease_free(good);
}

RIG_TEST(fewer_than_none_are_not_taken)
{
    stk_lease *lease;
    int64_t left = 7;
    char *value;

    ok(stk_acquire(rig->client, "few", NULL, &lease));
    ok(stk_set(lease, "few", "5", 1));
    assert_int_equal(stk_take(lease, "few", -1, &left), STK_MISUSE);
    assert_int_equal(left, 0);
    ok(stk_get(rig->client, "few", &value, NULL));
    assert_string_equal(value, "5");
    free(value);
    ok(stk_take(lease, "few", 0, &left));
    assert_int_equal(left, 5);
    stk_lease_free(lease);
}

RIG_TEST(commands_about_a_connection_are_refused)
{
    static const char *const wrong[] = {"MULTI",     "exec",       "DISCARD", "AUTH", "HELLO",
                                        "Subscribe", "PSUBSCRIBE", "QUIT",    "RESET"};
    stk_reply *reply;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(stk_command(rig->client, WORDS(wrong[i], "x"), NULL, NULL), STK_MISUSE);
    assert_int_equal(stk_command(rig->client, 0, NULL, NULL, NULL), STK_MISUSE);
    ok(stk_command(rig->client, WORDS("PING"), NULL, &reply));
    assert_string_equal(stk_reply_string(reply, NULL), "PONG");
    stk_reply_free(reply);
    assert_int_equal(stk_command(rig->client, WORDS("NOSUCH"), NULL, &reply), STK_ERR);
    assert_null(reply);
    assert_non_null(strstr(stk_message(), "NOSUCH"));
    assert_int_equal(stk_command(rig->client, WORDS("SET", "k", "v"), NULL, NULL), STK_NOTOKEN);
}

enum { DAY_MS = 24 * 3600 * 1000, NAMES_MAX = 256 };

static enum stk_error take(stk_client *client, const char *name, stk_lease_options options)
{
    stk_lease *lease = NULL;
    enum stk_error error = stk_acquire(client, name, &options, &lease);

    if (error == STK_OK)
        ok(stk_release(lease));
    stk_lease_free(lease);
    return error;
}

/* The last of all names is held already, so nothing is taken. */
static enum stk_error take_all(stk_client *client, size_t count)
{
    static char names[NAMES_MAX + 1][8];
    const char *resources[NAMES_MAX + 1];
    stk_lease *lease = NULL;

    for (size_t i = 0; i <= NAMES_MAX; i++) {
        snprintf(names[i], sizeof names[i], "b%zu", i);
        resources[NAMES_MAX - i] = names[i];
    }
    return stk_acquire_all(client, resources + NAMES_MAX + 1 - count, count, NULL, &lease);
}

static enum stk_error open_for(const char *uri, int64_t timeout_ms)
{
    stk_client *client = NULL;
    enum stk_error error = stk_client_open(uri, timeout_ms, &client);

    stk_client_close(client);
    return error;
}

/* What the daemon would refuse is refused before it is sent, and nothing else. */
RIG_TEST(each_bound_of_a_call_is_taken_and_one_beyond_is_misuse)
{
    char name[514];

    memset(name, 'x', sizeof name);
    name[513] = '\0';
    assert_int_equal(take(rig->client, name, (stk_lease_options){0}), STK_MISUSE);
    name[512] = '\0';
    ok(take(rig->client, name, (stk_lease_options){0}));
    assert_int_equal(take(rig->client, "r", (stk_lease_options){.ttl_ms = 9}), STK_MISUSE);
    assert_int_not_equal(take(rig->client, "r", (stk_lease_options){.ttl_ms = 10}), STK_MISUSE);
    ok(take(rig->client, "r2", (stk_lease_options){.ttl_ms = DAY_MS}));
    assert_int_equal(take(rig->client, "r", (stk_lease_options){.ttl_ms = DAY_MS + 1}), STK_MISUSE);
    assert_int_equal(take(rig->client, "r", (stk_lease_options){.wait_ms = -1}), STK_MISUSE);
    ok(take(rig->client, "free", (stk_lease_options){.wait_ms = DAY_MS}));
    assert_int_equal(take(rig->client, "r", (stk_lease_options){.wait_ms = DAY_MS + 1}),
                     STK_MISUSE);
    stk_lease *held = rig_acquire(rig->client, "b0", 60000);
    assert_int_equal(take_all(rig->client, 0), STK_MISUSE);
    assert_int_equal(take_all(rig->client, 1), STK_HELD);
    assert_int_equal(take_all(rig->client, NAMES_MAX), STK_HELD);
    assert_int_equal(take_all(rig->client, NAMES_MAX + 1), STK_MISUSE);
    stk_lease_free(held);
    assert_int_equal(open_for(rig->uri, 0), STK_MISUSE);
    assert_int_not_equal(open_for(rig->uri, 1), STK_MISUSE);
    ok(open_for(rig->uri, DAY_MS));
    assert_int_equal(open_for(rig->uri, DAY_MS + 1), STK_MISUSE);
}

RIG_TEST(what_a_call_cannot_mean_is_misuse)
{
    char name[514];
    stk_lease *lease;
    stk_client *other;

    memset(name, 'x', sizeof name - 1);
    name[513] = '\0';
    assert_int_equal(stk_acquire(rig->client, name, NULL, &lease), STK_MISUSE);
    assert_int_equal(stk_acquire(rig->client, "", NULL, &lease), STK_MISUSE);
    assert_int_equal(stk_acquire_all(rig->client, NULL, 0, NULL, &lease), STK_MISUSE);
    assert_int_equal(stk_acquire(rig->client, "r", &(stk_lease_options){.ttl_ms = 9}, &lease),
                     STK_MISUSE);
    assert_int_equal(stk_acquire(rig->client, "r", &(stk_lease_options){.wait_ms = -1}, &lease),
                     STK_MISUSE);
    assert_int_equal(stk_set(NULL, "r", "", 0), STK_MISUSE);
    assert_int_equal(stk_release(NULL), STK_MISUSE);
    assert_int_equal(stk_client_open(rig->uri, 0, &other), STK_MISUSE);
    stk_lease_free(NULL);
    stk_client_close(NULL);
    stk_reply_free(NULL);
    stk_rows_free(NULL);
    stk_txn_free(NULL);
    ok(stk_client_open(rig->uri, 5000, &other));
    lease = rig_acquire(rig->client, "a", 60000);
    stk_lease *foreign = rig_acquire(other, "b", 60000);
    assert_int_equal(
        stk_fenced_all((stk_lease *[]){lease, foreign}, 2, WORDS("DEL", "a"), NULL, NULL),
        STK_MISUSE);
    stk_lease_free(foreign);
    stk_lease_free(lease);
    stk_client_close(other);
}

RIG_TEST(a_transaction_is_whole_or_nothing)
{
    stk_lease *lease = rig_acquire(rig->client, "n", 60000);
    stk_txn *txn;
    stk_reply *reply;
    char *value;

    ok(stk_txn_begin(rig->client, &txn));
    ok(stk_txn_add(txn, lease, WORDS("INCR", "n"), NULL));
    ok(stk_txn_add(txn, lease, WORDS("DECRBY", "n", "5", "MIN", "0"), NULL));
    assert_int_equal(stk_txn_exec(txn, &reply), STK_RANGE);
    assert_null(reply);
    stk_txn_free(txn);
    ok(stk_get(rig->client, "n", &value, NULL));
    assert_null(value);
    ok(stk_txn_begin(rig->client, &txn));
    assert_int_equal(stk_txn_add(txn, lease, 0, NULL, NULL), STK_MISUSE);
    ok(stk_txn_add(txn, lease, WORDS("NOSUCH", "n"), NULL));
    ok(stk_txn_add(txn, lease, WORDS("INCR", "n"), NULL));
    assert_int_equal(stk_txn_exec(txn, NULL), STK_ERR); /* the reason, not EXECABORT */
    assert_non_null(strstr(stk_message(), "NOSUCH"));
    stk_txn_free(txn);
    ok(stk_txn_begin(rig->client, &txn));
    ok(stk_txn_exec(txn, &reply));
    assert_int_equal(stk_reply_count(reply), 0);
    stk_reply_free(reply);
    stk_txn_free(txn);
    stk_lease_free(lease);
}

RIG_TEST(sql_keeps_values_through_both_ways)
{
    const stk_sql_value params[] = {{.type = STK_SQL_INTEGER, .integer = INT64_MIN},
                                    {.type = STK_SQL_FLOAT, .real = 1.0 / 3},
                                    {.type = STK_SQL_TEXT, .bytes = "it's"},
                                    {.type = STK_SQL_TEXT, .bytes = "a\0b", .len = 3},
                                    {.type = STK_SQL_BLOB, .bytes = NULL, .len = 0},
                                    {.type = STK_SQL_NULL}};
    const stk_sql_value nan = {.type = STK_SQL_FLOAT, .real = NAN};
    stk_rows *rows;
    size_t len;

    ok(stk_sql(rig->client, NULL, 0, "SELECT ?, ?, ?, ?, ?, ?, typeof(?1), typeof(?2), typeof(?5)",
               params, 6, &rows));
    assert_int_equal(stk_rows_integer(rows, 0, 0), INT64_MIN);
    assert_true(stk_rows_float(rows, 0, 1) == 1.0 / 3);
    assert_string_equal(stk_rows_text(rows, 0, 2, NULL), "it's");
    assert_memory_equal(stk_rows_text(rows, 0, 3, &len), "a\0b", 3);
    assert_int_equal(len, 3);
    assert_non_null(stk_rows_text(rows, 0, 4, &len));
    assert_int_equal(len, 0);
    assert_null(stk_rows_text(rows, 0, 5, NULL));
    assert_string_equal(stk_rows_text(rows, 0, 6, NULL), "integer");
    assert_string_equal(stk_rows_text(rows, 0, 7, NULL), "real");
    assert_string_equal(stk_rows_text(rows, 0, 8, NULL), "blob");
    assert_null(stk_rows_name(rows, 9));
    stk_rows_free(rows);
    assert_int_equal(stk_sql(rig->client, NULL, 0, "SELECT ?", &nan, 1, &rows), STK_MISUSE);
    assert_int_equal(stk_sql(rig->client, NULL, 0, "SELEC 1", NULL, 0, &rows), STK_ERR);
    assert_null(rows);
}

RIG_TEST(guarded_rows_change_under_their_lease_alone)
{
    const char *update = "UPDATE inventory SET n = n - 1 WHERE sku = '1'";
    stk_lease *right = rig_acquire(rig->client, "sku:1", 60000);
    stk_lease *wrong = rig_acquire(rig->client, "sku:2", 60000);
    stk_rows *rows;

    ok(stk_sql(rig->client, NULL, 0, "CREATE TABLE inventory (sku PRIMARY KEY, n)", NULL, 0, NULL));
    ok(stk_sql(rig->client, &right, 1, "INSERT INTO inventory VALUES ('1', 10)", NULL, 0, NULL));
    ok(stk_command(rig->client, WORDS("GUARD", "CREATE", "inventory", "sku", "sku:"), NULL, NULL));
    assert_int_equal(stk_sql(rig->client, &wrong, 1, update, NULL, 0, NULL), STK_GUARDED);
    ok(stk_sql(rig->client, &right, 1, update, NULL, 0, &rows));
    assert_int_equal(stk_rows_changes(rows), 1);
    stk_rows_free(rows);
    ok(stk_release(right));
    assert_int_equal(stk_sql(rig->client, &right, 1, update, NULL, 0, NULL), STK_STALE);
    stk_lease_free(right);
    stk_lease_free(wrong);
}

enum { THREADS = 4, ROUNDS = 30 };

struct worker {
    stk_client *client;
    stk_lease *shared;
    int number;
    pthread_t thread;
    char trouble[256];
};

static void *work(void *context)
{
    struct worker *worker = context;
    char own[16];
    enum stk_error error = STK_OK;
    stk_lease *lease;

    snprintf(own, sizeof own, "own:%d", worker->number);
    for (int i = 0; i < ROUNDS && error == STK_OK; i++) {
        error = stk_acquire(worker->client, own, &(stk_lease_options){.ttl_ms = 20000}, &lease);
        if (error == STK_OK)
            error = stk_fenced(lease, WORDS("INCR", own), NULL, NULL);
        if (error == STK_OK)
            error = stk_fenced(worker->shared, WORDS("INCR", "shared"), NULL, NULL);
        if (error == STK_OK)
            error = stk_release(lease);
        stk_lease_free(lease);
        stk_lease *turn = NULL;
        if (error == STK_OK)
            error = stk_acquire(worker->client, "turns",
                                &(stk_lease_options){.ttl_ms = 20000, .wait_ms = 20000}, &turn);
        if (error == STK_OK)
            error = stk_fenced(turn, WORDS("INCR", "turns"), NULL, NULL);
        if (error == STK_OK)
            error = stk_release(turn);
        stk_lease_free(turn);
        /* Each thread has its own text of a failure. */
        if (error == STK_OK &&
            (stk_set(NULL, own, "", 0) != STK_MISUSE || strstr(stk_message(), "lease") == NULL))
            error = STK_ERR;
    }
    if (error != STK_OK)
        snprintf(worker->trouble, sizeof worker->trouble, "%s %s", stk_error_code(error),
                 stk_message());
    return NULL;
}

RIG_TEST(threads_share_a_client_and_a_lease)
{
    struct worker workers[THREADS];
    char *value;

    stk_lease *shared = rig_acquire(rig->client, "shared", 20000);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.client = rig->client, .shared = shared, .number = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_string_equal(workers[i].trouble, "");
    }
    ok(stk_get(rig->client, "shared", &value, NULL));
    assert_int_equal(atoi(value), THREADS * ROUNDS);
    free(value);
    ok(stk_get(rig->client, "turns", &value, NULL));
    assert_int_equal(atoi(value), THREADS * ROUNDS);
    free(value);
    stk_lease_free(shared);
}

TEST(a_store_that_cannot_be_opened_says_why)
{
    stk_client *client;

    assert_int_equal(stk_client_open("sqlite:/no/such/folder/x.db", 5000, &client), STK_STORE);
    assert_null(client);
    assert_non_null(strstr(stk_message(), "/no/such/folder/x.db"));
    assert_int_equal(stk_client_open("sqlite:/dev/null", 5000, &client), STK_STORE);
}
