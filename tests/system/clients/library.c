// SPDX-License-Identifier: Apache-2.0
// Does everything that the library can do once, and sells one piece of sku:42: library URI
// Exit status 0: all went as it should; else a line says where it did not.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stockade.h>

#define MUST(condition)                                                                            \
    ((condition) ? (void)0                                                                         \
                 : (fprintf(stderr, "line %d: not %s; %s\n", __LINE__, #condition, stk_message()), \
                    exit(1)))
#define OK(call)         MUST((call) == STK_OK)
#define IS(text, wanted) MUST((text) != NULL && strcmp(text, wanted) == 0)

static void on_lost(stk_lease *lease, enum stk_error why, void *context)
{
    (void)stk_lease_left_ms(lease);
    *(volatile enum stk_error *)context = why;
}

static void commands(stk_client *client)
{
    stk_lease *lease, *basket, *both[2];
    stk_reply *reply;
    int64_t left;
    char *value;
    size_t len;

    OK(stk_acquire(client, "sku:42", &(stk_lease_options){.ttl_ms = 60000}, &lease));
    OK(stk_take(lease, "sku:42", 1, &left));
    MUST(left == 9 && stk_lease_valid(lease) && stk_lease_left_ms(lease) > 50000);
    MUST(stk_take(lease, "sku:42", 10, NULL) == STK_RANGE);
    MUST(stk_set(lease, "sku:43", "1", 1) == STK_NOTOKEN);
    OK(stk_get(client, "sku:42", &value, &len));
    IS(value, "9");
    free(value);
    OK(stk_get(client, "none", &value, NULL));
    MUST(value == NULL);
    const char *const names[] = {"b", "a"};
    OK(stk_acquire_all(client, names, 2, NULL, &basket));
    MUST(stk_lease_token(basket, "a") > 0 && stk_lease_token(basket, "c") == 0);
    OK(stk_fenced(basket, 5, (const char *const[]){"MSET", "a", "1", "b", "2"}, NULL, NULL));
    both[0] = lease, both[1] = basket;
    OK(stk_fenced_all(both, 2, 3, (const char *const[]){"APPEND", "a", "x"}, NULL, &reply));
    MUST(stk_reply_type(reply) == STK_INTEGER && stk_reply_integer(reply) == 2);
    stk_reply_free(reply);
    OK(stk_command(client, 3, (const char *const[]){"MGET", "a", "none"}, NULL, &reply));
    MUST(stk_reply_count(reply) == 2 && stk_reply_type(stk_reply_at(reply, 1)) == STK_NIL);
    IS(stk_reply_string(stk_reply_at(reply, 0), &len), "1x");
    stk_reply_free(reply);
    OK(stk_renew(lease, 30000));
    OK(stk_release(basket));
    MUST(stk_release(basket) == STK_RELEASED);
    OK(stk_release(lease));
    stk_lease_free(basket);
    stk_lease_free(lease);
}

static void transactions(stk_client *client)
{
    stk_lease *lease;
    stk_txn *txn;
    stk_reply *reply;
    const char *const incr[] = {"INCR", "n"}, *const get[] = {"GET", "n"};

    OK(stk_acquire(client, "n", NULL, &lease));
    OK(stk_txn_begin(client, &txn));
    OK(stk_txn_add(txn, lease, 2, incr, NULL));
    OK(stk_txn_add(txn, NULL, 2, get, NULL));
    OK(stk_txn_exec(txn, &reply));
    IS(stk_reply_string(stk_reply_at(reply, 1), NULL), "1");
    MUST(stk_txn_exec(txn, NULL) == STK_MISUSE);
    stk_reply_free(reply);
    stk_txn_free(txn);
    OK(stk_txn_begin(client, &txn));
    OK(stk_txn_add(txn, lease, 2, incr, NULL));
    OK(stk_txn_add(txn, lease, 2, (const char *const[]){"INCR", "other"}, NULL));
    MUST(stk_txn_exec(txn, &reply) == STK_NOTOKEN && reply == NULL);
    stk_txn_free(txn);
    OK(stk_command(client, 2, get, NULL, &reply));
    IS(stk_reply_string(reply, NULL), "1");
    stk_reply_free(reply);
    OK(stk_release(lease));
    stk_lease_free(lease);
}

static void sql(stk_client *client)
{
    const stk_sql_value values[] = {stk_sql_integer(-7), stk_sql_text("seven"), stk_sql_float(0.1),
                                    stk_sql_blob("\0b", 2), stk_sql_null()};
    stk_lease *lease;
    stk_rows *rows;
    size_t len;

    OK(stk_acquire(client, "table", NULL, &lease));
    OK(stk_sql(client, NULL, 0, "CREATE TABLE IF NOT EXISTS t (a, b, c, d, e)", NULL, 0, NULL));
    OK(stk_sql(client, &lease, 1, "INSERT INTO t VALUES (?, ?, ?, ?, ?)", values, 5, &rows));
    MUST(stk_rows_changes(rows) == 1 && stk_rows_last_id(rows) > 0 && stk_rows_count(rows) == 0);
    stk_rows_free(rows);
    OK(stk_sql(client, NULL, 0, "SELECT a, b, c, d, e FROM t", NULL, 0, &rows));
    MUST(stk_rows_count(rows) == 1 && stk_rows_columns(rows) == 5);
    IS(stk_rows_name(rows, 4), "e");
    MUST(stk_rows_integer(rows, 0, 0) == -7 && stk_rows_float(rows, 0, 2) == 0.1);
    IS(stk_rows_text(rows, 0, 1, NULL), "seven");
    MUST(memcmp(stk_rows_text(rows, 0, 3, &len), "\0b", 2) == 0 && len == 2);
    MUST(stk_rows_text(rows, 0, 4, NULL) == NULL && stk_rows_text(rows, 1, 0, NULL) == NULL);
    stk_rows_free(rows);
    MUST(stk_sql(client, NULL, 0, "DELETE FROM t", NULL, 0, &rows) != STK_OK && rows == NULL);
    OK(stk_sql(client, NULL, 0, "DROP TABLE t", NULL, 0, NULL));
    OK(stk_release(lease));
    stk_lease_free(lease);
}

static void losses(stk_client *client)
{
    volatile enum stk_error why = STK_OK;
    const stk_lease_options options = {
        .ttl_ms = 300, .owner = "me", .lost = on_lost, .context = (void *)&why};
    enum stk_outcome outcome;
    stk_lease_info info;
    stk_lease *lease;
    int64_t token;

    OK(stk_acquire(client, "r", &options, &lease));
    OK(stk_set(lease, "r", "", 0));
    OK(stk_query(client, "r", &info));
    MUST(info.held && info.token == stk_lease_token(lease, NULL) && info.holds == 1);
    IS(info.owner, "me");
    OK(stk_receipt(client, "r", info.token, "no such", &outcome, NULL));
    MUST(outcome == STK_NOT_YET);
    OK(stk_revoke(client, "r", &token));
    MUST(token == info.token && stk_set(lease, "r", "x", 1) == STK_STALE);
    MUST(!stk_lease_valid(lease));
    stk_lease_free(lease);
    OK(stk_acquire(client, "r", &(stk_lease_options){.ttl_ms = 60000}, &lease));
    stk_lease *again;
    MUST(stk_acquire(client, "r", NULL, &again) == STK_HELD && again == NULL);
    MUST(stk_acquire(client, "r", &(stk_lease_options){.wait_ms = 50}, &again) == STK_DEADLOCK);
    OK(stk_release(lease));
    stk_lease_free(lease);
}

int main(int argc, char **argv)
{
    struct sigaction before[32], after;
    stk_client *client;
    stk_lease *left_over;

    MUST(argc == 2);
    for (int i = 1; i < 32; i++)
        (void)sigaction(i, NULL, &before[i]);
    MUST(stk_client_open("nonsense:", 1000, &client) == STK_MISUSE && client == NULL);
    MUST(stk_client_open("sqlite:/no/such/folder/x.db", 1000, &client) == STK_STORE);
    OK(stk_client_open(argv[1], 20000, &client));
    commands(client);
    transactions(client);
    sql(client);
    losses(client);
    OK(stk_acquire(client, "left over", &(stk_lease_options){.ephemeral = true}, &left_over));
    stk_client_close(client);
    MUST(!stk_lease_valid(left_over) && stk_release(left_over) == STK_MISUSE);
    stk_lease_free(left_over);
    for (int i = 1; i < 32; i++)
        MUST(sigaction(i, NULL, &after) == 0 || i == SIGKILL || i == SIGSTOP ||
             before[i].sa_handler == after.sa_handler);
    return 0;
}
