/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds SQL to a live store, as clients could: libFuzzer makes the statements and parameters, and
 * after each input everything that SQL must not change is compared with what it was.
 *
 * An input is one operation of up to STATEMENTS_MAX statements, all or nothing:
 *
 *   mode  \n  statement [ \x1f type value ]...  [ \x1e statement ... ]
 *
 * The mode is made of letters: r reads, d defines (else it writes), t under the token of one
 * guarded row, k keeps what was done (else it is undone in the end). The type of a parameter is one
 * of i f t b n, as in SQL TYPES. Run by `make fuzz`. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sqlite3.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/sql.h"
#include "store/txn.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/store_file.h"

enum {
    STATEMENTS_MAX = 4,
    PARAMS_MAX = 8,
    INPUTS_PER_FILE = 1000, /* then the store begins anew */
    INPUTS_AFTER_DDL = 20,  /* it leaves things behind */
    TIME_LIMIT_MS = 50,
};

/* What SQL must leave alone. The rows of the key that there is a token for are its own. */
static const char *const watched[] = {
    "SELECT * FROM sqlite_schema WHERE lower(name) GLOB 'stockade_*' ORDER BY name",
    "SELECT * FROM stockade_meta ORDER BY key",
    "SELECT * FROM stockade_resource ORDER BY id",
    "SELECT * FROM stockade_string ORDER BY id",
    "SELECT * FROM stockade_hash ORDER BY id, field",
    "SELECT * FROM stockade_receipt ORDER BY resource, id",
    "SELECT * FROM stockade_retired ORDER BY number",
    "SELECT * FROM stockade_guard ORDER BY name",
    "SELECT type, name, sql FROM sqlite_schema WHERE name IN ('stock', 'pairs')",
    "SELECT * FROM stock WHERE sku IS NOT '1' ORDER BY sku",
    "SELECT * FROM pairs ORDER BY a, b",
    "SELECT * FROM stock WHERE sku IS '1'", /* the last one: may change under its token */
};

enum { WATCHED = sizeof watched / sizeof *watched };

static const char tables[] =
    "CREATE TABLE stock(sku TEXT PRIMARY KEY, n INT, u UNIQUE);"
    "CREATE TABLE pairs(a INT, b, PRIMARY KEY(b, a)) WITHOUT ROWID;"
    "CREATE TABLE t(a INTEGER PRIMARY KEY AUTOINCREMENT, b UNIQUE, c AS (b || 'x'));"
    "CREATE TABLE u(k REFERENCES t(a) ON DELETE CASCADE, v CHECK(v <> 'no'));"
    "CREATE INDEX u_v ON u(v) WHERE v > 0;"
    "CREATE VIEW joined AS SELECT * FROM t LEFT JOIN u ON a = k;"
    "CREATE VIEW leak AS SELECT * FROM stockade_meta;"
    "CREATE TRIGGER joined_i INSTEAD OF INSERT ON joined BEGIN"
    "  INSERT OR REPLACE INTO stock(sku, n, u) VALUES(NEW.a, NEW.b, NEW.c); END;"
    "CREATE TRIGGER u_i AFTER INSERT ON u BEGIN"
    "  UPDATE stock SET n = n - 1 WHERE sku = NEW.k; INSERT INTO t(b) VALUES(NEW.v); END;"
    "CREATE TRIGGER u_d AFTER DELETE ON u BEGIN DELETE FROM pairs WHERE a = OLD.k; END;"
    "INSERT INTO stock VALUES('1', 10, 1), ('2', 20, 2), ('3', 30, 3);"
    "INSERT INTO pairs VALUES(1, 'x'), (2, 'y');"
    "INSERT INTO t(b) VALUES('one'), (2), (x'03'), (NULL);"
    "INSERT INTO u VALUES(1, 5), (2, 'yes');";

static struct {
    struct store *store;
    sqlite3 *watch;               /* another program's view of the file */
    sqlite3_stmt *looks[WATCHED]; /* at what is watched */
    char *before[WATCHED];
    int inputs_left;
} the;

struct input {
    enum sql_right right;
    bool under_token, keep;
    size_t statements_count;
    struct {
        struct bytes text;
        struct sql_value params[PARAMS_MAX];
        size_t params_count;
    } statements[STATEMENTS_MAX];
};

static struct sql_value parse_param(struct bytes text)
{
    static const char types[] = {'n', 'i', 'f', 't', 'b'};
    struct sql_value value = {.type = SQL_TEXT, .bytes = text};
    char number[32] = "";

    for (size_t i = 0; text.len > 0 && i < sizeof types; i++)
        if (text.data[0] == types[i]) {
            value.type = (enum sql_type)i; /* in the order of the enum */
            value.bytes = (struct bytes){text.data + 1, text.len - 1};
            break;
        }
    if (value.bytes.len < sizeof number)
        memcpy(number, value.bytes.data, value.bytes.len);
    value.integer = (int64_t)strtoull(number, NULL, 10);
    value.real = strtod(number, NULL);
    return value;
}

static bool has(struct bytes mode, char letter)
{
    return mode.len > 0 && memchr(mode.data, letter, mode.len) != NULL;
}

static void parse(const uint8_t *data, size_t size, struct input *input)
{
    struct bytes rest = {(const char *)data, size};
    struct bytes mode = fuzz_cut(&rest, '\n');
    input->right = has(mode, 'r') ? SQL_MAY_READ : has(mode, 'd') ? SQL_MAY_DEFINE : SQL_MAY_WRITE;
    input->under_token = has(mode, 't');
    input->keep = has(mode, 'k');
    do {
        struct bytes one = fuzz_cut(&rest, '\x1e');
        size_t at = input->statements_count++, *count = &input->statements[at].params_count;
        input->statements[at].text = fuzz_cut(&one, '\x1f');
        while (one.len > 0 && *count < PARAMS_MAX)
            input->statements[at].params[(*count)++] = parse_param(fuzz_cut(&one, '\x1f'));
    } while (rest.len > 0 && input->statements_count < STATEMENTS_MAX);
}

static bool on_row(void *context, const struct sql_value *values, size_t count)
{
    /* Every byte that is handed out can be read. */
    volatile char *sum = context;
    for (size_t i = 0; i < count; i++)
        for (size_t at = 0; at < values[i].bytes.len; at += 1 + at / 2)
            *sum = (char)(*sum + values[i].bytes.data[at]);
    return true;
}

static void on_columns(void *context, const char *const *names, size_t count)
{
    volatile char *sum = context;
    for (size_t i = 0; i < count; i++)
        *sum = (char)(*sum + (char)strlen(names[i]));
}

/* As the engine does it: in a savepoint, and undone where a statement fails. */
static enum stk_error run_input(struct input *input, struct store_txn *txn)
{
    static const struct claim claim = {.resource = {"sku:1", 5}, .token = 1};
    bool writes = input->right != SQL_MAY_READ;
    enum stk_error error = STK_OK;
    char sum = 0;

    if (input->under_token)
        txn_present(txn, &claim, 1);
    if (writes)
        check(txn_savepoint(txn) == STK_OK);
    for (size_t i = 0; i < input->statements_count && error == STK_OK; i++) {
        struct sql_call call = {.statement = input->statements[i].text,
                                .params = input->statements[i].params,
                                .params_count = input->statements[i].params_count,
                                .right = input->right,
                                .time_limit_ms = TIME_LIMIT_MS,
                                .columns = on_columns,
                                .row = on_row,
                                .context = &sum};
        error = txn_sql(txn, &call);
        check(error == STK_OK || error == STK_STORE || call.why[0] != '\0');
        if (getenv("SHOW") != NULL)
            fprintf(stderr, "%.*s\n  -> %d %s\n", (int)call.statement.len, call.statement.data,
                    error, call.why);
    }
    if (error == STK_STORE || !writes)
        return error;
    return error == STK_OK && input->keep ? txn_savepoint_keep(txn) : txn_savepoint_undo(txn);
}

/* Operations. */

struct op {
    struct store_op base;
    struct input *input; /* NULL: furnish */
    bool done;
};

static enum stk_error furnish(struct store_txn *txn)
{
    static const char *const guarded[][3] = {{"stock", "sku", "sku:"}, {"pairs", "a", "pair:"}};
    char why[SQL_WHY_MAX];
    struct resource resource;

    for (int i = 1; i <= 3; i++) {
        char name[8];
        snprintf(name, sizeof name, "sku:%d", i);
        struct lease lease = {.owner = bytes_of("owner"), .holds = 1, .ttl_ms = 1000, .opening = 1};
        check(txn_resource(txn, bytes_of(name), &resource) == STK_OK);
        check(txn_resource_make(txn, bytes_of(name), &resource) == STK_OK);
        resource.fence.token = 1;
        resource.fence.state = FENCE_LIVE;
        check(txn_fence_put(txn, &resource, &lease) == STK_OK);
        struct receipt receipt = {.token = 1, .reply = bytes_of("+OK\r\n")};
        check(txn_receipt_put(txn, &resource, bytes_of("id"), &receipt) == STK_OK);
        if (i == 1)
            check(txn_string_put(txn, &resource, bytes_of("value")) == STK_OK);
        else
            check(txn_field_put(txn, &resource, bytes_of("f"), bytes_of("value")) == STK_OK);
    }
    for (int i = 0; i < 2; i++)
        check(txn_guard_create(txn,
                               &(struct table_guard){.table = bytes_of(guarded[i][0]),
                                                     .column = bytes_of(guarded[i][1]),
                                                     .prefix = bytes_of(guarded[i][2])},
                               why) == STK_OK);
    return STK_OK;
}

static enum stk_error op_run(struct store_op *base, struct store_txn *txn)
{
    struct op *op = (struct op *)base;
    return op->input != NULL ? run_input(op->input, txn) : furnish(txn);
}

static void op_done(struct store_op *base)
{
    ((struct op *)base)->done = true;
}

static enum stk_error perform(struct input *input)
{
    struct op op = {
        .base = {.writes = input == NULL || input->right != SQL_MAY_READ,
                 .run = op_run,
                 .done = op_done},
        .input = input,
    };

    store_perform(the.store, &op.base);
    check(op.done && !store_lost(the.store));
    return op.base.error;
}

/* The file. */

static void end_file(void)
{
    if (the.store == NULL)
        return;
    for (size_t i = 0; i < WATCHED; i++) {
        sqlite3_finalize(the.looks[i]);
        free(the.before[i]);
    }
    sqlite3_close(the.watch);
    store_file_close();
    memset(&the, 0, sizeof the);
}

static sqlite3_stmt *prepare(const char *query)
{
    sqlite3_stmt *stmt;
    check(sqlite3_prepare_v2(the.watch, query, -1, &stmt, NULL) == SQLITE_OK);
    return stmt;
}

/* All rows as one text, owned by the caller. */
static char *look(sqlite3_stmt *stmt)
{
    sqlite3_str *text = sqlite3_str_new(NULL);

    while (sqlite3_step(stmt) == SQLITE_ROW)
        for (int i = 0; i < sqlite3_column_count(stmt); i++) {
            const char *value = (const char *)sqlite3_column_text(stmt, i);
            sqlite3_str_appendf(text, "%d %Q|", sqlite3_column_type(stmt, i), value);
        }
    check(sqlite3_reset(stmt) == SQLITE_OK);
    char *copy = mem_strdup(sqlite3_str_length(text) > 0 ? sqlite3_str_value(text) : "");
    sqlite3_free(sqlite3_str_finish(text));
    return copy;
}

static void begin_file(void)
{
    the.store = store_file_open((struct store_options){.queue_ops_max = 4, .batch_ops_max = 4});
    check(sqlite3_open(store_file_path(), &the.watch) == SQLITE_OK);
    check(sqlite3_exec(the.watch, tables, NULL, NULL, NULL) == SQLITE_OK);
    check(perform(NULL) == STK_OK);
    for (size_t i = 0; i < WATCHED; i++) {
        the.looks[i] = prepare(watched[i]);
        the.before[i] = look(the.looks[i]);
    }
}

/* Nothing has changed, but for the row under the token. */
static void compare(bool under_token)
{
    for (size_t i = 0; i < WATCHED; i++) {
        char *now = look(the.looks[i]);
        if (strcmp(now, the.before[i]) == 0) {
            free(now);
            continue;
        }
        if (!under_token || i != WATCHED - 1)
            fuzz_wrong("SQL has changed %s\nfrom %s\nto   %s", watched[i], the.before[i], now);
        free(the.before[i]);
        the.before[i] = now;
    }
}

static void check_integrity(void)
{
    sqlite3_stmt *stmt = prepare("PRAGMA integrity_check");
    char *found = look(stmt);
    sqlite3_finalize(stmt);
    if (strcmp(found, "3 'ok'|") != 0)
        fuzz_wrong("the file is damaged: %s", found);
    free(found);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    atexit(end_file);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {.right = SQL_MAY_READ};

    if (the.inputs_left-- <= 0) {
        if (the.store != NULL)
            check_integrity();
        end_file();
        begin_file();
        the.inputs_left = INPUTS_PER_FILE;
    }
    parse(data, size, &input);
    if (input.right == SQL_MAY_DEFINE && input.keep && the.inputs_left > INPUTS_AFTER_DDL)
        the.inputs_left = INPUTS_AFTER_DDL;
    enum stk_error error = perform(&input);
    if (error == STK_STORE) /* the disk is well: whose fault is it? */
        fuzz_wrong("the store failed");
    compare(input.under_token);
    return 0;
}
